//! The parameter values of a build, by the rule in `domain::parameter`.

use std::collections::BTreeMap;

use coder_domain::build::Transition;
use coder_domain::ids::{PresetId, TemplateVersionId};
use coder_domain::parameter::{self, Definition, Sources};
use coder_store::Tx;
use coder_store::templates::version_details::{self as details, Parameter, Preset};

use super::source::TemplateSource;
use crate::http::{Error, Result};

/// The given values.
#[derive(Default)]
pub struct GivenParameters<'a> {
    /// What the build does.
    pub transition: Option<Transition>,
    /// The chosen preset.
    pub preset: Option<PresetId>,
    /// The values in the request.
    pub request: BTreeMap<&'a str, &'a str>,
    /// The values of the last build; `None` for the first build.
    pub last: Option<&'a BTreeMap<String, String>>,
}

/// The value of each parameter of a version, or 400 with all errors.
pub async fn resolve(
    tx: &mut Tx,
    version: TemplateVersionId,
    source: Option<&TemplateSource>,
    given: &GivenParameters<'_>,
) -> Result<BTreeMap<String, String>> {
    let definitions = details::list_parameters(tx, version).await?;
    resolve_with(tx, version, definitions, source, given).await
}

/// As [`resolve`], when the definitions have been read.
pub async fn resolve_with(
    tx: &mut Tx,
    version: TemplateVersionId,
    definitions: Vec<Parameter>,
    source: Option<&TemplateSource>,
    given: &GivenParameters<'_>,
) -> Result<BTreeMap<String, String>> {
    let mut definitions: Vec<_> = definitions.into_iter().map(definition).collect();
    let preset = match given.preset {
        Some(id) => Some(find_preset(tx, version, id).await?),
        None => None,
    };
    let preset = preset.map(|preset| preset.parameters).unwrap_or_default();
    let sources = Sources {
        // A preset may name parameters that the version does not have. They are ignored.
        preset: preset.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
        request: given.request.clone(),
        last: given
            .last
            .map(|last| last.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()),
    };
    if let Some(source) = source {
        let known = known(&definitions, &sources);
        definitions = source.definitions(definitions, known).await?;
    }
    let transition = given.transition.unwrap_or(Transition::Start);
    match parameter::resolve(&definitions, transition, &sources) {
        Ok(values) => Ok(values.into_iter().collect()),
        Err(mut invalid) => {
            // The official server sorts them by name.
            invalid.sort_by(|one, other| one.field.cmp(&other.field));
            let error = Error::bad_request("Unable to validate parameters");
            Err(invalid.into_iter().fold(error, |error, wrong| error.field(&wrong.field, wrong.detail)))
        }
    }
}

/// The preset of a build that names none: the one with the most parameters among those whose values all match. So an update of
/// a workspace keeps its preset as long as the values match.
pub async fn matching_preset(
    tx: &mut Tx,
    version: TemplateVersionId,
    values: &BTreeMap<String, String>,
) -> Result<Option<PresetId>> {
    // Presets without parameters do not count, so without values there is no match.
    if values.is_empty() {
        return Ok(None);
    }
    let presets = details::list_presets(tx, version).await?;
    let fits =
        |preset: &Preset| preset.parameters.iter().all(|(name, value)| values.get(name) == Some(value));
    let fitting = presets.into_iter().filter(fits);
    Ok(fitting.min_by_key(|preset| std::cmp::Reverse(preset.parameters.len())).map(|preset| preset.id))
}

/// The given values, before defaults apply.
fn known(definitions: &[Definition], sources: &Sources<'_>) -> BTreeMap<String, String> {
    let is_ephemeral = |name: &str| definitions.iter().any(|one| one.ephemeral && one.name == name);
    let last = sources.last.iter().flatten().filter(|(name, _)| !is_ephemeral(name));
    let weakest_first = last.chain(&sources.request).chain(&sources.preset);
    weakest_first.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

async fn find_preset(tx: &mut Tx, version: TemplateVersionId, id: PresetId) -> Result<Preset> {
    let presets = details::list_presets(tx, version).await?;
    presets.into_iter().find(|preset| preset.id == id).ok_or_else(|| {
        Error::invalid("template_version_preset_id", "The preset does not belong to this template version.")
    })
}

fn definition(row: Parameter) -> Definition {
    Definition {
        name: row.name,
        kind: row.kind,
        mutable: row.mutable,
        default_value: row.default_value,
        required: row.required,
        ephemeral: row.ephemeral,
        options: row.options.into_iter().map(|option| option.value).collect(),
        validation_regex: row.validation_regex,
        validation_error: row.validation_error,
        validation_min: row.validation_min,
        validation_max: row.validation_max,
        validation_monotonic: row.validation_monotonic,
    }
}

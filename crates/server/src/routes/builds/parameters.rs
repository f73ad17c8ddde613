//! The parameter values of a build, by the rule in `domain::parameter`.

use std::collections::BTreeMap;

use coder_domain::build::Transition;
use coder_domain::ids::{PresetId, TemplateVersionId, UserId};
use coder_domain::parameter::{self, Definition, Sources};
use coder_store::Tx;
use coder_store::templates::version_details::{self as details, Parameter, Preset};
use coder_wire::budget::Reservation;

use super::source::{TemplateSource, UnparsedSource};
use crate::context::App;
use crate::http::{Error, Result};

/// The given values.
#[derive(Default)]
pub struct GivenParameters {
    /// What the build does.
    pub transition: Option<Transition>,
    /// The chosen preset.
    pub preset: Option<PresetId>,
    /// The values in the request.
    pub request: BTreeMap<String, String>,
    /// The values of the last build; `None` for the first build.
    pub last: Option<BTreeMap<String, String>>,
}

/// The values of a build, with the source that they were resolved with.
pub struct ResolvedParameters {
    pub values: BTreeMap<String, String>,
    pub source: Option<TemplateSource>,
    /// For evaluating more of the source.
    _place: Option<Reservation>,
}

/// The parameters and presets of a version.
pub struct VersionParameters {
    definitions: Vec<Definition>,
    presets: Vec<Preset>,
}

impl VersionParameters {
    /// Reads both.
    pub async fn find(tx: &mut Tx, version: TemplateVersionId, given: &GivenParameters) -> Result<Self> {
        let definitions = details::list_parameters(tx, version).await?;
        Self::with(tx, version, definitions, true, given).await
    }

    /// As [`Self::find`], when the definitions have been read, and it is known whether there may be presets.
    pub async fn with(
        tx: &mut Tx,
        version: TemplateVersionId,
        definitions: Vec<Parameter>,
        may_have_presets: bool,
        given: &GivenParameters,
    ) -> Result<Self> {
        // A preset sets parameters, and without any of both none is chosen or matches.
        let presets = match may_have_presets && (given.preset.is_some() || !definitions.is_empty()) {
            true => details::list_presets(tx, version).await?,
            false => Vec::new(),
        };
        Ok(Self { definitions: definitions.into_iter().map(definition).collect(), presets })
    }

    /// The value of each parameter, or 400 with all errors. Call it without a database connection.
    pub async fn resolve(
        &self,
        app: &App,
        user: UserId,
        source: Option<UnparsedSource>,
        given: GivenParameters,
    ) -> Result<ResolvedParameters> {
        let place = match source.is_some() || self.has_patterns() {
            true => Some(app.memory.work_place(user).await?),
            false => None,
        };
        let source = match source {
            Some(source) => source.parse(&app.store).await?,
            None => None,
        };
        let values = self.values(source.as_ref(), given).await?;
        Ok(ResolvedParameters { values, source, _place: place })
    }

    fn has_patterns(&self) -> bool {
        self.definitions.iter().any(|one| !one.validation_regex.is_empty())
    }

    async fn values(
        &self,
        source: Option<&TemplateSource>,
        given: GivenParameters,
    ) -> Result<BTreeMap<String, String>> {
        let GivenParameters { transition, preset, request, last } = given;
        let preset = match preset {
            Some(id) => self.preset(id)?.parameters.clone(),
            None => BTreeMap::new(),
        };
        let mut definitions = self.definitions.clone();
        if let Some(source) = source {
            let known = known(&definitions, &preset, &request, last.as_ref());
            definitions = source.definitions(definitions, known).await?;
        }
        let check = move || {
            fn texts(values: &BTreeMap<String, String>) -> BTreeMap<&str, &str> {
                values.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
            }
            // A preset may name parameters that the version does not have. They are ignored.
            let sources =
                Sources { preset: texts(&preset), request: texts(&request), last: last.as_ref().map(texts) };
            parameter::resolve(&definitions, transition.unwrap_or(Transition::Start), &sources)
        };
        // Patterns are compiled.
        let checked = match self.has_patterns() {
            true => {
                tokio::task::spawn_blocking(check).await.map_err(|e| Error::internal("Internal error.", e))?
            }
            false => check(),
        };
        checked.map(|values| values.into_iter().collect()).map_err(|mut invalid| {
            // The official server sorts them by name.
            invalid.sort_by(|one, other| one.field.cmp(&other.field));
            let error = Error::bad_request("Unable to validate parameters");
            invalid.into_iter().fold(error, |error, wrong| error.field(&wrong.field, wrong.detail))
        })
    }

    fn preset(&self, id: PresetId) -> Result<&Preset> {
        self.presets.iter().find(|preset| preset.id == id).ok_or_else(|| {
            Error::invalid(
                "template_version_preset_id",
                "The preset does not belong to this template version.",
            )
        })
    }

    /// The preset of a build that names none: the one with the most parameters among those whose values all match. So an update of
    /// a workspace keeps its preset as long as the values match.
    pub fn matching_preset(&self, values: &BTreeMap<String, String>) -> Option<PresetId> {
        // Presets without parameters do not count, so without values there is no match.
        if values.is_empty() {
            return None;
        }
        let fits =
            |preset: &&Preset| preset.parameters.iter().all(|(name, value)| values.get(name) == Some(value));
        let fitting = self.presets.iter().filter(fits);
        fitting.min_by_key(|preset| std::cmp::Reverse(preset.parameters.len())).map(|preset| preset.id)
    }
}

/// The given values, before defaults apply.
fn known(
    definitions: &[Definition],
    preset: &BTreeMap<String, String>,
    request: &BTreeMap<String, String>,
    last: Option<&BTreeMap<String, String>>,
) -> BTreeMap<String, String> {
    let is_ephemeral = |name: &str| definitions.iter().any(|one| one.ephemeral && one.name == name);
    let last = last.into_iter().flatten().filter(|(name, _)| !is_ephemeral(name));
    let weakest_first = last.chain(request).chain(preset);
    weakest_first.map(|(name, value)| (name.clone(), value.clone())).collect()
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

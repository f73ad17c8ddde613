//! The tags of an import: those in the uploaded source, overridden by those of the request (scheduling-and-auth TAG-11 to
//! TAG-16).

use std::collections::BTreeMap;
use std::sync::Arc;

use coder_api::json::NameValue;
use coder_domain::Timestamp;
use coder_domain::ids::UserId;
use coder_domain::tags::{self, TagSet};
use coder_source::{Flow, Inputs, Owner, ReadError, TagError, Template};
use coder_store::templates::Template as Row;
use coder_store::templates::version_details as details;
use coder_store::{Store, Tx, files};

use crate::http::{Error, Result};
use crate::stored_file;

/// Most invalid tags that an error names.
const MOST_NAMED: usize = 100;
/// Longest part of a tag's key in an error, in characters.
const LONGEST_NAMED: usize = 256;

/// The evaluated tags of a source.
pub struct Evaluated {
    /// The tags, or the error of each tag without a value.
    pub tags: std::result::Result<BTreeMap<String, String>, Vec<TagError>>,
    /// Files that are not valid configuration.
    pub broken: Vec<String>,
}

/// Reads a stored source on a blocking thread, part by part. A parsed source may take many times its length, so the caller has a place
/// of [`crate::memory::Memory::work_place`], and no connection.
pub async fn read(store: &Store, file: &files::FileInfo) -> Result<Template> {
    let mimetype = file.mimetype.clone();
    let work = move |archive| Template::read_from(archive, &mimetype);
    stored_file::read(store, file, work).await?.map_err(|error| match error {
        ReadError::MediaType(_) => Error::bad_request("Unsupported file type.").field("file_id", error),
        error => refused().field("file_id", error),
    })
}

/// Evaluates a source on a blocking thread. The caller has a place as for [`read`].
pub async fn evaluate(template: Arc<Template>, inputs: Inputs) -> Result<Evaluated> {
    let work = move || Evaluated {
        tags: template.workspace_tags(&inputs),
        broken: template.invalid_files().to_vec(),
    };
    tokio::task::spawn_blocking(work).await.map_err(|e| Error::internal("Internal error.", e))
}

/// The flow of a template's parameters; a new template has the dynamic one.
pub fn flow(template: Option<&Row>) -> Flow {
    match template {
        Some(template) if template.settings.use_classic_parameter_flow => Flow::Classic,
        _ => Flow::Dynamic,
    }
}

/// The values of an import's variables: the given ones, and those of the active version.
pub async fn variables(
    tx: &mut Tx,
    template: Option<&Row>,
    given: &[NameValue],
) -> Result<BTreeMap<String, String>> {
    let mut values = BTreeMap::new();
    if let Some(template) = template {
        values = stored_variables(tx, template.active_version_id).await?;
    }
    values.extend(given.iter().map(|pair| (pair.name.clone(), pair.value.clone())));
    Ok(values)
}

/// The values of the variables of an imported version. An empty value means none.
pub async fn stored_variables(
    tx: &mut Tx,
    version: coder_domain::ids::TemplateVersionId,
) -> Result<BTreeMap<String, String>> {
    let rows = details::list_variables(tx, version).await?;
    let values = rows.into_iter().map(|row| (row.name, row.value.expose().to_owned()));
    Ok(values.filter(|(_, value)| !value.is_empty()).collect())
}

/// The tags of an import. Tags that the request sets need no value in the source (TAG-14). An invalid source has no tags; its
/// job reports the error.
pub async fn for_import(
    source: Template,
    flow: Flow,
    variables: BTreeMap<String, String>,
    (requester, owner): (UserId, Owner),
    request: &BTreeMap<String, String>,
    now: Timestamp,
) -> Result<TagSet> {
    let overridden = request.keys().filter(|key| !tags::needs_source(key, request)).cloned().collect();
    let inputs = Inputs { flow, variables, parameters: BTreeMap::new(), overridden, owner: Some(owner), now };
    let found = evaluate(Arc::new(source), inputs).await?;
    let asked = match found.tags {
        Ok(tags) => tags,
        Err(_) if !found.broken.is_empty() => BTreeMap::new(),
        Err(errors) => return Err(wrong(&errors)),
    };
    let all = tags::for_import(requester, &asked, request);
    tags::validate(all.as_map()).map_err(|e| Error::invalid("tags", e))?;
    Ok(all)
}

fn refused() -> Error {
    Error::bad_request("Unable to parse workspace tags.")
}

/// 400 with the error of each tag.
pub fn wrong(errors: &[TagError]) -> Error {
    let name = |error: &TagError| error.tag.chars().take(LONGEST_NAMED).collect::<String>();
    errors.iter().take(MOST_NAMED).fold(refused(), |answer, error| answer.field(&name(error), error))
}

//! The tags of a build's job: those of the import, overridden by the template's workspace tags with the build's parameter
//! values (scheduling-and-auth TAG-17 to TAG-20).

use std::collections::BTreeMap;

use coder_domain::ids::UserId;
use coder_domain::tags::{self, TagSet};
use coder_store::jobs::Job;

use super::source::TemplateSource;
use crate::http::{Error, Result};
use crate::routes::versions::tags as import;

/// Computes the tags of a build; without a source it has no workspace tags.
pub async fn resolve(
    source: Option<&TemplateSource>,
    imported: &Job,
    owner: UserId,
    parameters: &BTreeMap<String, String>,
) -> Result<TagSet> {
    let Some(source) = source else {
        return Ok(tags::for_build(owner, &imported.tags, &BTreeMap::new()));
    };
    let found = import::evaluate(source.template().clone(), source.with(parameters.clone())).await?;
    let asked = found.tags.map_err(|errors| import::wrong(&errors))?;
    if !found.broken.is_empty() {
        // Terraform could read the file and this parser could not. Its tags must not be dropped silently.
        if source.imported_tags > asked.len() {
            let answer = Error::bad_request("Unable to parse workspace tags.");
            return Err(found.broken.iter().fold(answer, |answer, file| answer.field("tags", file)));
        }
    }
    let all = tags::for_build(owner, &imported.tags, &asked);
    tags::validate(all.as_map()).map_err(|e| Error::invalid("tags", e))?;
    Ok(all)
}

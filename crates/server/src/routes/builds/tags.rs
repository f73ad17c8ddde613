//! The tags of a build's job: those of the import, and over them the template's workspace tags evaluated with the
//! build's values (scheduling-and-auth TAG-17 to TAG-20).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use coder_domain::Timestamp;
use coder_domain::ids::{FileId, UserId};
use coder_domain::tags::{self, TagSet};
use coder_source::Inputs;
use coder_store::jobs::Job;
use coder_store::templates::Template;
use coder_store::versions::Version;
use coder_store::{Tx, files, version_details as details};

use crate::http::{Error, Result};
use crate::routes::versions::tags as source;

/// Computes the tags of a build.
pub async fn resolve(
    tx: &mut Tx,
    template: &Template,
    version: &Version,
    import: &Job,
    owner: UserId,
    parameters: &BTreeMap<String, String>,
    now: Timestamp,
) -> Result<TagSet> {
    let file = import.file_id;
    if is_plain(file) {
        return Ok(tags::for_build(owner, &import.tags, &BTreeMap::new()));
    }
    let Some(info) = files::find(tx, file).await? else {
        return Err(Error::bad_request("The source of the template version is missing; push it again."));
    };
    let archive = source::Archive { data: files::get_data(tx, file).await?, mimetype: info.mimetype };
    let inputs = Inputs {
        flow: source::flow(Some(template)),
        variables: source::stored_variables(tx, version.id).await?,
        parameters: parameters.clone(),
        overridden: BTreeSet::new(),
        now,
    };
    let found = source::evaluate(archive, inputs).await?;
    if !found.any && found.broken.is_empty() {
        remember_plain(file);
    }
    let asked = found.tags.map_err(|errors| source::wrong(&errors))?;
    if !found.broken.is_empty() {
        // Terraform read what this could not. No tag of such a file may be dropped silently.
        let reported = details::list_workspace_tags(tx, version.id).await?;
        if reported.len() > asked.len() {
            let answer = Error::bad_request("Unable to parse workspace tags.");
            return Err(found.broken.iter().fold(answer, |answer, file| answer.field("tags", file)));
        }
    }
    let all = tags::for_build(owner, &import.tags, &asked);
    tags::validate(all.as_map()).map_err(|e| Error::invalid("tags", e))?;
    Ok(all)
}

/// Sources known to have no workspace tags. A file's content never changes, so most builds need not read it again.
static PLAIN: Mutex<BTreeSet<FileId>> = Mutex::new(BTreeSet::new());
/// How many are remembered before all are forgotten.
const MOST_PLAIN: usize = 10_000;

fn is_plain(file: FileId) -> bool {
    PLAIN.lock().unwrap_or_else(PoisonError::into_inner).contains(&file)
}

fn remember_plain(file: FileId) {
    let mut plain = PLAIN.lock().unwrap_or_else(PoisonError::into_inner);
    if plain.len() >= MOST_PLAIN {
        plain.clear();
    }
    plain.insert(file);
}

//! Which files a caller may read: the same rule for downloads and for template versions.

use coder_domain::ids::FileId;
use coder_domain::rbac::{Action, Object, Resource};
use coder_store::{Tx, files};

use crate::http::{Caller, Result};
use crate::provisioning::reports::module_files::SYSTEM;

/// The file, if the caller may read it: as its uploader, or through an organization whose jobs use it.
pub async fn readable(tx: &mut Tx, caller: &Caller, id: FileId) -> Result<Option<files::FileInfo>> {
    let Some(file) = files::find(tx, id).await? else { return Ok(None) };
    if caller.may(Action::Read, Object::site(Resource::File).owned_by(file.created_by)) {
        return Ok(Some(file));
    }
    let organizations = files::list_organizations(tx, file.id).await?;
    let may_read = |id| caller.may(Action::Read, Object::in_organization(Resource::File, id));
    Ok(organizations.into_iter().any(may_read).then_some(file))
}

/// The file, if the caller may make a template version from it. A reference makes the file readable in the version's
/// organization, so it needs the rights of a download. Nobody may use files of the system.
pub async fn usable(tx: &mut Tx, caller: &Caller, id: FileId) -> Result<Option<files::FileInfo>> {
    Ok(readable(tx, caller, id).await?.filter(|file| file.created_by != SYSTEM))
}

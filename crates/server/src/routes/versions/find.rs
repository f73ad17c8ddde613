//! Loads versions, and checks access.

use coder_domain::ids::TemplateVersionId;
use coder_domain::rbac::Action;
use coder_store::templates::versions::{self, Version};
use coder_store::{Tx, templates as rows};

use crate::http::{Caller, Error, Result};
use crate::routes::templates;

/// 404 unless the caller may read the version, then 403 unless the action is allowed. A version of a template has the rights of
/// the template. One without a template needs the right to manage templates.
pub async fn require(tx: &mut Tx, caller: &Caller, version: &Version, action: Action) -> Result<()> {
    let Some(id) = version.template_id else {
        return templates::find::require_by_role(caller, action, version.organization_id);
    };
    let mut template = rows::find(tx, id).await?.ok_or_else(Error::not_found)?;
    // Workspaces of a deleted template still have builds, whose version can be read.
    template.deleted = false;
    templates::find::require(caller, action, &template)
}

/// A version that a request names, if the caller may read it.
pub async fn readable(tx: &mut Tx, caller: &Caller, id: TemplateVersionId) -> Result<Option<Version>> {
    match by_id(tx, caller, id, Action::Read).await {
        Ok(version) => Ok(Some(version)),
        Err(error) if error.status() == http::StatusCode::NOT_FOUND => Ok(None),
        Err(error) => Err(error),
    }
}

/// A version by id for this action.
pub async fn by_id(tx: &mut Tx, caller: &Caller, id: TemplateVersionId, action: Action) -> Result<Version> {
    let version = versions::find(tx, id).await?.ok_or_else(Error::not_found)?;
    require(tx, caller, &version, action).await?;
    Ok(version)
}

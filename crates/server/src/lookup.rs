//! Finding what a path names, before anything is known about the caller.

use coder_api::paths::DEFAULT_ORGANIZATION;
use coder_domain::ids::OrganizationId;
use coder_store::Tx;
use coder_store::organizations::{self, Organization};

use crate::context::App;
use crate::http::error::{Error, Result};

/// Finds the organization a path names: an id, a name, `default` or the zero id (http-api 1.2). No rights are checked;
/// the daemon endpoint needs that.
pub async fn organization(app: &App, tx: &mut Tx, name: &str) -> Result<Organization> {
    let found = match name.parse::<OrganizationId>() {
        Ok(id) if !id.is_nil() => organizations::find(tx, id).await?,
        Ok(_) => organizations::find(tx, app.default_organization).await?,
        Err(_) if name.eq_ignore_ascii_case(DEFAULT_ORGANIZATION) => {
            organizations::find(tx, app.default_organization).await?
        }
        Err(_) => organizations::find_by_name(tx, name).await?,
    };
    found.ok_or_else(Error::not_found)
}

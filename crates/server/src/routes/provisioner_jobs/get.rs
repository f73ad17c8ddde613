//! One job.

use axum::extract::State;
use coder_api::jobs::ProvisionerJob;
use coder_domain::ids::JobId;
use coder_domain::rbac::Action;
use coder_store::jobs::list::JobFilter;

use super::view::{load, object};
use crate::context::App;
use crate::http::params::{Names, id};
use crate::http::{Caller, Error, Json, Result};
use crate::routes::organizations;

/// `GET /organizations/{organization}/provisionerjobs/{job}`
pub async fn get(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<ProvisionerJob>> {
    let [organization, job] = names.take()?;
    let job: JobId = id(&job)?;
    let mut tx = app.store.reader().await?;
    let organization = organizations::named(&app, &mut tx, &caller, &organization).await?;
    caller.require_visible(Action::Read, object(organization.id))?;
    let filter =
        JobFilter { organization_id: Some(organization.id), ids: Some(vec![job]), ..JobFilter::default() };
    load(&mut tx, organization.id, &filter, 1).await?.pop().map(Json).ok_or_else(Error::not_found)
}

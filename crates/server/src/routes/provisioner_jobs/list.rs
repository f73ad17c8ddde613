//! The jobs of an organization.

use axum::extract::State;
use coder_api::jobs::ProvisionerJob;
use coder_domain::ids::JobId;
use coder_domain::job::Status;
use coder_domain::rbac::Action;
use coder_store::jobs::list::JobFilter;

use super::view::{load, object};
use crate::context::App;
use crate::http::params::{Names, Query};
use crate::http::{Caller, Json, Result};
use crate::routes::organizations;
use crate::routes::provisioner_daemons::filters::{limit, tags, words};

/// `GET /organizations/{organization}/provisionerjobs`: newest first; unknown parameters are refused.
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    query: Query,
) -> Result<Json<Vec<ProvisionerJob>>> {
    let [organization] = names.take()?;
    query.only(&["limit", "status", "ids", "tags", "initiator"])?;
    let limit = i64::try_from(limit(&query)?).unwrap_or(i64::MAX);
    let status: Option<Vec<Status>> = words(&query, "status", |word| word.parse().ok())?;
    let ids: Option<Vec<JobId>> = words(&query, "ids", |word| word.parse().ok())?;
    let initiator_id = query.read("initiator")?;
    let tags = tags(&query)?;

    let mut tx = app.store.reader().await?;
    let organization = organizations::named(&app, &mut tx, &caller, &organization).await?;
    caller.require_visible(Action::Read, object(organization.id))?;
    let tag_sets = match tags {
        None => None,
        // The job's tags must contain the filter (TAG-10).
        Some(tags) => Some(app.scheduler.tag_sets().that_satisfy(&mut tx, &tags).await?),
    };
    let filter = JobFilter { organization_id: Some(organization.id), status, ids, tag_sets, initiator_id };
    Ok(Json(load(&mut tx, organization.id, &filter, limit).await?))
}

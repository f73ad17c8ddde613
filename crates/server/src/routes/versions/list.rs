//! The versions of a template, oldest first.

use axum::extract::State;
use coder_api::versions::TemplateVersion;
use coder_domain::ids::{TemplateId, TemplateVersionId};
use coder_domain::rbac::Action;
use coder_store::templates::versions;

use super::view;
use crate::context::App;
use crate::http::params::{Id, Query};
use crate::http::{Caller, Error, Json, Result};
use crate::routes::templates;

/// `GET /templates/{template}/versions`
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TemplateId>,
    query: Query,
) -> Result<Json<Vec<TemplateVersion>>> {
    let page = query.page()?;
    let include_archived = query.flag("include_archived")?;
    let mut tx = app.store.reader().await?;
    let template = templates::find::by_id(&mut tx, &caller, id, Action::Read).await?;
    let after = page.after.map(TemplateVersionId);
    if let Some(after) = after
        && versions::find(&mut tx, after).await?.is_none_or(|found| found.template_id != Some(template.id))
    {
        return Err(Error::bad_request(format!("Record at \"after_id\" ({after}) does not exists.")));
    }
    let page = versions::VersionPage { include_archived, after, limit: page.limit, offset: page.offset };
    let rows = versions::list(&mut tx, template.id, page).await?;
    Ok(Json(view::load(&app, &mut tx, rows).await?))
}

//! Listing and searching templates.

use axum::extract::State;
use coder_api::templates::Template;
use coder_domain::ids::OrganizationId;
use coder_domain::rbac::Action;
use coder_store::{Tx, templates, users};

use super::{find, view};
use crate::context::App;
use crate::http::params::{Names, Query};
use crate::http::search::Search;
use crate::http::{Caller, Json, Result};
use crate::routes::organizations;

const KEYS: &[&str] = &[
    "organization",
    "exact_name",
    "exact_display_name",
    "name",
    "display_name",
    "ids",
    "deprecated",
    "deleted",
    "author",
    "author_id",
    "has-ai-task",
    "has_external_agent",
];

/// `GET /templates`
pub async fn list(State(app): State<App>, caller: Caller, query: Query) -> Result<Json<Vec<Template>>> {
    Ok(Json(search(&app, &caller, &query, None).await?))
}

/// `GET /organizations/{organization}/templates`
pub async fn in_organization(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    query: Query,
) -> Result<Json<Vec<Template>>> {
    let [name] = names.take()?;
    let organization = organizations::named(&app, &mut app.store.reader().await?, &caller, &name).await?;
    Ok(Json(search(&app, &caller, &query, Some(organization.id)).await?))
}

async fn search(
    app: &App,
    caller: &Caller,
    query: &Query,
    organization: Option<OrganizationId>,
) -> Result<Vec<Template>> {
    let search = Search::parse(query.text("q"), "display_name", KEYS)?;
    let mut tx = app.store.reader().await?;
    let Some(filter) = filter(app, &mut tx, caller, &search, organization).await? else {
        return Ok(Vec::new());
    };
    let mut rows = templates::list(&mut tx, &filter).await?;
    rows.retain(|row| find::may(caller, Action::Read, row));
    view::load(&mut tx, rows).await
}

/// The conditions of a search; `None` when nothing can match.
async fn filter(
    app: &App,
    tx: &mut Tx,
    caller: &Caller,
    search: &Search,
    organization: Option<OrganizationId>,
) -> Result<Option<templates::TemplateFilter>> {
    // Deleted templates are not listed, and there are no tasks and external agents yet.
    let flags =
        [search.read::<bool>("deleted")?, search.read("has-ai-task")?, search.read("has_external_agent")?];
    if flags.contains(&Some(true)) {
        return Ok(None);
    }
    let mut wanted = organization;
    if let Some(name) = search.get("organization") {
        match organizations::named(app, tx, caller, name).await {
            Ok(found) if organization.is_none_or(|id| id == found.id) => wanted = Some(found.id),
            Ok(_) => return Ok(None),
            Err(error) if error.status() == http::StatusCode::NOT_FOUND => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let mut created_by = search.read("author_id")?;
    if let Some(author) = search.get("author") {
        let found = match author {
            "me" => Some(caller.user.id),
            name => users::find_by_username(tx, name).await?.map(|user| user.id),
        };
        match found {
            Some(id) if created_by.is_none_or(|wanted| wanted == id) => created_by = Some(id),
            _ => return Ok(None),
        }
    }
    let text = |key| search.get(key).map(str::to_owned);
    Ok(Some(templates::TemplateFilter {
        organization_ids: wanted.map(|id| vec![id]),
        exact_name: text("exact_name"),
        name: text("name"),
        exact_display_name: text("exact_display_name"),
        display_name: text("display_name"),
        ids: search.words("ids")?,
        deprecated: Some(search.read("deprecated")?.unwrap_or(false)),
        created_by,
    }))
}

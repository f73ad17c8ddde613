//! Reading the audit log.

use std::collections::HashMap;

use axum::extract::State;
use coder_api::audit::{AuditLog, AuditLogResponse};
use coder_api::organizations::MinimalOrganization;
use coder_domain::Timestamp;
use coder_domain::ids::OrganizationId;
use coder_domain::rbac::{Action, Object, Resource};
use coder_store::{Tx, audit, organizations, users};
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::users as accounts;
use crate::context::App;
use crate::http::params::Query;
use crate::http::search::Search;
use crate::http::{Caller, Error, Json, Result};

const KEYS: &[&str] = &[
    "resource_type",
    "resource_id",
    "resource_target",
    "action",
    "username",
    "organization",
    "date_from",
    "date_to",
    "build_reason",
    "request_id",
];
/// Default and largest number of entries.
const PAGE_SIZE: i64 = 100;
const LONGEST_PAGE: i64 = 1000;

/// `GET /audit`: everything for those who may read the site's log; an organization's entries for its auditors, who name it
/// when they are auditors of several.
pub async fn list(State(app): State<App>, caller: Caller, query: Query) -> Result<Json<AuditLogResponse>> {
    query.only(&["q", "limit", "offset", "after_id"])?;
    let page = query.page()?;
    let search = Search::parse(query.text("q"), "resource_target", KEYS)?;
    let mut tx = app.store.reader().await?;
    let organization_id = organization(&app, &mut tx, &caller, search.get("organization")).await?;
    let user_id = match search.get("username") {
        Some(name) => Some(accounts::find::visible(&mut tx, &caller, name).await?.id),
        None => None,
    };
    let filter = audit::AuditFilter {
        organization_id,
        user_id,
        resource_type: search.get("resource_type").map(str::to_owned),
        resource_id: search.read("resource_id")?,
        resource_target: search.get("resource_target").map(str::to_owned),
        action: search.get("action").map(str::to_owned),
        since: search.read::<Date>("date_from")?.map(midnight).transpose()?,
        // The list includes the last day.
        until: search
            .read::<Date>("date_to")?
            .map(|day| day.tomorrow().map_err(|_| bad_date()).and_then(midnight))
            .transpose()?,
        request_id: search.read("request_id")?,
        build_reason: search.get("build_reason").map(str::to_owned),
    };
    let limit = if page.limit == 0 { PAGE_SIZE } else { page.limit.min(LONGEST_PAGE) };
    let count = audit::count(&mut tx, &filter).await?;
    let entries = audit::list(&mut tx, &filter, limit, page.offset).await?;
    Ok(Json(AuditLogResponse { audit_logs: view(&mut tx, &caller, entries).await?, count }))
}

/// The organization whose entries the caller sees; `None` for all.
pub(super) async fn organization(
    app: &App,
    tx: &mut Tx,
    caller: &Caller,
    named: Option<&str>,
) -> Result<Option<OrganizationId>> {
    let object = |id| Object::in_organization(Resource::AuditLog, id);
    if let Some(name) = named {
        let found = super::organizations::named(app, tx, caller, name).await?;
        caller.require(Action::Read, object(found.id))?;
        return Ok(Some(found.id));
    }
    if caller.may(Action::Read, Object::site(Resource::AuditLog)) {
        return Ok(None);
    }
    let mut readable =
        caller.subject.organizations.keys().filter(|id| caller.may(Action::Read, object(**id)));
    match (readable.next(), readable.next()) {
        (Some(only), None) => Ok(Some(*only)),
        (Some(_), Some(_)) => Err(Error::bad_request("Name the organization whose log you want to read.")
            .field("q", "add organization:NAME")),
        (None, _) => Err(Error::forbidden()),
    }
}

fn midnight(day: Date) -> Result<Timestamp> {
    day.to_zoned(TimeZone::UTC).map(|start| start.timestamp()).map_err(|_| bad_date())
}

fn bad_date() -> Error {
    Error::bad_request("Invalid search query.").field("q", "a date is outside of what can be stored")
}

async fn view(tx: &mut Tx, caller: &Caller, entries: Vec<audit::Entry>) -> Result<Vec<AuditLog>> {
    let people: Vec<_> = entries.iter().map(|entry| entry.user_id).collect();
    let people: HashMap<_, _> =
        users::find_many(tx, &people).await?.into_iter().map(|user| (user.id, user)).collect();
    let places: HashMap<_, _> =
        organizations::list(tx).await?.into_iter().map(|found| (found.id, found)).collect();
    let shown = |user: &users::User| {
        let mut shown = accounts::view::user(user, Vec::new());
        // An auditor of an organization sees who acted there, but no other data of users.
        if !accounts::find::may_read(caller, user) {
            shown.email.clear();
        }
        shown
    };
    let one = |entry: audit::Entry| AuditLog {
        description: describe(&entry),
        user: people.get(&entry.user_id).map(shown),
        organization: places.get(&entry.organization_id).map(|found| MinimalOrganization {
            id: found.id,
            name: found.name.clone(),
            display_name: found.display_name.clone(),
            icon: found.icon.clone(),
        }),
        id: entry.id,
        request_id: entry.request_id,
        time: entry.created_at,
        ip: entry.ip,
        user_agent: entry.user_agent,
        resource_type: entry.resource_type,
        resource_id: entry.resource_id,
        resource_target: entry.resource_target,
        resource_icon: entry.resource_icon,
        is_deleted: entry.action == "delete",
        action: entry.action,
        diff: entry.diff,
        status_code: entry.status_code,
        additional_fields: entry.additional_fields,
        resource_link: String::new(),
        organization_id: entry.organization_id,
    };
    Ok(entries.into_iter().map(one).collect())
}

fn describe(entry: &audit::Entry) -> String {
    let kind = entry.resource_type.replace('_', " ");
    let tried = if entry.status_code >= 400 { "unsuccessfully tried to " } else { "" };
    match (entry.action.as_str(), tried.is_empty()) {
        ("login", true) => "{user} logged in".to_owned(),
        ("logout", true) => "{user} logged out".to_owned(),
        ("login", false) => format!("{{user}} {tried}log in"),
        ("create" | "register", true) => format!("{{user}} created {kind} {{target}}"),
        ("write", true) => format!("{{user}} updated {kind} {{target}}"),
        ("delete", true) => format!("{{user}} deleted {kind} {{target}}"),
        ("start", true) => format!("{{user}} started {kind} {{target}}"),
        ("stop", true) => format!("{{user}} stopped {kind} {{target}}"),
        (action, _) => format!("{{user}} {tried}{action} {kind} {{target}}"),
    }
}

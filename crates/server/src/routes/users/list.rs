//! Listing and searching accounts.

use std::collections::HashMap;

use axum::extract::State;
use coder_api::users::UsersResponse;
use coder_domain::rbac::{Action, Object, Resource};
use coder_store::{UNLIMITED, organizations, users};

use super::{find, view};
use crate::context::App;
use crate::http::params::Query;
use crate::http::search::Search;
use crate::http::{Caller, Json, Result};

const KEYS: &[&str] = &[
    "status",
    "role",
    "login_type",
    "last_seen_after",
    "last_seen_before",
    "created_after",
    "created_before",
];

/// `GET /users`: all users for callers who may see accounts, otherwise only the caller.
pub async fn list(State(app): State<App>, caller: Caller, query: Query) -> Result<Json<UsersResponse>> {
    let page = query.page()?;
    let search = Search::parse(query.text("q"), "search", KEYS)?;
    let time = |key| search.read::<coder_domain::Timestamp>(key);
    let (seen_after, seen_before) = (time("last_seen_after")?, time("last_seen_before")?);
    let (created_after, created_before) = (time("created_after")?, time("created_before")?);
    let sees_all = caller.may(Action::Read, Object::site(Resource::User));
    let filter = users::UserFilter {
        search: search.get("search").map(str::to_owned),
        status: search.words("status")?,
        login_type: search.words("login_type")?,
        role: search.get("role").filter(|role| *role != "member").map(str::to_owned),
        ids: (!sees_all)
            .then(|| if find::may_read(&caller, &caller.user) { vec![caller.user.id] } else { vec![] }),
    };

    let mut tx = app.store.reader().await?;
    let mut rows = users::list(&mut tx, &filter, UNLIMITED, 0).await?;
    rows.retain(|user| {
        seen_after.is_none_or(|at| user.last_seen_at.is_some_and(|seen| seen >= at))
            && seen_before.is_none_or(|at| user.last_seen_at.is_none_or(|seen| seen <= at))
            && created_after.is_none_or(|at| user.created_at >= at)
            && created_before.is_none_or(|at| user.created_at <= at)
    });
    let count = i64::try_from(rows.len()).unwrap_or(i64::MAX);
    let rows = page.cut(rows, |user| user.id.0);

    let mut memberships: HashMap<_, Vec<_>> = HashMap::new();
    let ids: Vec<_> = rows.iter().map(|user| user.id).collect();
    for member in organizations::list_memberships(&mut tx, &ids).await? {
        memberships.entry(member.user_id).or_default().push(member.organization_id);
    }
    let users =
        rows.iter().map(|user| view::user(user, memberships.remove(&user.id).unwrap_or_default())).collect();
    Ok(Json(UsersResponse { users, count }))
}

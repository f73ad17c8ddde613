//! Listing and searching workspaces.

use std::collections::{BTreeMap, HashMap};

use axum::extract::State;
use coder_api::paths::ME;
use coder_api::workspaces::{Workspace, WorkspacesResponse};
use coder_domain::build::WorkspaceStatus;
use coder_domain::rbac::{Action, Resource, Visibility, visibility};
use coder_store::Tx;
use coder_store::workspaces::{self as rows, builds};

use super::{find, view};
use crate::context::App;
use crate::http::params::Query;
use crate::http::search::Search;
use crate::http::{Caller, Error, Json, Result};
use crate::routes::organizations;

const KEYS: &[&str] = &[
    "id",
    "owner",
    "template",
    "name",
    "status",
    "organization",
    "has-agent",
    "dormant",
    "outdated",
    "last_used_after",
    "last_used_before",
    "param",
    "shared",
    "shared_with_user",
    "shared_with_group",
    "has-ai-task",
    "has_external_agent",
];

/// `GET /workspaces`
pub async fn list(State(app): State<App>, caller: Caller, query: Query) -> Result<Json<WorkspacesResponse>> {
    let page = query.page()?;
    let search = parse(query.text("q"))?;
    let mut tx = app.store.reader().await?;
    let Some(filter) = filter(&app, &mut tx, &caller, &search).await? else {
        return Ok(Json(WorkspacesResponse::default()));
    };
    let mut found = rows::list(&mut tx, &filter).await?;
    found.retain(|row| caller.may(Action::Read, find::object(row)));
    let mut all = view::load(&app, &mut tx, &caller, found).await?;
    let conditions = LatestBuildFilter::read(&search)?;
    all.retain(|workspace| conditions.accepts(workspace));
    if let Some(parameter) = search.get("param") {
        keep_with_parameter(&mut tx, &mut all, parameter).await?;
    }
    // The caller's favorites first, then running workspaces, then by owner and name as the store sorts (http-api 1.7).
    all.sort_by_key(|workspace| {
        (!workspace.favorite, workspace.latest_build.status != WorkspaceStatus::Running)
    });
    let count = i64::try_from(all.len()).unwrap_or(i64::MAX);
    Ok(Json(WorkspacesResponse { workspaces: page.cut(all, |workspace| workspace.id.0), count }))
}

/// A bare `owner/name` names both.
fn parse(q: &str) -> Result<Search> {
    let expand = |word: &str| match word.split_once('/') {
        Some((owner, name)) if !word.contains(':') && !owner.is_empty() && !name.is_empty() => {
            format!("owner:{owner} name:{name}")
        }
        _ => word.to_owned(),
    };
    let quoted = q.contains('"');
    let text = if quoted { q.to_owned() } else { q.split(' ').map(expand).collect::<Vec<_>>().join(" ") };
    Search::parse(&text, "name", KEYS)
}

/// The conditions that the database checks; `None` when nothing can match.
async fn filter(
    app: &App,
    tx: &mut Tx,
    caller: &Caller,
    search: &Search,
) -> Result<Option<rows::WorkspaceFilter>> {
    // There are no shared workspaces, tasks and external agents yet.
    let absent =
        [search.read::<bool>("shared")?, search.read("has-ai-task")?, search.read("has_external_agent")?];
    if absent.contains(&Some(true))
        || ["shared_with_user", "shared_with_group"].iter().any(|k| search.get(k).is_some())
    {
        return Ok(None);
    }
    let mut organization_ids = None;
    if let Some(name) = search.get("organization") {
        match organizations::named(app, tx, caller, name).await {
            Ok(found) => organization_ids = Some(vec![found.id]),
            Err(error) if error.status() == http::StatusCode::NOT_FOUND => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let mut owner_id = search.get("owner").filter(|owner| *owner == ME).map(|_| caller.user.id);
    if let Visibility::Some { organizations, own } = visibility(&caller.subject, Resource::Workspace)
        && organizations.is_empty()
    {
        // The caller sees only their own workspaces.
        if owner_id.is_none() {
            owner_id = Some(own);
        }
    }
    Ok(Some(rows::WorkspaceFilter {
        ids: search.words("id")?,
        owner_id,
        owner_name: search.get("owner").filter(|owner| *owner != ME).map(str::to_owned),
        template_ids: None,
        template_name: search.get("template").map(str::to_owned),
        organization_ids,
        name: search.get("name").map(str::to_owned),
        dormant: search.read("dormant")?,
        last_used_after: search.read("last_used_after")?,
        last_used_before: search.read("last_used_before")?,
    }))
}

/// The conditions on the latest build.
struct LatestBuildFilter {
    status: Option<WorkspaceStatus>,
    outdated: Option<bool>,
    agent: Option<String>,
}

impl LatestBuildFilter {
    fn read(search: &Search) -> Result<Self> {
        let agent = search.get("has-agent").map(str::to_owned);
        if let Some(word) = agent.as_deref()
            && !["connecting", "connected", "disconnected", "timeout"].contains(&word)
        {
            return Err(Error::bad_request("Invalid search query.")
                .field("q", format!("{word:?} is not an agent status")));
        }
        Ok(Self { status: search.read("status")?, outdated: search.read("outdated")?, agent })
    }

    fn accepts(&self, workspace: &Workspace) -> bool {
        let build = &workspace.latest_build;
        let mut agents = build.resources.iter().flat_map(|resource| &resource.agents);
        self.status.is_none_or(|wanted| build.status == wanted)
            && self.outdated.is_none_or(|wanted| workspace.outdated == wanted)
            && self.agent.as_ref().is_none_or(|word| agents.any(|agent| agent.status.as_str() == word))
    }
}

/// `name` keeps what has the parameter, `name=value` what has it with this value; case does not count.
async fn keep_with_parameter(tx: &mut Tx, all: &mut Vec<Workspace>, conditions: &str) -> Result<()> {
    let (name, value) =
        conditions.split_once('=').map_or((conditions, None), |(name, value)| (name, Some(value)));
    let mut values: HashMap<_, BTreeMap<String, String>> = HashMap::new();
    for workspace in all.iter() {
        let id = workspace.latest_build.id;
        values.insert(id, builds::list_parameters(tx, id).await?);
    }
    all.retain(|workspace| {
        values.get(&workspace.latest_build.id).is_some_and(|map| {
            map.iter().any(|(have, set)| {
                have.eq_ignore_ascii_case(name) && value.is_none_or(|value| set.eq_ignore_ascii_case(value))
            })
        })
    });
    Ok(())
}

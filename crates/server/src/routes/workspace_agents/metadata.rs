//! The metadata of an agent, watched (http-api 10.3, 10.4).

use std::collections::HashMap;

use axum::extract::{Request, State};
use axum::response::Response;
use coder_api::agents::{AgentMetadata, MetadataDescription, MetadataResult};
use coder_api::json::ZERO_TIME;
use coder_api::paths;
use coder_domain::Timestamp;
use coder_domain::ids::AgentId;
use coder_domain::rbac::Action;
use coder_store::workspaces::agent_reports::{self, MetadataValue};
use coder_store::workspaces::agents::MetadataItem;

use super::find;
use crate::context::App;
use crate::events::{Subscription, Topic};
use crate::http::params::Id;
use crate::http::watch::{self, View, Watch};
use crate::http::{Caller, Error, Result};
use crate::network::reading::Reading;

struct WatchedMetadata {
    app: App,
    agent: AgentId,
    items: Vec<MetadataItem>,
}

impl Watch for WatchedMetadata {
    async fn read(&mut self) -> Result<View> {
        let values = agent_reports::list_metadata(&mut self.app.store.reader().await?, self.agent).await?;
        let shown = shown(&self.items, values, self.app.now());
        let text =
            serde_json::to_string(&shown).map_err(|error| Error::internal("Internal error.", error))?;
        Ok(View::Json(text))
    }
}

/// `GET /workspaceagents/{agent}/watch-metadata`
pub async fn watch_metadata(State(app): State<App>, caller: Caller, Id(id): Id<AgentId>) -> Result<Response> {
    let (reading, watched, changes) = begin(&app, &caller, id).await?;
    watch::events(&app, Some(reading), watched, changes)
}

/// `GET /workspaceagents/{agent}/watch-metadata-ws`
pub async fn watch_metadata_ws(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<AgentId>,
    request: Request,
) -> Result<Response> {
    let (reading, watched, changes) = begin(&app, &caller, id).await?;
    watch::socket(&app, reading, watched, changes, paths::AGENT_WATCH_METADATA_WS, request)
}

async fn begin(
    app: &App,
    caller: &Caller,
    agent: AgentId,
) -> Result<(Reading, WatchedMetadata, Subscription)> {
    let reading = Reading::begin(app, caller).await?;
    let (row, ..) = find::by_id(&mut app.store.reader().await?, caller, agent, Action::Read).await?;
    let changes = app.events.subscribe(Topic::AgentMetadata(agent));
    let mut items = row.definition.metadata;
    items.sort_by(|a, b| (a.order, &a.key).cmp(&(b.order, &b.key)));
    Ok((reading, WatchedMetadata { app: app.clone(), agent, items }, changes))
}

/// All items of the template with their newest values.
fn shown(items: &[MetadataItem], values: Vec<MetadataValue>, now: Timestamp) -> Vec<AgentMetadata> {
    let mut values: HashMap<_, _> = values.into_iter().map(|value| (value.key.clone(), value)).collect();
    let view = |item: &MetadataItem| {
        let result = match values.remove(&item.key) {
            Some(value) => MetadataResult {
                collected_at: value.collected_at,
                age: now.duration_since(value.collected_at).as_secs().max(0),
                value: value.value,
                error: value.error,
            },
            None => {
                MetadataResult { collected_at: ZERO_TIME, age: 0, value: String::new(), error: String::new() }
            }
        };
        let description = MetadataDescription {
            display_name: item.display_name.clone(),
            key: item.key.clone(),
            script: item.script.clone(),
            interval: item.interval,
            timeout: item.timeout,
        };
        AgentMetadata { result, description }
    };
    items.iter().map(view).collect()
}

//! The health of apps: `BatchUpdateAppHealths` (agent 2.8).

use std::collections::HashMap;

use coder_domain::ids::AppId;
use coder_store::transaction;
use coder_store::workspaces::agent_reports;
use coder_store::workspaces::agents::{self, App};
use coder_wire::drpc::Status;
use coder_wire::messages::coder::agent::v2 as pb;
use coder_wire::messages::coder::agent::v2::AppHealth;

use super::id;
use crate::agents::session::{AgentSession, Answer};

/// Stores changed values. All of them are checked before any is stored.
pub(in crate::agents) async fn update(
    session: &AgentSession,
    request: pb::BatchUpdateAppHealthRequest,
) -> Answer<pb::BatchUpdateAppHealthResponse> {
    if request.updates.is_empty() {
        return Ok(pb::BatchUpdateAppHealthResponse {});
    }
    let (app, identity) = (&session.app, &session.identity);
    let known = async {
        let mut tx = app.store.reader().await?;
        agents::list_apps(&mut tx, &[identity.agent_id]).await
    };
    let known = known.await.map_err(|error| session.failed(&error))?;
    let known: HashMap<_, _> = known.into_iter().map(|app| (app.id, app)).collect();
    let changes = changes(&known, &request.updates)?;
    if changes.is_empty() {
        return Ok(pb::BatchUpdateAppHealthResponse {});
    }
    let written = transaction!(app.store, coder_store::Error, |tx| {
        for (health, apps) in &changes {
            agent_reports::update_app_health(tx, apps, health).await?;
        }
        Ok(())
    });
    written.map_err(|error| session.failed(&error))?;
    app.events.workspace_changed(identity.workspace_id);
    Ok(pb::BatchUpdateAppHealthResponse {})
}

/// The apps with a new health, by it.
fn changes(
    known: &HashMap<AppId, App>,
    updates: &[pb::batch_update_app_health_request::HealthUpdate],
) -> Answer<HashMap<&'static str, Vec<AppId>>> {
    let mut changes: HashMap<_, Vec<_>> = HashMap::new();
    for update in updates {
        let id = AppId(id(&update.id, "the id of an app")?);
        let app = known.get(&id).ok_or_else(|| Status::new(format!("the agent has no app {id}")))?;
        if app.definition.healthcheck_url.is_empty() {
            return Err(Status::new(format!("app {:?} has no health check", app.slug)));
        }
        let health = match AppHealth::try_from(update.health) {
            Ok(AppHealth::Disabled) => "disabled",
            Ok(AppHealth::Initializing) => "initializing",
            Ok(AppHealth::Healthy) => "healthy",
            Ok(AppHealth::Unhealthy) => "unhealthy",
            Ok(AppHealth::Unspecified) | Err(_) => {
                return Err(Status::new(format!("unknown health {} of app {:?}", update.health, app.slug)));
            }
        };
        if app.health != health {
            changes.entry(health).or_default().push(id);
        }
    }
    Ok(changes)
}

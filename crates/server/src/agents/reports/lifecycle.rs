//! Lifecycle states: `UpdateLifecycle`. Their order is not enforced; after a reconnect an agent reports all of them again
//! (agent 2.5).

use coder_domain::agent::LifecycleState;
use coder_store::workspaces::agent_reports::{self, LifecycleChange};
use coder_wire::drpc::Status;
use coder_wire::messages::coder::agent::v2 as pb;
use coder_wire::messages::coder::agent::v2::lifecycle::State;

use super::instant;
use crate::agents::session::{AgentSession, Answer};

/// Stores a state, and answers with it and its time.
pub(in crate::agents) async fn update(
    session: &AgentSession,
    request: pb::UpdateLifecycleRequest,
) -> Answer<pb::Lifecycle> {
    let lifecycle = request.lifecycle.ok_or_else(|| Status::new("the lifecycle is missing"))?;
    let state = state(lifecycle.state)
        .ok_or_else(|| Status::new(format!("unknown lifecycle state {}", lifecycle.state)))?;
    let (app, identity) = (&session.app, &session.identity);
    let now = app.now();
    // The zero time of Go is before 1970.
    let told = lifecycle.changed_at.and_then(instant).filter(|at| at.as_second() > 0);
    let changed_at = told.unwrap_or(now);
    let change = LifecycleChange {
        state: state.as_str().to_owned(),
        starts: state == LifecycleState::Starting,
        ends_start: state.ends_start(),
        changed_at,
    };
    let written = async {
        let mut tx = app.store.single().await?;
        agent_reports::update_lifecycle(&mut tx, identity.agent_id, &change, now).await
    };
    written.await.map_err(|error| session.failed(&error))?;
    app.events.workspace_changed(identity.workspace_id);
    let changed_at =
        prost_types::Timestamp { seconds: changed_at.as_second(), nanos: changed_at.subsec_nanosecond() };
    Ok(pb::Lifecycle { state: lifecycle.state, changed_at: Some(changed_at) })
}

fn state(number: i32) -> Option<LifecycleState> {
    Some(match State::try_from(number).ok()? {
        State::Unspecified => return None,
        State::Created => LifecycleState::Created,
        State::Starting => LifecycleState::Starting,
        State::StartTimeout => LifecycleState::StartTimeout,
        State::StartError => LifecycleState::StartError,
        State::Ready => LifecycleState::Ready,
        State::ShuttingDown => LifecycleState::ShuttingDown,
        State::ShutdownTimeout => LifecycleState::ShutdownTimeout,
        State::ShutdownError => LifecycleState::ShutdownError,
        State::Off => LifecycleState::Off,
    })
}

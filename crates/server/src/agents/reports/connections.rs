//! Sessions of people: `ReportConnection` (agent 2.9). They are stored in the connection log. The owner of a workspace can make its agent
//! report anything about that workspace.

use coder_store::workspaces::connection_log;
use coder_wire::drpc::Status;
use coder_wire::messages::coder::agent::v2 as pb;
use coder_wire::messages::coder::agent::v2::connection::{Action, Type};

use super::{bounded, id, instant};
use crate::agents::session::{AgentSession, Answer};

/// Longest address and longest reason, in bytes.
const MAX_ADDRESS_BYTES: usize = 64;
const MAX_REASON_BYTES: usize = 1024;

/// Stores the beginning or the end of a session.
pub(in crate::agents) async fn report(
    session: &AgentSession,
    request: pb::ReportConnectionRequest,
) -> Answer<()> {
    let report = request.connection.ok_or_else(|| Status::new("the connection is missing"))?;
    let (agent, session_id) = (session.identity.agent_id, id(&report.id, "the id of a connection")?);
    let kind = kind(report.r#type)
        .ok_or_else(|| Status::new(format!("unknown connection type {}", report.r#type)))?;
    let action = Action::try_from(report.action).unwrap_or(Action::Unspecified);
    let now = session.app.now();
    let at = report.timestamp.and_then(instant).filter(|at| at.as_second() > 0);
    // An entry of the future would be the first of the list, and never be removed.
    let at = at.unwrap_or(now).min(now);
    // Jobs of a shell's own host are reported by this name.
    let ip = if report.ip == "localhost" {
        "127.0.0.1".to_owned()
    } else {
        bounded(report.ip, MAX_ADDRESS_BYTES, "the address")?
    };
    let reason = bounded(report.reason.unwrap_or_default(), MAX_REASON_BYTES, "the reason")?;
    let written = async {
        let mut tx = session.app.store.single().await?;
        match action {
            Action::Connect => connection_log::insert(&mut tx, agent, session_id, kind, &ip, at).await,
            Action::Disconnect => {
                let code = i64::from(report.status_code);
                connection_log::update_ended(&mut tx, agent, session_id, at, code, &reason).await
            }
            Action::Unspecified => Ok(()),
        }
    };
    if action == Action::Unspecified {
        return Err(Status::new(format!("unknown connection action {}", report.action)));
    }
    written.await.map_err(|error| session.failed(&error))
}

fn kind(number: i32) -> Option<&'static str> {
    match Type::try_from(number).ok()? {
        Type::Unspecified => None,
        Type::Ssh => Some("ssh"),
        Type::Vscode => Some("vscode"),
        Type::Jetbrains => Some("jetbrains"),
        Type::ReconnectingPty => Some("reconnecting_pty"),
    }
}

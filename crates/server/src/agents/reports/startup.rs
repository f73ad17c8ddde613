//! What an agent says when it starts: `UpdateStartup`.

use coder_domain::agent::is_semantic_version;
use coder_store::workspaces::agent_reports::{self, Startup};
use coder_wire::drpc::Status;
use coder_wire::messages::coder::agent::v2 as pb;
use coder_wire::messages::coder::agent::v2::startup::Subsystem;

use super::bounded;
use crate::agents::session::{AgentSession, Answer};

/// Longest path of a directory, in bytes.
const MAX_DIRECTORY_BYTES: usize = 4096;

/// Stores version, directory and subsystems, and answers with them.
pub(in crate::agents) async fn update(
    session: &AgentSession,
    request: pb::UpdateStartupRequest,
) -> Answer<pb::Startup> {
    let startup = request.startup.ok_or_else(|| Status::new("the startup is missing"))?;
    if !is_semantic_version(&startup.version) {
        let shown: String = startup.version.chars().take(64).collect();
        return Err(Status::new(format!("invalid agent semver version {shown:?}")));
    }
    let mut subsystems = Vec::new();
    for number in &startup.subsystems {
        subsystems
            .push(word(*number).ok_or_else(|| Status::new(format!("invalid agent subsystem {number}")))?);
    }
    subsystems.sort_unstable();
    subsystems.dedup();
    let stored = Startup {
        version: startup.version.clone(),
        api_version: session.version.to_string(),
        expanded_directory: bounded(
            startup.expanded_directory.clone(),
            MAX_DIRECTORY_BYTES,
            "the directory",
        )?,
        subsystems: subsystems.into_iter().map(str::to_owned).collect(),
    };
    let (app, identity) = (&session.app, &session.identity);
    let written = async {
        let mut tx = app.store.single().await?;
        agent_reports::update_startup(&mut tx, identity.agent_id, &stored, app.now()).await
    };
    written.await.map_err(|error| session.failed(&error))?;
    app.events.workspace_changed(identity.workspace_id);
    Ok(startup)
}

fn word(number: i32) -> Option<&'static str> {
    match Subsystem::try_from(number).ok()? {
        Subsystem::Unspecified => None,
        Subsystem::Envbox => Some("envbox"),
        Subsystem::Envbuilder => Some("envbuilder"),
        Subsystem::Exectrace => Some("exectrace"),
    }
}

//! The workspaces and agents of a user, sent at first and when they change: clients that show all workspaces reach each of
//! their agents over one connection.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use coder_domain::build::WorkspaceStatus;
use coder_domain::rbac::Subject;
use coder_store::workspaces::{self, WorkspaceFilter, agents, builds, resources};
use coder_store::{Error as StoreError, Tx, jobs};
use coder_tailnet::coordinator::Authorization;
use coder_tailnet::messages::workspace::Status as MessageStatus;
use coder_tailnet::messages::{Agent, Workspace, WorkspaceUpdate, WorkspaceUpdatesRequest};
use coder_wire::drpc::server::{CallStream, Event};
use coder_wire::drpc::{Error, Status};
use parking_lot::Mutex;
use prost::Message as _;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::access::may_connect;
use crate::context::App;
use crate::events::Topic;

/// Changes of this time are sent together, so that a busy deployment does not make each watcher read all the time.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// Agents that one connection may reach.
const MAX_AGENTS: usize = 4096;

/// The agents that a connection may reach. Clones are the same set.
#[derive(Clone, Debug)]
pub struct ReachableAgents {
    /// Who connected. The connection ends when the user's rights change.
    subject: Arc<Subject>,
    ids: Arc<Mutex<HashSet<Uuid>>>,
}

impl ReachableAgents {
    /// For the coordinator.
    #[must_use]
    pub fn authorization(&self) -> Authorization {
        let agents = Arc::clone(&self.ids);
        Authorization::ClientOf(Arc::new(move |agent| agents.lock().contains(&agent)))
    }

    fn set(&self, snapshot: &Snapshot) {
        *self.ids.lock() = snapshot.agents.keys().take(MAX_AGENTS).copied().collect();
    }
}

/// What there is at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    workspaces: BTreeMap<Uuid, Workspace>,
    agents: BTreeMap<Uuid, Agent>,
}

impl Snapshot {
    /// What a receiver of `before` must be sent.
    fn since(&self, before: &Self) -> WorkspaceUpdate {
        fn changed<T: Clone + PartialEq>(now: &BTreeMap<Uuid, T>, before: &BTreeMap<Uuid, T>) -> Vec<T> {
            let changed = now.iter().filter(|(id, value)| before.get(id) != Some(value));
            changed.map(|(_, value)| value.clone()).collect()
        }
        fn removed<T: Clone>(now: &BTreeMap<Uuid, T>, before: &BTreeMap<Uuid, T>) -> Vec<T> {
            let removed = before.iter().filter(|(id, _)| !now.contains_key(id));
            removed.map(|(_, value)| value.clone()).collect()
        }
        WorkspaceUpdate {
            upserted_workspaces: changed(&self.workspaces, &before.workspaces),
            upserted_agents: changed(&self.agents, &before.agents),
            deleted_workspaces: removed(&self.workspaces, &before.workspaces),
            deleted_agents: removed(&self.agents, &before.agents),
        }
    }
}

/// Reads the own workspaces that `subject` may connect to, with their agents: one statement per table.
async fn load(tx: &mut Tx, subject: &Subject) -> Result<Snapshot, StoreError> {
    let filter = WorkspaceFilter { owner_id: Some(subject.user), ..WorkspaceFilter::default() };
    let mut rows = workspaces::list(tx, &filter).await?;
    rows.retain(|row| may_connect(subject, row));
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let latest = builds::list_latest(tx, &ids).await?;
    let job_ids: Vec<_> = latest.iter().map(|build| build.job_id).collect();
    let found = jobs::find_many(tx, &job_ids).await?;
    let found: BTreeMap<_, _> = found.iter().map(|job| (job.id, job.status())).collect();
    let resources = resources::list(tx, &job_ids).await?;
    let jobs_of: BTreeMap<_, _> = resources.iter().map(|resource| (resource.id, resource.job_id)).collect();
    let resource_ids: Vec<_> = jobs_of.keys().copied().collect();
    let workspaces_of: BTreeMap<_, _> =
        latest.iter().map(|build| (build.job_id, build.workspace_id)).collect();
    let mut snapshot = Snapshot::default();
    for row in &rows {
        let Some(build) = latest.iter().find(|build| build.workspace_id == row.id) else { continue };
        let Some(job) = found.get(&build.job_id) else { continue };
        let status = message_status(WorkspaceStatus::of(build.transition, *job));
        let workspace =
            Workspace { id: row.id.0.as_bytes().to_vec(), name: row.name.clone(), status: status.into() };
        snapshot.workspaces.insert(row.id.0, workspace);
    }
    for agent in agents::list(tx, &resource_ids).await? {
        let workspace = jobs_of.get(&agent.resource_id).and_then(|job| workspaces_of.get(job));
        let Some(workspace) = workspace else { continue };
        let message = Agent {
            id: agent.id.0.as_bytes().to_vec(),
            name: agent.name,
            workspace_id: workspace.0.as_bytes().to_vec(),
        };
        snapshot.agents.insert(agent.id.0, message);
    }
    Ok(snapshot)
}

const fn message_status(status: WorkspaceStatus) -> MessageStatus {
    match status {
        WorkspaceStatus::Pending => MessageStatus::Pending,
        WorkspaceStatus::Starting => MessageStatus::Starting,
        WorkspaceStatus::Running => MessageStatus::Running,
        WorkspaceStatus::Stopping => MessageStatus::Stopping,
        WorkspaceStatus::Stopped => MessageStatus::Stopped,
        WorkspaceStatus::Failed => MessageStatus::Failed,
        WorkspaceStatus::Canceling => MessageStatus::Canceling,
        WorkspaceStatus::Canceled => MessageStatus::Canceled,
        WorkspaceStatus::Deleting => MessageStatus::Deleting,
        WorkspaceStatus::Deleted => MessageStatus::Deleted,
    }
}

/// Lets a new connection reach the agents that there are.
pub async fn reachable(app: &App, subject: Arc<Subject>) -> Result<ReachableAgents, StoreError> {
    let snapshot = load(&mut app.store.reader().await?, &subject).await?;
    let agents = ReachableAgents { subject, ids: Arc::default() };
    agents.set(&snapshot);
    Ok(agents)
}

/// Sends what there is, and then what changes, until either side ends the call.
///
/// # Errors
/// How the byte stream failed.
pub(super) async fn serve(
    app: &App,
    stream: &mut CallStream,
    reachable: &ReachableAgents,
    revoked: &CancellationToken,
) -> Result<(), Error> {
    let Event::Message(data) = stream.recv().await? else { return stream.close_send().await };
    let owner = WorkspaceUpdatesRequest::decode(data)
        .ok()
        .and_then(|request| Uuid::from_slice(&request.workspace_owner_id).ok());
    let user = reachable.subject.user;
    if owner != Some(user.0) {
        return stream.fail(&Status::new("only the own workspaces can be watched")).await;
    }
    stream.release();
    stream.set_read_timeout(None);
    let mut sent = Snapshot::default();
    let mut is_first = true;
    loop {
        // Subscribed before the first read, so that no change is missed.
        let mut changes = app.events.subscribe(Topic::Workspaces);
        let loaded = async { load(&mut app.store.reader().await?, &reachable.subject).await };
        let snapshot = match loaded.await {
            Ok(snapshot) => snapshot,
            Err(error) => {
                tracing::warn!(user_id = %user, %error, "cannot read the workspaces of a user");
                return stream.fail(&Status::new("the server's database failed, see its log")).await;
            }
        };
        reachable.set(&snapshot);
        let update = snapshot.since(&sent);
        if is_first || update != WorkspaceUpdate::default() {
            stream.send(&update).await?;
            stream.flush().await?;
        }
        (sent, is_first) = (snapshot, false);
        let wait = async {
            changes.changed().await;
            tokio::time::sleep(BATCH_DELAY).await;
        };
        let mut wait = std::pin::pin!(wait);
        loop {
            tokio::select! {
                () = wait.as_mut() => break,
                () = revoked.cancelled() => return stream.close_send().await,
                event = stream.recv() => match event? {
                    Event::Message(_) => stream.release(),
                    Event::CloseSend => {}
                    Event::Canceled => return Ok(()),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn update_has_only_what_changed() {
        let workspace = |name: &str| Workspace {
            id: vec![1],
            name: name.to_owned(),
            status: MessageStatus::Running.into(),
        };
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let before = Snapshot {
            workspaces: [(one, workspace("a")), (other, workspace("b"))].into(),
            agents: [(one, Agent::default())].into(),
        };
        let now = Snapshot { workspaces: [(one, workspace("c"))].into(), agents: before.agents.clone() };
        let update = now.since(&before);
        assert_eq!(update.upserted_workspaces, [workspace("c")]);
        assert_eq!(update.deleted_workspaces, [workspace("b")]);
        assert!(update.upserted_agents.is_empty() && update.deleted_agents.is_empty());
        assert_eq!(now.since(&now), WorkspaceUpdate::default());
    }
}

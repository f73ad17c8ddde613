//! Wake-ups between the tasks of this process. They are hints: losing one costs latency, never correctness.
//!
//! New jobs are announced to the scheduler (`provisioning/dispatch/scheduler.rs`). Hints for other servers on
//! the same database wait in `outbox.rs` for `tasks/replicas.rs`.

pub mod hint;
pub mod outbox;
pub mod written;

use std::collections::HashMap;
use std::sync::Arc;

use coder_domain::ids::{AgentId, JobId, UserId, WorkspaceId};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use self::hint::Hint;
use self::outbox::Outbox;

/// What a task can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// Log lines were added to a job, or its state changed.
    Job(JobId),
    /// A workspace, its latest build, or what its agents report changed.
    Workspace(WorkspaceId),
    /// Any workspace changed.
    Workspaces,
    /// An agent has new log lines.
    AgentLogs(AgentId),
    /// An agent has new values of metadata.
    AgentMetadata(AgentId),
    /// A user has connected an account at an external authentication provider.
    ExternalAuth(UserId),
}

type Senders = HashMap<Topic, watch::Sender<()>>;

/// The wake-ups of one process; a clone is the same object.
#[derive(Clone, Debug, Default)]
pub struct Events {
    senders: Arc<Mutex<Senders>>,
    outbox: Outbox,
    disabled: bool,
}

impl Events {
    /// Without listeners.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Loses every wake-up, for tests.
    #[must_use]
    pub fn disabled() -> Self {
        Self { disabled: true, ..Self::default() }
    }

    /// Whether every wake-up is lost.
    #[must_use]
    pub const fn is_disabled(&self) -> bool {
        self.disabled
    }

    /// The hints for other servers.
    #[must_use]
    pub const fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Sends a hint to the other servers on this database, if there are any. Call it after the commit.
    pub fn notify(&self, hint: Hint) {
        self.outbox.notify(hint);
    }

    /// A job's state changed or it got log lines. Call it after the commit.
    pub fn job_changed(&self, job: JobId) {
        self.outbox.changed(job);
        self.hint(Topic::Job(job));
    }

    /// A job has ended. Call it after the commit.
    pub fn job_ended(&self, job: JobId) {
        self.job_changed(job);
    }

    /// Another server changed a job.
    pub fn job_changed_on_another_server(&self, job: JobId) {
        self.hint(Topic::Job(job));
    }

    /// Polling found a change of a job.
    pub fn job_found_changed(&self, job: JobId) {
        if let Some(sender) = self.senders().get(&Topic::Job(job)) {
            sender.send_replace(());
        }
    }

    /// Wakes every listener: wake-ups may have been lost.
    pub fn all_changed(&self) {
        for sender in self.senders().values() {
            sender.send_replace(());
        }
    }

    /// The jobs with followers here.
    #[must_use]
    pub fn followed(&self) -> Vec<JobId> {
        let job = |topic: &Topic| match topic {
            Topic::Job(job) => Some(*job),
            Topic::Workspace(_)
            | Topic::Workspaces
            | Topic::AgentLogs(_)
            | Topic::AgentMetadata(_)
            | Topic::ExternalAuth(_) => None,
        };
        self.senders().keys().filter_map(job).collect()
    }

    /// A workspace, its latest build, or what its agents report changed. Call it after the commit.
    pub fn workspace_changed(&self, workspace: WorkspaceId) {
        self.notify(Hint::Workspace(workspace));
        self.hint(Topic::Workspace(workspace));
        self.hint(Topic::Workspaces);
    }

    /// An agent has new log lines. Call it after the commit.
    pub fn agent_logs_changed(&self, agent: AgentId) {
        self.notify(Hint::AgentLogs(agent));
        self.hint(Topic::AgentLogs(agent));
    }

    /// An agent has new values of metadata. Call it after the commit.
    pub fn agent_metadata_changed(&self, agent: AgentId) {
        self.notify(Hint::AgentMetadata(agent));
        self.hint(Topic::AgentMetadata(agent));
    }

    /// A user has connected an account at an external authentication provider. Call it after the commit.
    pub fn external_auth_connected(&self, user: UserId) {
        self.hint(Topic::ExternalAuth(user));
    }

    /// Another server changed something that is not a job.
    pub fn changed_on_another_server(&self, topic: Topic) {
        self.hint(topic);
        if let Topic::Workspace(_) = topic {
            self.hint(Topic::Workspaces);
        }
    }

    /// Starts listening. Subscribe before reading the state, then no change is missed.
    #[must_use]
    pub fn subscribe(&self, topic: Topic) -> Subscription {
        let receiver = self.senders().entry(topic).or_insert_with(|| watch::Sender::new(())).subscribe();
        if let Topic::Job(job) = topic {
            self.notify(Hint::Followed(job));
        }
        Subscription { topic, receiver: Some(receiver), events: self.clone() }
    }

    /// How many topics have listeners.
    #[must_use]
    pub fn topics(&self) -> usize {
        self.senders().len()
    }

    fn hint(&self, topic: Topic) {
        if self.disabled {
            return;
        }
        if let Some(sender) = self.senders().get(&topic) {
            sender.send_replace(());
        }
    }

    fn senders(&self) -> MutexGuard<'_, Senders> {
        self.senders.lock()
    }
}

/// One listener. Several wake-ups between two calls of [`Self::changed`] count as one.
#[derive(Debug)]
pub struct Subscription {
    topic: Topic,
    receiver: Option<watch::Receiver<()>>,
    events: Events,
}

impl Subscription {
    /// Waits for a wake-up since the last call, or since the subscription. It is cancel safe.
    pub async fn changed(&mut self) {
        let receiver = self.receiver.as_mut().expect("only drop takes the receiver");
        if receiver.changed().await.is_err() {
            // The sender lives in the map as long as this subscription does.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut senders = self.events.senders();
        drop(self.receiver.take());
        if senders.get(&self.topic).is_some_and(|sender| sender.receiver_count() == 0) {
            senders.remove(&self.topic);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hint_reaches_every_listener_of_its_topic_once() {
        let events = Events::new();
        let (one, other) = (JobId::random(), JobId::random());
        let mut first = events.subscribe(Topic::Job(one));
        let mut second = events.subscribe(Topic::Job(one));
        let mut foreign = events.subscribe(Topic::Job(other));
        events.job_changed(one);
        events.job_changed(one);
        first.changed().await;
        second.changed().await;
        let wait = Duration::from_secs(1);
        assert!(timeout(wait, first.changed()).await.is_err());
        assert!(timeout(wait, foreign.changed()).await.is_err());
    }

    #[tokio::test]
    async fn nothing_is_kept_without_listeners() {
        let events = Events::new();
        events.workspace_changed(WorkspaceId::random());
        assert_eq!(events.topics(), 0);
        let topic = Topic::Workspace(WorkspaceId::random());
        let (first, second) = (events.subscribe(topic), events.subscribe(topic));
        drop(first);
        assert_eq!(events.topics(), 1);
        drop(second);
        assert_eq!(events.topics(), 0);
    }
}

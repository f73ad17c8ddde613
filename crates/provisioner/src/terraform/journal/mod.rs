//! Sends the state to the server while Terraform works, each time Terraform has written it (docs/extensions.md,
//! Journal).

mod file_watcher;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coder_wire::extension::MAX_STATE_SIZE;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::file_watcher::FileWatcher;
use crate::connection::{CallError, JobClient};
use crate::files::job_file::JobFile;

/// Terraform truncates the file before it writes, so an incomplete state is read again after this time.
const RECHECK_DELAY: Duration = Duration::from_millis(20);

/// Serial and lineage of a state.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct StateVersion {
    pub(crate) serial: u64,
    pub(crate) lineage: String,
}

impl StateVersion {
    /// Parses a whole state; `None` when it is incomplete or not a state.
    pub(crate) fn of(state: &[u8]) -> Option<Self> {
        serde_json::from_slice(state).ok()
    }
}

/// A complete state that was read.
#[derive(Clone, PartialEq, Eq)]
struct StateSnapshot {
    stamp: StateVersion,
    bytes: Bytes,
}

type LatestState = Arc<Mutex<Option<StateSnapshot>>>;

/// Sends the states of one job; dropping it aborts what still runs.
pub(crate) struct Journal {
    job: JobClient,
    tasks: Mutex<JoinSet<()>>,
    newest: LatestState,
}

impl Journal {
    pub(crate) fn new(job: JobClient) -> Self {
        Self { job, tasks: Mutex::default(), newest: LatestState::default() }
    }

    /// Follows the state file until the token is canceled; the last state is still sent. Call it before
    /// Terraform starts.
    pub(crate) fn follow(&self, file: JobFile, ended: CancellationToken) {
        let changes = match FileWatcher::of(&file.path()) {
            Ok(changes) => changes,
            Err(error) => {
                tracing::warn!(job_id = self.job.job_id(), %error, "the state file cannot be watched; the state is sent at the job's end");
                return;
            }
        };
        let follower = Follower { job: self.job.clone(), file, newest: Arc::clone(&self.newest) };
        let mut tasks = self.tasks.lock();
        tasks.spawn(follower.run(changes, ended));
    }

    /// The latest state that was read while Terraform ran.
    pub(crate) fn newest(&self) -> Option<Bytes> {
        self.newest.lock().as_ref().map(|newest| newest.bytes.clone())
    }

    /// The state after Terraform's end: the content of the file, or the last complete state when Terraform was
    /// killed while writing.
    pub(crate) fn final_state(&self, file: Bytes) -> Bytes {
        if StateVersion::of(&file).is_some() {
            return file;
        }
        match &*self.newest.lock() {
            Some(newest) => {
                tracing::warn!(
                    job_id = self.job.job_id(),
                    serial = newest.stamp.serial,
                    "the state file is incomplete; using the last complete state"
                );
                newest.bytes.clone()
            }
            None => file,
        }
    }
}

struct Follower {
    job: JobClient,
    file: JobFile,
    newest: LatestState,
}

impl Follower {
    async fn run(self, mut changes: FileWatcher, ended: CancellationToken) {
        // The server already has the initial state.
        let mut sent = self.read().await;
        self.newest.lock().clone_from(&sent);
        let mut pending: Option<StateSnapshot> = None;
        let mut sending = None;
        let mut over = false;
        loop {
            if sending.is_none()
                && let Some(snapshot) = pending.take()
            {
                let job = self.job.clone();
                sending = Some(Box::pin(async move {
                    job.journal(snapshot.stamp.serial, &snapshot.stamp.lineage, &snapshot.bytes).await
                }));
            }
            let running = async {
                match &mut sending {
                    Some(sending) => sending.await,
                    None => std::future::pending().await,
                }
            };
            let incomplete = tokio::select! {
                result = running => {
                    sending = None;
                    match result {
                        Ok(true) => {}
                        // This server does not accept states; the next connection may.
                        Ok(false) => tracing::debug!("the server does not accept states"),
                        Err(CallError::JobEnded(_)) => return,
                        Err(error) => tracing::warn!(job_id = self.job.job_id(), %error, "the server rejects a state"),
                    }
                    false
                }
                () = changes.next(), if !over => self.check_file(&mut sent, &mut pending).await,
                () = ended.cancelled(), if !over => {
                    over = true;
                    self.check_file(&mut sent, &mut pending).await;
                    false
                }
            };
            if incomplete {
                tokio::time::sleep(RECHECK_DELAY).await;
                self.check_file(&mut sent, &mut pending).await;
            }
            if over && pending.is_none() && sending.is_none() {
                return;
            }
        }
    }

    /// Reads the file if it has changed; returns true when the state is incomplete.
    async fn check_file(
        &self,
        sent: &mut Option<StateSnapshot>,
        pending: &mut Option<StateSnapshot>,
    ) -> bool {
        let found = self.read().await;
        if found.is_none() {
            return true;
        }
        if found != *sent {
            self.newest.lock().clone_from(&found);
            pending.clone_from(&found);
            *sent = found;
        }
        false
    }

    async fn read(&self) -> Option<StateSnapshot> {
        let file = self.file.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let bytes = Bytes::from(file.read(MAX_STATE_SIZE as u64).ok()?);
            Some(StateSnapshot { stamp: StateVersion::of(&bytes)?, bytes })
        });
        reading.await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_state_has_a_stamp() {
        let text = br#"{"version":4,"serial":12,"lineage":"x-y","resources":[{"a":[1,2]}]}"#;
        assert_eq!(StateVersion::of(text), Some(StateVersion { serial: 12, lineage: "x-y".to_owned() }));
        for end in 0..text.len() {
            assert_eq!(StateVersion::of(&text[..end]), None, "{end}");
        }
    }
}

//! Stopping early: one job, or the whole daemon.

use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

/// How urgently a daemon is to stop. Later requests can only be more urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// Take no new job, finish the running ones (SIGTERM; wire-protocol 5.12).
    Drain,
    /// Cancel the running jobs and report how they ended (SIGINT).
    Cancel,
    /// End at once; the running jobs are reported as failed if that takes at most a second (a second signal).
    Force,
    /// End at once without reporting anything to the server (SIGQUIT).
    Kill,
}

/// Stops a daemon; clones share the state.
#[derive(Debug, Clone)]
pub struct Shutdown {
    level: Arc<watch::Sender<Option<Stop>>>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl Shutdown {
    pub fn new() -> Self {
        Self { level: Arc::new(watch::Sender::new(None)) }
    }

    /// Stops the daemon at least this urgently.
    pub fn stop(&self, how: Stop) {
        self.level.send_if_modified(|level| {
            let more = level.is_none_or(|known| known < how);
            if more {
                *level = Some(how);
            }
            more
        });
    }

    /// Finishes the running jobs and takes no other.
    pub fn drain(&self) {
        self.stop(Stop::Drain);
    }

    pub fn cancel(&self) {
        self.stop(Stop::Cancel);
    }

    pub fn force(&self) {
        self.stop(Stop::Force);
    }

    pub fn kill(&self) {
        self.stop(Stop::Kill);
    }

    /// The most urgent stop that was requested so far.
    pub fn requested(&self) -> Option<Stop> {
        *self.level.borrow()
    }

    /// Waits until a stop of at least this urgency is requested.
    pub async fn reached(&self, wanted: Stop) {
        let mut receiver = self.level.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = receiver.wait_for(|level| level.is_some_and(|level| level >= wanted)).await;
    }
}

/// How urgently a job is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    None,
    /// Terraform is interrupted and may clean up.
    Graceful,
    /// Terraform is killed.
    Forced,
}

/// Cancels one job; clones share the state.
#[derive(Debug, Clone)]
pub(crate) struct Cancel {
    urgency: Arc<watch::Sender<Urgency>>,
    reason: Arc<OnceLock<String>>,
}

impl Cancel {
    pub(crate) fn new() -> Self {
        Self { urgency: Arc::new(watch::Sender::new(Urgency::None)), reason: Arc::default() }
    }

    pub(crate) fn request(&self, urgency: Urgency) {
        self.urgency.send_if_modified(|known| {
            let more = *known < urgency;
            *known = (*known).max(urgency);
            more
        });
    }

    /// Ends the job because the daemon itself failed; the first reason becomes the job's error.
    pub(crate) fn fail(&self, reason: String) {
        let _ = self.reason.set(reason);
        self.request(Urgency::Graceful);
    }

    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    pub(crate) fn is_requested(&self) -> bool {
        *self.urgency.borrow() > Urgency::None
    }

    pub(crate) async fn reached(&self, wanted: Urgency) {
        let mut receiver = self.urgency.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = receiver.wait_for(|urgency| *urgency >= wanted).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stop_never_becomes_less_urgent() {
        let shutdown = Shutdown::new();
        assert_eq!(shutdown.requested(), None);
        shutdown.cancel();
        shutdown.drain();
        assert_eq!(shutdown.requested(), Some(Stop::Cancel));
        shutdown.reached(Stop::Drain).await;
        shutdown.clone().force();
        shutdown.reached(Stop::Force).await;
    }

    #[tokio::test]
    async fn the_first_reason_counts() {
        let cancel = Cancel::new();
        assert!(!cancel.is_requested());
        cancel.fail("first".to_owned());
        cancel.fail("second".to_owned());
        cancel.reached(Urgency::Graceful).await;
        assert_eq!(cancel.reason(), Some("first"));
    }
}

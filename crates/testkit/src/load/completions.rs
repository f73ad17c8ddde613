//! Completed jobs, for the clients that wait for them in the same process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::oneshot;

/// Notifies the client that posted a job once a daemon of this process has completed it. Either side may come first.
#[derive(Clone, Default)]
pub(super) struct Completions(Arc<Mutex<HashMap<String, Option<oneshot::Sender<()>>>>>);

impl Completions {
    pub(super) fn add(&self, job: &str) {
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match jobs.remove(job) {
            // A client that stopped waiting needs no message.
            Some(Some(waiting)) => drop(waiting.send(())),
            _ => drop(jobs.insert(job.to_owned(), None)),
        }
    }

    pub(super) async fn wait(&self, job: &str) -> Result<()> {
        let receive = {
            let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if jobs.remove(job).is_some() {
                return Ok(());
            }
            let (send, receive) = oneshot::channel();
            jobs.insert(job.to_owned(), Some(send));
            receive
        };
        tokio::time::timeout(Duration::from_secs(60), receive)
            .await
            .context("no daemon completed an import")??;
        Ok(())
    }
}

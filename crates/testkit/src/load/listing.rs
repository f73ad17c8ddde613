//! Lists of waiting jobs, with their places in the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::Result;
use coder_api::client::JobFilter;
use tokio::task::JoinSet;

use super::{Latency, Tags, Target};

/// Clients that post at once.
const CLIENTS: usize = 16;

impl Target {
    /// Posts imports that nobody can take, until `waiting` of them were posted by this call.
    ///
    /// # Errors
    /// When the server refuses one.
    pub async fn pile_up(&self, waiting: usize) -> Result<()> {
        let left = Arc::new(AtomicUsize::new(waiting));
        let mut posting = JoinSet::new();
        for _ in 0..CLIENTS {
            let (target, left) = (self.clone(), Arc::clone(&left));
            posting.spawn(async move {
                let take = |left: usize| left.checked_sub(1);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                    target.post(Tags::from([("pool".to_owned(), "nowhere".to_owned())])).await?;
                }
                Ok::<_, anyhow::Error>(())
            });
        }
        while let Some(client) = posting.join_next().await {
            client??;
        }
        Ok(())
    }

    /// How long a page of fifty jobs with their places takes.
    ///
    /// # Errors
    /// When a call fails.
    pub async fn listing(&self, rounds: usize) -> Result<Latency> {
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let begin = Instant::now();
            self.client.jobs(self.organization, &JobFilter::default()).await?;
            times.push(begin.elapsed());
        }
        Ok(Latency::of(times))
    }
}

//! Lists of waiting jobs with their queue positions.

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
    /// Posts `waiting` imports that no daemon can take.
    ///
    /// # Errors
    /// When the server refuses one.
    pub async fn post_waiting(&self, waiting: usize) -> Result<()> {
        let remaining = Arc::new(AtomicUsize::new(waiting));
        let mut posting = JoinSet::new();
        for _ in 0..CLIENTS {
            let (target, remaining) = (self.clone(), Arc::clone(&remaining));
            posting.spawn(async move {
                let decrement = |count: usize| count.checked_sub(1);
                while remaining.fetch_update(Ordering::Relaxed, Ordering::Relaxed, decrement).is_ok() {
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

    /// The time of a page of fifty jobs with their queue positions.
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

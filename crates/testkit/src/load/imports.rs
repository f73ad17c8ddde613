//! Template imports: the latency from the POST to a daemon, and the imports a second.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::completions::Completions;
use super::{AsyncStep, Latency, Tags, Target, rate};
use crate::daemon::{FakeDaemon, import_result, import_update};

impl Target {
    /// One client, one waiting daemon: the time from the beginning of the POST until the daemon has the job.
    ///
    /// # Errors
    /// When a call fails.
    pub async fn latency(&self, rounds: usize) -> Result<Latency> {
        let daemon = self.daemons(1, "latency", |_| Tags::new()).await?.remove(0);
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let waiting = tokio::spawn({
                let daemon = daemon.clone();
                async move { daemon.acquire().await.map(|job| (job, Instant::now())) }
            });
            // The daemon waits before the job is created, as in production.
            tokio::time::sleep(Duration::from_millis(5)).await;
            let begin = Instant::now();
            self.post(Tags::new()).await?;
            let (job, arrived) = waiting.await??;
            times.push(arrived.duration_since(begin));
            daemon.calls.complete_job(&import_result(&job.job_id)).await?;
        }
        daemon.leave().await;
        Ok(Latency::of(times))
    }

    /// Imports a second with this many daemons and clients, over `time`. A client posts its next import when its last
    /// one is complete.
    ///
    /// # Errors
    /// When a call fails.
    pub async fn throughput(&self, daemons: usize, clients: usize, time: Duration) -> Result<f64> {
        let completions = Completions::default();
        let stop = CancellationToken::new();
        let mut workers = JoinSet::new();
        for daemon in self.daemons(daemons, "throughput", |_| Tags::new()).await? {
            workers.spawn(work(daemon, completions.clone(), stop.clone()));
        }
        let step = |_| ImportStep { target: self.clone(), completions: completions.clone() };
        let rate = rate(clients, time, step).await?;
        stop.cancel();
        while let Some(worker) = workers.join_next().await {
            worker??;
        }
        Ok(rate)
    }
}

struct ImportStep {
    target: Target,
    completions: Completions,
}

impl AsyncStep for ImportStep {
    async fn step(&mut self) -> Result<()> {
        let job = self.target.post(Tags::new()).await?.job.id;
        self.completions.wait(&job.to_string()).await
    }
}

/// One daemon of the throughput run.
async fn work(daemon: FakeDaemon, completions: Completions, stop: CancellationToken) -> Result<()> {
    loop {
        let Some(job) = daemon.calls.acquire(stop.cancelled()).await? else {
            daemon.leave().await;
            return Ok(());
        };
        daemon.calls.update_job(&import_update(&job.job_id, 25, 3)).await?;
        daemon.calls.complete_job(&import_result(&job.job_id)).await?;
        completions.add(&job.job_id);
    }
}

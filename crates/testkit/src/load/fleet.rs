//! Very many waiting daemons, and jobs for some of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::{Latency, Tags, Target};
use crate::daemon::{FakeDaemon, import_result};

type Acquisitions = Arc<Mutex<HashMap<String, Acquisition>>>;

/// A job that was acquired or is waited for; either may come first.
enum Acquisition {
    Awaited(oneshot::Sender<Instant>),
    Done(Instant),
}

/// Connected daemons, each waiting for a job.
pub struct Fleet {
    target: Target,
    tag_sets: usize,
    acquisitions: Acquisitions,
    /// The time until the last daemon had joined.
    pub connected_in: Duration,
    _waiting: JoinSet<Result<()>>,
}

impl Fleet {
    /// Joins `daemons`, spread evenly over `tag_sets`; with one tag set they are untagged.
    ///
    /// # Errors
    /// When one cannot join.
    pub async fn join(target: &Target, daemons: usize, tag_sets: usize) -> Result<Self> {
        let begin = Instant::now();
        let joined = target.daemons(daemons, "fleet", |number| pool(number % tag_sets, tag_sets)).await?;
        let connected_in = begin.elapsed();
        let acquisitions = Acquisitions::default();
        let mut waiting = JoinSet::new();
        for daemon in joined {
            waiting.spawn(wait(daemon, Arc::clone(&acquisitions)));
        }
        Ok(Self { target: target.clone(), tag_sets, acquisitions, connected_in, _waiting: waiting })
    }

    /// Posts imports, one after the other, for one pool after the other; measures from the beginning of each POST until a
    /// daemon has the job.
    ///
    /// # Errors
    /// When one does not arrive within a minute.
    pub async fn latency(&self, rounds: usize) -> Result<Latency> {
        let mut times = Vec::with_capacity(rounds);
        for round in 0..rounds {
            // A large step, so that pools far apart follow each other.
            let tags = pool(round * 37 % self.tag_sets, self.tag_sets);
            let begin = Instant::now();
            let job = self.target.post(tags).await?.job.id.to_string();
            let arrived = match self.expect(job) {
                Ok(at) => at,
                Err(later) => tokio::time::timeout(Duration::from_secs(60), later)
                    .await
                    .context("no daemon got an import")??,
            };
            times.push(arrived.duration_since(begin));
        }
        Ok(Latency::of(times))
    }

    fn expect(&self, job: String) -> Result<Instant, oneshot::Receiver<Instant>> {
        let mut acquisitions = self.acquisitions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Acquisition::Done(at)) = acquisitions.remove(&job) {
            return Ok(at);
        }
        let (send, receive) = oneshot::channel();
        acquisitions.insert(job, Acquisition::Awaited(send));
        Err(receive)
    }
}

fn pool(number: usize, of: usize) -> Tags {
    if of < 2 { Tags::new() } else { Tags::from([("pool".to_owned(), number.to_string())]) }
}

async fn wait(daemon: FakeDaemon, acquisitions: Acquisitions) -> Result<()> {
    loop {
        let job = daemon.acquire().await?.job_id;
        let at = Instant::now();
        note(&acquisitions, &job, at);
        daemon.calls.complete_job(&import_result(&job)).await?;
    }
}

fn note(acquisitions: &Acquisitions, job: &str, at: Instant) {
    let mut acquisitions = acquisitions.lock().unwrap_or_else(PoisonError::into_inner);
    match acquisitions.remove(job) {
        // A client that stopped waiting needs no message.
        Some(Acquisition::Awaited(waiting)) => drop(waiting.send(at)),
        _ => drop(acquisitions.insert(job.to_owned(), Acquisition::Done(at))),
    }
}

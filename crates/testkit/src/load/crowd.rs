//! Very many daemons that wait, and jobs that find the right one among them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::{Latency, Tags, Target};
use crate::daemon::{FakeDaemon, import_result};

type Arrivals = Arc<Mutex<HashMap<String, Arrival>>>;

/// Either side may come first.
enum Arrival {
    Expected(oneshot::Sender<Instant>),
    Seen(Instant),
}

/// Connected daemons, each waiting for a job.
pub struct Crowd {
    target: Target,
    tag_sets: usize,
    arrivals: Arrivals,
    /// How long it took until the last of them had joined.
    pub connected_in: Duration,
    _waiting: JoinSet<Result<()>>,
}

impl Crowd {
    /// Joins `daemons`, spread evenly over `tag_sets`; with one tag set they are untagged.
    ///
    /// # Errors
    /// When one cannot join.
    pub async fn join(target: &Target, daemons: usize, tag_sets: usize) -> Result<Self> {
        let begin = Instant::now();
        let joined = target.daemons(daemons, "crowd", |number| pool(number % tag_sets, tag_sets)).await?;
        let connected_in = begin.elapsed();
        let arrivals = Arrivals::default();
        let mut waiting = JoinSet::new();
        for daemon in joined {
            waiting.spawn(wait(daemon, Arc::clone(&arrivals)));
        }
        Ok(Self { target: target.clone(), tag_sets, arrivals, connected_in, _waiting: waiting })
    }

    /// Posts imports, one after the other, for one pool after the other; from the beginning of each POST to a daemon.
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
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Arrival::Seen(at)) = arrivals.remove(&job) {
            return Ok(at);
        }
        let (send, receive) = oneshot::channel();
        arrivals.insert(job, Arrival::Expected(send));
        Err(receive)
    }
}

fn pool(number: usize, of: usize) -> Tags {
    if of < 2 { Tags::new() } else { Tags::from([("pool".to_owned(), number.to_string())]) }
}

async fn wait(daemon: FakeDaemon, arrivals: Arrivals) -> Result<()> {
    loop {
        let job = daemon.acquire().await?.job_id;
        let at = Instant::now();
        note(&arrivals, &job, at);
        daemon.calls.complete_job(&import_result(&job)).await?;
    }
}

fn note(arrivals: &Arrivals, job: &str, at: Instant) {
    let mut arrivals = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
    match arrivals.remove(job) {
        // Who stopped waiting needs no message.
        Some(Arrival::Expected(waiting)) => drop(waiting.send(at)),
        _ => drop(arrivals.insert(job.to_owned(), Arrival::Seen(at))),
    }
}

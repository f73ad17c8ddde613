//! The load driver. It knows a server only by its URL, a token, the REST API and the daemon protocol, so it measures an
//! official server in the same way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use coder_api::client::{Client, Options};
use coder_api::versions::CreateTemplateVersionRequest;
use coder_domain::ids::{FileId, JobId, OrganizationId};
use coder_domain::secret::Secret;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::daemon::{FakeDaemon, import_result, import_update};

/// A server to put under load.
#[derive(Clone)]
pub struct Target {
    client: Client,
    organization: OrganizationId,
    file: FileId,
}

/// Percentiles of the time from the beginning of a POST to the job in a daemon's hands.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Half are faster.
    pub p50: Duration,
    /// All but one in a hundred are faster.
    pub p99: Duration,
}

impl Target {
    /// Signs in with a token and uploads the one source archive that all imports use.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn new(url: &str, token: Secret) -> Result<Self> {
        let client = Client::new(url, Some(token), Options::default())?;
        let organizations = client.my_organizations().await.context("cannot list organizations")?;
        let organization = organizations.iter().find(|found| found.is_default).or(organizations.first());
        let organization = organization.context("the user is in no organization")?.id;
        let file = client.upload("application/x-tar", archive()?).await.context("cannot upload")?;
        Ok(Self { client, organization, file })
    }

    /// Posts one import; returns its job.
    async fn post(&self) -> Result<JobId> {
        let request = CreateTemplateVersionRequest {
            file_id: Some(self.file),
            ..CreateTemplateVersionRequest::default()
        };
        Ok(self.client.create_version(self.organization, &request).await?.job.id)
    }

    async fn daemons(&self, count: usize, name: &str) -> Result<Vec<FakeDaemon>> {
        let mut daemons = Vec::with_capacity(count);
        for number in 0..count {
            let joined = FakeDaemon::join_with_session(&self.client, &format!("{name}-{number}")).await;
            daemons.push(joined.context("a daemon cannot join")?);
        }
        Ok(daemons)
    }

    /// One client, one waiting daemon: how long a job needs from the POST to the daemon.
    ///
    /// # Errors
    /// When a call fails.
    pub async fn latency(&self, rounds: usize) -> Result<Latency> {
        let daemon = self.daemons(1, "latency").await?.remove(0);
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let waiting = tokio::spawn({
                let daemon = daemon.clone();
                async move { daemon.acquire().await.map(|job| (job, Instant::now())) }
            });
            // The daemon shall be waiting before the job is made, as it does in real life.
            tokio::time::sleep(Duration::from_millis(5)).await;
            let begin = Instant::now();
            self.post().await?;
            let (job, arrived) = waiting.await??;
            times.push(arrived.duration_since(begin));
            daemon.calls.complete_job(&import_result(&job.job_id)).await?;
        }
        daemon.leave().await;
        times.sort();
        let at = |percent: usize| {
            times.get(times.len() * percent / 100).or(times.last()).copied().unwrap_or_default()
        };
        Ok(Latency { p50: at(50), p99: at(99) })
    }

    /// Imports a second with this many daemons and clients, over `time`. A client posts its next import when its last
    /// one is complete.
    ///
    /// # Errors
    /// When a call fails.
    pub async fn throughput(&self, daemons: usize, clients: usize, time: Duration) -> Result<f64> {
        let finished = Finished::default();
        let stop = CancellationToken::new();
        let mut workers = JoinSet::new();
        for daemon in self.daemons(daemons, "throughput").await? {
            workers.spawn(work(daemon, finished.clone(), stop.clone()));
        }
        let begin = Instant::now();
        let mut posting = JoinSet::new();
        for _ in 0..clients {
            let (target, finished) = (self.clone(), finished.clone());
            posting.spawn(async move {
                let mut count = 0_u32;
                while begin.elapsed() < time {
                    let job = target.post().await?;
                    finished.wait(&job.to_string()).await?;
                    count += 1;
                }
                Ok::<_, anyhow::Error>(count)
            });
        }
        let mut total = 0;
        while let Some(client) = posting.join_next().await {
            total += client??;
        }
        let rate = f64::from(total) / begin.elapsed().as_secs_f64();
        stop.cancel();
        while let Some(worker) = workers.join_next().await {
            worker??;
        }
        Ok(rate)
    }

    /// Keeps idle daemons connected for `time`.
    ///
    /// # Errors
    /// When one cannot join or loses its connection.
    pub async fn idle(&self, daemons: usize, time: Duration) -> Result<()> {
        let mut waiting = JoinSet::new();
        for daemon in self.daemons(daemons, "idle").await? {
            waiting.spawn(async move {
                let end = Box::pin(tokio::time::sleep(time));
                daemon.calls.acquire(end).await.map(|_| ())
            });
        }
        while let Some(ended) = waiting.join_next().await {
            ended??;
        }
        Ok(())
    }
}

/// One daemon of the throughput run.
async fn work(daemon: FakeDaemon, finished: Finished, stop: CancellationToken) -> Result<()> {
    loop {
        let Some(job) = daemon.calls.acquire(stop.cancelled()).await? else {
            daemon.leave().await;
            return Ok(());
        };
        daemon.calls.update_job(&import_update(&job.job_id, 25, 3)).await?;
        daemon.calls.complete_job(&import_result(&job.job_id)).await?;
        finished.note(&job.job_id);
    }
}

/// Tells the client that posted a job when a daemon of this process completed it; either side may come first.
#[derive(Clone, Default)]
struct Finished(Arc<Mutex<HashMap<String, Option<oneshot::Sender<()>>>>>);

impl Finished {
    fn note(&self, job: &str) {
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match jobs.remove(job) {
            // A client that stopped waiting needs no message.
            Some(Some(waiting)) => drop(waiting.send(())),
            _ => drop(jobs.insert(job.to_owned(), None)),
        }
    }

    async fn wait(&self, job: &str) -> Result<()> {
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

/// The smallest useful template.
///
/// # Errors
/// Never in practice: it is written to memory.
pub fn archive() -> Result<Bytes> {
    let text = b"resource \"terraform_data\" \"example\" {}\n";
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, "main.tf", text.as_slice())?;
    Ok(archive.into_inner()?.into())
}

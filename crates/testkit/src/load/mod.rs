//! The load driver. It knows a server only by its URL, a token, the REST API and the daemon protocol, so it measures an
//! official server in the same way.

mod agents;
mod builds;
mod completions;
mod fleet;
mod imports;
mod listing;
mod terminal;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use coder_api::client::{Client, Credential, Options, ServeProvisionerDaemonRequest};
use coder_api::versions::{CreateTemplateVersionRequest, TemplateVersion};
use coder_domain::ids::{FileId, OrganizationId};
use coder_domain::secret::Secret;
use tokio::task::JoinSet;

use crate::daemon::{BUILD_VERSION, FakeDaemon};

pub use agents::Agents;
pub use fleet::Fleet;

/// A server to put under load.
#[derive(Clone)]
pub struct Target {
    client: Client,
    organization: OrganizationId,
    file: FileId,
}

/// Percentiles of a time.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// The median.
    pub p50: Duration,
    /// The 99th percentile.
    pub p99: Duration,
}

impl Latency {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort();
        let at = |percent: usize| {
            times.get(times.len() * percent / 100).or(times.last()).copied().unwrap_or_default()
        };
        Self { p50: at(50), p99: at(99) }
    }
}

/// Tags of a job.
pub type Tags = BTreeMap<String, String>;

impl Target {
    /// Signs in with a token and uploads the source archive of all jobs.
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

    /// Posts one import with these tags.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn post(&self, tags: Tags) -> Result<TemplateVersion> {
        let request = CreateTemplateVersionRequest {
            file_id: Some(self.file),
            tags,
            ..CreateTemplateVersionRequest::default()
        };
        Ok(self.client.create_version(self.organization, &request).await?)
    }

    /// Joins daemons, 64 at a time; `tags` gives the tags of each by its number.
    async fn daemons(
        &self,
        count: usize,
        name: &str,
        tags: impl Fn(usize) -> Tags,
    ) -> Result<Vec<FakeDaemon>> {
        let mut joining = JoinSet::new();
        let mut daemons = Vec::with_capacity(count);
        for number in 0..count {
            let mut serve = ServeProvisionerDaemonRequest::new(
                Credential::Session,
                format!("{name}-{number}"),
                BUILD_VERSION,
            );
            serve.tags = tags(number);
            let client = self.client.clone();
            joining.spawn(async move { FakeDaemon::join(&client, &serve).await });
            if joining.len() == 64 {
                daemons.extend(joined(&mut joining).await?);
            }
        }
        while !joining.is_empty() {
            daemons.extend(joined(&mut joining).await?);
        }
        Ok(daemons)
    }

    /// Keeps idle daemons connected for `time`.
    ///
    /// # Errors
    /// When one cannot join or loses its connection.
    pub async fn idle(&self, daemons: usize, time: Duration) -> Result<()> {
        let mut waiting = JoinSet::new();
        for daemon in self.daemons(daemons, "idle", |_| Tags::new()).await? {
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

type Joining = JoinSet<Result<FakeDaemon, coder_api::client::Error>>;

async fn joined(joining: &mut Joining) -> Result<Option<FakeDaemon>> {
    let Some(next) = joining.join_next().await else { return Ok(None) };
    next?.context("a daemon cannot join").map(Some)
}

/// Runs `clients` loops at once for `time`, and returns the number of steps a second.
async fn rate<F>(clients: usize, time: Duration, each: impl Fn(usize) -> F) -> Result<f64>
where
    F: AsyncStep + Send + 'static,
{
    let begin = Instant::now();
    let mut running = JoinSet::new();
    for number in 0..clients {
        let mut step = each(number);
        running.spawn(async move {
            let mut count = 0_u32;
            while begin.elapsed() < time {
                step.step().await?;
                count += 1;
            }
            Ok::<_, anyhow::Error>(count)
        });
    }
    let mut total = 0;
    while let Some(client) = running.join_next().await {
        total += client??;
    }
    Ok(f64::from(total) / begin.elapsed().as_secs_f64())
}

/// One step of a client's loop.
trait AsyncStep {
    fn step(&mut self) -> impl Future<Output = Result<()>> + Send;
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

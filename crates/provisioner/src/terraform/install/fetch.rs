//! Bounded downloads from a release server, with the system's certificate authorities and the environment's
//! proxies.

use std::path::{Path, PathBuf};
use std::time::Duration;

use coder_api::client::refused_certificate;
use coder_wire::error_chain;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;
use url::Url;

use super::InstallProgress;
use crate::terraform::http_client;
use crate::terraform::http_client::HttpClientError;

/// The index of all releases has several megabytes.
pub(super) const INDEX_LIMIT: usize = 64 * 1024 * 1024;

/// Limit of checksum lists and signatures.
pub(super) const SMALL_LIMIT: usize = 256 * 1024;

/// Archives have about 30 megabytes.
const ARCHIVE_LIMIT: u64 = 1024 * 1024 * 1024;

/// Progress is reported in steps of this size.
const STEP_PERCENT: u64 = 25;

const NEXT_STEP: &str = "name a mirror that can be reached with --terraform-mirror, or switch this off with --terraform-install=false";

#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error(transparent)]
    SetUp(#[from] HttpClientError),
    #[error("{0} is not an address: {NEXT_STEP}")]
    Address(url::ParseError),
    #[error("{url} cannot be fetched: {reason}: {NEXT_STEP}")]
    Failed { url: String, reason: String },
    #[error("{url} cannot be fetched: the server answers {status}: {NEXT_STEP}")]
    Status { url: String, status: u16 },
    #[error("{url} is longer than {limit} bytes; it is not the expected file")]
    TooLong { url: String, limit: u64 },
    #[error("{}: {reason}", path.display())]
    Disk { path: PathBuf, reason: std::io::Error },
}

pub(super) struct ReleaseServer {
    base: Url,
    http: reqwest::Client,
    read_timeout: Duration,
}

impl ReleaseServer {
    pub(super) fn new(base: Url, read_timeout: Duration) -> Result<Self, FetchError> {
        let http = http_client::client(read_timeout)?;
        Ok(Self { base, http, read_timeout })
    }

    /// Its address without credentials.
    pub(super) fn without_credentials(&self) -> String {
        without_credentials(&self.base)
    }

    /// Downloads a file into memory.
    pub(super) async fn get(&self, path: &str, limit: usize) -> Result<Vec<u8>, FetchError> {
        let (url, mut response) = self.open(path).await?;
        let body =
            http_client::body(&mut response, limit).await.map_err(|error| self.failed(&url, &error))?;
        body.ok_or_else(|| FetchError::TooLong { url: without_credentials(&url), limit: limit as u64 })
    }

    /// Downloads a file to disk; returns its hexadecimal SHA-256.
    pub(super) async fn download(
        &self,
        path: &str,
        to: &Path,
        progress: &InstallProgress<'_>,
    ) -> Result<String, FetchError> {
        let disk = |reason| FetchError::Disk { path: to.to_owned(), reason };
        let (url, mut response) = self.open(path).await?;
        let size = response.content_length().unwrap_or(0);
        let mut file = tokio::fs::File::create(to).await.map_err(disk)?;
        let (mut sum, mut done, mut next) = (Sha256::new(), 0_u64, STEP_PERCENT);
        while let Some(piece) = response.chunk().await.map_err(|error| self.failed(&url, &error))? {
            done += piece.len() as u64;
            if done > ARCHIVE_LIMIT {
                return Err(FetchError::TooLong { url: without_credentials(&url), limit: ARCHIVE_LIMIT });
            }
            sum.update(&piece);
            file.write_all(&piece).await.map_err(disk)?;
            let percent = (done * 100).checked_div(size).unwrap_or(0);
            if percent >= next && next < 100 {
                let mebibytes = size / (1024 * 1024);
                progress.report(&format!("Downloading Terraform: {percent} % of {mebibytes} MiB")).await;
                next = percent - percent % STEP_PERCENT + STEP_PERCENT;
            }
        }
        file.sync_all().await.map_err(disk)?;
        Ok(hex::encode(sum.finalize()))
    }

    async fn open(&self, path: &str) -> Result<(Url, reqwest::Response), FetchError> {
        let url = self.base.join(path).map_err(FetchError::Address)?;
        let response = tokio::time::timeout(self.read_timeout, self.http.get(url.clone()).send())
            .await
            .map_err(|_| self.timed_out(&url))?
            .map_err(|error| self.failed(&url, &error))?;
        if !response.status().is_success() {
            return Err(FetchError::Status {
                url: without_credentials(&url),
                status: response.status().as_u16(),
            });
        }
        Ok((url, response))
    }

    fn timed_out(&self, url: &Url) -> FetchError {
        let reason = format!("the server sent nothing for {} s", self.read_timeout.as_secs_f32());
        FetchError::Failed { url: without_credentials(url), reason }
    }

    /// The innermost cause says what happened.
    fn failed(&self, url: &Url, error: &reqwest::Error) -> FetchError {
        if error.is_timeout() {
            return self.timed_out(url);
        }
        if let Some(reason) = refused_certificate(error) {
            return FetchError::Failed { url: without_credentials(url), reason };
        }
        let innermost = error_chain::causes(error).last().map(ToString::to_string);
        FetchError::Failed { url: without_credentials(url), reason: innermost.unwrap_or_default() }
    }
}

fn without_credentials(url: &Url) -> String {
    let mut url = url.clone();
    // Fails only for addresses without a host, which have no password either.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.to_string()
}

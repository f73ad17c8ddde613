//! A scripted server of an older protocol version: refuses newer versions with the texts of the official one, knows no
//! extension, delivers one job and records every message.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use coder_api::deployment::BuildInfo;
use coder_api::error::{ErrorBody, Validation};
use coder_domain::protocol::ApiVersion;
use coder_wire::drpc::server::{CallStream, Event};
use coder_wire::messages::provisioner::VariableValue;
use coder_wire::messages::provisionerd as pb;
use coder_wire::mux::{Config, Session};
use coder_wire::ws::{Socket, handshake};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

/// Longest request that is read.
const MAX_REQUEST_SIZE: usize = 16 << 10;

/// The messages of a daemon.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The versions in its join requests, in order.
    pub offered: Vec<String>,
    /// How often `/api/v2/buildinfo` was read.
    pub build_info_reads: usize,
    /// The calls it made.
    pub calls: BTreeSet<String>,
    /// Results.
    pub completed: Vec<pb::CompletedJob>,
    pub failed: Vec<pb::FailedJob>,
}

/// Where a daemon can learn the server's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionSource {
    /// In the refusal, as official servers do.
    Refusal,
    /// In `/api/v2/buildinfo` only.
    BuildInfo,
}

struct Script {
    version: ApiVersion,
    source: VersionSource,
    job: Mutex<Option<pb::AcquiredJob>>,
    record: watch::Sender<Record>,
}

/// A running server.
pub struct OlderServer {
    address: SocketAddr,
    script: Arc<Script>,
    accepting: JoinHandle<()>,
}

impl OlderServer {
    /// Starts a server of this version with one job.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start(version: ApiVersion, source: VersionSource, job: pb::AcquiredJob) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (job, record) = (Mutex::new(Some(job)), watch::Sender::default());
        let script = Arc::new(Script { version, source, job, record });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&script)));
        Ok(Self { address, script, accepting })
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until the job has ended.
    ///
    /// # Errors
    /// When it does not within `limit`; the text has the recorded messages.
    pub async fn ended(&self, limit: Duration) -> Result<Record> {
        let mut receiver = self.script.record.subscribe();
        let over = receiver.wait_for(|record| !record.completed.is_empty() || !record.failed.is_empty());
        let over = tokio::time::timeout(limit, over).await.map(|record| record.map(|it| it.clone()));
        over.with_context(|| format!("{:?}", self.script.record.borrow()))?.context("the server ended")
    }
}

impl Drop for OlderServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, script: Arc<Script>) {
    while let Ok((stream, _)) = listener.accept().await {
        let script = Arc::clone(&script);
        tokio::spawn(async move {
            // A connection that ends early is missing in the record.
            let _ = serve(stream, &script).await;
        });
    }
}

/// Answers one request; each has a connection of its own.
async fn serve(mut stream: TcpStream, script: &Arc<Script>) -> Result<()> {
    let (path, headers) = request(&mut stream).await?;
    let (path, query) = path.split_once('?').unwrap_or((&path, ""));
    if path == "/api/v2/buildinfo" {
        script.record.send_modify(|record| record.build_info_reads += 1);
        let info = BuildInfo { provisioner_api_version: script.version.to_string(), ..BuildInfo::default() };
        return answer(&mut stream, 200, &serde_json::to_vec(&info)?).await;
    }
    if !path.ends_with("/provisionerdaemons/serve") {
        return answer(&mut stream, 404, b"{\"message\":\"no\"}").await;
    }
    let offered = query.split('&').find_map(|pair| pair.strip_prefix("version=")).unwrap_or_default();
    script.record.send_modify(|record| record.offered.push(offered.to_owned()));
    if let Err(error) = script.version.accept(offered) {
        let detail = match script.source {
            VersionSource::Refusal => error.to_string(),
            VersionSource::BuildInfo => "not supported".to_owned(),
        };
        let validations = vec![Validation { field: "version".to_owned(), detail }];
        let message = "Incompatible or unparsable version".to_owned();
        let body = ErrorBody { message, validations, ..ErrorBody::default() };
        return answer(&mut stream, 400, &serde_json::to_vec(&body)?).await;
    }
    let upgrade = handshake::answer(&headers)?;
    let mut head = String::from("HTTP/1.1 101 Switching Protocols\r\n");
    for (name, value) in &upgrade {
        head.push_str(&format!("{name}: {}\r\n", value.to_str()?));
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).await?;
    let session = Session::server(Socket::server(stream), Config::default());
    while let Ok(stream) = session.accept().await {
        let script = Arc::clone(script);
        tokio::spawn(async move {
            let mut stream = CallStream::new(Box::new(stream));
            while let Ok(Some(method)) = stream.next().await {
                script.record.send_modify(|record| {
                    record.calls.insert(method.clone());
                });
                if call(&script, &method, &mut stream).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(())
}

async fn call(script: &Script, method: &str, stream: &mut CallStream) -> Result<()> {
    match method.rsplit('/').next().unwrap_or_default() {
        "AcquireJobWithCancel" => {
            let job = script.job.lock().await.take();
            let job = match job {
                Some(job) => job,
                None => {
                    let event = stream.recv().await?;
                    ensure!(matches!(event, Event::Message(_)), "the daemon left");
                    pb::AcquiredJob::default()
                }
            };
            stream.send(&job).await?;
            stream.close().await?;
        }
        "UpdateJob" => {
            let request: pb::UpdateJobRequest = stream.request().await?.context("a request")?;
            let value = |variable: &coder_wire::messages::provisioner::TemplateVariable| VariableValue {
                name: variable.name.clone(),
                value: variable.default_value.clone(),
                sensitive: variable.sensitive,
            };
            let variable_values = request.template_variables.iter().map(value).collect();
            let answer = pb::UpdateJobResponse { variable_values, ..pb::UpdateJobResponse::default() };
            stream.send(&answer).await?;
            stream.close_send().await?;
        }
        "CompleteJob" => {
            let request: pb::CompletedJob = stream.request().await?.context("a request")?;
            script.record.send_modify(|record| record.completed.push(request));
            stream.send(&pb::Empty {}).await?;
            stream.close_send().await?;
        }
        "FailJob" => {
            let request: pb::FailedJob = stream.request().await?.context("a request")?;
            script.record.send_modify(|record| record.failed.push(request));
            stream.send(&pb::Empty {}).await?;
            stream.close_send().await?;
        }
        other => bail!("{other} is not in the script"),
    }
    Ok(())
}

/// Path and headers of a request without a body.
async fn request(stream: &mut TcpStream) -> Result<(String, HeaderMap)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < MAX_REQUEST_SIZE, "the request is too long");
        head.push(stream.read_u8().await?);
    }
    let text = std::str::from_utf8(&head)?;
    let mut lines = text.lines();
    let path = lines.next().and_then(|line| line.split(' ').nth(1)).context("a request line")?.to_owned();
    let mut headers = HeaderMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        headers.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_str(value)?);
    }
    Ok((path, headers))
}

async fn answer(stream: &mut TcpStream, status: u16, body: &[u8]) -> Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    stream.shutdown().await?;
    Ok(())
}

//! The peers of the tests: a scripted service, a server of this crate on a socket, and the Go program.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use coder_requirements::Requirement;
use coder_wire::daemon::{Acquire, CloseReason, Limits, Service, serve};
use coder_wire::drpc::Status;
use coder_wire::file::{self, FileHeader};
use coder_wire::messages::provisioner::VariableValue;
use coder_wire::messages::provisionerd::{
    AcquiredJob, CommitQuotaRequest, CommitQuotaResponse, CompletedJob, FailedJob, FileRequest,
    UpdateJobRequest, UpdateJobResponse,
};
use coder_wire::mux::{Config, Session};
use coder_wire::ws::{Socket, handshake};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The length of a file that is refused when it is announced.
pub(crate) const REFUSED_LENGTH: usize = 5_000_001;

pub(crate) const JOB: &str = "5d0a3a52-7a1c-4c0f-9a83-2f9d8d1e6b10";

/// A service whose acquire delivers after a while, or never. It records its calls.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) deliver_after: Option<Duration>,
    entries: watch::Sender<Vec<String>>,
}

impl Script {
    pub(crate) fn new(deliver_after: Option<Duration>) -> Arc<Self> {
        Arc::new(Self { deliver_after, entries: watch::Sender::new(Vec::new()) })
    }

    /// Records the entry of a skipped run.
    pub(crate) fn skip(&self, entry: &str) {
        self.note(entry);
    }

    fn note(&self, entry: impl Into<String>) {
        self.entries.send_modify(|entries| entries.push(entry.into()));
    }

    /// Whether there is an entry.
    pub(crate) fn has_noted(&self, entry: &str) -> bool {
        self.entries.borrow().iter().any(|noted| noted == entry)
    }

    /// Waits for an entry.
    pub(crate) async fn noted(&self, entry: &str) {
        let mut entries = self.entries.subscribe();
        let found = entries.wait_for(|entries| entries.iter().any(|noted| noted == entry));
        let result = tokio::time::timeout(Duration::from_secs(20), found).await.map(drop);
        assert!(result.is_ok(), "no {entry:?} in {:?}", self.entries.borrow());
    }
}

impl Service for Script {
    type Upload = BytesMut;
    type Download = Option<Bytes>;

    async fn acquire(&self, call: &mut Acquire) -> Result<(), Status> {
        self.note("acquire");
        let job = async {
            match self.deliver_after {
                Some(after) => tokio::time::sleep(after).await,
                None => std::future::pending().await,
            }
        };
        let reason = tokio::select! {
            reason = call.closed() => Some(reason),
            () = job => None,
        };
        match reason {
            Some(CloseReason::Canceled) => self.note("canceled"),
            Some(CloseReason::Disconnected) => self.note("broken"),
            None => {
                let job = AcquiredJob { job_id: JOB.to_owned(), ..AcquiredJob::default() };
                match call.deliver(&job).await {
                    Ok(()) => self.note("delivered"),
                    Err(error) => self.note(format!("not delivered: {error}")),
                }
            }
        }
        Ok(())
    }

    async fn commit_quota(
        &self,
        request: CommitQuotaRequest,
        _: CancellationToken,
    ) -> Result<CommitQuotaResponse, Status> {
        Ok(CommitQuotaResponse { ok: true, credits_consumed: request.daily_cost, budget: -1 })
    }

    async fn update_job(
        &self,
        request: UpdateJobRequest,
        canceled: CancellationToken,
    ) -> Result<UpdateJobResponse, Status> {
        match request.job_id.as_str() {
            "refuse" => Err(Status { code: 7, text: "required template variables: region".to_owned() }),
            "panic" => panic!("asked to"),
            "wait" => {
                self.note("waiting");
                canceled.cancelled().await;
                self.note("told");
                Ok(UpdateJobResponse::default())
            }
            _ => {
                let value = request.readme.len().to_string();
                let readme = VariableValue { name: "readme".to_owned(), value, sensitive: false };
                Ok(UpdateJobResponse { canceled: false, variable_values: vec![readme] })
            }
        }
    }

    async fn fail_job(&self, job: FailedJob, _: CancellationToken) -> Result<(), Status> {
        self.note(format!("failed {}", job.job_id));
        Ok(())
    }

    async fn complete_job(&self, job: CompletedJob, _: CancellationToken) -> Result<(), Status> {
        self.note(format!("completed {}", job.job_id));
        Ok(())
    }

    async fn begin_upload(&self, header: &FileHeader) -> Result<BytesMut, Status> {
        self.note(format!("announced {}", header.size));
        if header.size == REFUSED_LENGTH { Err(Status::new("not now")) } else { Ok(BytesMut::new()) }
    }

    async fn upload_file(&self, _: FileHeader, file: BytesMut, _: CancellationToken) -> Result<(), Status> {
        self.note(format!("uploaded {}", file.len()));
        Ok(())
    }

    async fn download_file(
        &self,
        request: FileRequest,
        _: CancellationToken,
    ) -> Result<(usize, [u8; 32], Option<Bytes>), Status> {
        let size = request.file_id.parse().map_err(|_| Status::new("no such file"))?;
        let content = content(size);
        Ok((size, file::hash(&content), Some(content)))
    }
}

/// A file of a size that both sides can make.
pub(crate) fn content(size: usize) -> Bytes {
    (0..size).map(|index| u8::try_from(index % 251).unwrap()).collect()
}

/// A daemon's session and the task that serves it, in memory.
pub(crate) fn in_memory(script: &Arc<Script>) -> (Session, tokio::task::JoinHandle<coder_wire::mux::Error>) {
    let (near, far) = tokio::io::duplex(64 << 10);
    (Session::client(near, Config::default()), serve_on(far, script))
}

pub(crate) fn serve_on(
    io: DuplexStream,
    script: &Arc<Script>,
) -> tokio::task::JoinHandle<coder_wire::mux::Error> {
    let session = Session::server(io, Config::default());
    let script = Arc::clone(script);
    tokio::spawn(async move { serve(&session, script, Limits::default()).await })
}

/// Our server on loopback.
pub(crate) struct Server {
    pub(crate) url: String,
    sessions: Arc<Mutex<Vec<Session>>>,
}

impl Server {
    pub(crate) async fn start(script: &Arc<Script>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/", listener.local_addr().unwrap());
        let sessions = Arc::new(Mutex::new(Vec::new()));
        let (kept, script) = (Arc::clone(&sessions), Arc::clone(script));
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tcp.set_nodelay(true).unwrap();
                let session = Session::server(Socket::server(upgrade(tcp).await), Config::default());
                kept.lock().unwrap().push(session.clone());
                let script = Arc::clone(&script);
                tokio::spawn(async move { serve(&session, script, Limits::default()).await });
            }
        });
        Self { url, sessions }
    }

    /// A server whose sessions are the test's own.
    pub(crate) async fn raw<F>(handle: impl Fn(Session) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/", listener.local_addr().unwrap());
        let sessions = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&sessions);
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let session = Session::server(Socket::server(upgrade(tcp).await), Config::default());
                kept.lock().unwrap().push(session.clone());
                tokio::spawn(handle(session));
            }
        });
        Self { url, sessions }
    }

    /// The open streams of all sessions, when there are none or at the deadline.
    pub(crate) async fn open_streams(&self) -> usize {
        let count = || self.sessions.lock().unwrap().iter().map(Session::open_streams).sum::<usize>();
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        while count() > 0 && tokio::time::Instant::now() < deadline {
            tokio::task::yield_now().await;
        }
        count()
    }
}

/// The HTTP part of a WebSocket server.
async fn upgrade(mut tcp: TcpStream) -> TcpStream {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tcp.read_u8().await.unwrap());
    }
    let text = String::from_utf8(head).unwrap();
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(value.trim()).ok()?))
    };
    let headers: HeaderMap = text.lines().skip(1).filter_map(header).collect();
    let mut answer = "HTTP/1.1 101 Switching Protocols\r\n".to_owned();
    for (name, value) in &handshake::answer(&headers).unwrap() {
        answer += &format!("{name}: {}\r\n", value.to_str().unwrap());
    }
    tcp.write_all((answer + "\r\n").as_bytes()).await.unwrap();
    tcp
}

/// The Go program, built once; none without Go, and then the test is recorded as skipped.
pub(crate) fn interop() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop");
        let mut build = Command::new(coder_requirements::program(Requirement::Go)?);
        build.args(["build", "-o"]).arg(&program).arg(".").current_dir(source);
        let status = build.status().unwrap();
        assert!(status.success(), "go build in interop failed");
        Some(program)
    };
    PROGRAM.get_or_init(build).as_deref()
}

/// The Go server.
pub(crate) struct GoServer {
    child: Child,
    output: BufReader<ChildStdout>,
    address: String,
}

impl GoServer {
    pub(crate) fn start() -> Option<Self> {
        let mut command = Command::new(interop()?);
        let mut child = command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap().to_owned();
        Some(Self { child, output, address })
    }

    pub(crate) async fn dial(&self, path: &str) -> Result<Socket<TcpStream>, handshake::Error> {
        let tcp = TcpStream::connect(&self.address).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let uri = format!("http://{}{path}", self.address).parse().unwrap();
        handshake::client(tcp, &uri, &HeaderMap::new()).await
    }

    pub(crate) async fn join(&self, path: &str) -> Session {
        Session::client(self.dial(path).await.unwrap(), Config::default())
    }

    /// The next line of the server's report.
    pub(crate) fn report(&mut self) -> serde_json::Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }
}

impl Drop for GoServer {
    fn drop(&mut self) {
        // Standard input ends with the child's handle; this is for a program that hangs.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs one scenario of the Go client and returns its report.
pub(crate) async fn go_client(url: &str, scenario: &str) -> Option<serde_json::Value> {
    let mut command = Command::new(interop()?);
    command.args(["dial", url, scenario]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    std::io::stderr().write_all(&output.stderr).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

//! The sockets of the provider: one per job, so that each Terraform run sees the environment of its own job.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::environment::Environment;
use crate::grpc;
use crate::local_agents::LocalAgents;
use crate::plugin::{Call, Plugin, default_url};

/// The longest path that fits into a socket's address: 108 bytes with the closing zero.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// Longest TLS handshake.
const TLS_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest wait for connections to end. Terraform kills a plugin two seconds after it requested the end.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The addresses of the provider in templates, for Terraform and for OpenTofu.
const ADDRESSES: [&str; 2] = ["registry.terraform.io/coder/coder", "registry.opentofu.org/coder/coder"];

/// Why a socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket cannot be created.
    #[error("the socket of the terraform provider cannot be created in {}", folder.display())]
    Socket {
        /// The folder of the socket.
        folder: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// The provider, which can listen for any number of jobs. Cheap to clone.
#[derive(Clone)]
pub struct ProviderServer {
    plugin: Arc<Plugin>,
}

impl ProviderServer {
    /// Builds the schemas; opens no socket yet.
    pub fn new() -> Self {
        Self { plugin: Arc::new(Plugin::new(None)) }
    }

    /// A provider that also has `coder_local_agent`. Its jobs can start processes that outlive them.
    pub fn with_local_agents(agents: Arc<dyn LocalAgents>) -> Self {
        Self { plugin: Arc::new(Plugin::new(Some(agents))) }
    }

    /// Opens a socket in `folder` for one job with these variables. Terraform runs in `run_dir`.
    ///
    /// Only this user can connect. Other jobs of the user can too, unless `folder` is hidden from them: the socket
    /// answers with the credentials of its job, so it is never created anywhere else. When its path is too long
    /// for a socket's address, Terraform gets the path that leads to it from `run_dir`.
    ///
    /// Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// When the socket cannot be created, or when its path from `run_dir` is too long too.
    pub fn listen(
        &self,
        folder: &Path,
        run_dir: &Path,
        environment: Environment,
    ) -> Result<ProviderListener, Error> {
        self.open(folder, Some(run_dir), environment, None, Lifetime::Job)
    }

    pub(crate) fn open(
        &self,
        folder: &Path,
        run_dir: Option<&Path>,
        environment: Environment,
        tls: Option<TlsAcceptor>,
        lifetime: Lifetime,
    ) -> Result<ProviderListener, Error> {
        let error = |source| Error::Socket { folder: folder.to_owned(), source };
        let name = format!("tf{}.sock", &Uuid::new_v4().simple().to_string()[..12]);
        let socket = SocketFile(folder.join(&name));
        let address = connectable(&socket.0, run_dir).map_err(error)?;
        let (listener, user) = bind(folder, &socket.0, &name).map_err(error)?;
        let job = Arc::new(Job {
            plugin: self.plugin.clone(),
            environment: Mutex::new(Arc::new(environment)),
            last_url: ConfiguredUrl::default(),
            tls,
            lifetime,
            end: CancellationToken::new(),
        });
        let task = tokio::spawn(accept(listener, user, job.clone()));
        Ok(ProviderListener { job, socket, address, task })
    }
}

/// A path of the socket that fits into an address, for a process that runs in `run_dir`.
fn connectable(socket: &Path, run_dir: Option<&Path>) -> io::Result<PathBuf> {
    let fits = |path: &PathBuf| path.as_os_str().len() <= MAX_SOCKET_PATH_BYTES;
    [Some(socket.to_owned()), run_dir.and_then(|dir| relative(socket, dir))]
        .into_iter()
        .flatten()
        .find(fits)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidFilename, "its path is too long for a socket"))
}

/// The path that leads to `path` from `dir`, if they have a directory in common. Both are absolute.
fn relative(path: &Path, dir: &Path) -> Option<PathBuf> {
    let shared = path.components().zip(dir.components()).take_while(|(one, other)| one == other).count();
    let up = dir.components().skip(shared).map(|_| Component::ParentDir);
    (shared > 1).then(|| up.chain(path.components().skip(shared)).collect())
}

/// Binds `name` in `folder`, whatever the length of the folder's path.
fn bind(folder: &Path, socket: &Path, name: &str) -> io::Result<(UnixListener, u32)> {
    let opened = std::fs::File::open(folder)?;
    let short = Path::new("/proc/self/fd").join(opened.as_raw_fd().to_string()).join(name);
    let listener = UnixListener::bind(short)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600))?;
    Ok((listener, std::fs::metadata(socket)?.uid()))
}

impl Default for ProviderServer {
    fn default() -> Self {
        Self::new()
    }
}

/// An open socket of one job. Dropping it closes the socket and its connections.
pub struct ProviderListener {
    job: Arc<Job>,
    socket: SocketFile,
    /// The path by which Terraform connects.
    address: PathBuf,
    task: JoinHandle<()>,
}

impl ProviderListener {
    /// The value of `TF_REATTACH_PROVIDERS`, which every terraform command of the job needs: init, plan, apply, show
    /// and graph.
    pub fn reattach(&self) -> Json {
        // "Test" tells Terraform that it does not own the provider; otherwise Terraform would kill the process of this
        // id.
        let provider = json!({
            "Protocol": "grpc",
            "ProtocolVersion": 5,
            "Pid": std::process::id(),
            "Test": true,
            "Addr": { "Network": "unix", "String": self.address },
        });
        ADDRESSES.iter().map(|address| ((*address).to_owned(), provider.clone())).collect()
    }

    pub fn socket(&self) -> &Path {
        &self.socket.0
    }

    /// Replaces the environment of all later calls: plan and apply have different variables.
    pub fn set_environment(&self, environment: Environment) {
        *self.job.environment.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(environment);
    }

    /// Cancelled when the client requested the end of a plugin process; cancelling it ends the plugin.
    pub(crate) fn end(&self) -> &CancellationToken {
        &self.job.end
    }

    /// Waits until the end was requested and the connections are closed.
    pub(crate) async fn ended(mut self) {
        // It is never aborted before this object is dropped, and it does not panic.
        (&mut self.task).await.ok();
    }

    /// Closes the socket and its connections, and waits until they are closed.
    pub async fn stop(mut self) {
        self.task.abort();
        // The only outcome of an aborted task is that it was aborted.
        (&mut self.task).await.ok();
    }
}

impl Drop for ProviderListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Removes the socket when it is dropped.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The job's folder may be removed already, and the socket with it.
        std::fs::remove_file(&self.0).ok();
    }
}

/// How long a socket is open.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// Until its owner closes it; many terraform commands connect.
    Job,
    /// Until the one terraform command that started the plugin requests the end.
    Command,
}

struct Job {
    plugin: Arc<Plugin>,
    environment: Mutex<Arc<Environment>>,
    /// For connections that are opened again during a long apply: Terraform does not configure them again.
    last_url: ConfiguredUrl,
    tls: Option<TlsAcceptor>,
    lifetime: Lifetime,
    end: CancellationToken,
}

/// The URL in the provider block of the configuration.
#[derive(Default)]
pub(crate) struct ConfiguredUrl {
    url: Mutex<Option<String>>,
    fallback: Option<Arc<Job>>,
}

impl ConfiguredUrl {
    pub(crate) fn set(&self, url: &str) {
        *self.url.lock().unwrap_or_else(PoisonError::into_inner) = Some(url.to_owned());
        if let Some(job) = &self.fallback {
            job.last_url.set(url);
        }
    }

    /// The configured URL, or the one in the environment.
    pub(crate) fn get(&self, environment: &Environment) -> String {
        let url = self.url.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let url = url.or_else(|| self.fallback.as_ref().map(|job| job.last_url.get(environment)));
        url.unwrap_or_else(|| default_url(environment).to_owned())
    }
}

async fn accept(listener: UnixListener, user: u32, job: Arc<Job>) {
    // Dropping the set, together with this task, ends every connection.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    if may_connect(&stream, user) {
                        connections.spawn(secure(stream, job.clone()));
                    } else {
                        tracing::warn!("a connection of another user to a terraform provider was refused");
                    }
                }
                // Without file descriptors: a closing connection releases one.
                Err(error) => {
                    tracing::warn!(%error, "a terraform provider connection was lost");
                    if connections.join_next().await.is_none() {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            },
            Some(_) = connections.join_next() => {}
            () = job.end.cancelled() => break,
        }
    }
    drop(listener);
    // Connections that are still open then are closed with the set.
    tokio::time::timeout(END_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await.ok();
}

/// Only the socket's owner and root may connect, because answers contain tokens.
fn may_connect(stream: &UnixStream, user: u32) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == user || peer.uid() == 0)
}

async fn secure(stream: UnixStream, job: Arc<Job>) {
    let Some(tls) = job.tls.clone() else { return serve(stream, job).await };
    match tokio::time::timeout(TLS_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => serve(stream, job).await,
        Ok(Err(error)) => {
            tracing::warn!(%error, "a connection without terraform's certificate was refused")
        }
        Err(_) => tracing::warn!("a connection without a TLS handshake was closed"),
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, job: Arc<Job>) {
    let url = Arc::new(ConfiguredUrl { url: Mutex::new(None), fallback: Some(job.clone()) });
    let end = job.end.clone();
    let answer = move |path: String, body| {
        let (job, url) = (job.clone(), url.clone());
        async move {
            if path == "/plugin.GRPCController/Shutdown" {
                // A reattached provider outlives each terraform process, so the request has no effect.
                if job.lifetime == Lifetime::Command {
                    job.end.cancel();
                }
                return Ok(Bytes::new());
            }
            let environment = job.environment.lock().unwrap_or_else(PoisonError::into_inner).clone();
            job.plugin.call(&path, body, &Call { environment, url: &url }).await
        }
    };
    if let Err(error) = grpc::serve(stream, answer, end).await {
        // Terraform ends without closing its connections, so this is the usual end.
        tracing::trace!(%error, "a terraform provider connection ended");
    }
}

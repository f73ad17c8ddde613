//! Sockets: one per job, so that each Terraform run sees the environment of its own job.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
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
use crate::plugin::{Call, Plugin, default_url};

/// The longest path that fits into a socket's address: 108 bytes with the closing zero.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// How long a client may take to prove who it is.
const TLS_TIMEOUT: Duration = Duration::from_secs(30);

/// How long connections may take to end. Terraform kills a plugin two seconds after it asked it to end.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The names templates know the provider by, with Terraform and with OpenTofu.
const ADDRESSES: [&str; 2] = ["registry.terraform.io/coder/coder", "registry.opentofu.org/coder/coder"];

/// Why a socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder for the socket cannot be used.
    #[error("no socket for the terraform provider can be made in {}", folder.display())]
    Socket {
        /// Where the socket should have been.
        folder: PathBuf,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
}

/// The provider, ready to listen for any number of jobs. Cheap to clone.
#[derive(Clone)]
pub struct ProviderServer {
    plugin: Arc<Plugin>,
}

impl ProviderServer {
    /// Makes the schemas; opens nothing yet.
    pub fn new() -> Self {
        Self { plugin: Arc::new(Plugin::new()) }
    }

    /// Opens a socket in `folder` for one job, whose Terraform is given `environment`.
    ///
    /// The socket can be used by this user only. Where the folder's path is too long for a socket's address, a folder
    /// of its own below the system's temporary one is used instead.
    ///
    /// Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn listen(&self, folder: &Path, environment: Environment) -> Result<Listening, Error> {
        self.open(folder, environment, None, Life::Job)
    }

    pub(crate) fn open(
        &self,
        folder: &Path,
        environment: Environment,
        tls: Option<TlsAcceptor>,
        life: Life,
    ) -> Result<Listening, Error> {
        let in_folder = |folder: &Path, source| Error::Socket { folder: folder.to_owned(), source };
        let name = format!("tf{}.sock", &Uuid::new_v4().simple().to_string()[..12]);
        let mut socket = folder.join(&name);
        let mut own_folder = None;
        if socket.as_os_str().len() > MAX_SOCKET_PATH_BYTES {
            let short = std::env::temp_dir().join(format!("coder-{}", &name[2..14]));
            std::fs::DirBuilder::new()
                .mode(0o700)
                .create(&short)
                .map_err(|error| in_folder(&short, error))?;
            socket = short.join(&name);
            own_folder = Some(short);
        }
        let files = Files { socket, own_folder };
        let open = || {
            let listener = UnixListener::bind(&files.socket)?;
            std::fs::set_permissions(&files.socket, std::fs::Permissions::from_mode(0o600))?;
            Ok((listener, std::fs::metadata(&files.socket)?.uid()))
        };
        let (listener, user) = open().map_err(|error| in_folder(folder, error))?;
        let job = Arc::new(Job {
            plugin: self.plugin.clone(),
            environment: Mutex::new(Arc::new(environment)),
            last_url: ConfiguredUrl::default(),
            tls,
            life,
            end: CancellationToken::new(),
        });
        let task = tokio::spawn(accept(listener, user, job.clone()));
        Ok(Listening { job, files, task })
    }
}

impl Default for ProviderServer {
    fn default() -> Self {
        Self::new()
    }
}

/// An open socket of one job. Dropping it closes the socket and its connections.
pub struct Listening {
    job: Arc<Job>,
    files: Files,
    task: JoinHandle<()>,
}

impl Listening {
    /// The value of `TF_REATTACH_PROVIDERS`, which every terraform command of the job needs: init, plan, apply, show
    /// and graph.
    pub fn reattach(&self) -> Json {
        // "Test" says that somebody else started the provider and will end it; without it Terraform would kill the
        // process of this id.
        let provider = json!({
            "Protocol": "grpc",
            "ProtocolVersion": 5,
            "Pid": std::process::id(),
            "Test": true,
            "Addr": { "Network": "unix", "String": self.files.socket },
        });
        ADDRESSES.iter().map(|address| ((*address).to_owned(), provider.clone())).collect()
    }

    /// The path of the socket.
    pub fn socket(&self) -> &Path {
        &self.files.socket
    }

    /// Gives the calls from now on another environment: plan and apply differ in theirs.
    pub fn set_environment(&self, environment: Environment) {
        *self.job.environment.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(environment);
    }

    /// Cancelled when the client asked an ordinary plugin to end; cancelling it ends the plugin.
    pub(crate) fn end(&self) -> &CancellationToken {
        &self.job.end
    }

    /// Waits until the plugin was asked to end and its connections are closed.
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

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What lies in the file system because of a socket.
struct Files {
    socket: PathBuf,
    own_folder: Option<PathBuf>,
}

impl Drop for Files {
    fn drop(&mut self) {
        // The job's folder may be gone already, and the socket with it.
        std::fs::remove_file(&self.socket).ok();
        if let Some(folder) = &self.own_folder {
            std::fs::remove_dir(folder).ok();
        }
    }
}

/// How long a socket is open.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// As long as its owner wants; many terraform commands come and go.
    Job,
    /// Until the one terraform command that started the plugin asks it to end.
    Command,
}

struct Job {
    plugin: Arc<Plugin>,
    environment: Mutex<Arc<Environment>>,
    /// For connections that were opened again in the middle of a long apply, where nobody configures them again.
    last_url: ConfiguredUrl,
    tls: Option<TlsAcceptor>,
    life: Life,
    end: CancellationToken,
}

/// The address a provider block gave.
#[derive(Default)]
pub(crate) struct ConfiguredUrl {
    url: Mutex<Option<String>>,
    also: Option<Arc<Job>>,
}

impl ConfiguredUrl {
    pub(crate) fn set(&self, url: &str) {
        *self.url.lock().unwrap_or_else(PoisonError::into_inner) = Some(url.to_owned());
        if let Some(job) = &self.also {
            job.last_url.set(url);
        }
    }

    /// The configured address, or the one the environment gives.
    pub(crate) fn get(&self, environment: &Environment) -> String {
        let url = self.url.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let url = url.or_else(|| self.also.as_ref().map(|job| job.last_url.get(environment)));
        url.unwrap_or_else(|| default_url(environment).to_owned())
    }
}

async fn accept(listener: UnixListener, user: u32, job: Arc<Job>) {
    // Dropping the set, with this task, ends every connection.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    if may_connect(&stream, user) {
                        connections.spawn(secure(stream, job.clone()));
                    } else {
                        tracing::warn!("another user tried to connect to a terraform provider");
                    }
                }
                // Out of file descriptors: a closing connection frees one.
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
    // What is still open then is closed with the set.
    tokio::time::timeout(END_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await.ok();
}

/// Answers hold tokens: only the socket's owner and root may ask.
fn may_connect(stream: &UnixStream, user: u32) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == user || peer.uid() == 0)
}

async fn secure(stream: UnixStream, job: Arc<Job>) {
    let Some(tls) = job.tls.clone() else { return serve(stream, job).await };
    match tokio::time::timeout(TLS_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => serve(stream, job).await,
        Ok(Err(error)) => tracing::warn!(%error, "a connection without terraform's certificate was refused"),
        Err(_) => tracing::warn!("a connection that did not begin was closed"),
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, job: Arc<Job>) {
    let url = ConfiguredUrl { url: Mutex::new(None), also: Some(job.clone()) };
    let end = job.end.clone();
    let answer = move |path: &str, body| {
        if path == "/plugin.GRPCController/Shutdown" {
            // A reattached provider outlives each terraform process: the request is answered and not followed.
            if job.life == Life::Command {
                job.end.cancel();
            }
            return Ok(Bytes::new());
        }
        let environment = job.environment.lock().unwrap_or_else(PoisonError::into_inner).clone();
        job.plugin.call(path, body, &Call { environment, url: &url })
    };
    if let Err(error) = grpc::serve(stream, answer, end).await {
        // Terraform ends without saying goodbye, so this is the usual end.
        tracing::trace!(%error, "a terraform provider connection ended");
    }
}

//! Connections that a client makes through the agent, and those that come back to it (agent 4.1).

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use russh::server::{ChannelOpenHandle, Handle, Msg};
use russh::{Channel, ChannelOpenFailure};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::inbox::Inboxes;
use crate::forward::copy;

/// Ports and sockets that one connection listens on.
const MAX_LISTENERS: usize = 256;
/// The time for connecting to a target.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause after a failed accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where a client wants to connect.
pub(super) enum Target {
    Tcp(String, u16),
    Unix(PathBuf),
}

/// The forwards of one connection.
pub(super) struct Forwards {
    ended: CancellationToken,
    inboxes: Inboxes,
    /// Permits for channels.
    channels: Arc<Semaphore>,
    tcp: HashMap<(String, u32), CancellationToken>,
    unix: HashMap<String, CancellationToken>,
}

impl Forwards {
    pub(super) fn new(ended: CancellationToken, inboxes: Inboxes, channels: usize) -> Self {
        Self {
            ended,
            inboxes,
            channels: Arc::new(Semaphore::new(channels)),
            tcp: HashMap::new(),
            unix: HashMap::new(),
        }
    }

    /// Connects a channel of the client to a target. The channel is opened only when the target has accepted.
    pub(super) async fn connect(
        &self,
        channel: Channel<Msg>,
        target: Target,
        reply: ChannelOpenHandle,
        handle: Handle,
    ) {
        let Ok(permit) = Arc::clone(&self.channels).try_acquire_owned() else {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return;
        };
        let ended = self.ended.clone();
        let stream = Opening { channel, inboxes: self.inboxes.clone(), handle, reply };
        tokio::spawn(async move {
            let _permit = permit;
            let work = async {
                match target {
                    Target::Tcp(host, port) => {
                        let connected = async {
                            let stream = TcpStream::connect((host.as_str(), port)).await?;
                            stream.set_nodelay(true)?;
                            Ok(stream)
                        };
                        stream.carry(within(connected).await).await;
                    }
                    Target::Unix(path) => {
                        stream.carry(within(UnixStream::connect(path)).await).await;
                    }
                }
            };
            ended.run_until_cancelled(work).await;
        });
    }

    /// Listens on a port of the workspace for the client. The port that was bound.
    pub(super) async fn listen_tcp(&mut self, address: &str, port: u16, handle: Handle) -> io::Result<u16> {
        self.check_room()?;
        let host = match address {
            "" | "*" => "0.0.0.0",
            "localhost" => "127.0.0.1",
            other => other,
        };
        let listener = TcpListener::bind((host, port)).await?;
        let bound = listener.local_addr()?.port();
        let stop = self.ended.child_token();
        self.tcp.insert((address.to_owned(), bound.into()), stop.clone());
        let (address, channels) = (address.to_owned(), Arc::clone(&self.channels));
        let (inboxes, ended) = (self.inboxes.clone(), self.ended.clone());
        tokio::spawn(async move {
            let accept = async {
                loop {
                    let Some((stream, from)) = accepted(listener.accept().await).await else { continue };
                    let Ok(permit) = Arc::clone(&channels).try_acquire_owned() else { continue };
                    let offer = Offer { handle: handle.clone(), inboxes: inboxes.clone(), _permit: permit };
                    let (address, ended) = (address.clone(), ended.clone());
                    // It outlives the listener.
                    tokio::spawn(async move {
                        ended.run_until_cancelled(offer.tcp(address, bound, from, stream)).await;
                    });
                }
            };
            stop.run_until_cancelled(accept).await;
        });
        Ok(bound)
    }

    pub(super) fn cancel_tcp(&mut self, address: &str, port: u32) -> bool {
        let stop = self.tcp.remove(&(address.to_owned(), port));
        stop.inspect(CancellationToken::cancel).is_some()
    }

    /// Listens on a socket for the client.
    pub(super) fn listen_unix(&mut self, path: &str, handle: Handle) -> io::Result<()> {
        if self.unix.contains_key(path) {
            return Ok(());
        }
        self.check_room()?;
        let socket = Path::new(path);
        if let Some(folder) = socket.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        remove_socket(socket)?;
        let listener = UnixListener::bind(socket)?;
        let stop = self.ended.child_token();
        self.unix.insert(path.to_owned(), stop.clone());
        let (path, channels) = (path.to_owned(), Arc::clone(&self.channels));
        let (inboxes, ended) = (self.inboxes.clone(), self.ended.clone());
        tokio::spawn(async move {
            let accept = async {
                loop {
                    let Some((stream, _)) = accepted(listener.accept().await).await else { continue };
                    let Ok(permit) = Arc::clone(&channels).try_acquire_owned() else { continue };
                    let offer = Offer { handle: handle.clone(), inboxes: inboxes.clone(), _permit: permit };
                    let (path, ended) = (path.clone(), ended.clone());
                    tokio::spawn(async move {
                        ended.run_until_cancelled(offer.unix(path, stream)).await;
                    });
                }
            };
            stop.run_until_cancelled(accept).await;
            drop(listener);
            drop(remove_socket(Path::new(&path)));
        });
        Ok(())
    }

    pub(super) fn cancel_unix(&mut self, path: &str) -> bool {
        self.unix.remove(path).inspect(CancellationToken::cancel).is_some()
    }

    fn check_room(&self) -> io::Result<()> {
        if self.tcp.len() + self.unix.len() >= MAX_LISTENERS {
            return Err(io::Error::other(format!(
                "a connection listens on at most {MAX_LISTENERS} ports and sockets"
            )));
        }
        Ok(())
    }
}

async fn within<T>(connecting: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(CONNECT_TIMEOUT, connecting)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// A channel that the client wants to open.
struct Opening {
    channel: Channel<Msg>,
    inboxes: Inboxes,
    handle: Handle,
    reply: ChannelOpenHandle,
}

impl Opening {
    /// Opens the channel if its target was reached, and carries it.
    async fn carry(self, connected: io::Result<impl AsyncRead + AsyncWrite + Unpin>) {
        match connected {
            Ok(stream) => {
                let channel = self.inboxes.stream(self.channel, self.handle);
                self.reply.accept().await;
                report(copy(channel, stream).await);
            }
            Err(error) => {
                tracing::debug!(%error, "the target of a forwarded connection cannot be reached");
                self.reply.reject(ChannelOpenFailure::ConnectFailed).await;
            }
        }
    }
}

/// A connection that was accepted for the client.
struct Offer {
    handle: Handle,
    inboxes: Inboxes,
    _permit: OwnedSemaphorePermit,
}

impl Offer {
    async fn tcp(self, address: String, port: u16, from: SocketAddr, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let origin = (from.ip().to_string(), u32::from(from.port()));
        let opened = self.handle.channel_open_forwarded_tcpip(address, port.into(), origin.0, origin.1).await;
        self.carry(opened, stream).await;
    }

    async fn unix(self, path: String, stream: UnixStream) {
        let opened = self.handle.channel_open_forwarded_streamlocal(path).await;
        self.carry(opened, stream).await;
    }

    async fn carry(
        &self,
        opened: Result<Channel<Msg>, russh::Error>,
        stream: impl AsyncRead + AsyncWrite + Unpin,
    ) {
        match opened {
            Ok(channel) => report(copy(self.inboxes.stream(channel, self.handle.clone()), stream).await),
            Err(error) => tracing::debug!(%error, "the client does not take a forwarded connection"),
        }
    }
}

async fn accepted<T>(result: io::Result<T>) -> Option<T> {
    match result {
        Ok(connection) => Some(connection),
        Err(error) => {
            tracing::debug!(%error, "a forwarded connection cannot be accepted");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

fn report(copied: io::Result<()>) {
    if let Err(error) = copied {
        tracing::debug!(%error, "a forwarded connection broke");
    }
}

/// Removes a socket that nobody may use any more. Anything else is left alone.
fn remove_socket(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => std::fs::remove_file(path),
        _ => Ok(()),
    }
}

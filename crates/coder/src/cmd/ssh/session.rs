//! The SSH client: a shell or a command, with a terminal, forwards and the SSH agent.
//!
//! The server's key is not checked: the WireGuard tunnel has proven who it is.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use coder_tailnet::node::TcpStream as TunnelStream;
use russh::client::{self, ChannelOpenHandle, Handle, Msg};
use russh::keys::PublicKeyOrCertificate;
use russh::{Channel, ChannelMsg, ChannelOpenFailure, ChannelReadHalf, ChannelWriteHalf};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpStream, UnixStream};
use tokio::signal::unix::{SignalKind, signal};

use super::forward::RemoteForward;
use crate::exit::{ConnectionLost, RemoteExit};
use crate::terminal::output::Printer;
use crate::terminal::{raw, stdin};

/// The terminal that official clients name.
const TERM: &str = "xterm-256color";
/// The size of a terminal that does not say it.
const DEFAULT_SIZE: (u32, u32) = (80, 24);
/// How often a silent server is pinged, and after how many missing answers the connection is lost.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const KEEP_ALIVES: usize = 10;
/// The code of a command that a signal ended, and of a lost connection.
const ENDED_BY_SIGNAL: u8 = 255;
const NO_CODE: &str = "the session ended without an exit code";
/// How much is kept of what a command writes whose output this program reads.
const MAX_OUTPUT_BYTES: usize = 64 << 10;

/// What is wanted of a session.
#[derive(Debug)]
pub(super) struct SessionOptions {
    /// None for a shell.
    pub(super) command: Option<String>,
    pub(super) variables: Vec<(String, String)>,
    pub(super) forwards: Vec<RemoteForward>,
    pub(super) agent_socket: Option<PathBuf>,
}

/// Answers what the server opens.
#[derive(Default)]
pub(super) struct Handler {
    forwards: Vec<RemoteForward>,
    agent_socket: Option<PathBuf>,
}

impl client::Handler for Handler {
    type Error = russh::Error;

    async fn check_server_key(&mut self, _: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        Ok(true)
    }

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        channel: Channel<Msg>,
        _: &str,
        connected_port: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut client::Session,
    ) -> Result<(), russh::Error> {
        let target = self.forwards.iter().find_map(|forward| match forward {
            RemoteForward::Tcp { remote_port, host, port } if u32::from(*remote_port) == connected_port => {
                Some((host.clone(), *port))
            }
            _ => None,
        });
        let Some(target) = target else {
            reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
            return Ok(());
        };
        tokio::spawn(async move { carry(channel, reply, TcpStream::connect(target).await).await });
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        channel: Channel<Msg>,
        socket_path: &str,
        reply: ChannelOpenHandle,
        _: &mut client::Session,
    ) -> Result<(), russh::Error> {
        let target = self.forwards.iter().find_map(|forward| match forward {
            RemoteForward::Unix { remote, local } if remote == socket_path => Some(local.clone()),
            _ => None,
        });
        let Some(target) = target else {
            reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
            return Ok(());
        };
        tokio::spawn(async move { carry(channel, reply, UnixStream::connect(target).await).await });
        Ok(())
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut client::Session,
    ) -> Result<(), russh::Error> {
        let Some(socket) = self.agent_socket.clone() else {
            reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
            return Ok(());
        };
        tokio::spawn(async move { carry(channel, reply, UnixStream::connect(socket).await).await });
        Ok(())
    }

    // Without a request of ours nothing else may be opened.
    async fn server_channel_open_session(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut client::Session,
    ) -> Result<(), russh::Error> {
        reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
        Ok(())
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut client::Session,
    ) -> Result<(), russh::Error> {
        reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
        Ok(())
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        reply: ChannelOpenHandle,
        _: &mut client::Session,
    ) -> Result<(), russh::Error> {
        reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
        Ok(())
    }

    async fn server_channel_open_x11(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut client::Session,
    ) -> Result<(), russh::Error> {
        reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
        Ok(())
    }
}

/// Carries a forwarded channel to what it leads to.
async fn carry(
    channel: Channel<Msg>,
    reply: ChannelOpenHandle,
    target: std::io::Result<impl AsyncRead + AsyncWrite + Unpin>,
) {
    match target {
        Ok(mut target) => {
            reply.accept().await;
            if let Err(error) = copy_bidirectional(&mut channel.into_stream(), &mut target).await {
                tracing::debug!(%error, "a forwarded connection was lost");
            }
        }
        Err(error) => {
            tracing::debug!(%error, "a forwarded connection leads nowhere");
            reply.reject(ChannelOpenFailure::ConnectFailed).await;
        }
    }
}

/// Logs in to the agent.
pub(super) async fn connect(stream: TunnelStream, handler: Handler) -> anyhow::Result<Handle<Handler>> {
    let config = client::Config {
        keepalive_interval: Some(KEEP_ALIVE),
        keepalive_max: KEEP_ALIVES,
        ..client::Config::default()
    };
    let mut session = client::connect_stream(Arc::new(config), stream, handler)
        .await
        .context("speak SSH with the agent")?;
    if !session.authenticate_none("coder").await.context("log in to the agent")?.success() {
        bail!("the agent's SSH server requires a key or password: it is not an agent of this server");
    }
    Ok(session)
}

/// The agent need not wait for a time limit. An answer is not expected.
pub(super) async fn leave(session: &Handle<Handler>) {
    let _ = session.disconnect(russh::Disconnect::ByApplication, "", "").await;
}

/// What a command in the workspace wrote.
pub(super) struct Output {
    pub(super) out: Vec<u8>,
    pub(super) err: Vec<u8>,
    pub(super) code: u8,
}

/// Runs a command with this input; of each stream the first [`MAX_OUTPUT_BYTES`] bytes are kept.
pub(super) async fn output_of(
    session: &Handle<Handler>,
    command: &str,
    input: &[u8],
) -> anyhow::Result<Output> {
    let channel = session.channel_open_session().await.context("open a session in the workspace")?;
    let (mut reader, writer) = channel.split();
    writer.exec(true, command.as_bytes()).await?;
    let up = async {
        // A command that has ended needs no more input.
        let _ = writer.data(input).await;
        let _ = writer.eof().await;
        std::future::pending().await
    };
    let down = async {
        let (mut out, mut err, mut code) = (Vec::new(), Vec::new(), None);
        while let Some(message) = reader.wait().await {
            match message {
                ChannelMsg::Data { data } => keep(&mut out, &data),
                ChannelMsg::ExtendedData { data, ext: 1 } => keep(&mut err, &data),
                other => match ended(&other)? {
                    SessionEnd::Code(found) => code = Some(found),
                    SessionEnd::Closed => break,
                    SessionEnd::No => {}
                },
            }
        }
        let code = code.ok_or_else(|| ConnectionLost(NO_CODE.to_owned()))?;
        Ok(Output { out, err, code })
    };
    tokio::select! {
        output = down => output,
        () = up => unreachable!("the end of the input is not the end of the command"),
    }
}

fn keep(kept: &mut Vec<u8>, data: &[u8]) {
    let room = MAX_OUTPUT_BYTES.saturating_sub(kept.len());
    kept.extend_from_slice(&data[..data.len().min(room)]);
}

/// Runs a shell or a command to its end.
pub(super) async fn run(
    printer: &Printer,
    stream: TunnelStream,
    options: SessionOptions,
) -> anyhow::Result<()> {
    let handler = Handler { forwards: options.forwards.clone(), agent_socket: options.agent_socket.clone() };
    let session = connect(stream, handler).await?;
    forward(printer, &session, &options).await?;
    let channel = session.channel_open_session().await.context("open a session in the workspace")?;
    let (reader, writer) = channel.split();
    let has_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    for (name, value) in &options.variables {
        writer.set_env(false, name, value).await?;
    }
    if options.agent_socket.is_some() {
        writer.agent_forward(false).await?;
    }
    if has_terminal || options.command.is_none() {
        let (columns, rows) = raw::size().unwrap_or(DEFAULT_SIZE);
        writer.request_pty(false, TERM, columns, rows, 0, 0, &[]).await?;
    }
    match &options.command {
        Some(command) => writer.exec(true, command.as_bytes()).await?,
        None => writer.request_shell(true).await?,
    }
    let raw_mode =
        if has_terminal { raw::RawMode::enter().context("change the mode of the terminal")? } else { None };
    let code = pump(reader, writer).await;
    drop(raw_mode);
    leave(&session).await;
    match code? {
        0 => Ok(()),
        code => Err(RemoteExit(code).into()),
    }
}

async fn forward(
    printer: &Printer,
    session: &Handle<Handler>,
    options: &SessionOptions,
) -> anyhow::Result<()> {
    for forward in &options.forwards {
        match forward {
            RemoteForward::Tcp { remote_port, host, port } => {
                session
                    .tcpip_forward("127.0.0.1", u32::from(*remote_port))
                    .await
                    .with_context(|| format!("forward port {remote_port} of the workspace"))?;
                printer.note(&format!("Port {remote_port} of the workspace leads to {host}:{port}."));
            }
            RemoteForward::Unix { remote, local } => {
                session
                    .streamlocal_forward(remote.clone())
                    .await
                    .with_context(|| format!("forward the socket {remote} of the workspace"))?;
                printer.note(&format!("Socket {remote} of the workspace leads to {}.", local.display()));
            }
        }
    }
    Ok(())
}

/// Carries input, output and window sizes until the session ends; the exit code.
async fn pump(mut reader: ChannelReadHalf, writer: ChannelWriteHalf<Msg>) -> anyhow::Result<u8> {
    let mut resized = signal(SignalKind::window_change()).context("follow the size of the terminal")?;
    let mut input = stdin::read();
    let up = async {
        loop {
            tokio::select! {
                piece = input.recv() => match piece {
                    Some(Ok(piece)) => {
                        if writer.data_bytes(piece).await.is_err() {
                            break;
                        }
                    }
                    Some(Err(error)) => return Err(anyhow::Error::new(error).context("read standard input")),
                    None => {
                        // A session that has ended needs no end of input.
                        let _ = writer.eof().await;
                        break;
                    }
                },
                _ = resized.recv() => if let Some((columns, rows)) = raw::size() {
                    // The same.
                    let _ = writer.window_change(columns, rows, 0, 0).await;
                },
            }
        }
        std::future::pending().await
    };
    let down = output(&mut reader);
    tokio::select! {
        biased;
        ended = down => ended,
        ended = up => ended,
    }
}

async fn output(reader: &mut ChannelReadHalf) -> anyhow::Result<u8> {
    let (mut stdout, mut stderr) = (tokio::io::stdout(), tokio::io::stderr());
    let mut code = None;
    while let Some(message) = reader.wait().await {
        match message {
            ChannelMsg::Data { data } => {
                stdout.write_all(&data).await.context("write to standard output")?;
                stdout.flush().await.context("write to standard output")?;
            }
            ChannelMsg::ExtendedData { data, ext: 1 } => {
                stderr.write_all(&data).await.context("write to standard error")?;
                stderr.flush().await.context("write to standard error")?;
            }
            other => match ended(&other)? {
                SessionEnd::Code(found) => code = Some(found),
                SessionEnd::Closed => break,
                SessionEnd::No => {}
            },
        }
    }
    code.ok_or_else(|| ConnectionLost(NO_CODE.to_owned()).into())
}

/// What a message says about the end of a session.
enum SessionEnd {
    Code(u8),
    Closed,
    No,
}

fn ended(message: &ChannelMsg) -> anyhow::Result<SessionEnd> {
    Ok(match message {
        ChannelMsg::ExitStatus { exit_status } => {
            SessionEnd::Code(u8::try_from(*exit_status).unwrap_or(ENDED_BY_SIGNAL))
        }
        ChannelMsg::ExitSignal { .. } => SessionEnd::Code(ENDED_BY_SIGNAL),
        ChannelMsg::Failure => bail!("the agent refused to start the command: see the agent's log"),
        ChannelMsg::Close => SessionEnd::Closed,
        _ => SessionEnd::No,
    })
}

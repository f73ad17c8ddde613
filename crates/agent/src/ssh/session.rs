//! A program that runs for one channel: a shell, a command, or the file server (agent 4.2).

use std::io;
use std::net::IpAddr;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use russh::server::Handle;
use russh::{ChannelId, Sig};
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::agent_socket::AgentSocket;
use super::inbox::{Reader, Writers};
use super::terminal::{self, Size, TerminalRequest};
use super::{message_of_the_day, sftp};
use crate::environment;
use crate::manifest::Manifest;
use crate::process::{self, Group, Setup};
use crate::sessions::{Kind, TYPE_VARIABLE};
use crate::shell;
use crate::state::AgentState;
use crate::terminal_output::TerminalOutput;

/// The exit code when a program could not be run.
const FAILED: i32 = 229;
/// The exit code of a file transfer that is not allowed.
const BLOCKED: i32 = 65;
const BLOCKED_TEXT: &[u8] = b"\x02File transfer has been disabled.\n";
/// Programs that transfer files.
const TRANSFERS: [&str; 4] = ["nc", "rsync", "scp", "sftp"];
/// The kind of channel data that standard error is.
const EXTENDED_STDERR: u32 = 1;
/// Bytes that are copied at once: the longest packet of most clients.
const BUFFER_BYTES: usize = 32 << 10;
/// How long a program may take to end when the agent ends.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// What a channel runs.
pub(super) enum Start {
    Shell,
    Command(String),
    Sftp,
}

/// What a client asks while the program runs.
pub(super) enum Control {
    Signal(Sig),
    Resize(Size),
}

/// The program of one channel, before it is started.
pub(super) struct Session {
    pub(super) state: Arc<AgentState>,
    pub(super) from: IpAddr,
    pub(super) handle: Handle,
    pub(super) id: ChannelId,
    pub(super) reader: Reader,
    pub(super) writers: Writers,
    pub(super) variables: Vec<(String, String)>,
    pub(super) terminal: Option<TerminalRequest>,
    pub(super) agent: Option<AgentSocket>,
    pub(super) start: Start,
    pub(super) controls: mpsc::Receiver<Control>,
    pub(super) connection_ended: CancellationToken,
}

/// How a session ended.
struct End {
    code: i32,
    reason: String,
}

impl End {
    fn of(status: ExitStatus) -> Self {
        Self { code: process::exit_code(status), reason: String::new() }
    }

    fn new(code: i32, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }
}

impl Session {
    /// Runs the program to its end, and tells client and server.
    pub(super) async fn run(mut self) {
        let named = self.variables.iter().rposition(|(name, _)| name == TYPE_VARIABLE);
        let kind = named.map_or(Kind::Ssh, |at| Kind::from_variable(&self.variables[at].1));
        self.variables.retain(|(name, _)| name != TYPE_VARIABLE);
        let state = Arc::clone(&self.state);
        let clock = &state.config.clock;
        let _open = state.sessions.enter(kind);
        let reported = state.connection_reports.connected(clock.now(), kind, self.from);
        let (handle, id, ended) = (self.handle.clone(), self.id, self.connection_ended.clone());
        let end = self.execute().await;
        tracing::debug!(exit_code = end.code, reason = end.reason, "an SSH session ended");
        // 255 and the other codes are the same as unsigned numbers.
        let code = u32::try_from(end.code).unwrap_or(255);
        let closing = async {
            // The client may be gone.
            let _ = handle.exit_status_request(id, code).await;
            let _ = handle.eof(id).await;
            let _ = handle.close(id).await;
        };
        ended.run_until_cancelled(closing).await;
        state.connection_reports.disconnected(reported, clock.now(), end.code, &end.reason);
    }

    async fn execute(mut self) -> End {
        if self.state.config.block_file_transfer {
            match &self.start {
                Start::Sftp => return End::new(BLOCKED, "file transfer is disabled"),
                Start::Command(command) if TRANSFERS.contains(&shell::program_name(command)) => {
                    let mut writer = self.writers.writer(None);
                    let _ = writer.write_all(BLOCKED_TEXT).await;
                    return End::new(BLOCKED, "file transfer is disabled");
                }
                _ => {}
            }
        }
        let manifest = self.state.manifest();
        if matches!(self.start, Start::Sftp) {
            let directory = self.state.directory(&manifest);
            let home = self.state.config.user.home.clone();
            let ended = self.connection_ended.clone();
            let stream = tokio::io::join(self.reader, self.writers.writer(None));
            let served = sftp::serve(stream, directory, home);
            return match ended.run_until_cancelled(served).await {
                Some(Err(error)) => End::new(1, error.to_string()),
                Some(Ok(())) | None => End::new(0, ""),
            };
        }
        let mut environment = environment::of_command(&self.state.config, &manifest, &self.variables);
        if let Some(agent) = &self.agent {
            environment.insert("SSH_AUTH_SOCK".into(), agent.path().into());
        }
        let user_shell = &self.state.config.user.shell;
        let invocation = match &self.start {
            Start::Command(command) => shell::command(user_shell, command),
            Start::Shell | Start::Sftp => shell::login(user_shell),
        };
        let setup = Setup { invocation, environment, directory: self.state.directory(&manifest) };
        let mut errors = self.writers.writer(Some(EXTENDED_STDERR));
        let result = match self.terminal.take() {
            Some(request) => self.run_in_terminal(setup, request, &manifest).await,
            None => self.run_with_pipes(setup).await,
        };
        match result {
            Ok(end) => end,
            Err(error) => {
                let text = format!("the command could not be started: {error}");
                let _ = errors.write_all(format!("{text}\n").as_bytes()).await;
                End::new(FAILED, text)
            }
        }
    }

    async fn run_with_pipes(self, setup: Setup) -> io::Result<End> {
        let mut child = setup.spawn(Stdio::piped(), Stdio::piped(), Stdio::piped())?;
        let group = Group::of(&child);
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (mut to_stdout, mut to_stderr) =
            (self.writers.writer(None), self.writers.writer(Some(EXTENDED_STDERR)));
        let outputs = async {
            tokio::join!(pump(stdout, &mut to_stdout), pump(stderr, &mut to_stderr));
        };
        let running = Running {
            state: &self.state,
            controls: self.controls,
            connection_ended: &self.connection_ended,
            group,
            resize: |_| {},
        };
        Ok(running.wait(child, read_input(self.reader, stdin), outputs, || {}).await)
    }

    async fn run_in_terminal(
        self,
        setup: Setup,
        request: TerminalRequest,
        manifest: &Manifest,
    ) -> io::Result<End> {
        let (pty, pts) = pty_process::open().map_err(io::Error::other)?;
        terminal::resize(&pty, request.size)?;
        if let Err(error) = terminal::set_modes(&pts, &request.modes) {
            tracing::debug!(%error, "a terminal does not take the client's modes");
        }
        let resizer = terminal::duplicate(&pty)?;
        let mut command = setup.command();
        if !request.term.is_empty() {
            command.env("TERM", &request.term);
        }
        if let Some(name) = terminal::name(&pts) {
            command.env("SSH_TTY", name);
        }
        let child = pty_process::Command::from(command).spawn(pts).map_err(io::Error::other)?;
        let group = Group::of(&child);
        let mut to_client = self.writers.writer(None);
        if matches!(self.start, Start::Shell) {
            let text = message_of_the_day::text(&self.state, manifest);
            if !text.is_empty() {
                let _ = to_client.write_all(&text).await;
            }
        }
        let (from_terminal, to_terminal) = pty.into_split();
        let exited = CancellationToken::new();
        let output = pump_terminal(from_terminal, &mut to_client, exited.clone());
        let running = Running {
            state: &self.state,
            controls: self.controls,
            connection_ended: &self.connection_ended,
            group,
            resize: |size| drop(terminal::resize(&resizer, size)),
        };
        let end =
            running.wait(child, read_input(self.reader, Some(to_terminal)), output, || exited.cancel()).await;
        // The terminal hangs up with its last handle; processes that ignore it go on.
        group.signal(Signal::HUP);
        Ok(end)
    }
}

/// A program with its client.
struct Running<'a, R> {
    state: &'a AgentState,
    controls: mpsc::Receiver<Control>,
    connection_ended: &'a CancellationToken,
    group: Group,
    resize: R,
}

impl<R: Fn(Size)> Running<'_, R> {
    /// Waits until the program has ended and its output was sent, or until the client has closed the channel.
    async fn wait(
        mut self,
        mut child: Child,
        input: impl Future<Output = ()>,
        outputs: impl Future<Output = ()>,
        exited: impl FnOnce(),
    ) -> End {
        tokio::pin!(input);
        tokio::pin!(outputs);
        let mut exited = Some(exited);
        let (mut status, mut outputs_done) = (None, false);
        let mut agent_ends = false;
        loop {
            if let Some(status) = status
                && outputs_done
            {
                return End::of(status);
            }
            tokio::select! {
                ended = child.wait(), if status.is_none() => match ended {
                    Ok(ended) => {
                        status = Some(ended);
                        if let Some(exited) = exited.take() {
                            exited();
                        }
                    }
                    Err(error) => return End::new(FAILED, error.to_string()),
                },
                () = &mut outputs, if !outputs_done => outputs_done = true,
                // It ends when the client has closed the channel.
                () = &mut input => return self.closed(status),
                () = self.connection_ended.cancelled() => return self.closed(status),
                Some(control) = self.controls.recv() => self.control(control),
                () = self.state.sessions_end.cancelled(), if !agent_ends => {
                    agent_ends = true;
                    self.group.signal(Signal::HUP);
                    self.group.signal(Signal::CONT);
                }
                () = tokio::time::sleep(END_TIMEOUT), if agent_ends => {
                    self.group.signal(Signal::KILL);
                    return End::new(255, "the agent ended");
                }
            }
        }
    }

    /// The client is gone. The program is not ended, as with OpenSSH; it sees the end of its input and that nobody reads its output.
    fn closed(&self, status: Option<ExitStatus>) -> End {
        match status {
            Some(status) => End::of(status),
            None => End::new(255, "the client closed the session"),
        }
    }

    fn control(&self, control: Control) {
        match control {
            Control::Resize(size) => (self.resize)(size),
            Control::Signal(signal) => {
                if let Some(signal) = signal_number(&signal) {
                    self.group.signal(signal);
                }
            }
        }
    }
}

/// Hands what the client sends to the program. It ends when the client closes the channel.
async fn read_input(mut reader: Reader, stdin: Option<impl AsyncWrite + Unpin>) {
    let (mut stdin, mut buffer) = (stdin, vec![0; BUFFER_BYTES]);
    while let Ok(count @ 1..) = reader.read(&mut buffer).await {
        // A program that has closed its input does not end the session.
        if let Some(open) = &mut stdin
            && open.write_all(&buffer[..count]).await.is_err()
        {
            stdin = None;
        }
    }
    drop(stdin);
    reader.closed().await;
}

async fn pump(from: Option<impl AsyncRead + Unpin>, to: &mut (impl AsyncWrite + Unpin)) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

async fn pump_terminal(
    from: impl AsyncRead + Unpin,
    to: &mut (impl AsyncWrite + Unpin),
    exited: CancellationToken,
) {
    let mut output = TerminalOutput::new(from, exited);
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Some(count) = output.read(&mut buffer).await {
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

fn signal_number(signal: &Sig) -> Option<Signal> {
    Some(match signal {
        Sig::ABRT => Signal::ABORT,
        Sig::ALRM => Signal::ALARM,
        Sig::FPE => Signal::FPE,
        Sig::HUP => Signal::HUP,
        Sig::ILL => Signal::ILL,
        Sig::INT => Signal::INT,
        Sig::KILL => Signal::KILL,
        Sig::PIPE => Signal::PIPE,
        Sig::QUIT => Signal::QUIT,
        Sig::SEGV => Signal::SEGV,
        Sig::TERM => Signal::TERM,
        Sig::USR1 => Signal::USR1,
        Sig::Custom(name) if name == "USR2" => Signal::USR2,
        Sig::Custom(_) => return None,
    })
}

//! One shell in a terminal, with the clients that look at it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use pty_process::{OwnedReadPty, OwnedWritePty};
use rustix::process::Signal;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Child;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Output;
use super::protocol::TerminalOpening;
use crate::environment;
use crate::process::{Group, Setup};
use crate::shell;
use crate::ssh::{TerminalSize, duplicate_terminal, resize_terminal};
use crate::state::AgentState;
use crate::terminal_output::TerminalOutput;

/// Bytes of output that a new client is shown.
const REPLAY_BYTES: usize = 64 << 10;
/// How long a terminal is kept without clients.
const KEEP_TIME: Duration = Duration::from_secs(300);
/// Pieces of output and of input that wait.
const QUEUED_OUTPUTS: usize = 64;
/// A client that takes nothing for this long is left behind.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that are read at once.
const BUFFER_BYTES: usize = 16 << 10;

/// A shell and its clients.
pub(super) struct Terminal {
    screen: Mutex<Screen>,
    /// What clients type.
    pub(super) input: mpsc::Sender<Vec<u8>>,
    resizer: OwnedFd,
    clients_changed: Notify,
}

#[derive(Default)]
struct Screen {
    replay: VecDeque<u8>,
    clients: Vec<(u64, Output)>,
    next_client: u64,
    has_ended: bool,
}

/// One client's end.
pub(super) struct Client {
    pub(super) output: mpsc::Receiver<Bytes>,
    id: u64,
    terminal: Arc<Terminal>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.terminal.screen.lock().clients.retain(|(id, _)| *id != self.id);
        self.terminal.clients_changed.notify_one();
    }
}

impl Terminal {
    /// Starts the shell, or the command.
    pub(super) fn start(state: &Arc<AgentState>, opening: &TerminalOpening) -> io::Result<Arc<Self>> {
        let manifest = state.manifest();
        let mut environment = environment::of_command(&state.config, &manifest, &[]);
        environment.insert("TERM".into(), "xterm-256color".into());
        let user_shell = &state.config.user.shell;
        let invocation = if opening.command.is_empty() {
            shell::login(user_shell)
        } else {
            shell::command(user_shell, &opening.command)
        };
        let setup = Setup { invocation, environment, directory: state.directory(&manifest) };
        let (pty, pts) = pty_process::open().map_err(io::Error::other)?;
        resize_terminal(&pty, opening.size())?;
        let resizer = duplicate_terminal(&pty)?;
        let child = pty_process::Command::from(setup.command()).spawn(pts).map_err(io::Error::other)?;
        let (from, to) = pty.into_split();
        let (input, inputs) = mpsc::channel(QUEUED_OUTPUTS);
        let terminal =
            Arc::new(Self { screen: Mutex::default(), input, resizer, clients_changed: Notify::new() });
        let (running, end) = (Arc::clone(&terminal), state.sessions_end.clone());
        tokio::spawn(async move { running.run(child, from, to, inputs, end.cancelled_owned()).await });
        Ok(terminal)
    }

    /// Adds a client, which is first shown the latest output; none when the shell has ended.
    pub(super) fn attach(self: &Arc<Self>) -> Option<Client> {
        let mut screen = self.screen.lock();
        if screen.has_ended {
            return None;
        }
        let (sender, output) = mpsc::channel(QUEUED_OUTPUTS);
        let replay: Vec<u8> = screen.replay.iter().copied().collect();
        if !replay.is_empty() {
            // The queue is empty.
            let _ = sender.try_send(replay.into());
        }
        let id = screen.next_client;
        screen.next_client += 1;
        screen.clients.push((id, sender));
        drop(screen);
        self.clients_changed.notify_one();
        Some(Client { output, id, terminal: Arc::clone(self) })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.screen.lock().has_ended
    }

    pub(super) fn resize(&self, size: TerminalSize) {
        drop(resize_terminal(&self.resizer, size));
    }

    async fn run(
        self: Arc<Self>,
        mut child: Child,
        from: OwnedReadPty,
        mut to: OwnedWritePty,
        mut inputs: mpsc::Receiver<Vec<u8>>,
        agent_ends: impl Future<Output = ()>,
    ) {
        let group = Group::of(&child);
        let write = async {
            while let Some(bytes) = inputs.recv().await {
                if to.write_all(&bytes).await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        let exited = CancellationToken::new();
        let mut output = TerminalOutput::new(from, exited.clone());
        let read = async {
            let mut buffer = vec![0; BUFFER_BYTES];
            while let Some(count) = output.read(&mut buffer).await {
                self.show(&buffer[..count]).await;
            }
        };
        tokio::pin!(read);
        let ended = async {
            tokio::select! {
                _ = child.wait() => true,
                () = self.unused() => false,
                () = agent_ends => false,
                () = write => false,
            }
        };
        tokio::pin!(ended);
        let mut is_read = false;
        let by_itself = loop {
            tokio::select! {
                by_itself = &mut ended => break by_itself,
                () = &mut read, if !is_read => is_read = true,
            }
        };
        if by_itself && !is_read {
            exited.cancel();
            read.await;
        }
        group.signal(Signal::HUP);
        let mut screen = self.screen.lock();
        screen.has_ended = true;
        // Their queues end after what is in them.
        screen.clients.clear();
        screen.replay = VecDeque::new();
    }

    /// Ends when nobody has looked at the terminal for a while.
    async fn unused(&self) {
        let mut since = Some(Instant::now());
        loop {
            let changed = self.clients_changed.notified();
            let is_used = !self.screen.lock().clients.is_empty();
            since = if is_used { None } else { since.or_else(|| Some(Instant::now())) };
            match since {
                None => changed.await,
                Some(since) => tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep_until(since + KEEP_TIME) => return,
                },
            }
        }
    }

    /// Keeps output for those who come later, and shows it to those who are there. The slowest of them sets the pace, within bounds.
    async fn show(&self, bytes: &[u8]) {
        let clients = {
            let mut screen = self.screen.lock();
            screen.replay.extend(bytes);
            let excess = screen.replay.len().saturating_sub(REPLAY_BYTES);
            screen.replay.drain(..excess);
            screen.clients.clone()
        };
        let piece = Bytes::copy_from_slice(bytes);
        for (id, client) in clients {
            let sent = tokio::time::timeout(STALL_TIMEOUT, client.send(piece.clone())).await;
            if !matches!(sent, Ok(Ok(()))) {
                self.screen.lock().clients.retain(|(known, _)| *known != id);
                self.clients_changed.notify_one();
            }
        }
    }
}

//! What a client may ask on one connection.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use russh::server::{self, Auth, ChannelOpenHandle, Msg};
use russh::{Channel, ChannelId, ChannelOpenFailure, Error, Pty, Sig};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::agent_socket::AgentSocket;
use super::forward::{Forwards, Target};
use super::inbox::{Inboxes, Reader, Writers};
use super::session::{Control, Session, Start};
use super::terminal::{Size, TerminalRequest};
use crate::state::AgentState;

/// Channels of one connection.
const MAX_CHANNELS: usize = 1000;
/// Variables of one session, and bytes of all of them.
const MAX_VARIABLES: usize = 256;
const VARIABLE_BYTES: usize = 128 << 10;
/// Signals and window changes that wait for one session.
const QUEUED_CONTROLS: usize = 32;

/// A session channel whose program has not started.
struct Pending {
    reader: Reader,
    writers: Writers,
    variables: Vec<(String, String)>,
    terminal: Option<TerminalRequest>,
    agent: Option<AgentSocket>,
}

/// Answers the requests of one client.
pub(super) struct Handler {
    state: Arc<AgentState>,
    from: IpAddr,
    pending: HashMap<ChannelId, Pending>,
    running: HashMap<ChannelId, mpsc::Sender<Control>>,
    inboxes: Inboxes,
    forwards: Forwards,
    ended: CancellationToken,
    /// What belongs to the connection ends with it.
    _end: DropGuard,
}

impl Handler {
    pub(super) fn new(state: Arc<AgentState>, from: IpAddr) -> Self {
        let ended = CancellationToken::new();
        let inboxes = Inboxes::default();
        let forwards = Forwards::new(ended.clone(), inboxes.clone(), MAX_CHANNELS);
        Self {
            state,
            from,
            pending: HashMap::new(),
            running: HashMap::new(),
            inboxes,
            forwards,
            _end: ended.clone().drop_guard(),
            ended,
        }
    }

    fn start(&mut self, id: ChannelId, start: Start, session: &mut server::Session) -> Result<(), Error> {
        let Some(pending) = self.pending.remove(&id) else {
            // A channel has one program.
            return session.channel_failure(id);
        };
        let (control, controls) = mpsc::channel(QUEUED_CONTROLS);
        self.running.insert(id, control);
        session.channel_success(id)?;
        let program = Session {
            state: Arc::clone(&self.state),
            from: self.from,
            handle: session.handle(),
            id,
            reader: pending.reader,
            writers: pending.writers,
            variables: pending.variables,
            terminal: pending.terminal,
            agent: pending.agent,
            start,
            controls,
            connection_ended: self.ended.clone(),
        };
        tokio::spawn(program.run());
        Ok(())
    }

    fn control(&self, id: ChannelId, control: Control) {
        if let Some(running) = self.running.get(&id) {
            // A program that takes none has enough of them waiting.
            drop(running.try_send(control));
        }
    }
}

/// A number that a client sends for a size.
fn size(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

impl server::Handler for Handler {
    type Error = Error;

    async fn auth_none(&mut self, _: &str) -> Result<Auth, Error> {
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut server::Session,
    ) -> Result<(), Error> {
        self.running.retain(|_, control| !control.is_closed());
        if self.pending.len() + self.running.len() >= MAX_CHANNELS {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        let id = channel.id();
        let (reader, writers) = self.inboxes.split(channel);
        let pending = Pending { reader, writers, variables: Vec::new(), terminal: None, agent: None };
        self.pending.insert(id, pending);
        reply.accept().await;
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        host: &str,
        port: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        session: &mut server::Session,
    ) -> Result<(), Error> {
        match u16::try_from(port) {
            Ok(port) => {
                let target = Target::Tcp(host.to_owned(), port);
                self.forwards.connect(channel, target, reply, session.handle()).await;
            }
            Err(_) => reply.reject(ChannelOpenFailure::ConnectFailed).await,
        }
        Ok(())
    }

    async fn channel_open_direct_streamlocal(
        &mut self,
        channel: Channel<Msg>,
        path: &str,
        reply: ChannelOpenHandle,
        session: &mut server::Session,
    ) -> Result<(), Error> {
        self.forwards.connect(channel, Target::Unix(path.into()), reply, session.handle()).await;
        Ok(())
    }

    async fn data(&mut self, id: ChannelId, data: &[u8], session: &mut server::Session) -> Result<(), Error> {
        if self.inboxes.push(id, data).await.is_err() {
            tracing::warn!("a channel is closed: its program does not read what the client sends");
            self.inboxes.close(id);
            session.close(id)?;
        }
        Ok(())
    }

    async fn channel_eof(&mut self, id: ChannelId, _: &mut server::Session) -> Result<(), Error> {
        self.inboxes.end(id);
        Ok(())
    }

    async fn channel_close(&mut self, id: ChannelId, _: &mut server::Session) -> Result<(), Error> {
        self.inboxes.close(id);
        self.pending.remove(&id);
        self.running.remove(&id);
        Ok(())
    }

    async fn env_request(
        &mut self,
        id: ChannelId,
        name: &str,
        value: &str,
        session: &mut server::Session,
    ) -> Result<(), Error> {
        let Some(pending) = self.pending.get_mut(&id) else { return session.channel_failure(id) };
        let bytes: usize = pending.variables.iter().map(|(name, value)| name.len() + value.len()).sum();
        if pending.variables.len() >= MAX_VARIABLES || bytes + name.len() + value.len() > VARIABLE_BYTES {
            return session.channel_failure(id);
        }
        pending.variables.push((name.to_owned(), value.to_owned()));
        session.channel_success(id)
    }

    async fn pty_request(
        &mut self,
        id: ChannelId,
        term: &str,
        columns: u32,
        rows: u32,
        width: u32,
        height: u32,
        modes: &[(Pty, u32)],
        session: &mut server::Session,
    ) -> Result<(), Error> {
        let Some(pending) = self.pending.get_mut(&id) else { return session.channel_failure(id) };
        let size =
            Size { rows: size(rows), columns: size(columns), width: size(width), height: size(height) };
        pending.terminal = Some(TerminalRequest { term: term.to_owned(), size, modes: modes.to_vec() });
        session.channel_success(id)
    }

    async fn x11_request(
        &mut self,
        id: ChannelId,
        _: bool,
        _: &str,
        _: &str,
        _: u32,
        session: &mut server::Session,
    ) -> Result<(), Error> {
        // Not supported; the client says so and goes on.
        session.channel_failure(id)
    }

    async fn agent_request(&mut self, id: ChannelId, session: &mut server::Session) -> Result<bool, Error> {
        let Some(pending) = self.pending.get_mut(&id) else { return Ok(false) };
        match AgentSocket::open(session.handle(), self.inboxes.clone(), self.ended.clone()) {
            Ok(socket) => pending.agent = Some(socket),
            Err(error) => {
                tracing::warn!(%error, "no socket can be made for the forwarded SSH agent");
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn shell_request(&mut self, id: ChannelId, session: &mut server::Session) -> Result<(), Error> {
        self.start(id, Start::Shell, session)
    }

    async fn exec_request(
        &mut self,
        id: ChannelId,
        data: &[u8],
        session: &mut server::Session,
    ) -> Result<(), Error> {
        match std::str::from_utf8(data) {
            Ok(command) => self.start(id, Start::Command(command.to_owned()), session),
            Err(_) => session.channel_failure(id),
        }
    }

    async fn subsystem_request(
        &mut self,
        id: ChannelId,
        name: &str,
        session: &mut server::Session,
    ) -> Result<(), Error> {
        match name {
            "sftp" => self.start(id, Start::Sftp, session),
            _ => session.channel_failure(id),
        }
    }

    async fn window_change_request(
        &mut self,
        id: ChannelId,
        columns: u32,
        rows: u32,
        width: u32,
        height: u32,
        session: &mut server::Session,
    ) -> Result<(), Error> {
        let size =
            Size { rows: size(rows), columns: size(columns), width: size(width), height: size(height) };
        match self.pending.get_mut(&id).and_then(|pending| pending.terminal.as_mut()) {
            Some(terminal) => terminal.size = size,
            None => self.control(id, Control::Resize(size)),
        }
        session.channel_success(id)
    }

    async fn signal(
        &mut self,
        id: ChannelId,
        signal: Sig,
        session: &mut server::Session,
    ) -> Result<(), Error> {
        self.control(id, Control::Signal(signal));
        session.channel_success(id)
    }

    async fn tcpip_forward(
        &mut self,
        address: &str,
        port: &mut u32,
        session: &mut server::Session,
    ) -> Result<bool, Error> {
        let Ok(wanted) = u16::try_from(*port) else { return Ok(false) };
        match self.forwards.listen_tcp(address, wanted, session.handle()).await {
            Ok(bound) => {
                *port = bound.into();
                Ok(true)
            }
            Err(error) => {
                tracing::debug!(address, port = wanted, %error, "a port cannot be listened on for a client");
                Ok(false)
            }
        }
    }

    async fn cancel_tcpip_forward(
        &mut self,
        address: &str,
        port: u32,
        _: &mut server::Session,
    ) -> Result<bool, Error> {
        Ok(self.forwards.cancel_tcp(address, port))
    }

    async fn streamlocal_forward(
        &mut self,
        path: &str,
        session: &mut server::Session,
    ) -> Result<bool, Error> {
        match self.forwards.listen_unix(path, session.handle()) {
            Ok(()) => Ok(true),
            Err(error) => {
                tracing::debug!(path, %error, "a socket cannot be listened on for a client");
                Ok(false)
            }
        }
    }

    async fn cancel_streamlocal_forward(
        &mut self,
        path: &str,
        _: &mut server::Session,
    ) -> Result<bool, Error> {
        Ok(self.forwards.cancel_unix(path))
    }
}

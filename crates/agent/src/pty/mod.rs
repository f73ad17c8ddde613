//! The reconnecting terminal: a shell that goes on while its browser is away (agent 5).
//!
//! `protocol` reads what clients send, `terminal` is one shell with its clients.

mod protocol;
mod terminal;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use coder_wire::bytes::ByteStream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Mutex, mpsc};
use uuid::Uuid;

use self::protocol::{Decoder, Input, TerminalOpening};
use self::terminal::{Client, Terminal};
use crate::sessions::Kind;
use crate::state::AgentState;

/// Terminals at once.
const MAX_TERMINALS: usize = 256;
/// The time for the first message of a client.
const OPENING_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes that are read at once.
const BUFFER_BYTES: usize = 16 << 10;

/// The terminals of an agent by the id that a client chose.
pub(crate) struct Terminals {
    state: Arc<AgentState>,
    open: Mutex<HashMap<Uuid, Arc<Terminal>>>,
}

impl Terminals {
    pub(crate) fn new(state: Arc<AgentState>) -> Self {
        Self { state, open: Mutex::default() }
    }

    /// The terminal with an id, or a new one. A client is added to it.
    async fn attach(&self, opening: &TerminalOpening) -> std::io::Result<(Arc<Terminal>, Client)> {
        let mut open = self.open.lock().await;
        open.retain(|_, terminal| !terminal.has_ended());
        if let Some(terminal) = open.get(&opening.id)
            && let Some(client) = terminal.attach()
        {
            return Ok((Arc::clone(terminal), client));
        }
        if open.len() >= MAX_TERMINALS {
            return Err(std::io::Error::other(format!(
                "there are {MAX_TERMINALS} open terminals; close some of them"
            )));
        }
        let terminal = Terminal::start(&self.state, opening)?;
        let client = terminal.attach().ok_or(std::io::ErrorKind::BrokenPipe)?;
        open.insert(opening.id, Arc::clone(&terminal));
        Ok((terminal, client))
    }
}

/// Serves one client.
pub(crate) async fn serve(terminals: &Terminals, mut stream: impl ByteStream, from: Ipv6Addr) {
    let opening = match tokio::time::timeout(OPENING_TIMEOUT, protocol::read_opening(&mut stream)).await {
        Ok(Ok(opening)) => opening,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a terminal could not be opened");
            return;
        }
        Err(_) => return,
    };
    let state = &terminals.state;
    let clock = &state.config.clock;
    let _open = state.sessions.enter(Kind::ReconnectingPty);
    let reported = state.connection_reports.connected(clock.now(), Kind::ReconnectingPty, IpAddr::V6(from));
    let mut failure = String::new();
    if !opening.container.is_empty() {
        failure = "this agent cannot enter containers".to_owned();
    } else {
        match terminals.attach(&opening).await {
            Ok((terminal, client)) => {
                terminal.resize(opening.size());
                carry(&terminal, client, &mut stream).await;
            }
            Err(error) => failure = format!("the terminal could not be started: {error}"),
        }
    }
    if !failure.is_empty() {
        // The user looks at this screen.
        let _ = stream.write_all(format!("{failure}\r\n").as_bytes()).await;
    }
    let _ = stream.shutdown().await;
    state.connection_reports.disconnected(reported, clock.now(), i32::from(!failure.is_empty()), &failure);
}

/// Copies between a client and its terminal until either ends.
async fn carry(terminal: &Terminal, mut client: Client, stream: &mut impl ByteStream) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let output = async {
        while let Some(bytes) = client.output.recv().await {
            if writer.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    let input = async {
        let (mut decoder, mut buffer) = (Decoder::default(), vec![0; BUFFER_BYTES]);
        while let Ok(count @ 1..) = reader.read(&mut buffer).await {
            let inputs = match decoder.take(&buffer[..count]) {
                Ok(inputs) => inputs,
                Err(error) => {
                    tracing::debug!(%error, "a terminal's client sent something else than JSON");
                    return;
                }
            };
            for Input { data, size } in inputs {
                if let Some(size) = size {
                    terminal.resize(size);
                }
                if !data.is_empty() && terminal.input.send(data.into_bytes()).await.is_err() {
                    return;
                }
            }
        }
    };
    tokio::select! {
        () = output => {}
        () = input => {}
    }
}

/// Output that waits for one client.
type Output = mpsc::Sender<bytes::Bytes>;

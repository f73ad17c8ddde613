//! The web terminal: a WebSocket of a browser, and the reconnecting terminal of an agent (agent 5).

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use coder_api::paths;
use coder_domain::agent::ConnectionStatus;
use coder_domain::ids::{AgentId, UserId};
use coder_store::workspaces::agents;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use http::StatusCode;
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::authn::csrf;
use crate::authn::session::{self, Presented};
use crate::context::App;
use crate::http::origin::Origin;
use crate::http::params::{Id, Query};
use crate::http::text_socket::PING_EVERY;
use crate::http::upgrade::{self, WebSocketConnection};
use crate::http::{Caller, Error, Result};
use crate::network::access::{find_place, may_connect};
use crate::network::revoke;
use crate::network::server_node::AgentStream;
use crate::network::user_connections::{Target, UserConnection};
use crate::routes::resources;

/// The agent's port of terminals.
const PORT: u16 = 2;
/// Largest message of a browser: a paste.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// Bytes of output in one message.
const OUTPUT_MESSAGE_BYTES: usize = 16 << 10;
/// Time that the browser or the agent has to take one message.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the closing handshake.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Rows and columns of a terminal whose size is not known.
const DEFAULT_SIZE: u16 = 80;
/// Longest command.
const MAX_COMMAND_BYTES: usize = 16 << 10;
const BACKENDS: [&str; 3] = ["", "buffered", "screen"];

/// The first message to the agent.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Opening {
    #[serde(rename = "ID")]
    id: Uuid,
    height: u16,
    width: u16,
    command: String,
    container: String,
    container_user: String,
    backend_type: String,
}

impl Opening {
    fn of(query: &Query) -> Result<Self> {
        let id = query.read("reconnect")?.ok_or_else(|| {
            Error::bad_request("Invalid query parameters.").field("reconnect", "It must be a UUID.")
        })?;
        let text = |name: &str| {
            let text = query.text(name);
            if text.len() <= MAX_COMMAND_BYTES {
                return Ok(text.to_owned());
            }
            Err(Error::bad_request("Invalid query parameters.").field(name, "It is too long."))
        };
        let backend_type = text("backend_type")?;
        if !BACKENDS.contains(&backend_type.as_str()) {
            return Err(Error::bad_request("Invalid query parameters.")
                .field("backend_type", "It must be screen or buffered."));
        }
        Ok(Self {
            id,
            height: query.read("height")?.unwrap_or(DEFAULT_SIZE),
            width: query.read("width")?.unwrap_or(DEFAULT_SIZE),
            command: text("command")?,
            container: text("container")?,
            container_user: text("container_user")?,
            backend_type,
        })
    }

    /// Its length in 16 bits, little endian, and JSON.
    fn to_bytes(&self) -> Option<Vec<u8>> {
        let text = serde_json::to_vec(self).ok()?;
        let length = u16::try_from(text.len()).ok()?;
        Some([&length.to_le_bytes()[..], &text].concat())
    }
}

/// `GET /workspaceagents/{agent}/pty`: 404 for everybody who may not connect to the workspace, signed in or not.
pub async fn pty(
    State(app): State<App>,
    Id(id): Id<AgentId>,
    query: Query,
    mut request: Request,
) -> Result<Response> {
    let presented = session::presented(request.headers(), request.uri()).ok_or_else(Error::not_found)?;
    // A page of another origin must not type into a terminal.
    csrf::check(&app.config, &request, &presented)?;
    let origin = Origin::of(request.extensions(), request.headers());
    let caller = caller(&app, &presented, origin).await?;
    let mut tx = app.store.reader().await?;
    let found = find_place(&mut tx, id).await?;
    let found = found.filter(|(_, workspace)| may_connect(&caller.subject, workspace));
    let (_, workspace) = found.ok_or_else(Error::not_found)?;
    let agent = agents::find(&mut tx, id).await?.ok_or_else(Error::not_found)?;
    drop(tx);
    let opening = Opening::of(&query)?.to_bytes();
    let opening = opening.ok_or_else(|| Error::bad_request("The parameters are too long."))?;
    if resources::connection(&agent, app.now()).0 != ConnectionStatus::Connected {
        return Err(Error::new(StatusCode::NOT_FOUND, "The agent is not connected.")
            .detail("Start the workspace, or wait until its agent has connected."));
    }
    let permit = app.websockets.admit(caller.user.id)?;
    let upgrade = match upgrade::check(&mut request) {
        Ok(upgrade) => upgrade,
        Err(refused) => return Ok(refused.into_response()),
    };
    let revoked = CancellationToken::new();
    let connection = UserConnection {
        user: caller.user.id,
        token: Some(caller.key.id.as_str().into()),
        target: Target::Agent(id),
        revoked: revoked.clone(),
    };
    let registration = app.network.users.add(connection.clone()).ok_or_else(|| {
        Error::new(StatusCode::TOO_MANY_REQUESTS, "You have too many connections to workspaces.")
            .detail("Close some of them, or wait until lost ones have ended.")
    })?;
    // From here on the end of the rights ends the terminal. They may have ended since the request was authenticated.
    if !revoke::is_allowed(&app, &connection).await? {
        return Err(Error::not_found());
    }
    app.pending.used(workspace.id);
    let (response, upgraded) = upgrade.accept();
    let counted = app.metrics.socket(paths::AGENT_PTY);
    app.clone().lifecycle.spawn("web terminal", async move {
        let _held = (registration, permit, counted);
        match upgraded.await {
            Ok(connection) => serve(&app, (workspace.owner_id, id), &opening, connection, &revoked).await,
            Err(error) => tracing::debug!(%error, "the browser left before its terminal began"),
        }
    });
    Ok(response)
}

async fn caller(app: &App, presented: &Presented, origin: Origin) -> Result<Caller> {
    match session::authenticate_from(app, presented, origin).await {
        Err(error) if error.status() == StatusCode::UNAUTHORIZED => Err(Error::not_found()),
        outcome => outcome,
    }
}

/// Why a terminal ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("the program ended")]
    Program,
    #[error("the browser left")]
    Left,
    #[error("the browser does not read or does not answer pings")]
    Silent,
    #[error("the right to connect has ended")]
    Revoked,
    #[error("the server stops")]
    Stopping,
    #[error("the connection to the browser broke")]
    Socket(#[from] SocketError),
    #[error("the connection to the agent broke")]
    Agent(#[from] io::Error),
}

async fn serve(
    app: &App,
    (owner, agent): (UserId, AgentId),
    opening: &[u8],
    connection: WebSocketConnection,
    revoked: &CancellationToken,
) {
    let config = WebSocketConfig::default()
        .read_buffer_size(4 << 10)
        .write_buffer_size(OUTPUT_MESSAGE_BYTES)
        .max_write_buffer_size(1 << 20)
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    let mut socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
    let dialled = async {
        let mut stream =
            app.network.server_node.dial(owner, agent, PORT).await.map_err(|error| error.to_string())?;
        stream.write_all(opening).await.map_err(|error| error.to_string())?;
        Ok::<_, String>(stream)
    };
    let ended = tokio::select! {
        dialled = dialled => match dialled {
            Ok(stream) => tokio::select! {
                ended = copy(&mut socket, stream) => ended,
                () = revoked.cancelled() => Ended::Revoked,
                () = app.lifecycle.soft().cancelled() => Ended::Stopping,
            },
            Err(error) => {
                tracing::debug!(agent_id = %agent, error, "a web terminal cannot reach its agent");
                let reason = format!("dial workspace agent: {error}");
                return close(&mut socket, CloseCode::Error, &reason).await;
            }
        },
        () = revoked.cancelled() => Ended::Revoked,
        () = app.lifecycle.soft().cancelled() => Ended::Stopping,
    };
    tracing::debug!(agent_id = %agent, reason = %ended, "a web terminal ended");
    match ended {
        Ended::Program => close(&mut socket, CloseCode::Normal, "the program ended").await,
        Ended::Revoked => close(&mut socket, CloseCode::Policy, "your right to connect has ended").await,
        Ended::Stopping => close(&mut socket, CloseCode::Away, "the server stops").await,
        Ended::Agent(_) => close(&mut socket, CloseCode::Error, "the connection to the agent broke").await,
        Ended::Left | Ended::Silent | Ended::Socket(_) => {}
    }
}

type Socket = WebSocketStream<WebSocketConnection>;

/// Copies in both directions. Each waits for its own receiver only, so that output flows while a paste waits.
async fn copy(socket: &mut Socket, stream: AgentStream) -> Ended {
    let (sink, source) = socket.split();
    let (output, input) = tokio::io::split(stream);
    let answered = AtomicBool::new(true);
    let ended = tokio::select! {
        ended = copy_input(source, input, &answered) => ended,
        ended = copy_output(output, sink, &answered) => ended,
    };
    ended.unwrap_or_else(|error| error)
}

/// From the browser to the agent.
async fn copy_input(
    mut source: SplitStream<&mut Socket>,
    mut input: WriteHalf<AgentStream>,
    answered: &AtomicBool,
) -> std::result::Result<Ended, Ended> {
    loop {
        let data = match source.next().await.transpose()? {
            None | Some(Message::Close(_)) => return Ok(Ended::Left),
            Some(Message::Binary(data)) => data,
            Some(Message::Text(text)) => text.into(),
            Some(Message::Pong(_)) => {
                answered.store(true, Ordering::Relaxed);
                continue;
            }
            Some(_) => continue,
        };
        let written = timeout(WRITE_TIMEOUT, input.write_all(&data)).await;
        written.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    }
}

/// From the agent to the browser, with pings.
async fn copy_output(
    mut output: ReadHalf<AgentStream>,
    mut sink: SplitSink<&mut Socket, Message>,
    answered: &AtomicBool,
) -> std::result::Result<Ended, Ended> {
    let mut buffer = vec![0; OUTPUT_MESSAGE_BYTES];
    let mut ping = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            count = output.read(&mut buffer) => match count? {
                0 => return Ok(Ended::Program),
                count => Message::Binary(buffer[..count].to_vec().into()),
            },
            _ = ping.tick() => {
                if !answered.swap(false, Ordering::Relaxed) {
                    return Ok(Ended::Silent);
                }
                Message::Ping(Default::default())
            }
        };
        timeout(WRITE_TIMEOUT, sink.send(message)).await.map_err(|_| Ended::Silent)??;
    }
}

async fn close(socket: &mut Socket, code: CloseCode, reason: &str) {
    // A close frame has room for 123 bytes.
    let reason = &reason[..reason.floor_char_boundary(123)];
    let closing = async {
        socket.close(Some(CloseFrame { code, reason: reason.into() })).await?;
        while socket.next().await.transpose()?.is_some() {}
        Ok::<_, SocketError>(())
    };
    if let Err(error) = timeout(CLOSE_TIMEOUT, closing).await.unwrap_or(Ok(())) {
        tracing::debug!(%error, "a browser left its terminal without a closing handshake");
    }
}

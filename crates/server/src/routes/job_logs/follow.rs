//! Follows a log over a WebSocket: stored lines, then live lines, each once. It closes when the job has ended (http-api 10.1).

use std::time::Duration;

use coder_domain::ids::JobId;
use coder_store::jobs;
use futures_util::{Sink, SinkExt, StreamExt};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

use super::lines::{PAGE_BYTES, PAGE_LINES, view};
use crate::context::App;
use crate::events::Topic;
use crate::http::upgrade::WebSocketConnection;

/// Interval of pings. The follower must answer each before the next.
const PING_EVERY: Duration = Duration::from_secs(15);
/// Time that a follower has to read one message.
const SEND_WITHIN: Duration = Duration::from_secs(15);
/// Largest message that a follower may send. Followers need not send any.
const RECEIVE_BYTES: usize = 4 << 10;

/// Why following ended before the job did.
#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error("the follower left")]
    Left,
    #[error("the follower does not read or does not answer pings")]
    Silent,
    #[error("the server stops")]
    Stopping,
    #[error("the connection broke")]
    Broken(#[from] WsError),
    #[error("the database failed")]
    Store(#[from] coder_store::Error),
    #[error("a line could not be written as JSON")]
    Json(#[from] serde_json::Error),
}

/// Sends lines after number `after` until the job has ended and all were sent.
pub(super) async fn follow(app: &App, job: JobId, after: i64, connection: WebSocketConnection) {
    let config = WebSocketConfig::default()
        .read_buffer_size(1 << 10)
        .write_buffer_size(16 << 10)
        .max_write_buffer_size(1 << 20)
        .max_message_size(Some(RECEIVE_BYTES))
        .max_frame_size(Some(RECEIVE_BYTES));
    let mut socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
    let frame = match serve(app, job, after, &mut socket).await {
        Ok(()) => CloseFrame { code: CloseCode::Normal, reason: "done".into() },
        Err(FollowError::Stopping) => CloseFrame { code: CloseCode::Away, reason: "the server stops".into() },
        Err(FollowError::Left | FollowError::Silent | FollowError::Broken(_)) => return,
        Err(error) => {
            tracing::warn!(job_id = %job, %error, "cannot follow a log");
            CloseFrame { code: CloseCode::Error, reason: "internal error".into() }
        }
    };
    // The closing handshake: our close frame, then all frames of the peer until its close frame.
    let farewell = async {
        socket.close(Some(frame)).await?;
        while socket.next().await.transpose()?.is_some() {}
        Ok::<_, WsError>(())
    };
    if let Err(error) = timeout(Duration::from_secs(5), farewell).await.unwrap_or(Ok(())) {
        tracing::debug!(job_id = %job, %error, "a log follower disconnected without a closing handshake");
    }
}

async fn serve(
    app: &App,
    job: JobId,
    mut after: i64,
    socket: &mut WebSocketStream<WebSocketConnection>,
) -> Result<(), FollowError> {
    // Subscribed before the first read, so that no line is missed. `tasks/backup_poll.rs` makes up for lost wake-ups.
    let mut changes = app.events.subscribe(Topic::Job(job));
    let mut ping = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut answered = true;
    loop {
        // The state is read first. When it is final, all lines are stored.
        let ended = !jobs::get(&mut app.store.reader().await?, job).await?.status().is_active();
        after = send_lines(app, job, after, socket).await?;
        if ended {
            return Ok(());
        }
        loop {
            tokio::select! {
                () = changes.changed() => break,
                () = app.lifecycle.soft().cancelled() => return Err(FollowError::Stopping),
                message = socket.next() => match message {
                    None | Some(Ok(Message::Close(_))) => return Err(FollowError::Left),
                    Some(Ok(Message::Pong(_))) => answered = true,
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error.into()),
                },
                _ = ping.tick() => {
                    if !answered {
                        return Err(FollowError::Silent);
                    }
                    answered = false;
                    send(socket, Message::Ping(Default::default())).await?;
                }
            }
        }
    }
}

async fn send_lines(
    app: &App,
    job: JobId,
    mut after: i64,
    socket: &mut WebSocketStream<WebSocketConnection>,
) -> Result<i64, FollowError> {
    loop {
        let page =
            jobs::logs::list(&mut app.store.reader().await?, job, after, PAGE_LINES, PAGE_BYTES).await?;
        let Some(last) = page.last() else { return Ok(after) };
        after = last.id;
        for line in page {
            let mut text = serde_json::to_string(&view(line))?;
            text.push('\n');
            feed(socket, Message::Text(text.into())).await?;
        }
        timeout(SEND_WITHIN, socket.flush()).await.map_err(|_| FollowError::Silent)??;
    }
}

async fn feed<S: Sink<Message, Error = WsError> + Unpin>(
    socket: &mut S,
    message: Message,
) -> Result<(), FollowError> {
    Ok(timeout(SEND_WITHIN, socket.feed(message)).await.map_err(|_| FollowError::Silent)??)
}

async fn send<S: Sink<Message, Error = WsError> + Unpin>(
    socket: &mut S,
    message: Message,
) -> Result<(), FollowError> {
    Ok(timeout(SEND_WITHIN, socket.send(message)).await.map_err(|_| FollowError::Silent)??)
}

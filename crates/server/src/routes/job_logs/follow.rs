//! Following a log over a WebSocket: history, then live lines, each once, closed when the job has ended
//! (http-api 10.1).

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
use crate::http::upgrade::Connection;

/// How often the follower is pinged; it must have answered by the next time.
const PING_EVERY: Duration = Duration::from_secs(15);
/// Time a follower has to take one message.
const SEND_WITHIN: Duration = Duration::from_secs(15);
/// Largest message a follower may send; it has nothing to say.
const RECEIVE_BYTES: usize = 4 << 10;

/// Why following ended before the job did.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("the follower left")]
    Left,
    #[error("the follower does not read or answer")]
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
pub(super) async fn follow(app: &App, job: JobId, after: i64, connection: Connection) {
    let config = WebSocketConfig::default()
        .read_buffer_size(1 << 10)
        .write_buffer_size(16 << 10)
        .max_write_buffer_size(1 << 20)
        .max_message_size(Some(RECEIVE_BYTES))
        .max_frame_size(Some(RECEIVE_BYTES));
    let mut socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
    let frame = match serve(app, job, after, &mut socket).await {
        Ok(()) => CloseFrame { code: CloseCode::Normal, reason: "done".into() },
        Err(Ended::Stopping) => CloseFrame { code: CloseCode::Away, reason: "the server stops".into() },
        Err(Ended::Left | Ended::Silent | Ended::Broken(_)) => return,
        Err(error) => {
            tracing::warn!(%job, %error, "following a log failed");
            CloseFrame { code: CloseCode::Error, reason: "internal error".into() }
        }
    };
    // The closing handshake: our frame, then whatever the peer still says until its own.
    let farewell = async {
        socket.close(Some(frame)).await?;
        while socket.next().await.transpose()?.is_some() {}
        Ok::<_, WsError>(())
    };
    if let Err(error) = timeout(Duration::from_secs(5), farewell).await.unwrap_or(Ok(())) {
        tracing::debug!(%job, %error, "a log follower did not say good-bye");
    }
}

async fn serve(
    app: &App,
    job: JobId,
    mut after: i64,
    socket: &mut WebSocketStream<Connection>,
) -> Result<(), Ended> {
    // Before the first look, so that nothing falls between. Lost wake-ups are made up for by `tasks/backup_poll.rs`.
    let mut changes = app.events.subscribe(Topic::Job(job));
    let mut ping = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut answered = true;
    loop {
        // The state is read first: when it is final, every line was stored before.
        let ended = !jobs::get(&mut app.store.reader().await?, job).await?.status().is_active();
        after = send_lines(app, job, after, socket).await?;
        if ended {
            return Ok(());
        }
        loop {
            tokio::select! {
                () = changes.changed() => break,
                () = app.lifecycle.soft().cancelled() => return Err(Ended::Stopping),
                message = socket.next() => match message {
                    None | Some(Ok(Message::Close(_))) => return Err(Ended::Left),
                    Some(Ok(Message::Pong(_))) => answered = true,
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error.into()),
                },
                _ = ping.tick() => {
                    if !answered {
                        return Err(Ended::Silent);
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
    socket: &mut WebSocketStream<Connection>,
) -> Result<i64, Ended> {
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
        timeout(SEND_WITHIN, socket.flush()).await.map_err(|_| Ended::Silent)??;
    }
}

async fn feed<S: Sink<Message, Error = WsError> + Unpin>(
    socket: &mut S,
    message: Message,
) -> Result<(), Ended> {
    Ok(timeout(SEND_WITHIN, socket.feed(message)).await.map_err(|_| Ended::Silent)??)
}

async fn send<S: Sink<Message, Error = WsError> + Unpin>(
    socket: &mut S,
    message: Message,
) -> Result<(), Ended> {
    Ok(timeout(SEND_WITHIN, socket.send(message)).await.map_err(|_| Ended::Silent)??)
}

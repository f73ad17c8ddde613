//! A WebSocket over which the server sends texts and the peer only answers pings: log followers and watchers.

use std::future::Future;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_util::sync::CancellationToken;

use super::upgrade::WebSocketConnection;

/// Interval of pings. The peer must answer each before the next.
pub const PING_EVERY: Duration = Duration::from_secs(15);
/// Time that the peer has to read one message.
const SEND_WITHIN: Duration = Duration::from_secs(15);
/// Largest message that the peer may send. It need not send any.
const RECEIVE_BYTES: usize = 4 << 10;

/// Why a socket ends before everything was sent.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// It closed the connection.
    #[error("the peer left")]
    Left,
    /// It is still there, perhaps.
    #[error("the peer does not read or does not answer pings")]
    Silent,
    /// The soft stop.
    #[error("the server stops")]
    Stopping,
    /// The right to read has ended, or may have changed.
    #[error("the right to read may have ended")]
    Revoked,
    /// It ended without a closing handshake.
    #[error("the connection broke")]
    Broken(#[from] WsError),
}

/// The socket.
pub struct TextSocket {
    socket: WebSocketStream<WebSocketConnection>,
    ping: Interval,
    answered: bool,
    stop: CancellationToken,
    revoked: CancellationToken,
}

impl TextSocket {
    /// Takes over a connection after its upgrade. `stop` and `revoked` end it.
    pub async fn new(
        connection: WebSocketConnection,
        stop: CancellationToken,
        revoked: CancellationToken,
    ) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(1 << 10)
            .write_buffer_size(16 << 10)
            .max_write_buffer_size(1 << 20)
            .max_message_size(Some(RECEIVE_BYTES))
            .max_frame_size(Some(RECEIVE_BYTES));
        let socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
        let mut ping = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { socket, ping, answered: true, stop, revoked }
    }

    /// Queues a text.
    ///
    /// # Errors
    /// The peer does not read.
    pub async fn feed(&mut self, text: String) -> Result<(), SocketError> {
        let fed = timeout(SEND_WITHIN, self.socket.feed(Message::Text(text.into()))).await;
        Ok(fed.map_err(|_| SocketError::Silent)??)
    }

    /// Sends what is queued.
    ///
    /// # Errors
    /// The peer does not read.
    pub async fn flush(&mut self) -> Result<(), SocketError> {
        Ok(timeout(SEND_WITHIN, self.socket.flush()).await.map_err(|_| SocketError::Silent)??)
    }

    /// Waits for `wake`, and pings the peer meanwhile.
    ///
    /// # Errors
    /// Why the socket ends.
    pub async fn wait<T>(&mut self, wake: impl Future<Output = T>) -> Result<T, SocketError> {
        let mut wake = std::pin::pin!(wake);
        loop {
            tokio::select! {
                // What ends this wait may end `wake` too, and the peer is told why.
                woken = wake.as_mut() => return self.ended().map_or(Ok(woken), Err),
                () = self.stop.cancelled() => return Err(SocketError::Stopping),
                () = self.revoked.cancelled() => return Err(SocketError::Revoked),
                message = self.socket.next() => match message {
                    None | Some(Ok(Message::Close(_))) => return Err(SocketError::Left),
                    Some(Ok(Message::Pong(_))) => self.answered = true,
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error.into()),
                },
                _ = self.ping.tick() => {
                    if !self.answered {
                        return Err(SocketError::Silent);
                    }
                    self.answered = false;
                    let sent = timeout(SEND_WITHIN, self.socket.send(Message::Ping(Default::default()))).await;
                    sent.map_err(|_| SocketError::Silent)??;
                }
            }
        }
    }

    /// Why nothing more is sent, whatever there is to send.
    fn ended(&self) -> Option<SocketError> {
        if self.stop.is_cancelled() {
            Some(SocketError::Stopping)
        } else {
            self.revoked.is_cancelled().then_some(SocketError::Revoked)
        }
    }

    /// Closes the socket: 1000 when everything was sent (`None`), 1001 when the server stops, 1008 without the right, 1011 after
    /// another error. A peer that left gets nothing.
    pub async fn close(mut self, error: Option<&(dyn std::error::Error + Send + Sync + 'static)>) {
        let frame = match error.map(|error| error.downcast_ref::<SocketError>()) {
            None => CloseFrame { code: CloseCode::Normal, reason: "done".into() },
            Some(Some(SocketError::Stopping)) => {
                CloseFrame { code: CloseCode::Away, reason: "the server stops".into() }
            }
            Some(Some(SocketError::Revoked)) => {
                CloseFrame { code: CloseCode::Policy, reason: "your right to read may have ended".into() }
            }
            Some(Some(SocketError::Left | SocketError::Silent | SocketError::Broken(_))) => return,
            Some(None) => CloseFrame { code: CloseCode::Error, reason: "internal error".into() },
        };
        // The closing handshake: our close frame, then all frames of the peer until its close frame.
        let closing = async {
            self.socket.close(Some(frame)).await?;
            while self.socket.next().await.transpose()?.is_some() {}
            Ok::<_, WsError>(())
        };
        if let Err(error) = timeout(Duration::from_secs(5), closing).await.unwrap_or(Ok(())) {
            tracing::debug!(%error, "a peer disconnected without a closing handshake");
        }
    }
}

//! Watching an object: its JSON at once and after each change, as server-sent events or over a WebSocket (http-api 10.3, 10.4).

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header::{self, HeaderName, HeaderValue};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};
use tokio_util::sync::CancellationToken;

use super::error::Result;
use super::text_socket::{SocketError, TextSocket};
use super::upgrade;
use crate::context::App;
use crate::events::Subscription;
use crate::memory::Watched;
use crate::network::reading::Reading;

/// Interval of pings. The object is read again with each, which makes up for lost wake-ups.
const PING_EVERY: Duration = Duration::from_secs(15);
/// Changes within this time after a read are read together: an agent may make many, and a user may watch often.
const COALESCE_INTERVAL: Duration = Duration::from_secs(1);

/// What is seen of something that is watched.
#[derive(Debug)]
pub enum View {
    /// Its JSON.
    Json(String),
    /// Nothing, but that may change.
    Nothing,
    /// It does not exist any more, or may no longer be seen.
    Gone,
}

/// Something that is watched.
pub trait Watch: Send + 'static {
    /// What is seen of it now.
    fn read(&mut self) -> impl Future<Output = Result<View>> + Send;
}

/// What a watcher is sent.
enum WatchEvent {
    Ping,
    Data(String),
    /// The last one.
    Error,
}

struct Watcher<W> {
    watch: W,
    changes: Subscription,
    ping: Interval,
    stop: CancellationToken,
    begun: bool,
    /// Whether it changed since it was read.
    changed: bool,
    last: Option<String>,
    /// The next read is not before this.
    read_after: Instant,
    over: bool,
    /// The right of a user; agents have none.
    reading: Option<Reading>,
}

impl<W: Watch> Watcher<W> {
    /// `changes` must have been subscribed before the first read.
    fn new(app: &App, watch: W, changes: Subscription, reading: Option<Reading>) -> Self {
        let mut ping = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let stop = app.lifecycle.soft().clone();
        Self {
            watch,
            changes,
            ping,
            stop,
            begun: false,
            changed: true,
            last: None,
            read_after: Instant::now(),
            over: false,
            reading,
        }
    }

    /// The next event; none at the end. Cancel safe.
    async fn next(&mut self) -> Option<WatchEvent> {
        if self.over {
            return None;
        }
        if !std::mem::replace(&mut self.begun, true) {
            return Some(WatchEvent::Ping);
        }
        let mut pinged = false;
        let revoked = self.reading.as_ref().map(|reading| reading.revoked.clone());
        loop {
            if revoked.as_ref().is_some_and(CancellationToken::is_cancelled) {
                self.over = true;
                return None;
            }
            let may_read = Instant::now() >= self.read_after;
            if self.changed && may_read {
                self.read_after = Instant::now() + COALESCE_INTERVAL;
                match self.watch.read().await {
                    Ok(View::Nothing) => self.changed = false,
                    Ok(View::Json(text)) => {
                        self.changed = false;
                        if self.last.as_ref() != Some(&text) {
                            self.last = Some(text.clone());
                            return Some(WatchEvent::Data(text));
                        }
                    }
                    Ok(View::Gone) => {
                        self.over = true;
                        return None;
                    }
                    Err(error) => {
                        tracing::debug!(?error, "cannot read what is watched");
                        self.over = true;
                        return Some(WatchEvent::Error);
                    }
                }
            }
            if pinged {
                return Some(WatchEvent::Ping);
            }
            tokio::select! {
                () = self.changes.changed() => self.changed = true,
                () = sleep_until(self.read_after), if self.changed => {}
                _ = self.ping.tick() => {
                    self.changed = true;
                    pinged = true;
                }
                () = self.stop.cancelled() => {
                    self.over = true;
                    return None;
                }
                () = async { revoked.as_ref().expect("checked").cancelled().await }, if revoked.is_some() => {}
            }
        }
    }
}

/// The body of an error event.
const ERROR: &str = r#"{"message":"Internal error."}"#;

/// Answers with server-sent events. They count as a WebSocket of the user, if one watches.
pub fn events<W: Watch>(
    app: &App,
    reading: Option<Reading>,
    watch: W,
    changes: Subscription,
) -> Result<Response> {
    let watcher = Watcher::new(app, watch, changes, reading);
    let frames = stream::unfold(watcher, |mut watcher| async move {
        // Official readers take exactly this form.
        let frame = match watcher.next().await? {
            WatchEvent::Ping => "event: ping\n\n".to_owned(),
            WatchEvent::Data(text) => format!("event: data\ndata: {text}\n\n"),
            WatchEvent::Error => format!("event: error\ndata: {ERROR}\n\n"),
        };
        Some((Ok::<_, Infallible>(Bytes::from(frame)), watcher))
    });
    let mut response = Body::from_stream(frames).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response.extensions_mut().insert(Watched);
    Ok(response)
}

/// Answers with a WebSocket that has one JSON object for each event.
pub fn socket<W: Watch>(
    app: &App,
    reading: Reading,
    watch: W,
    changes: Subscription,
    path: &'static str,
    mut request: Request,
) -> Result<Response> {
    let upgrade = match upgrade::check(&mut request) {
        Ok(upgrade) => upgrade,
        Err(refused) => return Ok(refused.into_response()),
    };
    let (response, connection) = upgrade.accept();
    let (app, counted) = (app.clone(), app.metrics.socket(path));
    app.clone().lifecycle.spawn("watcher", async move {
        let _counted = counted;
        let connection = match connection.await {
            Ok(connection) => connection,
            Err(error) => return tracing::debug!(%error, "the watcher left before anything was sent"),
        };
        let (stop, revoked) = (app.lifecycle.soft().clone(), reading.revoked.clone());
        let mut socket = TextSocket::new(connection, stop, revoked).await;
        let mut watcher = Watcher::new(&app, watch, changes, Some(reading));
        let ended = serve(&mut socket, &mut watcher).await;
        socket.close(ended.as_ref().err().map(|error| error as _)).await;
    });
    Ok(response)
}

async fn serve<W: Watch>(
    socket: &mut TextSocket,
    watcher: &mut Watcher<W>,
) -> std::result::Result<(), SocketError> {
    while let Some(event) = socket.wait(watcher.next()).await? {
        let text = match event {
            WatchEvent::Ping => r#"{"type":"ping","data":null}"#.to_owned(),
            WatchEvent::Data(text) => format!(r#"{{"type":"data","data":{text}}}"#),
            WatchEvent::Error => format!(r#"{{"type":"error","data":{ERROR}}}"#),
        };
        socket.feed(text).await?;
        socket.flush().await?;
    }
    Ok(())
}

//! Follows a log over a WebSocket: stored lines, then live lines, each once. It closes when the job has ended (http-api 10.1).

use coder_domain::ids::JobId;
use coder_store::jobs;

use super::lines::{PAGE_BYTES, PAGE_LINES, view};
use crate::context::App;
use crate::events::Topic;
use crate::http::text_socket::{SocketError, TextSocket};
use crate::http::upgrade::WebSocketConnection;

/// Why following ended before the job did.
#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("the database failed")]
    Store(#[from] coder_store::Error),
    #[error("a line could not be written as JSON")]
    Json(#[from] serde_json::Error),
}

/// Sends lines after number `after` until the job has ended and all were sent.
pub(super) async fn follow(app: &App, job: JobId, after: i64, connection: WebSocketConnection) {
    let mut socket = TextSocket::new(connection, app.lifecycle.soft().clone()).await;
    match serve(app, job, after, &mut socket).await {
        Ok(()) => socket.close(None).await,
        Err(FollowError::Socket(error)) => socket.close(Some(&error)).await,
        Err(error) => {
            tracing::warn!(job_id = %job, %error, "cannot follow a log");
            socket.close(Some(&error)).await;
        }
    }
}

async fn serve(app: &App, job: JobId, mut after: i64, socket: &mut TextSocket) -> Result<(), FollowError> {
    // Subscribed before the first read, so that no line is missed. `tasks/backup_poll.rs` makes up for lost wake-ups.
    let mut changes = app.events.subscribe(Topic::Job(job));
    loop {
        // The state is read first. When it is final, all lines are stored.
        let ended = !jobs::get(&mut app.store.reader().await?, job).await?.status().is_active();
        after = send_lines(app, job, after, socket).await?;
        if ended {
            return Ok(());
        }
        socket.wait(changes.changed()).await?;
    }
}

async fn send_lines(
    app: &App,
    job: JobId,
    mut after: i64,
    socket: &mut TextSocket,
) -> Result<i64, FollowError> {
    loop {
        let page =
            jobs::logs::list(&mut app.store.reader().await?, job, after, PAGE_LINES, PAGE_BYTES).await?;
        let Some(last) = page.last() else { return Ok(after) };
        after = last.id;
        for line in page {
            let mut text = serde_json::to_string(&view(line))?;
            text.push('\n');
            socket.feed(text).await?;
        }
        socket.flush().await?;
    }
}

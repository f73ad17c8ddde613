//! Follows a log over a WebSocket: stored lines, then live lines, each once. It closes when the job has ended (http-api 10.1).

use coder_domain::ids::{JobId, UserId};
use coder_store::jobs;

use super::lines::{PAGE_LINES, view};
use crate::context::App;
use crate::events::Topic;
use crate::http::upgrade::WebSocketConnection;
use crate::network::reading::Reading;
use crate::routes::log_follower::{FollowError, LogFollower};

/// Bytes that are read from the database at once. They are reserved while the peer reads them.
const PAGE_BYTES: usize = 512 << 10;

/// Sends lines after number `after` until the job has ended and all were sent.
pub(super) async fn follow(
    app: &App,
    (user, reading): (UserId, Reading),
    job: JobId,
    after: i64,
    connection: WebSocketConnection,
) {
    let mut follower = LogFollower::open(app, user, reading, connection).await;
    let result = serve(app, job, after, &mut follower).await;
    if let Err(error) = follower.close(result).await {
        tracing::warn!(job_id = %job, %error, "cannot follow a log");
    }
}

async fn serve(app: &App, job: JobId, mut after: i64, follower: &mut LogFollower) -> Result<(), FollowError> {
    // Subscribed before the first read, so that no line is missed. `tasks/backup_poll.rs` makes up for lost wake-ups.
    let mut changes = app.events.subscribe(Topic::Job(job));
    loop {
        // The state is read first. When it is final, all lines are stored.
        let ended = !jobs::get(&mut app.store.reader().await?, job).await?.status().is_active();
        after = send_lines(app, job, after, follower).await?;
        if ended {
            return Ok(());
        }
        follower.socket.wait(changes.changed()).await?;
    }
}

async fn send_lines(
    app: &App,
    job: JobId,
    mut after: i64,
    follower: &mut LogFollower,
) -> Result<i64, FollowError> {
    let LogFollower { socket, memory, .. } = follower;
    loop {
        // Slow readers of one user wait for each other, and not everybody for them.
        socket.wait(memory.grow(PAGE_BYTES)).await?;
        let most = i64::try_from(PAGE_BYTES).unwrap_or(i64::MAX);
        let page = jobs::logs::list(&mut app.store.reader().await?, job, after, PAGE_LINES, most).await?;
        memory.shrink(page.iter().map(|line| size_of_val(line) + line.line.output.len()).sum());
        let Some(last) = page.last() else { return Ok(after) };
        after = last.id;
        for line in page {
            let mut text = serde_json::to_string(&view(line))?;
            text.push('\n');
            socket.feed(text).await?;
        }
        socket.flush().await?;
        memory.shrink(0);
    }
}

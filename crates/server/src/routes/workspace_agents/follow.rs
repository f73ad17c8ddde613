//! Follows the log of an agent over a WebSocket, until the agent's build is no longer the latest (http-api 10.2).

use coder_domain::ids::{AgentId, UserId, WorkspaceId};
use coder_store::workspaces::{agent_connections, agent_logs};

use super::logs::view;
use crate::context::App;
use crate::events::Topic;
use crate::http::text_socket::PING_EVERY;
use crate::http::upgrade::WebSocketConnection;
use crate::network::reading::Reading;
use crate::routes::log_follower::{FollowError, LogFollower};

/// Bytes of one message; clients read messages of up to 32 KiB.
const MESSAGE_BYTES: usize = 30 << 10;

/// The most that is read from the database at once: a whole log. It is reserved while the peer reads it.
const PAGE_BYTES: usize = 1 << 20;

/// Sends lines after number `after`.
pub(super) async fn follow(
    app: &App,
    (user, reading): (UserId, Reading),
    (agent, workspace): (AgentId, WorkspaceId),
    after: i64,
    connection: WebSocketConnection,
) {
    let mut follower = LogFollower::open(app, user, reading, connection).await;
    let result = serve(app, (agent, workspace), after, &mut follower).await;
    if let Err(error) = follower.close(result).await {
        tracing::warn!(agent_id = %agent, %error, "cannot follow the log of an agent");
    }
}

async fn serve(
    app: &App,
    (agent, workspace): (AgentId, WorkspaceId),
    mut after: i64,
    follower: &mut LogFollower,
) -> Result<(), FollowError> {
    // Subscribed before the first read, so that no line is missed.
    let mut lines = app.events.subscribe(Topic::AgentLogs(agent));
    let mut builds = app.events.subscribe(Topic::Workspace(workspace));
    loop {
        let place = agent_connections::find_place(&mut app.store.reader().await?, agent).await?;
        after = send_lines(app, agent, after, follower).await?;
        if !place.is_some_and(|place| place.is_latest) {
            return Ok(());
        }
        let changed = async {
            tokio::select! {
                () = lines.changed() => {}
                () = builds.changed() => {}
                // Makes up for lost wake-ups.
                () = tokio::time::sleep(PING_EVERY) => {}
            }
        };
        follower.socket.wait(changed).await?;
    }
}

async fn send_lines(
    app: &App,
    agent: AgentId,
    mut after: i64,
    follower: &mut LogFollower,
) -> Result<i64, FollowError> {
    let LogFollower { socket, memory, .. } = follower;
    loop {
        socket.wait(memory.grow(PAGE_BYTES)).await?;
        let page = agent_logs::list(&mut app.store.reader().await?, agent, after).await?;
        memory.shrink(page.iter().map(|line| size_of_val(line) + line.line.output.len()).sum());
        let Some(last) = page.last() else { return Ok(after) };
        after = last.id;
        let mut message = String::new();
        for line in page {
            let text = serde_json::to_string(&view(line))?;
            if !message.is_empty() && message.len() + text.len() + 2 > MESSAGE_BYTES {
                message.push(']');
                socket.feed(std::mem::take(&mut message)).await?;
            }
            message.push(if message.is_empty() { '[' } else { ',' });
            message.push_str(&text);
        }
        message.push(']');
        socket.feed(message).await?;
        socket.flush().await?;
        memory.shrink(0);
    }
}

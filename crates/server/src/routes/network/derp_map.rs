//! The DERP map over a WebSocket, for clients older than the Tailnet service.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use coder_api::paths;
use coder_wire::ws::Socket;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::upgrade::full;
use crate::context::App;
use crate::http::peer::Peer;
use crate::http::{AccessUrl, upgrade};
use crate::network::derp_map;

/// How long a connection stays open. The map changes only when the server starts again; clients connect again.
const OPEN_FOR: Duration = Duration::from_secs(600);

/// `GET /api/v2/derp-map`
pub async fn derp_map(State(app): State<App>, url: AccessUrl, mut request: Request) -> Response {
    let upgrade = match upgrade::check(&mut request) {
        Ok(upgrade) => upgrade,
        Err(refused) => return refused.into_response(),
    };
    let Some(permit) = app.network.admit_to_relay(Peer::of(&request, &app.config.proxies).address) else {
        return full();
    };
    let (response, connection) = upgrade.accept();
    let map = serde_json::to_vec(&derp_map::of(&app.config, &url)).expect("a map has only texts and numbers");
    let counted = app.metrics.socket(paths::DERP_MAP);
    let soft = app.lifecycle.soft().clone();
    app.lifecycle.spawn("DERP map", async move {
        let _held = (permit, counted);
        let serving = async {
            let mut socket = Socket::server(connection.await.map_err(std::io::Error::other)?);
            socket.write_all(&map).await?;
            socket.flush().await?;
            let mut ignored = [0; 256];
            while socket.read(&mut ignored).await? > 0 {}
            socket.shutdown().await
        };
        tokio::select! {
            () = soft.cancelled() => {}
            ended = timeout(OPEN_FOR, serving) => if let Ok(Err(error)) = ended {
                tracing::debug!(%error, "a watcher of the DERP map left");
            },
        }
    });
    response
}

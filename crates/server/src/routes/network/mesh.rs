//! Where other servers of the deployment connect. They prove a secret that all of them share; nobody else has it.

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use coder_api::paths;
use uuid::Uuid;

use super::upgrade::upgrade;
use crate::context::App;
use crate::http::Error;

/// `GET /derp/mesh`: 404 for a server that has no relay URL.
pub async fn mesh(State(app): State<App>, request: Request) -> Response {
    let Some(mesh) = app.network.mesh.clone() else { return Error::not_found().into_response() };
    let server = app.clone();
    upgrade(&app, request, paths::DERP_MESH, "connection of another server", async move |stream, from| {
        let joined = |server_id: Uuid| {
            tracing::info!(%server_id, "another server has connected");
            server.network.mesh_joined.notify_one();
        };
        let served = mesh.accept(stream, joined);
        // Its peers need not be forgotten when this server stops. Anybody may connect, so failures are not warnings; the
        // server that dialled warns.
        if let Some(Err(error)) = server.lifecycle.soft().run_until_cancelled(served).await {
            tracing::debug!(%error, %from, "a connection of another server ended");
        }
    })
}

//! Where other servers of the deployment connect. They prove a secret that all of them share; nobody else has it.

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use coder_api::paths;
use coder_tailnet::derp::upgrade;
use http::{Method, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use uuid::Uuid;

use super::relay::{full, not_an_upgrade};
use crate::context::App;
use crate::http::Error;
use crate::http::peer::Peer;

/// `GET /derp/mesh`: 404 for a server that has no relay URL.
pub async fn mesh(State(app): State<App>, mut request: Request) -> Response {
    let Some(mesh) = app.network.mesh.clone() else { return Error::not_found().into_response() };
    let (form, headers) = match upgrade::answer(request.headers(), &app.network.relay.public_key()) {
        Ok(answer) => answer,
        Err(error) => return not_an_upgrade(&error.to_string()),
    };
    let connection =
        request.extensions_mut().remove::<OnUpgrade>().filter(|_| *request.method() == Method::GET);
    let Some(connection) = connection else {
        return not_an_upgrade("the connection cannot be upgraded");
    };
    let from = Peer::of(&request, &app.config.proxies).address;
    let Some(permit) = app.network.admit_to_relay(from) else { return full() };
    let counted = app.metrics.socket(paths::DERP_MESH);
    app.clone().lifecycle.spawn("connection of another server", async move {
        let _held = (permit, counted);
        let connection = match connection.await {
            Ok(connection) => connection,
            Err(error) => {
                return tracing::debug!(%error, "another server left before its connection began");
            }
        };
        let stream = upgrade::server_stream(form, TokioIo::new(connection));
        let joined = |server_id: Uuid| {
            tracing::info!(%server_id, "another server has connected");
            app.network.mesh_joined.notify_one();
        };
        let served = mesh.accept(stream, joined);
        // Its peers need not be forgotten when this server stops. Anybody may connect, so failures are not warnings; the
        // server that dialled warns.
        if let Some(Err(error)) = app.lifecycle.soft().run_until_cancelled(served).await {
            tracing::debug!(%error, %from, "a connection of another server ended");
        }
    });
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    *response.headers_mut() = headers;
    response
}

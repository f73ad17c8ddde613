//! The relay's endpoint. It has no authentication.

use axum::extract::{Request, State};
use axum::response::Response;
use coder_api::paths;

use super::upgrade::upgrade;
use crate::context::App;

/// `GET /derp`
pub async fn derp(State(app): State<App>, request: Request) -> Response {
    let relay = app.network.relay.clone();
    upgrade(&app, request, paths::DERP, "relay connection", async move |stream, from| {
        if let Err(error) = relay.serve(stream).await {
            tracing::debug!(%error, %from, "a connection to the relay ended");
        }
    })
}

//! The relay's endpoint, in both forms: `Upgrade: DERP` and a WebSocket (agent 3.5). It has no authentication.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use coder_api::paths;
use coder_tailnet::derp::upgrade;
use http::header::{self, HeaderValue};
use http::{Method, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use crate::context::App;
use crate::http::Error;
use crate::http::peer::Peer;

/// `GET /derp`
pub async fn derp(State(app): State<App>, mut request: Request) -> Response {
    let relay = app.network.relay.clone();
    let (form, headers) = match upgrade::answer(request.headers(), &relay.public_key()) {
        Ok(answer) => answer,
        Err(error) => return not_an_upgrade(&error.to_string()),
    };
    let connection =
        request.extensions_mut().remove::<OnUpgrade>().filter(|_| *request.method() == Method::GET);
    let Some(connection) = connection else {
        return not_an_upgrade("the connection cannot be upgraded");
    };
    let Some(permit) = app.network.admit_to_relay(Peer::of(&request, &app.config.proxies).address) else {
        return full();
    };
    let counted = app.metrics.socket(paths::DERP);
    app.lifecycle.spawn("relay connection", async move {
        let _held = (permit, counted);
        match connection.await {
            Ok(connection) => {
                let stream = upgrade::server_stream(form, TokioIo::new(connection));
                if let Err(error) = relay.serve(stream).await {
                    tracing::debug!(%error, "a connection to the relay ended");
                }
            }
            Err(error) => tracing::debug!(%error, "the client left before its connection to the relay began"),
        }
    });
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    *response.headers_mut() = headers;
    response
}

pub(super) fn not_an_upgrade(detail: &str) -> Response {
    let error = Error::new(StatusCode::UPGRADE_REQUIRED, "The relay needs an upgrade to DERP over HTTP/1.1.");
    let mut response = error.detail(detail).into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("DERP"));
    response
}

/// The relay has as many connections as it may have, or the client's network has its share of them.
pub(super) fn full() -> Response {
    let error = Error::new(StatusCode::SERVICE_UNAVAILABLE, "The relay has too many connections.");
    let mut response = error.detail("Try again in a moment.").into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("10"));
    response
}

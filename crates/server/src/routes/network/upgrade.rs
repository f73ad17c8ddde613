//! The upgrade to DERP, which the endpoints of the relay and of the mesh share: `Upgrade: DERP` or a WebSocket
//! (agent 3.5).

use std::net::IpAddr;

use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use coder_tailnet::derp::upgrade;
use coder_wire::bytes::BoxedStream;
use http::header::{self, HeaderValue};
use http::{Method, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use crate::context::App;
use crate::http::Error;
use crate::http::peer::Peer;

/// Answers `request` with 101 and runs `serve` with the stream and the client's address, as a task named `task`. The
/// connection is counted under `path`, and towards the limit of the relay, until `serve` ends.
pub(super) fn upgrade<S, F>(
    app: &App,
    mut request: Request,
    path: &'static str,
    task: &'static str,
    serve: S,
) -> Response
where
    S: FnOnce(BoxedStream, IpAddr) -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
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
    let counted = app.metrics.socket(path);
    app.lifecycle.spawn(task, async move {
        let _held = (permit, counted);
        match connection.await {
            Ok(connection) => serve(upgrade::server_stream(form, TokioIo::new(connection)), from).await,
            Err(error) => tracing::debug!(%error, %from, path, "the client left before its connection began"),
        }
    });
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    *response.headers_mut() = headers;
    response
}

fn not_an_upgrade(detail: &str) -> Response {
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

//! The listener of `--prometheus-address`: metrics under any path, as the official server has them.

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use tower::util::BoxCloneSyncService;

use super::render;
use crate::context::App;
use crate::http::connection::Service;

const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What answers there.
#[must_use]
pub fn service(app: App) -> Service {
    let router: Router = Router::new().fallback(axum::routing::get(metrics)).with_state(app);
    BoxCloneSyncService::new(router.into_service::<axum::body::Body>())
}

async fn metrics(State(app): State<App>) -> Response {
    match render(&app).await {
        Ok(text) => {
            ([(header::CONTENT_TYPE, KIND), (header::CACHE_CONTROL, "no-store")], text).into_response()
        }
        Err(error) => {
            tracing::warn!(%error, "the metrics cannot be read from the database");
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
    }
}

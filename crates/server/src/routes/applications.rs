//! Where apps of workspaces have host names of their own.

use axum::extract::State;
use coder_api::deployment::ApplicationsHost;

use crate::apps::destination::access_port;
use crate::config::Config;
use crate::context::App;
use crate::http::{AccessUrl, Caller, Json};

/// `GET /applications/host`
pub async fn host(State(app): State<App>, _: Caller, url: AccessUrl) -> Json<ApplicationsHost> {
    Json(ApplicationsHost { host: pattern(&app.config, &url) })
}

/// The wildcard host with the port of links; empty without one.
pub fn pattern(config: &Config, url: &AccessUrl) -> String {
    let wildcard = config.apps.wildcard.as_ref();
    wildcard.map(|wildcard| wildcard.with_label("*", access_port(url))).unwrap_or_default()
}

//! Versions, features and settings.

use axum::extract::State;
use coder_api::deployment::{
    Appearance, BuildInfo, EXTERNAL_PROVISIONER_DAEMONS, Entitlement, Entitlements, FEATURES, Feature,
    HEALTHY, Region, Regions, SshConfig, UpdateCheck,
};
use coder_api::error::Message;
use coder_store::settings;

use crate::context::App;
use crate::http::{AccessUrl, Json, Result, body};
use crate::routes::applications;

/// `GET /healthz`, `/latency-check`
pub async fn healthz() -> &'static str {
    HEALTHY
}

/// `GET /readyz`: whether requests can be served now, for load balancers. `/healthz` only shows that the process is
/// running: starting it anew does not bring a database back.
pub async fn readyz(State(app): State<App>) -> Result<&'static str> {
    settings::deployment_id(&mut app.store.reader().await?).await?;
    Ok(HEALTHY)
}

/// `GET /api/v2/`
pub async fn root() -> Json<Message> {
    body::message("👋")
}

/// `GET /api/v2/buildinfo`
pub async fn build_info(State(app): State<App>, AccessUrl(url): AccessUrl) -> Json<BuildInfo> {
    Json(BuildInfo {
        external_url: url.clone(),
        version: app.build.compatible.clone(),
        dashboard_url: url,
        agent_api_version: "1.0".to_owned(),
        provisioner_api_version: coder_domain::protocol::CURRENT.to_string(),
        deployment_id: app.deployment_id.clone(),
        ..BuildInfo::default()
    })
}

/// The features that exist here. A feature is added in the commit that makes it work.
const PRESENT: &[&str] = &[
    "access_control",
    "audit_log",
    EXTERNAL_PROVISIONER_DAEMONS,
    "multiple_external_auth",
    "multiple_organizations",
    "user_role_management",
];
/// The feature of several servers on one database, which needs Postgres.
const HIGH_AVAILABILITY: &str = "high_availability";

/// `GET /api/v2/entitlements`: what exists here may be used, everything else may not (http-api 5.7).
pub async fn entitlements(State(app): State<App>) -> Json<Entitlements> {
    let feature = |name: &str| {
        let is_present = PRESENT.contains(&name) || name == HIGH_AVAILABILITY && app.store.is_postgres();
        let entitlement = if is_present { Entitlement::Entitled } else { Entitlement::NotEntitled };
        Feature { entitlement, enabled: is_present, limit: None, actual: None }
    };
    Json(Entitlements {
        features: FEATURES.iter().map(|name| ((*name).to_owned(), feature(name))).collect(),
        warnings: Vec::new(),
        errors: Vec::new(),
        has_license: true,
        trial: false,
        require_telemetry: false,
        refreshed_at: app.now(),
    })
}

/// `GET /api/v2/updatecheck`: this server contacts no update service, so it reports its own version as the newest.
pub async fn update_check(State(app): State<App>) -> Json<UpdateCheck> {
    Json(UpdateCheck { current: true, version: app.build.compatible.clone(), url: String::new() })
}

/// `GET /api/v2/appearance`
pub async fn appearance() -> Json<Appearance> {
    Json(Appearance::default())
}

/// `GET /api/v2/regions`: there is one place, this server.
pub async fn regions(State(app): State<App>, AccessUrl(url): AccessUrl) -> Json<Regions> {
    let primary = Region {
        id: app.deployment_id.parse().unwrap_or_default(),
        name: "primary".to_owned(),
        display_name: "Default".to_owned(),
        healthy: true,
        wildcard_hostname: applications::pattern(&app.config, &AccessUrl(url.clone())),
        path_app_url: url,
        ..Region::default()
    };
    Json(Regions { regions: vec![primary] })
}

/// `GET /api/v2/deployment/ssh`
pub async fn ssh_config(State(app): State<App>) -> Json<SshConfig> {
    let ssh = &app.config.ssh;
    Json(SshConfig {
        hostname_prefix: ssh.hostname_prefix.clone(),
        hostname_suffix: ssh.hostname_suffix.clone(),
        ssh_config_options: ssh.config_options.clone(),
    })
}

/// `GET /api/v2/experiments`
pub async fn experiments() -> Json<Vec<String>> {
    Json(Vec::new())
}

/// The experiments that could be turned on.
#[derive(serde::Serialize)]
pub struct Available {
    safe: Vec<String>,
}

/// `GET /api/v2/experiments/available`
pub async fn available_experiments() -> Json<Available> {
    Json(Available { safe: Vec::new() })
}

//! The health report of the server (scheduling-and-auth 4.5).

use std::time::Instant;

use axum::extract::State;
use coder_api::daemons::{ProvisionerDaemon, VersionSkew};
use coder_api::health::{DaemonHealth, DaemonsHealth, DatabaseHealth, HealthMessage, HealthReport, Severity};
use coder_domain::protocol::{self, ApiVersion};
use coder_domain::rbac::{Action, Resource};
use coder_store::daemons::{self, Daemon, DaemonFilter};
use coder_store::settings;

use crate::context::App;
use crate::http::{Caller, Json, Result};
use crate::provisioning::session::presence::{STALE_AFTER, seen_within};
use crate::routes::provisioner_daemons::skew;
use crate::routes::provisioner_daemons::view::{extras, view};

/// A slower database is a warning.
const SLOW_DATABASE_MS: u128 = 15;

/// `GET /debug/health`: for those who may read the deployment's settings. Nothing is cached; a look costs two statements.
pub async fn health(State(app): State<App>, caller: Caller) -> Result<Json<HealthReport>> {
    caller.require_site(Action::Read, Resource::Deployment)?;
    let database = database(&app).await;
    let daemons = if database.reachable { fresh(&app).await } else { None };
    let provisioner_daemons = match daemons {
        Some(daemons) => daemons_health(daemons, &app.build.compatible),
        None => DaemonsHealth {
            severity: Severity::Error,
            error: Some("The daemons could not be read from the database.".to_owned()),
            ..DaemonsHealth::default()
        },
    };
    let severity = worst([&database.severity, &provisioner_daemons.severity]);
    Ok(Json(HealthReport {
        time: app.now(),
        healthy: severity != Severity::Error,
        severity,
        database,
        provisioner_daemons,
        coder_version: app.build.compatible.clone(),
    }))
}

async fn database(app: &App) -> DatabaseHealth {
    let started = Instant::now();
    let answer = async { settings::deployment_id(&mut app.store.reader().await?).await }.await;
    let took = started.elapsed();
    let reachable = answer.is_ok();
    let slow = took.as_millis() > SLOW_DATABASE_MS;
    let warning = HealthMessage {
        code: "EDB02".to_owned(),
        message: format!("The database took {} ms to answer.", took.as_millis()),
    };
    DatabaseHealth {
        healthy: reachable && !slow,
        reachable,
        severity: match (reachable, slow) {
            (false, _) => Severity::Error,
            (true, true) => Severity::Warning,
            (true, false) => Severity::Ok,
        },
        warnings: if reachable && slow { vec![warning] } else { Vec::new() },
        dismissed: false,
        latency: format!("{}µs", took.as_micros()),
        latency_ms: i64::try_from(took.as_millis()).unwrap_or(i64::MAX),
        threshold_ms: i64::try_from(SLOW_DATABASE_MS).unwrap_or_default(),
        // The log contains the cause.
        error: (!reachable).then(|| "The database does not answer.".to_owned()),
    }
}

/// The recently seen daemons of all organizations; none when the database fails.
async fn fresh(app: &App) -> Option<Vec<Daemon>> {
    let filter = DaemonFilter {
        seen: Some(seen_within(app, STALE_AFTER)),
        is_present: true,
        ..DaemonFilter::default()
    };
    let listed = async { daemons::list(&mut app.store.reader().await?, &filter).await };
    let mut daemons = match listed.await {
        Ok(daemons) => daemons,
        Err(error) => {
            tracing::warn!(%error, "the health report omits the daemons");
            return None;
        }
    };
    daemons.sort_by(|a, b| a.name.cmp(&b.name));
    Some(daemons)
}

/// The code for problems that our daemons report. Official servers have none.
const UNHEALTHY: &str = "EPD90";

/// EPD01: no daemons. EPD02: a build of another release. EPD03: another major version of the protocol. EPD90: a daemon cannot
/// run jobs, which is an error when none can.
fn daemons_health(daemons: Vec<Daemon>, server_version: &str) -> DaemonsHealth {
    if daemons.is_empty() {
        return DaemonsHealth {
            severity: Severity::Error,
            error: Some("EPD01: No active provisioner daemons found!".to_owned()),
            ..DaemonsHealth::default()
        };
    }
    let none_can_run = daemons.iter().all(|daemon| !daemon.problem.is_empty());
    let items: Vec<_> = daemons.into_iter().map(|daemon| item(daemon, server_version)).collect();
    let all = if none_can_run { Severity::Error } else { Severity::Ok };
    let severity = worst(items.iter().map(|(severity, _)| severity).chain([&all]));
    let items: Vec<_> = items.into_iter().map(|(_, item)| item).collect();
    let mut warnings: Vec<HealthMessage> = Vec::new();
    for message in items.iter().flat_map(|item| &item.warnings) {
        if !warnings.iter().any(|known| known.code == message.code) {
            let count =
                items.iter().filter(|item| item.warnings.iter().any(|w| w.code == message.code)).count();
            let text = match message.code.as_str() {
                "EPD02" => "Some provisioner daemons report mismatched versions.",
                UNHEALTHY => "Some provisioner daemons can run no jobs.",
                "EPD03" => "Some provisioner daemons report mismatched API major versions.",
                _ => "Some provisioner daemons report versions that cannot be read.",
            };
            warnings.push(HealthMessage { code: message.code.clone(), message: format!("{text} ({count})") });
        }
    }
    let error = none_can_run.then(|| format!("{UNHEALTHY}: No provisioner daemon can run jobs!"));
    DaemonsHealth { severity, warnings, items, error, ..DaemonsHealth::default() }
}

fn item(daemon: Daemon, server_version: &str) -> (Severity, DaemonHealth) {
    let mut severity = Severity::Ok;
    let mut warnings = Vec::new();
    let mut add = |level: Severity, code: &str, message: String| {
        severity = worst([&severity, &level]);
        warnings.push(HealthMessage { code: code.to_owned(), message });
    };
    if !daemon.problem.is_empty() {
        let message = format!("unhealthy: {}: {}", daemon.problem, daemon.problem_detail);
        add(Severity::Warning, UNHEALTHY, message);
    }
    match skew::build(&daemon.version, server_version) {
        VersionSkew::Behind | VersionSkew::Ahead => add(
            Severity::Warning,
            "EPD02",
            format!("Mismatched version {:?}, the server is {server_version:?}", daemon.version),
        ),
        VersionSkew::Unknown => {
            add(Severity::Error, "EUNKNOWN", format!("The version {:?} cannot be read.", daemon.version))
        }
        _ => {}
    }
    match daemon.api_version.parse::<ApiVersion>() {
        Ok(version) if version.major != protocol::CURRENT.major => add(
            Severity::Warning,
            "EPD03",
            format!("Mismatched API version {version}, the server is {}", protocol::CURRENT),
        ),
        Ok(_) => {}
        Err(error) => add(Severity::Error, "EUNKNOWN", error.to_string()),
    }
    let known = Some(extras(&daemon, 0, server_version));
    let provisioner_daemon = ProvisionerDaemon { extras: known, ..view(daemon) };
    (severity, DaemonHealth { provisioner_daemon, warnings })
}

fn worst<'a>(severities: impl IntoIterator<Item = &'a Severity>) -> Severity {
    let rank = |severity: &Severity| match severity {
        Severity::Error => 2,
        Severity::Warning => 1,
        _ => 0,
    };
    severities.into_iter().max_by_key(|severity| rank(severity)).cloned().unwrap_or_default()
}

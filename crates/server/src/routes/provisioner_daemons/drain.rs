//! Drains and undrains daemons.

use axum::extract::State;
use coder_api::daemons::DrainResponse;
use coder_domain::ids::DaemonId;
use coder_domain::rbac::{Action, Object, Resource};
use coder_store::daemons::{self, Daemon, DaemonFilter};
use coder_store::{Tx, transaction};

use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::events::hint::Hint;
use crate::events::written::write_down;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result};
use crate::provisioning::session::presence::{STALE_AFTER, seen_within};
use crate::routes::organizations;

/// `POST /organizations/{organization}/provisionerdaemons/{daemon}/drain`: by name, which daemons of different users may
/// share, or by id. Daemons with the extension `drain` finish their jobs and disconnect. An official daemon gets no more jobs
/// until it is undrained, even after it reconnects. Only recently seen daemons can be drained.
pub async fn drain(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<DrainResponse>> {
    set(&app, &caller, names, true).await
}

/// `DELETE /organizations/{organization}/provisionerdaemons/{daemon}/drain`: official daemons get jobs again, and
/// disconnected daemons are not drained when they reconnect. A daemon that was already told to disconnect still
/// disconnects.
pub async fn undrain(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<DrainResponse>> {
    set(&app, &caller, names, false).await
}

async fn set(app: &App, caller: &Caller, names: Names, draining: bool) -> Result<Json<DrainResponse>> {
    let [organization, daemon] = names.take()?;
    let mut tx = app.store.reader().await?;
    let organization = organizations::named(app, &mut tx, caller, &organization).await?;
    let object = Object::in_organization(Resource::ProvisionerDaemon, organization.id);
    caller.require_visible(Action::Update, object)?;
    let now = app.now();
    let seen = draining.then(|| seen_within(app, STALE_AFTER));
    let filter = DaemonFilter { organization_id: Some(organization.id), seen, ..DaemonFilter::default() };
    let found = named(&mut tx, &filter, &daemon).await?;
    drop(tx);
    if found.is_empty() {
        return Err(Error::not_found().detail(if draining {
            "No daemon of that name or id was seen in the last 90 seconds."
        } else {
            "There is no daemon of that name or id."
        }));
    }
    let reason = format!("{} asked for it", caller.user.username);
    transaction!(app.store, coder_store::Error, |tx| {
        for daemon in &found {
            // Lists and explanations show it at once, also for daemons that cannot report it.
            if draining {
                daemons::update_drain(tx, daemon.id, &reason, now).await?;
            } else {
                daemons::delete_drain(tx, daemon.id).await?;
            }
            let event = Event::new(Verb::Write, Kind::ProvisionerDaemon, daemon.id.0, &daemon.name)
                .in_organization(organization.id)
                .change("draining", daemon.draining, draining);
            event.by(tx, caller, now).await?;
        }
        for daemon in &found {
            write_down(&app.store, tx, Hint::Drained(daemon.id), now).await?;
        }
        Ok(())
    })?;
    let connected = app.scheduler.connected();
    let mut notified = 0;
    for daemon in &found {
        notified += if draining {
            connected.drain(daemon.id, &reason, now)
        } else {
            connected.undrain(|freed| freed == daemon.id)
        };
        app.events.notify(Hint::Drained(daemon.id));
        tracing::info!(daemon_id = %daemon.id, daemon_name = daemon.name, user_id = %caller.user.id, draining, "changed the drain of a provisioner daemon");
    }
    Ok(Json(DrainResponse {
        daemons: found.iter().map(|daemon| daemon.id).collect(),
        notified: u64::try_from(notified).unwrap_or(u64::MAX),
    }))
}

/// The daemons of this name or id.
async fn named(tx: &mut Tx, filter: &DaemonFilter, name_or_id: &str) -> Result<Vec<Daemon>> {
    let id = name_or_id.parse::<DaemonId>().ok();
    let mut found = daemons::list(tx, filter).await?;
    found.retain(|daemon| id.map_or(daemon.name == name_or_id, |id| daemon.id == id));
    Ok(found)
}

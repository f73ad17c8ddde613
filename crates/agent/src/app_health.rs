//! Whether the template's apps answer (agent 2.8).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coder_api::client::AppProbe;
use coder_wire::drpc::Error;
use coder_wire::messages::coder::agent::v2 as messages;
use messages::AppHealth as Health;
use messages::batch_update_app_health_request::HealthUpdate;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::calls::Calls;
use crate::manifest::{App, Manifest};

/// The shortest time between two reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// What a request has less than the interval.
const TIMEOUT_MARGIN: Duration = Duration::from_millis(1);

/// The health of one app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    health: Health,
    failures: u32,
}

impl State {
    const NEW: Self = Self { health: Health::Initializing, failures: 0 };

    /// Takes the result of one check.
    fn checked(self, answered: bool, threshold: u32) -> Self {
        match (answered, self.failures) {
            (true, _) => Self { health: Health::Healthy, failures: 0 },
            (false, failures) if failures >= threshold => Self { health: Health::Unhealthy, failures },
            (false, failures) => Self { failures: failures + 1, ..self },
        }
    }
}

#[derive(Debug, Default)]
struct States {
    apps: Mutex<BTreeMap<Uuid, State>>,
    changed: Notify,
}

/// Checks and reports over one connection until it fails.
pub(crate) async fn run(manifest: &Manifest, calls: &Calls) -> Result<(), Error> {
    if manifest.apps.is_empty() {
        return std::future::pending().await;
    }
    let probe = match AppProbe::new() {
        Ok(probe) => probe,
        Err(error) => {
            tracing::warn!(%error, "the health of the apps cannot be checked");
            return std::future::pending().await;
        }
    };
    let states = Arc::new(States::default());
    states.apps.lock().extend(manifest.apps.iter().map(|app| (app.id, State::NEW)));
    let mut checks = JoinSet::new();
    for app in &manifest.apps {
        let (app, states, probe) = (app.clone(), Arc::clone(&states), probe.clone());
        checks.spawn(async move { follow(&app, &probe, &states).await });
    }
    let healths = |states: &States| -> BTreeMap<Uuid, Health> {
        states.apps.lock().iter().map(|(id, state)| (*id, state.health)).collect()
    };
    let mut reported = healths(&states);
    loop {
        let changed = states.changed.notified();
        let now = healths(&states);
        if now == reported {
            changed.await;
            continue;
        }
        let update = |(id, health): (&Uuid, &Health)| HealthUpdate {
            id: id.as_bytes().to_vec(),
            health: (*health).into(),
        };
        let request = messages::BatchUpdateAppHealthRequest { updates: now.iter().map(update).collect() };
        match calls.app_healths(request).await {
            Ok(_) => {}
            Err(Error::Refused(status)) => {
                tracing::warn!(error = %status, "the server does not take the health of the apps");
            }
            Err(error) => return Err(error),
        }
        reported = now;
        tokio::time::sleep(REPORT_INTERVAL).await;
    }
}

async fn follow(app: &App, probe: &AppProbe, states: &States) {
    let limit = app.interval.saturating_sub(TIMEOUT_MARGIN).max(TIMEOUT_MARGIN);
    let mut ticks = tokio::time::interval(app.interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first one is due an interval after the start.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let answered = probe.answers(&app.url, limit).await;
        let mut apps = states.apps.lock();
        let Some(state) = apps.get_mut(&app.id) else { return };
        let next = state.checked(answered, app.threshold);
        let changed = next.health != state.health;
        *state = next;
        drop(apps);
        if changed {
            tracing::info!(
                app = app.slug,
                health = next.health.as_str_name(),
                "the health of an app changed"
            );
            states.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// agent 2.8: threshold + 1 failures in a row.
    #[test]
    fn app_is_unhealthy_after_one_failure_more_than_the_threshold() {
        let mut state = State::NEW;
        let healths: Vec<_> = [false, false, false, true, false, false, true]
            .into_iter()
            .map(|answered| {
                state = state.checked(answered, 2);
                state.health
            })
            .collect();
        use Health::{Healthy, Initializing, Unhealthy};
        assert_eq!(healths, [Initializing, Initializing, Unhealthy, Healthy, Healthy, Healthy, Healthy]);
    }
}

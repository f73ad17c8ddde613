//! Metrics that are read at each scrape: queue, daemons, users, and this process.

use std::collections::BTreeMap;

use coder_domain::Timestamp;
use coder_domain::ids::OrganizationId;
use coder_domain::tags::TagSet;
use coder_store::jobs::backlog::{self, Backlog};
use coder_store::{Error, daemons, organizations, users};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::counters::{MAX_TAG_SETS, OTHER_TAG_SETS, TagSetLabels};
use super::network;
use crate::context::App;
use crate::provisioning::session::presence::{STALE_AFTER, seen_within};

/// Most daemons of one organization that are counted.
const MAX_DAEMONS: i64 = 20_000;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SlotLabels {
    organization_id: String,
    tags: String,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OrganizationLabels {
    organization_id: String,
    organization_name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UserStatusLabels {
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SessionLabels {
    app: &'static str,
}

/// Everything, in the text form of OpenMetrics.
pub async fn render(app: &App) -> Result<String, Error> {
    let mut text = String::new();
    encode(&mut text, &app.metrics.0.registry).expect("a string takes everything");
    open_end(&mut text);
    for source in app.metrics.0.sources.lock().iter() {
        text.push_str(&source());
        open_end(&mut text);
    }
    encode(&mut text, &now(app).await?).expect("a string takes everything");
    Ok(text)
}

/// Removes the end mark, so that another text can follow.
fn open_end(text: &mut String) {
    if let Some(start) = text.rfind("# EOF") {
        text.truncate(start);
    }
}

#[derive(Default)]
struct TagSetNumbers {
    waiting: i64,
    oldest_at: Option<Timestamp>,
    daemons: i64,
    draining: i64,
    unhealthy: i64,
    slots: i64,
    busy: i64,
}

/// The current numbers. Those from the database are the same on every replica.
async fn now(app: &App) -> Result<Registry, Error> {
    let at = app.now();
    let mut tx = app.store.reader().await?;
    let mut sets: BTreeMap<(OrganizationId, TagSet), TagSetNumbers> = BTreeMap::new();
    for Backlog { organization_id, tags, waiting, oldest_at } in backlog::list(&mut tx).await? {
        let set = sets.entry((organization_id, tags)).or_default();
        set.waiting += waiting;
        set.oldest_at = [set.oldest_at, oldest_at].into_iter().flatten().min();
    }
    let organizations = organizations::list(&mut tx).await?;
    let seen = seen_within(app, STALE_AFTER);
    for organization in &organizations {
        for daemon in daemons::facts::list(&mut tx, organization.id, MAX_DAEMONS).await? {
            let has_left = daemon.left_at.is_some() && daemon.busy == 0;
            let is_seen = seen.has(daemon.id, daemon.last_seen_at, daemon.left_at, &daemon.server);
            if has_left || !is_seen || daemon.revoked_at.is_some() {
                continue;
            }
            let set = sets.entry((organization.id, daemon.tags)).or_default();
            set.daemons += 1;
            set.draining += i64::from(daemon.draining);
            set.unhealthy += i64::from(!daemon.problem.is_empty());
            // An unhealthy daemon has no free slot.
            set.slots += if daemon.problem.is_empty() { daemon.slots } else { daemon.busy.min(daemon.slots) };
            set.busy += daemon.busy.min(daemon.slots);
        }
    }
    let mut counts = Vec::new();
    for (status, word) in [
        (users::UserStatus::Active, "active"),
        (users::UserStatus::Dormant, "dormant"),
        (users::UserStatus::Suspended, "suspended"),
    ] {
        let filter = users::UserFilter { status: Some(vec![status]), ..users::UserFilter::default() };
        counts.push((word, users::count(&mut tx, &filter).await?));
    }
    let mut registry = Registry::default();
    app.metrics.0.workspace_counts.add(&mut registry, &mut tx, at).await?;
    drop(tx);
    add_sets(&mut registry, sets, at);
    let info: Family<OrganizationLabels, Gauge> = Family::default();
    for organization in organizations {
        let labels = OrganizationLabels {
            organization_id: organization.id.to_string(),
            organization_name: organization.name,
        };
        info.get_or_create(&labels).set(1);
    }
    registry.register("coderd_provisioning_organization_info", "Names of organizations", info);
    let by_status: Family<UserStatusLabels, Gauge> = Family::default();
    for (status, count) in counts {
        by_status.get_or_create(&UserStatusLabels { status }).set(count);
    }
    registry.register("coderd_api_total_user_count", "Users by status", by_status);
    network::register(&mut registry, &app.network);
    add_process(&mut registry, app);
    Ok(registry)
}

/// The tag sets with the most jobs and daemons have labels of their own.
fn add_sets(registry: &mut Registry, sets: BTreeMap<(OrganizationId, TagSet), TagSetNumbers>, at: Timestamp) {
    let (waiting, oldest) =
        (Family::<TagSetLabels, Gauge>::default(), Family::<TagSetLabels, Gauge>::default());
    let (connected, draining) =
        (Family::<TagSetLabels, Gauge>::default(), Family::<TagSetLabels, Gauge>::default());
    let unhealthy: Family<TagSetLabels, Gauge> = Family::default();
    let slots: Family<SlotLabels, Gauge> = Family::default();
    let mut sets: Vec<_> = sets.into_iter().collect();
    sets.sort_by_key(|(_, set)| std::cmp::Reverse((set.waiting, set.daemons)));
    for (rank, ((organization, tags), set)) in sets.into_iter().enumerate() {
        let labels = if rank < MAX_TAG_SETS {
            TagSetLabels { organization_id: organization.to_string(), tags: tags.to_string() }
        } else {
            TagSetLabels { organization_id: String::new(), tags: OTHER_TAG_SETS.to_owned() }
        };
        let age = set.oldest_at.map_or(0, |oldest| at.duration_since(oldest).as_secs().max(0));
        waiting.get_or_create(&labels).inc_by(set.waiting);
        let eldest = oldest.get_or_create(&labels).get().max(age);
        oldest.get_or_create(&labels).set(eldest);
        connected.get_or_create(&labels).inc_by(set.daemons);
        draining.get_or_create(&labels).inc_by(set.draining);
        unhealthy.get_or_create(&labels).inc_by(set.unhealthy);
        let TagSetLabels { organization_id, tags } = labels;
        for (state, count) in [("busy", set.busy), ("free", set.slots - set.busy)] {
            let labels = SlotLabels { organization_id: organization_id.clone(), tags: tags.clone(), state };
            slots.get_or_create(&labels).inc_by(count);
        }
    }
    registry.register("coderd_provisioning_jobs_waiting", "Waiting jobs by what they need", waiting);
    registry.register("coderd_provisioning_oldest_waiting_seconds", "Age of the oldest waiting job", oldest);
    registry.register("coderd_provisioning_daemons", "Daemons seen lately", connected);
    registry.register("coderd_provisioning_daemons_draining", "Daemons that take no more jobs", draining);
    registry.register("coderd_provisioning_daemons_unhealthy", "Daemons that can run no jobs", unhealthy);
    registry.register("coderd_provisioning_slots", "Jobs that daemons can run at once", slots);
}

fn add_process(registry: &mut Registry, app: &App) {
    let sessions = i64::try_from(app.scheduler.connected().len()).unwrap_or(i64::MAX);
    let gauge = |value: i64| {
        let gauge: Gauge = Gauge::default();
        gauge.set(value);
        gauge
    };
    registry.register(
        "coderd_provisioning_sessions",
        "Connections of daemons to this server",
        gauge(sessions),
    );
    let connected = i64::try_from(app.agents.len()).unwrap_or(i64::MAX);
    registry.register("coderd_agents_connected", "Connections of agents to this server", gauge(connected));
    let open = app.agents.sessions();
    let by_app: Family<SessionLabels, Gauge> = Family::default();
    for (app, count) in [
        ("jetbrains", open.jetbrains),
        ("reconnecting_pty", open.reconnecting_pty),
        ("ssh", open.ssh),
        ("vscode", open.vscode),
    ] {
        by_app.get_or_create(&SessionLabels { app }).set(count);
    }
    registry.register("coderd_agents_sessions", "Sessions of people that these agents report", by_app);
    registry.register("process_resident_memory_bytes", "Resident memory", gauge(resident_bytes()));
    registry.register("process_open_fds", "Open files", gauge(open_files()));
}

fn resident_bytes() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = resident.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<i64>().ok());
    kib.unwrap_or_default().saturating_mul(1024)
}

fn open_files() -> i64 {
    std::fs::read_dir("/proc/self/fd").map_or(0, |entries| i64::try_from(entries.count()).unwrap_or(i64::MAX))
}

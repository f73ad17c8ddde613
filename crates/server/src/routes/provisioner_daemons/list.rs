//! The daemons of an organization, with their jobs.

use std::collections::HashMap;
use std::str::FromStr;

use axum::extract::State;
use coder_api::daemons::{DaemonStatus, ProvisionerDaemon, ProvisionerDaemonJob};
use coder_domain::duration;
use coder_domain::ids::DaemonId;
use coder_domain::rbac::{Action, Object, Resource};
use coder_domain::tags::TagSet;
use coder_store::daemons::{self, Daemon, DaemonFilter, DaemonJob, Liveness};
use jiff::SignedDuration;

use super::filters::{limit, tags, words};
use super::view::{extras, view};
use crate::context::App;
use crate::http::params::{Names, Query};
use crate::http::{Caller, Json, Result};
use crate::provisioning::session::presence::{STALE_AFTER, seen_within};
use crate::routes::organizations;

/// `GET /organizations/{organization}/provisionerdaemons`: newest first; stale ones only when asked for (DAE-2).
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    query: Query,
) -> Result<Json<Vec<ProvisionerDaemon>>> {
    let [organization] = names.take()?;
    query.only(&["limit", "ids", "tags", "offline", "status", "max_age"])?;
    let limit = limit(&query)?;
    let statuses: Option<Vec<DaemonStatus>> =
        words(&query, "status", |word| Some(DaemonStatus::from(word)).filter(DaemonStatus::is_known))?;
    let offline = query.flag("offline")?
        || statuses.as_ref().is_some_and(|statuses| statuses.contains(&DaemonStatus::Offline));
    let tags = tags(&query)?;
    let ids: Option<Vec<DaemonId>> = words(&query, "ids", |word| word.parse().ok())?;
    let max_age = query.read::<Age>("max_age")?;

    let mut tx = app.store.reader().await?;
    let organization = organizations::named(&app, &mut tx, &caller, &organization).await?;
    caller
        .require_visible(Action::Read, Object::in_organization(Resource::ProvisionerJob, organization.id))?;
    let fresh = seen_within(&app, STALE_AFTER);
    let oldest = max_age.map(|age| age.0);
    let age =
        if offline { oldest } else { Some(oldest.map_or(STALE_AFTER, |oldest| oldest.min(STALE_AFTER))) };
    let filter = DaemonFilter {
        organization_id: Some(organization.id),
        ids,
        seen: age.map(|age| seen_within(&app, age)),
        is_present: !offline,
        ..DaemonFilter::default()
    };
    let rows = daemons::list(&mut tx, &filter).await?;
    let mut rows: Vec<Daemon> = rows.into_iter().filter(|daemon| can_serve(daemon, tags.as_ref())).collect();
    if statuses.is_none() {
        rows.truncate(limit);
    }
    let ids: Vec<_> = rows.iter().map(|daemon| daemon.id).collect();
    let mut jobs: HashMap<DaemonId, Jobs> = HashMap::new();
    for job in daemons::list_jobs(&mut tx, &ids).await? {
        jobs.entry(job.worker_id).or_default().add(job);
    }
    let described = rows.into_iter().map(|daemon| {
        let jobs = jobs.remove(&daemon.id).unwrap_or_default();
        let known = extras(&daemon, jobs.held, &app.build.compatible);
        ProvisionerDaemon { extras: Some(known), ..describe(daemon, jobs, &fresh) }
    });
    let wanted = described.filter(|daemon| {
        statuses
            .as_ref()
            .is_none_or(|wanted| daemon.status.as_ref().is_some_and(|status| wanted.contains(status)))
    });
    Ok(Json(wanted.take(limit).collect()))
}

/// The tags filter holds a job's tags: the daemons that could run it match (TAG-10).
fn can_serve(daemon: &Daemon, job: Option<&TagSet>) -> bool {
    job.is_none_or(|job| daemon.tags.satisfies(job))
}

#[derive(Default)]
struct Jobs {
    current: Option<ProvisionerDaemonJob>,
    previous: Option<ProvisionerDaemonJob>,
    held: usize,
}

impl Jobs {
    fn add(&mut self, job: DaemonJob) {
        self.held += usize::from(job.is_current);
        let place = if job.is_current { &mut self.current } else { &mut self.previous };
        place.get_or_insert(ProvisionerDaemonJob {
            id: job.id,
            status: job.record().status(),
            template_name: job.template_name,
            template_icon: job.template_icon,
            template_display_name: job.template_display_name,
        });
    }
}

/// A daemon with a job is busy even when it was not seen for long (DAE-3).
fn describe(daemon: Daemon, jobs: Jobs, fresh: &Liveness) -> ProvisionerDaemon {
    let status = if jobs.current.is_some() {
        DaemonStatus::Busy
    } else if daemon.left_at.is_none()
        && fresh.has(daemon.id, daemon.last_seen_at, daemon.left_at, &daemon.server)
    {
        DaemonStatus::Idle
    } else {
        DaemonStatus::Offline
    };
    let key_name = daemon.key_name.clone();
    ProvisionerDaemon {
        key_name: Some(key_name),
        status: Some(status),
        current_job: jobs.current,
        previous_job: jobs.previous,
        ..view(daemon)
    }
}

/// An age, written as a duration of Go.
#[derive(Clone, Copy, Debug)]
struct Age(SignedDuration);

impl FromStr for Age {
    type Err = duration::Error;

    fn from_str(text: &str) -> std::result::Result<Self, duration::Error> {
        let age = duration::parse_flag(text)?;
        Ok(Self(SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX)))
    }
}

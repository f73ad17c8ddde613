//! Wakes waiting tasks after a request changed something. Call it after the commit. A lost wake-up costs time, never
//! correctness.

use coder_domain::ids::{JobId, WorkspaceId};
use coder_store::jobs::NewJob;

use crate::context::App;
use crate::events::hint::Hint;

/// A job was inserted.
pub fn job_waiting(app: &App, job: &NewJob) {
    app.scheduler.announce(job.organization_id, &job.provisioner, &job.tags);
    app.events.notify(Hint::Posted(job.id));
}

/// A job's state changed, for example because it was canceled.
pub fn job_changed(app: &App, id: JobId) {
    app.events.job_changed(id);
}

/// A workspace or its latest build changed.
pub fn workspace_changed(app: &App, id: WorkspaceId) {
    app.events.workspace_changed(id);
    schedules_changed(app);
}

/// Something that makes schedules due changed.
pub fn schedules_changed(app: &App) {
    app.schedules_changed.notify_one();
}

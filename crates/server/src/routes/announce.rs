//! Telling waiting tasks what a request changed. Called after the commit; losing a message costs time, never
//! correctness.

use coder_domain::ids::{JobId, WorkspaceId};
use coder_store::jobs::NewJob;

use crate::context::App;
use crate::events::hint::Hint;

/// A job waits for a daemon.
pub fn job_waiting(app: &App, job: &NewJob) {
    app.scheduler.announce(job.organization_id, &job.provisioner, &job.tags);
    app.events.tell(Hint::Posted(job.id));
}

/// A job's state changed, for example because it was canceled.
pub fn job_changed(app: &App, id: JobId) {
    app.events.job_changed(id);
}

/// A workspace or its latest build changed.
pub fn workspace_changed(app: &App, id: WorkspaceId) {
    app.events.workspace_changed(id);
}

//! Telling waiting tasks what a request changed. Called after the commit; losing a message costs time, never
//! correctness.

use coder_domain::ids::JobId;
use coder_store::jobs::NewJob;

use crate::context::App;

/// A job waits for a daemon.
pub fn job_waiting(app: &App, job: &NewJob) {
    app.scheduler.announce(job.organization_id, &job.provisioner, &job.tags);
}

/// A job was canceled; `ended` says that no daemon had it.
pub fn job_canceled(app: &App, id: JobId, ended: bool) {
    if ended {
        app.events.job_ended(id);
    } else {
        app.events.job_changed(id);
    }
}

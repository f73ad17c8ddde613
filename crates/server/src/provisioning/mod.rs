//! What daemons do here: joining, waiting for jobs, reporting on them. `serve.rs` lists the calls.

pub mod acquire;
pub mod admit;
pub mod cancel;
pub mod complete;
pub mod connected;
pub mod fail;
pub mod files;
pub mod logs;
pub mod payload;
pub mod quota;
pub mod refuse;
pub mod results;
pub mod serve;
pub mod session_token;
pub mod update;
pub mod waiting;

use coder_domain::tags::Demand;
use coder_store::jobs::NewJob;

pub use acquire::Scheduler;
pub use cancel::cancel;

use crate::context::Ctx;

/// Announces a job that was just committed: a waiting daemon takes it within milliseconds (ACQ-11).
pub fn posted(app: &Ctx, job: &NewJob) {
    app.scheduler.posted(&Demand {
        organization: job.organization_id,
        provisioner: &job.provisioner,
        tags: &job.tags,
    });
}

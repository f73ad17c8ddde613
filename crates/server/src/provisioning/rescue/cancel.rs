//! A cancel was requested: tells the job's daemon, and ends the job when no daemon is connected that could hear it.

use coder_domain::ids::JobId;

use super::deadlines;
use crate::context::App;
use crate::events::hint::Hint;

/// Call it after the commit of a cancel. The daemon is told if it understands, over whichever server it is connected to;
/// all others see it in the answer to their next message. A job whose daemon is disconnected ends a little later.
pub fn requested(app: &App, job: JobId) {
    app.scheduler.connected().cancel(job, app.now());
    app.events.notify(Hint::Canceled(job));
    deadlines::watch_jobs(app, vec![job]);
}

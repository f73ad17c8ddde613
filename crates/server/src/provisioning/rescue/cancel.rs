//! A cancel was requested: notifies the job's daemon, and ends the job when its daemon is not connected.

use coder_domain::ids::JobId;

use super::deadlines;
use crate::context::App;
use crate::events::hint::Hint;

/// Call it after the commit of a cancel. The daemon is notified if it has the extension, by the server it is connected
/// to; all others see it in the answer to their next message. A job whose daemon is disconnected ends a little later.
pub fn requested(app: &App, job: JobId) {
    app.scheduler.connected().cancel(job, app.now());
    app.events.notify(Hint::Canceled(job));
    deadlines::watch_jobs(app, vec![job]);
}

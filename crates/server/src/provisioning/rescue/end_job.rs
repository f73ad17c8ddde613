//! Ends a job because the server decided so: its daemon is lost or silent, its key is deleted, no daemon can run it.

use coder_domain::Timestamp;
use coder_domain::ids::{BuildId, JobId};
use coder_domain::job::lifecycle::Ending;
use coder_store::jobs;
use coder_store::jobs::journals;
use coder_store::jobs::logs::{self, Level, NewLine, Source};
use coder_store::workspaces::builds;
use coder_store::{Error, Tx, transaction};
use jiff::SignedDuration;

use crate::audit;
use crate::context::App;
use crate::events::hint::Hint;

/// The line above and below the message.
const RULE: &str = "====================";

/// Ends a job while the guard of the ending holds. Its build keeps the newest state that is known: that of the journal,
/// or that of the build before. Returns whether this call ended the job.
pub async fn end_job(app: &App, id: JobId, ending: &Ending) -> Result<bool, Error> {
    let now = app.now();
    let error = ending.cause.error();
    let ended = transaction!(app.store, Error, |tx| {
        // The guard of this statement decides: the caller that passes it writes the lines.
        jobs::give_up(tx, id, ending.guard, &error, now).await?;
        let stage = logs::find_last(tx, id).await?.map(|last| last.line.stage);
        let stage = stage.filter(|stage| !stage.is_empty()).unwrap_or_else(|| "Unknown".to_owned());
        logs::append_system(tx, id, &lines(&ending.cause.log_line(), &stage, now)).await?;
        let job = jobs::get(tx, id).await?;
        audit::job_end::job(tx, &job, &error, now).await?;
        let Some(build) = builds::find_by_job(tx, id).await? else { return Ok(None) };
        keep_state(tx, id, build.id).await?;
        Ok(Some(build.workspace_id))
    });
    let workspace = match ended {
        Ok(workspace) => workspace,
        // Its state changed meanwhile, or it was deleted.
        Err(Error::Stale { .. } | Error::NotFound { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    tracing::warn!(job_id = %id, error, "the server ended a job");
    app.metrics.job_ended_by_server(ending.cause.label());
    app.scheduler.connected().ended(id, Some(&error));
    app.events.notify(Hint::Ended(id));
    app.events.job_ended(id);
    if let Some(workspace) = workspace {
        app.events.workspace_changed(workspace);
    }
    Ok(true)
}

/// Gives a build without a reported state the state of the journal, or of the build before.
pub async fn keep_state(tx: &mut Tx, job: JobId, build: BuildId) -> Result<(), Error> {
    if !journals::apply(tx, job, build).await? {
        builds::copy_previous_state(tx, build).await?;
    }
    Ok(())
}

/// Five lines, a millisecond apart (REAP-3).
fn lines(message: &str, stage: &str, now: Timestamp) -> Vec<NewLine> {
    let texts = [String::new(), RULE.to_owned(), message.to_owned(), RULE.to_owned(), String::new()];
    let line = |(millis, output): (i64, String)| NewLine {
        created_at: now.checked_add(SignedDuration::from_millis(millis)).unwrap_or(now),
        source: Source::ProvisionerDaemon,
        level: Level::Error,
        stage: stage.to_owned(),
        output,
    };
    (0..).zip(texts).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reap_3_five_lines_a_millisecond_apart() {
        let lines = lines("it is over", "Plan", Timestamp::UNIX_EPOCH);
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[2].output, "it is over");
        assert_eq!(lines[4].created_at.as_millisecond(), 4);
        assert!(lines.iter().all(|line| line.level == Level::Error && line.stage == "Plan"));
    }
}

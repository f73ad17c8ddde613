//! Ends jobs whose daemon fell silent, and jobs that nobody took (scheduling-and-auth 3.6).

use std::time::Duration;

use coder_domain::Timestamp;
use coder_domain::ids::JobId;
use coder_store::job_logs::{self, Level, NewLine, Source};
use coder_store::jobs::{self, reap};
use coder_store::{Error, builds, transaction};
use jiff::SignedDuration;

use super::driver::Task;
use crate::context::App;

/// Most jobs looked at in one pass; more can only be open after a long outage.
const BATCH: i64 = 1000;
/// The line above and below the message.
const RULE: &str = "====================";

/// The task.
#[derive(Debug, Default)]
pub struct ReapJobs;

/// What is wrong with a job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Taken, then silence.
    Hung,
    /// Never taken.
    Pending,
}

impl Task for ReapJobs {
    const NAME: &'static str = "job reaper";

    async fn run(&mut self, app: &App) -> Result<(), Error> {
        let settings = &app.config.provisioning;
        let now = app.now();
        let (Some(hung), Some(pending)) =
            (before(now, settings.hung_after), before(now, settings.pending_after))
        else {
            return Ok(());
        };
        // Asking costs one statement a minute; an idle server without open jobs does not ask (see `Scheduler::is_quiet`).
        if !app.store.is_postgres() && app.scheduler.is_quiet() {
            return Ok(());
        }
        let candidates = reap::list_candidates(&mut app.store.reader().await?, hung, pending, BATCH).await?;
        for job in &candidates {
            match reap(app, *job, hung, pending, now).await {
                // It moved meanwhile.
                Ok(()) | Err(Error::Stale { .. } | Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if candidates.is_empty() {
            let mut tx = app.store.reader().await?;
            let announced = app.scheduler.announced();
            let far = now.checked_add(SignedDuration::from_hours(24)).unwrap_or(Timestamp::MAX);
            if reap::list_candidates(&mut tx, far, far, 1).await?.is_empty() {
                app.scheduler.set_quiet(announced);
            }
        }
        Ok(())
    }
}

fn before(now: Timestamp, age: Duration) -> Option<Timestamp> {
    now.checked_sub(SignedDuration::try_from(age).ok()?).ok()
}

async fn reap(
    app: &App,
    id: JobId,
    hung: Timestamp,
    pending: Timestamp,
    now: Timestamp,
) -> Result<(), Error> {
    let settings = &app.config.provisioning;
    let workspace = transaction!(app.store, Error, |tx| {
        let job = jobs::get(tx, id).await?;
        let (kind, limit, since) = match job.started_at {
            Some(_) => (Kind::Hung, hung, settings.hung_after),
            None => (Kind::Pending, pending, settings.pending_after),
        };
        if job.completed_at.is_some() || job.updated_at >= limit {
            return Ok(None);
        }
        // The guard of this statement is what decides; the lines belong to whoever passes it.
        reap::finish(tx, id, job.updated_at, &error(kind, since), now).await?;
        let stage = job_logs::find_last(tx, id).await?.map(|last| last.line.stage);
        let stage = stage.filter(|stage| !stage.is_empty()).unwrap_or_else(|| "Unknown".to_owned());
        job_logs::append_system(tx, id, &lines(kind, since, &stage, now)).await?;
        let Some(build) = job.workspace_build_id else { return Ok(Some(None)) };
        builds::copy_previous_state(tx, build).await?;
        Ok(Some(builds::find(tx, build).await?.map(|build| build.workspace_id)))
    })?;
    let Some(workspace) = workspace else { return Ok(()) };
    tracing::warn!(job = %id, "a job without a sign of life was ended by the reaper");
    app.events.job_ended(id);
    if let Some(workspace) = workspace {
        app.events.workspace_changed(workspace);
    }
    Ok(())
}

fn words(kind: Kind, since: Duration) -> (&'static str, String) {
    let word = if kind == Kind::Hung { "hung" } else { "pending" };
    let seconds = since.as_secs();
    let time = if seconds.is_multiple_of(60) {
        format!("{} minutes", seconds / 60)
    } else {
        format!("{seconds} seconds")
    };
    (word, time)
}

fn error(kind: Kind, since: Duration) -> String {
    let (word, time) = words(kind, since);
    format!("Coder: Build has been detected as {word} for {time} and has been terminated by the reaper.")
}

/// Five lines, a millisecond apart (REAP-3).
fn lines(kind: Kind, since: Duration, stage: &str, now: Timestamp) -> Vec<NewLine> {
    let (word, time) = words(kind, since);
    let sentence = format!("Coder: Build has been detected as {word} for {time} and will be terminated.");
    let texts = [String::new(), RULE.to_owned(), sentence, RULE.to_owned(), String::new()];
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
    fn reap_4_the_error_names_kind_and_time() {
        let five = Duration::from_secs(300);
        assert_eq!(
            error(Kind::Hung, five),
            "Coder: Build has been detected as hung for 5 minutes and has been terminated by the reaper."
        );
        assert!(error(Kind::Pending, Duration::from_secs(90)).contains("pending for 90 seconds"));
    }

    #[test]
    fn reap_3_five_lines_a_millisecond_apart() {
        let lines = lines(Kind::Hung, Duration::from_secs(300), "Plan", Timestamp::UNIX_EPOCH);
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[4].created_at.as_millisecond(), 4);
        assert!(lines.iter().all(|line| line.level == Level::Error && line.stage == "Plan"));
    }
}

//! Hears what other servers on the same Postgres database say, and tells them what happened here. Every hint is looked up
//! in the database; whenever one may have been lost, everything that is connected here is looked at once.

use std::collections::BTreeSet;
use std::time::Duration;

use coder_domain::ids::{DaemonId, JobId, KeyId, OrganizationId, UserId};
use coder_domain::job::Status;
use coder_store::notifications::{Channel, Listener, MAX_PAYLOAD_BYTES, Notifier};
use coder_store::{Error, daemons, jobs, keys};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use uuid::Uuid;

use crate::context::App;
use crate::events::hint::{self, Hint, Said};
use crate::provisioning::credentials::revoke;
use crate::provisioning::session::presence;

/// A sign of life, and which jobs are followed here.
const HELLO: Duration = Duration::from_secs(20);
/// One's own signs of life are heard, too; without any the connection is dead.
const SILENT: Duration = Duration::from_secs(65);
/// What happens within this time is told together.
const GATHER: Duration = Duration::from_millis(5);
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(10);

/// Ends with the soft stop, and at once on SQLite, which has one server.
pub async fn run(app: &App) {
    if !app.store.is_postgres() {
        return;
    }
    let own = app.events.outbox().own();
    let mut retry = FIRST_RETRY;
    loop {
        let connected = async {
            let channel = app.store.channel(&channel_name(&app.deployment_id)).await?;
            let Some(Channel { listener, notifier }) = channel else { return Ok(()) };
            retry = FIRST_RETRY;
            tracing::debug!("listening to the other servers on this database");
            // Whatever was said before is in the database.
            look_at_everything(app).await?;
            tokio::try_join!(hear(app, own, listener), speak(app, own, notifier)).map(|_| ())
        };
        tokio::select! {
            () = app.lifecycle.soft().cancelled() => return,
            ended = connected => if let Err(error) = ended {
                tracing::warn!(%error, "cannot hear the other servers on this database; trying again");
            },
        }
        tokio::select! {
            () = app.lifecycle.soft().cancelled() => return,
            () = sleep(retry) => retry = (retry * 2).min(LAST_RETRY),
        }
    }
}

/// Deployments may share a database server, and even a database.
fn channel_name(deployment: &str) -> String {
    let plain: String = deployment.chars().filter(char::is_ascii_alphanumeric).take(48).collect();
    format!("coder_{plain}")
}

async fn speak(app: &App, own: Uuid, mut notifier: Notifier) -> Result<(), Error> {
    let outbox = app.events.outbox();
    let mut hello = interval(HELLO);
    hello.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let mut hints = Vec::new();
        tokio::select! {
            _ = hello.tick() => {
                let known = outbox.peers();
                outbox.forget_silent();
                if outbox.peers() < known {
                    // One that was killed may have had no time to tell.
                    look_at_everything(app).await?;
                }
                hints.extend(app.events.followed().into_iter().map(Hint::Followed));
                // What could not be said over the connection before this one.
                hints.extend(outbox.take());
            }
            () = outbox.filled() => {
                sleep(GATHER).await;
                hints = outbox.take();
                if hints.is_empty() {
                    continue;
                }
            }
        }
        for message in hint::write(own, hints, MAX_PAYLOAD_BYTES) {
            if let Err(error) = notifier.notify(&message).await {
                outbox.failed();
                return Err(error);
            }
        }
    }
}

async fn hear(app: &App, own: Uuid, mut listener: Listener) -> Result<(), Error> {
    let outbox = app.events.outbox();
    loop {
        let message = timeout(SILENT, listener.next()).await;
        let message =
            message.map_err(|_| Error::Unavailable { what: "Postgres says nothing", source: None })??;
        let Some(Said { by, mut hints }) = hint::read(&message).filter(|said| said.by != own) else {
            continue;
        };
        if outbox.heard_from(by) {
            tracing::info!(server = %by, "there is another server on this database");
            // What it did before it knew of this one was not told.
            hints.push(Hint::Everything);
            // So that it knows of this one at once, and tells of the jobs that somebody follows here.
            outbox.tell(Hint::Everything);
            app.events.followed().into_iter().for_each(|job| outbox.tell(Hint::Followed(job)));
        }
        heed(app, &hints).await?;
    }
}

/// What other servers said in one message, by kind.
#[derive(Default)]
struct Heard {
    posted: Vec<JobId>,
    held: BTreeSet<JobId>,
    drained: BTreeSet<DaemonId>,
    left: BTreeSet<DaemonId>,
    keys: Vec<KeyId>,
    users: Vec<UserId>,
    tokens: Vec<UserId>,
    organizations: Vec<OrganizationId>,
    everything: bool,
}

/// Looks up what these are about.
pub(super) async fn heed(app: &App, hints: &[Hint]) -> Result<(), Error> {
    let mut heard = Heard::default();
    for hint in hints {
        match *hint {
            Hint::Posted(job) => heard.posted.push(job),
            Hint::Canceled(job) | Hint::Ended(job) => {
                heard.held.insert(job);
                app.events.job_changed_elsewhere(job);
            }
            Hint::Changed(job) => app.events.job_changed_elsewhere(job),
            Hint::Followed(job) => app.events.outbox().follow(job),
            Hint::Drained(daemon) => drop(heard.drained.insert(daemon)),
            Hint::Left(daemon) => drop(heard.left.insert(daemon)),
            Hint::Key(key) => heard.keys.push(key),
            Hint::User(user) => heard.users.push(user),
            Hint::Tokens(user) => heard.tokens.push(user),
            Hint::Organization(organization) => heard.organizations.push(organization),
            Hint::Everything => heard.everything = true,
        }
    }
    if heard.everything {
        return look_at_everything(app).await;
    }
    announce(app, &heard.posted).await?;
    let held: BTreeSet<_> = app.scheduler.connected().jobs().into_iter().collect();
    let held: Vec<_> = heard.held.intersection(&held).copied().collect();
    tell_of_jobs(app, &held).await?;
    let here: BTreeSet<_> = app.scheduler.connected().daemons().into_iter().collect();
    let drained: Vec<_> = heard.drained.intersection(&here).copied().collect();
    tell_of_drains(app, &drained).await?;
    let left: Vec<_> = heard.left.intersection(&here).copied().collect();
    presence::elsewhere_left(app, &left).await?;
    for key in heard.keys {
        app.scheduler.connected().recheck_key(key);
    }
    revoke::users_here(app, &heard.users).await?;
    revoke::tokens_here(app, &heard.tokens).await?;
    revoke::organizations_here(app, &heard.organizations).await?;
    Ok(())
}

/// Jobs that were posted elsewhere and still wait.
async fn announce(app: &App, posted: &[JobId]) -> Result<(), Error> {
    if posted.is_empty() || app.scheduler.size().0 == 0 {
        return Ok(());
    }
    for job in jobs::find_many(&mut app.store.reader().await?, posted).await? {
        if job.status() == Status::Pending {
            app.scheduler.announce(job.organization_id, &job.provisioner, &job.tags);
        }
    }
    Ok(())
}

/// What became of jobs that daemons hold here.
pub(super) async fn tell_of_jobs(app: &App, held: &[JobId]) -> Result<(), Error> {
    if held.is_empty() {
        return Ok(());
    }
    let connected = app.scheduler.connected();
    for job in jobs::find_many(&mut app.store.reader().await?, held).await? {
        if job.completed_at.is_some() {
            let reason = if job.error.is_empty() { "the server has ended the job" } else { &job.error };
            connected.ended(job.id, Some(reason));
        } else if let Some(at) = job.canceled_at {
            connected.cancel(job.id, at);
        }
    }
    Ok(())
}

async fn tell_of_drains(app: &App, daemons: &[DaemonId]) -> Result<(), Error> {
    if daemons.is_empty() {
        return Ok(());
    }
    let drains = daemons::list_drains(&mut app.store.reader().await?, daemons).await?;
    let connected = app.scheduler.connected();
    let drained: BTreeSet<_> = drains.iter().map(|drain| drain.id).collect();
    let daemons: BTreeSet<_> = daemons.iter().copied().collect();
    // Where there is none it was taken back.
    connected.undrain(|daemon| daemons.contains(&daemon) && !drained.contains(&daemon));
    for drain in drains {
        connected.drain(drain.id, &drain.reason, drain.asked_at);
    }
    Ok(())
}

/// Everything that a hint could be about, of what is connected here: a few statements, and a few for each user whose
/// daemons are.
pub(super) async fn look_at_everything(app: &App) -> Result<(), Error> {
    let connected = app.scheduler.connected();
    app.events.all_changed();
    app.scheduler.look().await?;
    tell_of_jobs(app, &connected.jobs()).await?;
    tell_of_drains(app, &connected.daemons()).await?;
    let mut tx = app.store.reader().await?;
    let ended = keys::list_ended(&mut tx, &connected.keys(), app.now()).await?;
    drop(tx);
    for key in ended {
        connected.recheck_key(key);
    }
    let users: BTreeSet<_> = connected.users().into_iter().map(|(user, ..)| user).collect();
    let users: Vec<_> = users.into_iter().collect();
    revoke::users_here(app, &users).await?;
    revoke::tokens_here(app, &users).await?;
    revoke::organizations_here(app, &connected.organizations()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_a_plain_name_of_one_deployment() {
        let name = channel_name("2d1e\"; drop -- 9\u{e9}");
        assert_eq!(name, "coder_2d1edrop9");
        assert!(channel_name(&"x".repeat(200)).len() < 63, "longer names are cut by Postgres");
    }
}

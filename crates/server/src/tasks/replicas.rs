//! Exchanges hints with the other servers on the same Postgres database. The receiver of a hint reads the database. When
//! hints may have been lost, it reads everything that concerns the daemons and followers connected here.

use std::collections::BTreeSet;
use std::time::Duration;

use coder_domain::backoff::Backoff;
use coder_domain::ids::{DaemonId, JobId, KeyId, OrganizationId, UserId};
use coder_domain::job::Status;
use coder_store::notifications::{Channel, Listener, MAX_PAYLOAD_BYTES, Notifier};
use coder_store::{Error, daemons, jobs, keys};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use uuid::Uuid;

use crate::context::App;
use crate::events::Topic;
use crate::events::hint::{self, Hint, Message};
use crate::network;
use crate::provisioning::credentials::revoke;
use crate::provisioning::session::presence;

/// Interval of heartbeats, which also name the jobs that are followed here.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(20);
/// A connection that delivers no message for so long is dead: it would deliver this server's own heartbeats.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(65);
/// Hints of this time are sent in one message.
const BATCH_DELAY: Duration = Duration::from_millis(5);
const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Runs until the soft stop. On SQLite there is one server, and it returns at once.
pub async fn run(app: &App) {
    if !app.store.is_postgres() {
        return;
    }
    let own = app.events.outbox().own();
    let mut backoff = Backoff::new(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
    loop {
        let connected = async {
            let channel = app.store.channel(&channel_name(&app.deployment_id)).await?;
            let Some(Channel { listener, notifier }) = channel else { return Ok(()) };
            backoff.reset();
            tracing::debug!("listening to the other servers on this database");
            // Hints that were sent earlier are lost.
            resync(app).await?;
            tokio::try_join!(receive(app, own, listener), send(app, own, notifier)).map(|_| ())
        };
        tokio::select! {
            () = app.lifecycle.soft().cancelled() => return,
            ended = connected => if let Err(error) = ended {
                tracing::warn!(%error, "lost the connection to the other servers on this database, trying again");
            },
        }
        tokio::select! {
            () = app.lifecycle.soft().cancelled() => return,
            () = sleep(backoff.next_delay()) => {}
        }
    }
}

/// Each deployment has its own channel: several may share a database server, and even a database.
fn channel_name(deployment: &str) -> String {
    let plain: String = deployment.chars().filter(char::is_ascii_alphanumeric).take(48).collect();
    format!("coder_{plain}")
}

async fn send(app: &App, own: Uuid, mut notifier: Notifier) -> Result<(), Error> {
    let outbox = app.events.outbox();
    let mut heartbeat = interval(HEARTBEAT_INTERVAL);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let mut hints = Vec::new();
        tokio::select! {
            _ = heartbeat.tick() => {
                let known = outbox.peers();
                outbox.forget_silent();
                if outbox.peers() < known {
                    // A killed server may have lost its last hints.
                    resync(app).await?;
                }
                hints.extend(app.events.followed().into_iter().map(Hint::Followed));
                // Hints that the previous connection could not send.
                hints.extend(outbox.take());
            }
            () = outbox.until_filled() => {
                sleep(BATCH_DELAY).await;
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

async fn receive(app: &App, own: Uuid, mut listener: Listener) -> Result<(), Error> {
    let outbox = app.events.outbox();
    loop {
        let message = timeout(SILENCE_TIMEOUT, listener.next()).await;
        let message = message
            .map_err(|_| Error::Unavailable { what: "the notifications of Postgres", source: None })??;
        let Some(Message { by, mut hints }) = hint::read(&message).filter(|message| message.by != own) else {
            continue;
        };
        if outbox.peer_seen(by) {
            tracing::info!(server_id = %by, "found another server on this database");
            if app.network.mesh.is_none() {
                tracing::warn!(
                    "agents that connect to one server cannot be reached through the other: give each server its own \
                     --derp-server-relay-url"
                );
            }
            // It sent no hints before it knew of this server.
            hints.push(Hint::Everything);
            // It learns of this server at once, and of the jobs that are followed here.
            outbox.notify(Hint::Everything);
            app.events.followed().into_iter().for_each(|job| outbox.notify(Hint::Followed(job)));
        }
        handle(app, &hints).await?;
    }
}

/// The hints of one message, by kind.
#[derive(Default)]
struct ReceivedHints {
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

/// Reads from the database what the hints are about.
pub(super) async fn handle(app: &App, hints: &[Hint]) -> Result<(), Error> {
    let mut received = ReceivedHints::default();
    for hint in hints {
        match *hint {
            Hint::Posted(job) => received.posted.push(job),
            Hint::Canceled(job) | Hint::Ended(job) => {
                received.held.insert(job);
                app.events.job_changed_on_another_server(job);
            }
            Hint::Changed(job) => app.events.job_changed_on_another_server(job),
            Hint::Followed(job) => app.events.outbox().follow(job),
            Hint::Drained(daemon) => drop(received.drained.insert(daemon)),
            Hint::Left(daemon) => drop(received.left.insert(daemon)),
            Hint::Key(key) => received.keys.push(key),
            Hint::User(user) => received.users.push(user),
            Hint::Tokens(user) => received.tokens.push(user),
            Hint::Organization(organization) => received.organizations.push(organization),
            Hint::Workspace(workspace) => app.events.changed_on_another_server(Topic::Workspace(workspace)),
            Hint::AgentLogs(agent) => app.events.changed_on_another_server(Topic::AgentLogs(agent)),
            Hint::AgentMetadata(agent) => app.events.changed_on_another_server(Topic::AgentMetadata(agent)),
            Hint::Everything => received.everything = true,
        }
    }
    if received.everything {
        return resync(app).await;
    }
    announce(app, &received.posted).await?;
    let held: BTreeSet<_> = app.scheduler.connected().jobs().into_iter().collect();
    let held: Vec<_> = received.held.intersection(&held).copied().collect();
    notify_about_jobs(app, &held).await?;
    let here: BTreeSet<_> = app.scheduler.connected().daemons().into_iter().collect();
    let drained: Vec<_> = received.drained.intersection(&here).copied().collect();
    notify_about_drains(app, &drained).await?;
    let left: Vec<_> = received.left.intersection(&here).copied().collect();
    presence::left_on_other_servers(app, &left).await?;
    for key in received.keys {
        app.scheduler.connected().recheck_key(key);
    }
    revoke::users_here(app, &received.users).await?;
    revoke::tokens_here(app, &received.tokens).await?;
    revoke::organizations_here(app, &received.organizations).await?;
    Ok(())
}

/// Wakes daemons for jobs that another server inserted and that still wait.
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

/// Tells daemons which of the jobs that they hold here were ended or canceled.
pub(super) async fn notify_about_jobs(app: &App, held: &[JobId]) -> Result<(), Error> {
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

async fn notify_about_drains(app: &App, daemons: &[DaemonId]) -> Result<(), Error> {
    if daemons.is_empty() {
        return Ok(());
    }
    let drains = daemons::list_drains(&mut app.store.reader().await?, daemons).await?;
    let connected = app.scheduler.connected();
    let drained: BTreeSet<_> = drains.iter().map(|drain| drain.id).collect();
    let daemons: BTreeSet<_> = daemons.iter().copied().collect();
    // A daemon without a drain was undrained.
    connected.undrain(|daemon| daemons.contains(&daemon) && !drained.contains(&daemon));
    for drain in drains {
        connected.drain(drain.id, &drain.reason, drain.asked_at);
    }
    Ok(())
}

/// Reads everything that a hint could be about, for the daemons and followers connected here: a few statements, and a few
/// for each user whose token admitted a daemon.
pub(super) async fn resync(app: &App) -> Result<(), Error> {
    let connected = app.scheduler.connected();
    app.events.all_changed();
    app.scheduler.wake_for_waiting_jobs().await?;
    notify_about_jobs(app, &connected.jobs()).await?;
    notify_about_drains(app, &connected.daemons()).await?;
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
    network::revoke::everybody(app).await?;
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

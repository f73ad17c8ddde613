//! Provisioner daemons. A daemon keeps its row, and so its jobs, as long as its organization, name and owner tag stay
//! the same.

pub mod facts;

use coder_domain::ids::{DaemonId, JobId, KeyId, OrganizationId, UserId};
use coder_domain::tags::TagSet;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::Result;
use crate::engine::{Purpose, Tx, Value, list as list_value, optional_list, record, sql, statements, values};
use crate::tag_sets::{self, TagSetId};

record! {
    /// The row of a daemon.
    pub struct Daemon {
        /// Its jobs have this id as their worker.
        pub id: DaemonId,
        /// The organization it joined.
        pub organization_id: OrganizationId,
        /// Unique together with organization and owner tag.
        pub name: String,
        /// The key it joined with.
        pub key_id: KeyId,
        /// The types it serves, for example `terraform`.
        pub provisioners: Vec<String>,
        /// Its effective tags.
        pub tags: TagSet,
        /// Build version.
        pub version: String,
        /// Protocol version.
        pub api_version: String,
        /// When it first joined.
        pub created_at: Timestamp = "created_us",
        /// Updated every minute while it is connected.
        pub last_seen_at: Option<Timestamp> = "last_seen_us",
        /// When its newest connection ended; none while it is connected.
        pub left_at: Option<Timestamp> = "left_us",
        /// How many jobs it can run at once, as it reported.
        pub slots: i64,
        /// How many jobs it is running, as it reported.
        pub busy: i64,
        /// Whether it is draining.
        pub draining: bool,
        /// The server process of its newest connection, which may have ended; empty when unknown.
        pub server: String,
        /// Why it cannot run jobs, in a few words; empty when it can or did not report it.
        pub problem: String,
        /// The full text of the problem: what failed and what to do about it.
        pub problem_detail: String,
        pub key_name: String,
    }
}

record! {
    /// A group of daemons that can run the same jobs.
    pub struct MatchedDaemons {
        /// The types they serve.
        pub provisioners: Vec<String>,
        /// Their effective tags.
        pub tags: TagSet,
        /// How many there are.
        pub daemons: i64,
        /// How many of them are online.
        pub online: i64,
        /// How many of them are online, healthy and not draining: these can take a job.
        pub available: i64,
        /// When one of them was last seen.
        pub last_seen_at: Timestamp = "last_seen_us",
    }
}

/// How a daemon joins, in addition to [`NewDaemon`].
#[derive(Clone, Debug, Default)]
pub struct JoinContext {
    /// The user whose token it joined with, if any.
    pub user: Option<UserId>,
    /// The id of that token.
    pub token: Option<String>,
    /// Whether it does not understand the request to leave. Then it stays drained when it joins again with the same
    /// key.
    pub ignores_drain: bool,
    /// The server process that it is connected to.
    pub server: Uuid,
}

/// Daemons that are known to be connected, independent of any clock. For daemons of other servers, the heartbeats
/// decide.
#[derive(Clone, Debug, Default)]
pub struct ConnectedDaemons {
    /// The server process that runs the query.
    pub server: Uuid,
    /// Those connected to it.
    pub daemons: Vec<DaemonId>,
    /// The other server processes that are running.
    pub servers: Vec<Uuid>,
}

impl ConnectedDaemons {
    /// Whether a daemon of this id, with these columns, is connected.
    #[must_use]
    pub fn has(&self, id: DaemonId, left_at: Option<Timestamp>, server: &str) -> bool {
        let elsewhere = || self.servers.iter().any(|running| running.to_string() == server);
        left_at.is_none() && (self.daemons.contains(&id) || elsewhere())
    }

    fn values(&self) -> [Value; 2] {
        [list_value(self.daemons.iter().copied()), list_value(self.servers.iter().copied())]
    }
}

/// The result of a daemon's joining.
#[derive(Clone, Debug)]
pub struct JoinedDaemon {
    /// The row.
    pub id: DaemonId,
    /// Identifies this connection of the daemon, for [`update_disconnected`].
    pub connection: String,
    /// The request to leave, unless it was withdrawn.
    pub drain: Option<DrainRequest>,
}

record! {
    /// A request that a daemon leaves.
    pub struct DrainRequest {
        pub id: DaemonId,
        /// The request does not apply to processes that join later.
        pub asked_at: Timestamp = "drain_asked_us",
        /// For people.
        pub reason: String = "drain_reason",
    }
}

/// The fields of a joining daemon.
#[derive(Clone, Debug)]
pub struct NewDaemon {
    /// From the credential.
    pub organization_id: OrganizationId,
    /// From the request.
    pub name: String,
    /// From the credential.
    pub key_id: KeyId,
    /// From the request, without duplicates.
    pub provisioners: Vec<String>,
    /// Effective tags.
    pub tags: TagSet,
    /// Build version; may be empty.
    pub version: String,
    /// Protocol version.
    pub api_version: String,
}

/// Decides which daemons were seen lately: those that are connected, and those with a heartbeat in this period.
/// Heartbeats from the future were written before the clock was set back; they do not count.
#[derive(Clone, Debug, Default)]
pub struct Liveness {
    /// The earliest heartbeat that counts.
    pub since: Timestamp,
    /// The latest heartbeat that counts.
    pub until: Timestamp,
    /// These daemons always count.
    pub connected: ConnectedDaemons,
}

impl Liveness {
    /// Whether a daemon with these columns was seen lately.
    #[must_use]
    pub fn has(
        &self,
        id: DaemonId,
        last_seen_at: Option<Timestamp>,
        left_at: Option<Timestamp>,
        server: &str,
    ) -> bool {
        last_seen_at.is_some_and(|at| self.since <= at && at <= self.until)
            || self.connected.has(id, left_at, server)
    }
}

/// Selects the daemons of a list. All conditions must hold. The caller filters by tags and status.
#[derive(Clone, Debug, Default)]
pub struct DaemonFilter {
    /// Only of this organization.
    pub organization_id: Option<OrganizationId>,
    /// Only these.
    pub ids: Option<Vec<DaemonId>>,
    /// Only of this key.
    pub key_id: Option<KeyId>,
    /// Only those seen lately.
    pub seen: Option<Liveness>,
    /// Without daemons that have left, unless they hold a job.
    pub is_present: bool,
    /// Include daemons whose key was deleted and that hold no job.
    pub with_revoked: bool,
}

record! {
    /// A job in a list of daemons: the current or the last ended job of a daemon.
    pub struct DaemonJob {
        pub worker_id: DaemonId,
        pub id: JobId,
        /// Whether it is open (the current one) or ended (the previous one).
        pub is_current: bool,
        pub started_at: Option<Timestamp> = "started_us",
        /// Cancel request.
        pub canceled_at: Option<Timestamp> = "canceled_us",
        /// End.
        pub completed_at: Option<Timestamp> = "completed_us",
        /// Error text.
        pub error: String,
        /// Of the job's template, or empty.
        pub template_name: String,
        /// Of the job's template, or empty.
        pub template_display_name: String,
        /// Of the job's template, or empty.
        pub template_icon: String,
    }
}

impl DaemonJob {
    /// The fields from which the job's status is derived.
    #[must_use]
    pub fn record(&self) -> coder_domain::job::Record {
        coder_domain::job::Record {
            started_at: self.started_at,
            canceled_at: self.canceled_at,
            completed_at: self.completed_at,
            error: self.error.clone(),
            worker: Some(self.worker_id),
        }
    }
}

macro_rules! select {
    () => {
        "select daemon.id, daemon.organization_id, daemon.name, daemon.key_id, daemon.provisioners, daemon.tags,
        daemon.version, daemon.api_version, daemon.created_us, daemon.last_seen_us, daemon.left_us,
        daemon.slots, daemon.busy, daemon.draining, daemon.problem, daemon.problem_detail, coalesce(substr(daemon.connection, 1, 36), '') as server,
        joined.name as key_name
        from provisioner_daemons as daemon join provisioner_keys as joined on joined.id = daemon.key_id"
    };
}

statements! { "provisioner_daemons";
    UPSERT = sql("insert into provisioner_daemons (id, organization_id, name, owner_tag, key_id, provisioners, tags,
        version, api_version, created_us, last_seen_us, tag_set_id, connection, joined_by, joined_token)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $11, $12, $14, $15)
        on conflict (organization_id, name, owner_tag) do update set key_id = excluded.key_id,
        provisioners = excluded.provisioners, tags = excluded.tags, tag_set_id = excluded.tag_set_id,
        version = excluded.version,
        api_version = excluded.api_version, last_seen_us = excluded.last_seen_us, slots = 1, busy = 0,
        problem = '', problem_detail = '',
        left_us = null, connection = excluded.connection, joined_by = excluded.joined_by,
        joined_token = excluded.joined_token,
        draining = ($13 and provisioner_daemons.drain_asked_us is not null
            and provisioner_daemons.key_id = excluded.key_id),
        drain_asked_us = case when provisioner_daemons.key_id = excluded.key_id
            then provisioner_daemons.drain_asked_us end
        returning id, drain_asked_us, drain_reason");
    GET = sql(concat!(select!(), " where daemon.id = $1"));
    LIST = sql(concat!(select!(), " where (cast($1 as text) is null or daemon.organization_id = $1)
        and (cast($2 as text) is null or daemon.id in (select value from json_each($2)))
        and (cast($3 as text) is null or daemon.key_id = $3)
        and (cast($4 as bigint) is null or (daemon.last_seen_us >= $4 and daemon.last_seen_us <= $7)
            or (daemon.left_us is null and (daemon.id in (select value from json_each($8))
                or substr(daemon.connection, 1, 36) in (select value from json_each($9)))))
        and (not $6 or daemon.left_us is null or exists (select 1 from provisioner_jobs as job
            where job.worker_id = daemon.id and job.completed_us is null))
        and ($5 or joined.revoked_us is null or exists (select 1 from provisioner_jobs as job
            where job.worker_id = daemon.id and job.completed_us is null))
        order by daemon.created_us desc, daemon.id desc"));
    /// Returns at least one row, which has the newest tag set.
    ALIKE = sql("select alike.provisioners, alike.tags, alike.daemons, alike.online, alike.available,
        alike.last_seen_us, newest.id as newest
        from (select coalesce(max(id), 0) as id from tag_sets) as newest left join (
        select known.provisioners, known.tags, count(*) as daemons, max(known.last_seen_us) as last_seen_us,
        sum(case when known.is_online then 1 else 0 end) as online,
        sum(case when known.is_online and known.problem = '' and not known.draining then 1 else 0 end) as available
        from (select daemon.provisioners, daemon.tags, daemon.tag_set_id, daemon.last_seen_us, daemon.problem,
            daemon.draining, daemon.left_us is null and ((daemon.last_seen_us >= $2 and daemon.last_seen_us <= $4)
            or daemon.id in (select value from json_each($5))
            or substr(daemon.connection, 1, 36) in (select value from json_each($6))) as is_online
            from provisioner_daemons as daemon join provisioner_keys as joined on joined.id = daemon.key_id
            where daemon.organization_id = $1
            and daemon.tag_set_id in (select cast(value as bigint) from json_each($3))
            and daemon.last_seen_us is not null and joined.revoked_us is null) as known
        group by known.provisioners, known.tag_set_id, known.tags) as alike on true");
    SET_SLOTS = sql("update provisioner_daemons set slots = $2, busy = $3, draining = $4 where id = $1
        and (slots <> $2 or busy <> $3 or draining <> $4)");
    SET_HEALTH = sql("update provisioner_daemons set problem = $2, problem_detail = $3 where id = $1
        and (problem <> $2 or problem_detail <> $3)");
    SET_DRAIN = sql("update provisioner_daemons set draining = true, drain_asked_us = $2, drain_reason = $3 where id = $1");
    CLEAR_DRAIN = sql("update provisioner_daemons set draining = false, drain_asked_us = null, drain_reason = ''
        where id = $1");
    LIST_DRAINS = sql("select id, drain_asked_us, drain_reason from provisioner_daemons
        where id in (select value from json_each($1)) and drain_asked_us is not null").purpose(Purpose::Heartbeat);
    /// Only tokens whose daemons hold jobs.
    LIST_TOKENS_IN_USE = sql("select distinct daemon.joined_token from provisioner_daemons as daemon
        join provisioner_jobs as job on job.worker_id = daemon.id and job.completed_us is null
        where daemon.joined_by = $1 and daemon.joined_token is not null");
    LEAVE = sql("update provisioner_daemons set left_us = $3,
        last_seen_us = case when last_seen_us > $3 then last_seen_us else $3 end
        where id = $1 and connection = $2");
    GO_ON = sql("update provisioner_daemons set connection = $3, left_us = null where id = $1
        and (connection = $2 or (cast($2 as text) is null and left_us is not null))");
    LIST_LEFT = sql("select id from provisioner_daemons
        where id in (select value from json_each($1)) and left_us is not null");
    LIST_JOINED = sql("select distinct organization_id, owner_tag <> '' as is_personal from provisioner_daemons
        where joined_by = $1 and key_id = $2");
    /// Corrects a row that names a connection to this server that does not exist: the end of that connection could not
    /// be recorded.
    HEARTBEAT = sql("update provisioner_daemons set
        last_seen_us = case when id in (select value from json_each($1)) then $2 else last_seen_us end,
        left_us = case when not id in (select value from json_each($1)) then $2 when left_us > $3 then left_us end
        where id in (select value from json_each($1))
        or (left_us is null and last_seen_us < $3 and substr(connection, 1, 36) = $4)").purpose(Purpose::Heartbeat);
    CURRENT_JOBS = sql("select job.worker_id, job.id, true as is_current, job.started_us, job.canceled_us,
        job.completed_us, job.error, coalesce(template.name, '') as template_name,
        coalesce(template.display_name, '') as template_display_name, coalesce(template.icon, '') as template_icon
        from provisioner_jobs as job
        left join template_versions as version on version.id = job.template_version_id
        left join templates as template on template.id = version.template_id
        where job.worker_id in (select value from json_each($1)) and job.completed_us is null
        order by job.started_us");
    PREVIOUS_JOBS = sql("select job.worker_id, job.id, false as is_current, job.started_us, job.canceled_us,
        job.completed_us, job.error, coalesce(template.name, '') as template_name,
        coalesce(template.display_name, '') as template_display_name, coalesce(template.icon, '') as template_icon
        from provisioner_jobs as job
        left join template_versions as version on version.id = job.template_version_id
        left join templates as template on template.id = version.template_id
        where job.id in (
            select (
                select ended.id from provisioner_jobs as ended
                where ended.worker_id = daemon.value and ended.completed_us is not null
                order by ended.completed_us desc, ended.id limit 1
            ) from json_each($1) as daemon
        )");
    PURGE = sql("delete from provisioner_daemons where last_seen_us < $1
        and not (left_us is null and (id in (select value from json_each($2))
            or substr(coalesce(connection, ''), 1, 36) in (select value from json_each($3))))
        and not exists (
        select 1 from provisioner_jobs as job where job.worker_id = provisioner_daemons.id
        and job.completed_us is null)");
}

/// Adds the row of a joining daemon, or takes over the row with the same organization, name and owner tag
/// (wire-protocol 1.8); the id of that row stays.
///
/// # Errors
/// A missing key is [`crate::Error::Reference`].
pub async fn upsert(tx: &mut Tx, new: &NewDaemon, now: Timestamp) -> Result<DaemonId> {
    Ok(join(tx, new, &JoinContext::default(), now).await?.id)
}

/// Like [`upsert`], with what is known about the connection.
///
/// # Errors
/// A missing key is [`crate::Error::Reference`].
pub async fn join(
    tx: &mut Tx,
    new: &NewDaemon,
    context: &JoinContext,
    now: Timestamp,
) -> Result<JoinedDaemon> {
    let tag_set = tag_sets::intern(tx, &new.tags).await?;
    // The server's id comes first, because the rows of a server are found by this prefix.
    let connection = format!("{} {}", context.server, DaemonId::random());
    let row = values![
        DaemonId::random(),
        new.organization_id,
        new.name,
        new.tags.owner(),
        new.key_id,
        new.provisioners,
        new.tags,
        new.version,
        new.api_version,
        now,
        tag_set,
        connection,
        context.ignores_drain,
        context.user,
        context.token,
    ];
    let row = tx.fetch_one(&UPSERT, row).await?;
    let (id, asked_at): (_, Option<Timestamp>) = (row.get("id")?, row.get("drain_asked_us")?);
    let reason: String = row.get("drain_reason")?;
    Ok(JoinedDaemon { id, connection, drain: asked_at.map(|asked_at| DrainRequest { id, asked_at, reason }) })
}

pub async fn find(tx: &mut Tx, id: DaemonId) -> Result<Option<Daemon>> {
    tx.fetch_opt(&GET, values![id]).await?.as_ref().map(Daemon::from_row).transpose()
}

/// The daemons that match a filter, newest first.
pub async fn list(tx: &mut Tx, filter: &DaemonFilter) -> Result<Vec<Daemon>> {
    let mut parameters = values![filter.organization_id];
    parameters.push(optional_list(filter.ids.as_deref()));
    let seen = filter.seen.as_ref();
    parameters.extend(values![
        filter.key_id,
        seen.map(|seen| seen.since),
        filter.with_revoked,
        filter.is_present
    ]);
    parameters.extend(values![seen.map(|seen| seen.until)]);
    parameters.extend(
        seen.map(|seen| seen.connected.values()).unwrap_or_else(|| ConnectedDaemons::default().values()),
    );
    tx.fetch(&LIST, parameters).await?.iter().map(Daemon::from_row).collect()
}

/// All known daemons of an organization that have one of these tag sets, grouped and counted by what they can run.
/// Daemons that were `seen` lately count as online. Also returns the newest tag set id: a caller that does not know it
/// yet must match that set too.
pub async fn list_matched(
    tx: &mut Tx,
    organization: OrganizationId,
    tag_sets: &[TagSetId],
    seen: &Liveness,
) -> Result<(Vec<MatchedDaemons>, TagSetId)> {
    let mut parameters = values![organization, seen.since];
    parameters.push(list_value(tag_sets.iter().copied()));
    parameters.extend(values![seen.until]);
    parameters.extend(seen.connected.values());
    let (mut found, mut newest) = (Vec::new(), 0);
    for row in tx.fetch(&ALIKE, parameters).await? {
        newest = row.get("newest")?;
        found.extend(row.parts().next_joined::<MatchedDaemons>()?);
    }
    Ok((found, newest))
}

/// A heartbeat may have started before its daemon left.
const JUST_LEFT: SignedDuration = SignedDuration::from_secs(5);

/// Records that exactly these daemons are connected to the server process `server`, in one statement. A daemon that
/// joined or left within the last moments is not changed.
pub async fn update_seen(tx: &mut Tx, ids: &[DaemonId], server: Uuid, now: Timestamp) -> Result<u64> {
    let mut parameters = vec![list_value(ids.iter().copied())];
    parameters.extend(values![now, now.checked_sub(JUST_LEFT).unwrap_or(Timestamp::MIN), server]);
    tx.execute(&HEARTBEAT, parameters).await
}

/// Stores what a daemon reported about itself. Unchanged values are not written.
pub async fn update_slots(tx: &mut Tx, id: DaemonId, slots: i64, busy: i64, draining: bool) -> Result<()> {
    tx.execute(&SET_SLOTS, values![id, slots, busy, draining]).await.map(|_| ())
}

/// Stores why a daemon cannot run jobs, as a short and a full text; empty when it can. Unchanged values are not
/// written.
pub async fn update_health(tx: &mut Tx, id: DaemonId, problem: &str, detail: &str) -> Result<()> {
    tx.execute(&SET_HEALTH, values![id, problem.to_owned(), detail.to_owned()]).await.map(|_| ())
}

/// Records the request that this daemon leaves. The server it is connected to, now or later, forwards the request.
///
/// # Errors
/// [`crate::Error::Stale`] when the row does not exist any more.
pub async fn update_drain(tx: &mut Tx, id: DaemonId, reason: &str, now: Timestamp) -> Result<()> {
    tx.change_one(&SET_DRAIN, values![id, now, reason.to_owned()]).await
}

/// Lets the daemon take jobs again. A daemon that has already received the request to leave still leaves.
///
/// # Errors
/// [`crate::Error::Stale`] when the row does not exist any more.
pub async fn delete_drain(tx: &mut Tx, id: DaemonId) -> Result<()> {
    tx.change_one(&CLEAR_DRAIN, values![id]).await
}

/// Records that a connection of a daemon has ended, unless there is a newer one.
pub async fn update_disconnected(tx: &mut Tx, id: DaemonId, connection: &str, now: Timestamp) -> Result<()> {
    tx.execute(&LEAVE, values![id, connection.to_owned(), now]).await.map(|_| ())
}

/// Records that another connection of the daemon still exists, so that [`update_disconnected`] waits for the end of
/// that one. Applies only to a row that names `ended`, or, without `ended`, to a row that says that the daemon has
/// left.
pub async fn update_connection(
    tx: &mut Tx,
    id: DaemonId,
    ended: Option<&str>,
    connection: &str,
) -> Result<()> {
    let row = values![id, ended.map(str::to_owned), connection.to_owned()];
    tx.execute(&GO_ON, row).await.map(|_| ())
}

/// The given daemons that have left according to their rows.
pub async fn list_disconnected(tx: &mut Tx, ids: &[DaemonId]) -> Result<Vec<DaemonId>> {
    let rows = tx.fetch(&LIST_LEFT, vec![list_value(ids.iter().copied())]).await?;
    rows.iter().map(|row| row.get("id")).collect()
}

/// The given daemons that have a request to leave.
pub async fn list_drains(tx: &mut Tx, ids: &[DaemonId]) -> Result<Vec<DrainRequest>> {
    let rows = tx.fetch(&LIST_DRAINS, vec![list_value(ids.iter().copied())]).await?;
    rows.iter().map(DrainRequest::from_row).collect()
}

/// The tokens of this user with which daemons joined that hold jobs now.
pub async fn list_tokens_in_use(tx: &mut Tx, user: UserId) -> Result<Vec<String>> {
    tx.fetch(&LIST_TOKENS_IN_USE, values![user]).await?.iter().map(|row| row.get("joined_token")).collect()
}

/// The organizations in which daemons joined with a token of this user, and whether their scope is this user.
pub async fn list_joined_organizations(tx: &mut Tx, user: UserId) -> Result<Vec<(OrganizationId, bool)>> {
    let rows = tx.fetch(&LIST_JOINED, values![user, KeyId::USER_AUTH]).await?;
    rows.iter().map(|row| Ok((row.get("organization_id")?, row.get("is_personal")?))).collect()
}

/// The open job and the last ended job of each of these daemons (scheduling-and-auth DAE-4).
pub async fn list_jobs(tx: &mut Tx, ids: &[DaemonId]) -> Result<Vec<DaemonJob>> {
    let ids = list_value(ids.iter().copied());
    let mut rows = tx.fetch(&CURRENT_JOBS, vec![ids.clone()]).await?;
    rows.extend(tx.fetch(&PREVIOUS_JOBS, vec![ids]).await?);
    rows.iter().map(DaemonJob::from_row).collect()
}

/// Removes daemons that were not seen since `before`, unless they hold an open job or are connected.
pub async fn purge(tx: &mut Tx, before: Timestamp, connected: &ConnectedDaemons) -> Result<u64> {
    tx.execute(&PURGE, values![before].into_iter().chain(connected.values()).collect()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_left_or_whose_server_is_gone_is_not_connected() {
        let [here, elsewhere] = [1, 2].map(|number| DaemonId(Uuid::from_u128(number)));
        let [running, gone] = [3, 4].map(Uuid::from_u128);
        let connected = ConnectedDaemons { server: Uuid::nil(), daemons: vec![here], servers: vec![running] };
        for (id, left_at, server, expected) in [
            (here, None, gone, true),
            (here, Some(Timestamp::UNIX_EPOCH), gone, false),
            (elsewhere, None, running, true),
            (elsewhere, Some(Timestamp::UNIX_EPOCH), running, false),
            (elsewhere, None, gone, false),
        ] {
            assert_eq!(
                connected.has(id, left_at, &server.to_string()),
                expected,
                "{id} {left_at:?} {server}"
            );
        }
    }

    #[test]
    fn a_daemon_was_seen_by_its_heartbeat_or_is_connected() {
        let second = |second| Timestamp::from_second(second).unwrap();
        let [here, elsewhere] = [1, 2].map(|number| DaemonId(Uuid::from_u128(number)));
        let connected = ConnectedDaemons { daemons: vec![here], ..ConnectedDaemons::default() };
        let lately = Liveness { since: second(10), until: second(20), connected };
        for (id, last_seen, left_at, expected) in [
            (elsewhere, None, None, false),
            (elsewhere, Some(9), None, false),
            (elsewhere, Some(10), None, true),
            (elsewhere, Some(20), Some(20), true),
            (elsewhere, Some(21), None, false),
            (here, None, None, true),
            (here, Some(9), None, true),
            (here, Some(21), None, true),
            (here, Some(15), Some(15), true),
            (here, Some(9), Some(9), false),
        ] {
            let found = lately.has(id, last_seen.map(second), left_at.map(second), "");
            assert_eq!(found, expected, "{id} {last_seen:?} {left_at:?}");
        }
    }
}

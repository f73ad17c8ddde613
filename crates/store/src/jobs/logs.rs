//! Log lines of jobs. A batch of a daemon is stored as one row, compressed unless it is short. Lines are stored in
//! full, up to a cap per job (`extensions.md` 8).

use coder_domain::ids::{JobId, TemplateVersionId};
use coder_domain::job::Type;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::hold::{Holder, held_by};
use super::log_compression;
use crate::engine::{Column as _, Row, Tx, clean, record, sql, statements, to_json, values};
use crate::{Error, Result};

/// Where the line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The daemon itself.
    ProvisionerDaemon,
    /// The program that the daemon ran.
    Provisioner,
}

impl Source {
    /// The word used in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ProvisionerDaemon => "provisioner_daemon",
            Self::Provisioner => "provisioner",
        }
    }
}

/// The severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The most detailed level.
    Trace,
    /// Details for troubleshooting.
    Debug,
    /// Progress.
    Info,
    /// A possible problem.
    Warn,
    /// An error.
    Error,
}

impl Level {
    /// The word used in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// A log line without its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLine {
    /// When it was printed.
    pub created_at: Timestamp,
    /// Where the line comes from.
    pub source: Source,
    /// The severity of a line.
    pub level: Level,
    /// The stage of the job.
    pub stage: String,
    /// The text without the line end.
    pub output: String,
}

/// A stored log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its number within the job, from 1.
    pub id: i64,
    pub line: NewLine,
}

/// A line inside a stored batch. Field names are single letters, because there are many lines.
#[derive(Serialize, Deserialize)]
struct PackedLine {
    t: i64,
    f: Source,
    l: Level,
    s: String,
    o: String,
}

/// The result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendOutcome {
    /// The number of the first new line. When it is greater than `last_id`, nothing was added.
    pub first_id: i64,
    /// The number of the last stored line.
    pub last_id: i64,
    /// Whether lines were dropped at the cap, now or before.
    pub overflowed: bool,
    /// Whether the job was canceled.
    pub cancel_requested: bool,
}

/// The default maximum of log output of one job.
pub const DEFAULT_CAP_BYTES: i64 = 64 << 20;

/// A row holds less output than this, so that reading a page does not load much more than it needs.
const ROW_BYTES: usize = 256 << 10;

/// The maximum number of rows that are read for one page.
const PAGE_ROWS: i64 = 64;

statements! { "provisioner_job_logs";
    /// Also counts as a heartbeat. After the job has overflowed, nothing is counted any more.
    COUNT_OWNED = sql(concat!("update provisioner_jobs set updated_us = $4,
        lost_us = case when session_hash is null then null else lost_us end,
        logs_last_id = case when logs_overflowed then logs_last_id else logs_last_id + $5 end,
        logs_bytes = case when logs_overflowed then logs_bytes else logs_bytes + $6 end
        where ", held_by!(), " returning logs_last_id, logs_bytes, logs_overflowed, canceled_us"));
    /// The same, guarded by the position of the log that was read before.
    COUNT_AFTER = sql(concat!("update provisioner_jobs set updated_us = $4,
        lost_us = case when session_hash is null then null else lost_us end,
        logs_last_id = logs_last_id + $5, logs_bytes = logs_bytes + $6
        where ", held_by!(), " and logs_last_id = $7 and logs_bytes + $6 <= $8 and not logs_overflowed
        and (canceled_us is not null) = $9"));
    FIND_END = sql(concat!("select id, type, template_version_id, logs_last_id, canceled_us is not null as cancel_requested
        from provisioner_jobs where ", held_by!()));
    /// The same for numbered lines, which must follow the stored ones.
    COUNT_NUMBERED = sql(concat!("update provisioner_jobs set updated_us = $4,
        logs_last_id = case when logs_overflowed then logs_last_id else logs_last_id + $5 end,
        logs_bytes = case when logs_overflowed then logs_bytes else logs_bytes + $6 end,
        logs_sequence = logs_sequence + $5 where ", held_by!(), " and logs_sequence = $7
        returning logs_last_id, logs_bytes, logs_overflowed, canceled_us"));
    /// Records a heartbeat, locks the row and returns the last stored number.
    SEQUENCE = sql(concat!("update provisioner_jobs set updated_us = $4 where ", held_by!(),
        " returning logs_last_id, logs_overflowed, canceled_us, logs_sequence"));
    COUNT_SYSTEM = sql("update provisioner_jobs set logs_last_id = logs_last_id + $2, logs_bytes = logs_bytes + $3
        where id = $1 returning logs_last_id, logs_bytes, logs_overflowed, canceled_us");
    CORRECT = sql("update provisioner_jobs set logs_last_id = $2, logs_bytes = $3, logs_overflowed = true where id = $1");
    INSERT = sql("insert into provisioner_job_logs (job_id, first_id, last_id, output_bytes, lines, packed)
        values ($1, $2, $3, $4, $5, $6)");
    LIST = sql("select log.job_id || ' ' || cast(log.first_id as text) as sealed_id, log.first_id, log.lines, log.packed from (
            select page.first_id, sum(page.output_bytes) over (order by page.first_id) - page.output_bytes as before_bytes
            from (
                select first_id, output_bytes from provisioner_job_logs
                where job_id = $1 and last_id > $2 and first_id >= coalesce((select max(earlier.first_id)
                    from provisioner_job_logs as earlier where earlier.job_id = $1 and earlier.first_id <= $2), 0)
                order by first_id limit $4
            ) as page
        ) as sized
        join provisioner_job_logs as log on log.job_id = $1 and log.first_id = sized.first_id
        where sized.before_bytes < $3 order by log.first_id");
    LAST_ROW = sql("select job_id || ' ' || cast(first_id as text) as sealed_id, first_id, lines, packed from provisioner_job_logs where job_id = $1 order by first_id desc limit 1");
    PURGE = sql("delete from provisioner_job_logs where job_id = $1");
}

/// Stores lines of a running job and records a heartbeat, in two statements for any number of lines.
///
/// Lines beyond the cap are dropped, and one last line says so. The job continues. Call it without lines to record only
/// a heartbeat.
///
/// # Errors
/// [`Error::Stale`] when the sender does not hold the job or the job has ended.
pub async fn append(
    tx: &mut Tx,
    job: JobId,
    holder: impl Into<Holder>,
    lines: &[NewLine],
    cap_bytes: i64,
    now: Timestamp,
) -> Result<AppendOutcome> {
    let Holder { daemon, epoch } = holder.into();
    let (count, bytes) = (len(lines.len()), output_bytes(lines));
    let row = tx.fetch_opt(&COUNT_OWNED, values![job, daemon, epoch, now, count, bytes]).await?;
    counted(tx, job, &row.ok_or(STALE)?, lines, cap_bytes, now).await
}

record! {
    /// The end of the log of a held job.
    pub struct LogEnd {
        /// What the job does.
        pub kind: Type = "type",
        /// The version that it imports, dry-runs or builds.
        pub template_version_id: Option<TemplateVersionId>,
        /// The number of the last line.
        pub logs_last_id: i64,
        /// Whether the job was canceled.
        pub cancel_requested: bool,
    }
}

/// Finds the end of the log of a job that `holder` holds; none when it does not hold the job or the job has ended.
pub async fn find_end(tx: &mut Tx, job: JobId, holder: impl Into<Holder>) -> Result<Option<LogEnd>> {
    let Holder { daemon, epoch } = holder.into();
    tx.fetch_opt(&FIND_END, values![job, daemon, epoch]).await?.as_ref().map(LogEnd::from_row).transpose()
}

/// Like [`append`], for lines that fit below the cap and a job that has not changed since `end` was read. On Postgres
/// this is pipelined, so an error may come at the commit.
///
/// # Errors
/// [`Error::Stale`] when the job has changed or the lines do not fit. Then call [`append`].
pub async fn append_after(
    tx: &mut Tx,
    job: JobId,
    holder: impl Into<Holder>,
    end: &LogEnd,
    lines: &[NewLine],
    cap_bytes: i64,
    now: Timestamp,
) -> Result<()> {
    let Holder { daemon, epoch } = holder.into();
    let (count, bytes) = (len(lines.len()), output_bytes(lines));
    let (last, canceled) = (end.logs_last_id, end.cancel_requested);
    let row = values![job, daemon, epoch, now, count, bytes, last, cap_bytes, canceled];
    tx.execute_pipelined(&COUNT_AFTER, row, true).await?;
    insert(tx, job, last + 1, lines).await
}

const STALE: Error = Error::Stale { table: "provisioner_jobs" };

/// The result of an append of numbered lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberedAppend {
    /// The number of the first line that is not stored. The daemon continues there (docs/extensions.md, Logs).
    pub next_sequence: i64,
    /// The lines that were added to the log.
    pub appended: AppendOutcome,
}

/// Stores lines that the daemon has numbered. `first` is the number of the first one, from 1. Lines with a number that
/// is already stored are skipped, whatever their text. After a gap nothing is stored. Lines that follow the stored ones
/// need two statements. Needs a transaction.
///
/// # Errors
/// [`Error::Stale`] when the sender does not hold the job or the job has ended.
pub async fn append_numbered(
    tx: &mut Tx,
    job: JobId,
    holder: impl Into<Holder>,
    first: i64,
    lines: &[NewLine],
    cap_bytes: i64,
    now: Timestamp,
) -> Result<NumberedAppend> {
    let holder = holder.into();
    if let Some(done) = follow(tx, job, holder, first, lines, cap_bytes, now).await? {
        return Ok(done);
    }
    let row = tx.fetch_opt(&SEQUENCE, values![job, holder.daemon, holder.epoch, now]).await?.ok_or(STALE)?;
    let stored: i64 = row.get("logs_sequence")?;
    let known = usize::try_from(stored.saturating_add(1).saturating_sub(first));
    if let Some(rest) = known.ok().and_then(|known| lines.get(known..)).filter(|rest| !rest.is_empty()) {
        // The row has been locked since it was read, so these lines follow the stored ones.
        let rest = follow(tx, job, holder, stored + 1, rest, cap_bytes, now).await?;
        return rest.ok_or(STALE);
    }
    let last_id: i64 = row.get("logs_last_id")?;
    let appended = AppendOutcome { first_id: last_id + 1, last_id, ..read_outcome(&row)? };
    Ok(NumberedAppend { next_sequence: stored + 1, appended })
}

/// Stores lines that follow the stored ones. Returns none when they do not follow them.
async fn follow(
    tx: &mut Tx,
    job: JobId,
    Holder { daemon, epoch }: Holder,
    first: i64,
    lines: &[NewLine],
    cap_bytes: i64,
    now: Timestamp,
) -> Result<Option<NumberedAppend>> {
    let (count, bytes) = (len(lines.len()), output_bytes(lines));
    let parameters = values![job, daemon, epoch, now, count, bytes, first.saturating_sub(1)];
    let Some(row) = tx.fetch_opt(&COUNT_NUMBERED, parameters).await? else { return Ok(None) };
    let appended = counted(tx, job, &row, lines, cap_bytes, now).await?;
    Ok(Some(NumberedAppend { next_sequence: first + count, appended }))
}

fn read_outcome(row: &Row) -> Result<AppendOutcome> {
    let canceled_at: Option<Timestamp> = row.get("canceled_us")?;
    let (overflowed, cancel_requested) = (row.get("logs_overflowed")?, canceled_at.is_some());
    Ok(AppendOutcome { first_id: 0, last_id: 0, overflowed, cancel_requested })
}

/// Writes lines that were already counted, up to the cap.
async fn counted(
    tx: &mut Tx,
    job: JobId,
    row: &Row,
    lines: &[NewLine],
    cap_bytes: i64,
    now: Timestamp,
) -> Result<AppendOutcome> {
    let (count, bytes) = (len(lines.len()), output_bytes(lines));
    let (last_id, total): (i64, i64) = (row.get("logs_last_id")?, row.get("logs_bytes")?);
    let mut appended = AppendOutcome { first_id: last_id + 1, last_id, ..read_outcome(row)? };
    if appended.overflowed || lines.is_empty() {
        return Ok(appended);
    }
    appended.first_id = last_id - count + 1;
    if total <= cap_bytes {
        insert(tx, job, appended.first_id, lines).await?;
        return Ok(appended);
    }
    let mut room = cap_bytes - (total - bytes);
    let fits = |line: &&NewLine| {
        room -= len(line.output.len());
        room >= 0
    };
    let mut kept: Vec<_> = lines.iter().take_while(fits).cloned().collect();
    kept.push(notice(kept.last().or(lines.first()), cap_bytes, now));
    appended.last_id = appended.first_id + len(kept.len()) - 1;
    appended.overflowed = true;
    let total = total - bytes + output_bytes(&kept);
    tx.execute(&CORRECT, values![job, appended.last_id, total]).await?;
    insert(tx, job, appended.first_id, &kept).await?;
    Ok(appended)
}

fn notice(after: Option<&NewLine>, cap_bytes: i64, now: Timestamp) -> NewLine {
    NewLine {
        created_at: now,
        source: Source::ProvisionerDaemon,
        level: Level::Warn,
        stage: after.map(|line| line.stage.clone()).unwrap_or_default(),
        output: format!("log output exceeds {cap_bytes} bytes for this job, later lines are dropped"),
    }
}

/// Stores lines of the server itself, also for a job that has ended (the reaper's message). The cap does not apply.
///
/// # Errors
/// [`Error::Stale`] when the job does not exist.
pub async fn append_system(tx: &mut Tx, job: JobId, lines: &[NewLine]) -> Result<AppendOutcome> {
    let (count, bytes) = (len(lines.len()), output_bytes(lines));
    let row = tx.fetch_opt(&COUNT_SYSTEM, values![job, count, bytes]).await?;
    let row = row.ok_or(Error::Stale { table: "provisioner_jobs" })?;
    let last_id: i64 = row.get("logs_last_id")?;
    let canceled_at: Option<Timestamp> = row.get("canceled_us")?;
    if !lines.is_empty() {
        insert(tx, job, last_id - count + 1, lines).await?;
    }
    Ok(AppendOutcome {
        first_id: last_id - count + 1,
        last_id,
        overflowed: row.get("logs_overflowed")?,
        cancel_requested: canceled_at.is_some(),
    })
}

async fn insert(tx: &mut Tx, job: JobId, first_id: i64, lines: &[NewLine]) -> Result<()> {
    let mut from = 0;
    while from < lines.len() {
        let mut size = 0;
        let fits = |line: &&NewLine| {
            size += line.output.len() + line.stage.len();
            size <= ROW_BYTES
        };
        let taken = lines[from..].iter().take_while(fits).count().max(1);
        let part = &lines[from..from + taken];
        let first = first_id + len(from);
        let (text, packed) = log_compression::compress(pack(part));
        let mut row = values![job, first, first + len(taken) - 1, output_bytes(part)];
        let id = format!("{job} {first}");
        row.push(tx.sealed("provisioner_job_logs", "lines", &id, text.to_value()));
        row.push(tx.sealed("provisioner_job_logs", "packed", &id, packed.to_value()));
        tx.execute_pipelined(&INSERT, row, false).await?;
        from += taken;
    }
    Ok(())
}

fn pack(lines: &[NewLine]) -> String {
    let pack = |line: &NewLine| PackedLine {
        t: line.created_at.as_microsecond(),
        f: line.source,
        l: line.level,
        s: clean(line.stage.clone()),
        o: clean(line.output.clone()),
    };
    to_json(&lines.iter().map(pack).collect::<Vec<_>>())
}

/// The lines after number `after`, in order: at most `limit` lines, and about `max_bytes` of output but at least one
/// row. Fewer lines than `limit` do not mean the end of the log; an empty result does.
///
/// # Errors
/// [`Error::Corrupt`].
pub async fn list(tx: &mut Tx, job: JobId, after: i64, limit: usize, max_bytes: i64) -> Result<Vec<Line>> {
    let rows = tx.fetch(&LIST, values![job, after.max(0), max_bytes.max(1), PAGE_ROWS]).await?;
    let mut lines = Vec::new();
    for row in &rows {
        for line in unpack(row)? {
            if line.id > after && lines.len() < limit {
                lines.push(line);
            }
        }
    }
    Ok(lines)
}

/// The last line, if there is one. The reaper continues in its stage.
///
/// # Errors
/// [`Error::Corrupt`].
pub async fn find_last(tx: &mut Tx, job: JobId) -> Result<Option<Line>> {
    let row = tx.fetch_opt(&LAST_ROW, values![job]).await?;
    Ok(row.map(|row| unpack(&row)).transpose()?.and_then(|mut lines| lines.pop()))
}

/// Removes all lines of a job.
pub async fn purge(tx: &mut Tx, job: JobId) -> Result<u64> {
    tx.execute(&PURGE, values![job]).await
}

pub(crate) fn unpack(row: &Row) -> Result<Vec<Line>> {
    let first: i64 = row.get("first_id")?;
    let lines = row.open_text("lines", "lines")?.unwrap_or_default();
    let text = log_compression::decompress(lines, row.open_bytes("packed")?);
    let text = text.map_err(|_| row.corrupt("packed", "not a batch of log lines"))?;
    let packed: Vec<PackedLine> =
        serde_json::from_str(&text).map_err(|_| row.corrupt("lines", "not a batch of log lines"))?;
    let line = |(id, line): (i64, PackedLine)| {
        let created_at =
            Timestamp::from_microsecond(line.t).map_err(|_| row.corrupt("lines", "bad instant"))?;
        let line = NewLine { created_at, source: line.f, level: line.l, stage: line.s, output: line.o };
        Ok(Line { id, line })
    };
    (first..).zip(packed).map(line).collect()
}

pub(crate) fn output_bytes(lines: &[NewLine]) -> i64 {
    lines.iter().map(|line| len(line.output.len())).sum()
}

fn len(count: usize) -> i64 {
    i64::try_from(count).expect("a count in memory is below 2^63")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_source_are_those_of_its_json() {
        for source in [Source::ProvisionerDaemon, Source::Provisioner] {
            assert_eq!(serde_json::to_value(source).unwrap(), source.as_str());
        }
    }
}

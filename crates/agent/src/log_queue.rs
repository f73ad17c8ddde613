//! Lines of scripts on their way to the server: bounded, in batches, and with a notice where lines were dropped (agent 2.6).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use coder_wire::drpc::Error;
use coder_wire::messages::coder::agent::v2 as messages;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use crate::calls::{Calls, timestamp};

pub(crate) use coder_wire::messages::coder::agent::v2::log::Level;

/// Most bytes of lines that wait.
const MAX_QUEUED_BYTES: usize = 1 << 20;
/// Most bytes of one batch.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// The bytes that the server counts for a line in addition to its text.
const LINE_OVERHEAD_BYTES: usize = 21;
/// How long a source gathers lines.
const GATHER_TIME: Duration = Duration::from_secs(1);
/// Replaces bytes that are not UTF-8.
const INVALID_MARK: &str = "❌";

#[derive(Debug)]
struct Line {
    at: Timestamp,
    level: Level,
    text: String,
}

impl Line {
    fn size(&self) -> usize {
        self.text.len() + LINE_OVERHEAD_BYTES
    }
}

#[derive(Debug, Default)]
struct Source {
    lines: VecDeque<Line>,
    /// Lines that were dropped since the last one that was kept.
    dropped: u64,
    due: Option<Instant>,
}

#[derive(Debug, Default)]
struct State {
    sources: BTreeMap<Uuid, Source>,
    bytes: usize,
    /// The server takes no more.
    is_over: bool,
    /// A batch is on its way.
    in_flight: bool,
}

/// The lines of all sources that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct LogQueue {
    state: Mutex<State>,
    changed: Notify,
    drained: Notify,
}

impl LogQueue {
    /// Adds a line.
    pub(crate) fn push(&self, source: Uuid, at: Timestamp, level: Level, bytes: &[u8]) {
        let line = Line { at, level, text: text(bytes) };
        let mut state = self.state.lock();
        if state.is_over {
            return;
        }
        let has_room = state.bytes + line.size() <= MAX_QUEUED_BYTES;
        let size = line.size();
        let entry = state.sources.entry(source).or_default();
        let mut added = 0;
        if has_room && size <= MAX_BATCH_BYTES {
            if entry.dropped > 0 {
                let notice = dropped_notice(at, entry.dropped);
                entry.dropped = 0;
                added += notice.size();
                entry.lines.push_back(notice);
            }
            entry.lines.push_back(line);
            added += size;
            if entry.due.is_none() {
                entry.due = Some(Instant::now() + GATHER_TIME);
                self.changed.notify_one();
            }
        } else {
            entry.dropped += 1;
        }
        state.bytes += added;
    }

    /// No line of a source follows: what waits is sent at once.
    pub(crate) fn finish(&self, source: Uuid, at: Timestamp) {
        let mut state = self.state.lock();
        let mut added = 0;
        if let Some(entry) = state.sources.get_mut(&source) {
            if entry.dropped > 0 {
                let notice = dropped_notice(at, entry.dropped);
                entry.dropped = 0;
                added = notice.size();
                entry.lines.push_back(notice);
            }
            entry.due = (!entry.lines.is_empty()).then(Instant::now);
        }
        state.bytes += added;
        drop(state);
        self.changed.notify_one();
    }

    /// Sends over one connection until it fails.
    pub(crate) async fn send(&self, calls: &Calls) -> Result<(), Error> {
        loop {
            let Some((source, batch)) = self.next().await else {
                // The server takes no more from this agent.
                return std::future::pending().await;
            };
            let logs = batch.iter().map(|line| messages::Log {
                created_at: Some(timestamp(line.at)),
                output: line.text.clone(),
                level: line.level.into(),
            });
            let request = messages::BatchCreateLogsRequest {
                log_source_id: source.as_bytes().to_vec(),
                logs: logs.collect(),
            };
            let mut unsent = Unsent { queue: self, source, lines: batch };
            let answer = calls.logs(request).await?;
            unsent.lines.clear();
            drop(unsent);
            if answer.log_limit_exceeded {
                tracing::warn!("the server keeps no more log lines of this agent; further ones are dropped");
                self.end();
            }
        }
    }

    /// The batch that is due next; none when the server takes no more.
    async fn next(&self) -> Option<(Uuid, Vec<Line>)> {
        loop {
            let changed = self.changed.notified();
            let due = {
                let mut state = self.state.lock();
                if state.is_over {
                    return None;
                }
                let due = state.sources.iter().filter_map(|(id, source)| Some((source.due?, *id))).min();
                match due {
                    Some((at, id)) if at <= Instant::now() => return Some((id, state.take(id))),
                    Some((at, _)) => Some(at),
                    None => None,
                }
            };
            match due {
                Some(at) => tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = changed => {}
                },
                None => changed.await,
            }
        }
    }

    fn end(&self) {
        let mut state = self.state.lock();
        *state = State { is_over: true, ..State::default() };
        drop(state);
        self.drained.notify_waiters();
    }

    /// Waits until everything was sent. Sources that gather lines are sent at once.
    pub(crate) async fn drain(&self) {
        loop {
            let drained = self.drained.notified();
            {
                let mut state = self.state.lock();
                if !state.in_flight && state.sources.values().all(|source| source.lines.is_empty()) {
                    return;
                }
                for source in state.sources.values_mut().filter(|source| source.due.is_some()) {
                    source.due = Some(Instant::now());
                }
            }
            self.changed.notify_one();
            drained.await;
        }
    }
}

impl State {
    /// Takes as many lines of a source as fit into a batch.
    fn take(&mut self, id: Uuid) -> Vec<Line> {
        let Some(source) = self.sources.get_mut(&id) else { return Vec::new() };
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(line) = source.lines.pop_front() {
            if bytes + line.size() > MAX_BATCH_BYTES {
                source.lines.push_front(line);
                break;
            }
            bytes += line.size();
            batch.push(line);
        }
        source.due = (!source.lines.is_empty()).then(Instant::now);
        self.in_flight = true;
        batch
    }
}

/// Lines on their way. They go back when the call fails or is given up.
struct Unsent<'a> {
    queue: &'a LogQueue,
    source: Uuid,
    lines: Vec<Line>,
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        state.in_flight = false;
        if self.lines.is_empty() {
            // Sent. Their bytes are released only now, so that lines that go back always fit.
            let bytes = state.sources.values().flat_map(|source| &source.lines).map(Line::size).sum();
            state.bytes = bytes;
            drop(state);
            self.queue.drained.notify_waiters();
            return;
        }
        let entry = state.sources.entry(self.source).or_default();
        for line in std::mem::take(&mut self.lines).into_iter().rev() {
            entry.lines.push_front(line);
        }
        entry.due = Some(Instant::now());
        drop(state);
        self.queue.changed.notify_one();
    }
}

fn dropped_notice(at: Timestamp, dropped: u64) -> Line {
    let lines = if dropped == 1 { "line was" } else { "lines were" };
    let text = format!(
        "{dropped} {lines} dropped: the output is faster than the server takes it, or a line is too long"
    );
    Line { at, level: Level::Warn, text }
}

/// The text of a line, with a mark for what is not UTF-8. Postgres takes no NUL.
fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push_str(INVALID_MARK);
        }
    }
    if text.contains('\0') { text.replace('\0', INVALID_MARK) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: Uuid = Uuid::from_u128(1);

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn bytes_that_are_not_text_are_marked() {
        assert_eq!(text(b"a\xff\xfeb\0c"), "a❌❌b❌c");
        assert_eq!(text("grün".as_bytes()), "grün");
    }

    #[tokio::test(start_paused = true)]
    async fn flood_is_bounded_and_named() {
        let queue = LogQueue::default();
        let line = vec![b'x'; 1000];
        for _ in 0..5000 {
            queue.push(SOURCE, Timestamp::UNIX_EPOCH, Level::Info, &line);
        }
        assert!(queue.state.lock().bytes <= MAX_QUEUED_BYTES);
        queue.finish(SOURCE, Timestamp::UNIX_EPOCH);
        let mut sent = Vec::new();
        while sent.len() < 1028 {
            let (_, batch) = queue.next().await.unwrap();
            assert!(batch.iter().map(Line::size).sum::<usize>() <= MAX_BATCH_BYTES);
            sent.extend(batch);
        }
        let texts = texts(&sent);
        assert_eq!(texts.len(), 1028);
        assert!(
            texts[1026].len() == 1000 && texts[1027].starts_with("3973 lines were dropped"),
            "{}",
            texts[1027]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn lines_gather_for_a_second_unless_their_source_ended() {
        let queue = LogQueue::default();
        let start = Instant::now();
        queue.push(SOURCE, Timestamp::UNIX_EPOCH, Level::Info, b"one");
        queue.push(SOURCE, Timestamp::UNIX_EPOCH, Level::Error, b"two");
        assert_eq!(texts(&queue.next().await.unwrap().1), ["one", "two"]);
        assert_eq!(start.elapsed(), GATHER_TIME);
        queue.push(SOURCE, Timestamp::UNIX_EPOCH, Level::Info, b"three");
        queue.finish(SOURCE, Timestamp::UNIX_EPOCH);
        assert_eq!(texts(&queue.next().await.unwrap().1), ["three"]);
        assert_eq!(start.elapsed(), GATHER_TIME);
    }

    #[tokio::test(start_paused = true)]
    async fn lines_of_a_failed_call_go_back() {
        let queue = LogQueue::default();
        queue.push(SOURCE, Timestamp::UNIX_EPOCH, Level::Info, b"one");
        let (source, lines) = queue.next().await.unwrap();
        queue.push(SOURCE, Timestamp::UNIX_EPOCH, Level::Info, b"two");
        drop(Unsent { queue: &queue, source, lines });
        assert_eq!(texts(&queue.next().await.unwrap().1), ["one", "two"]);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_after_the_servers_limit() {
        let queue = LogQueue::default();
        queue.push(SOURCE, Timestamp::UNIX_EPOCH, Level::Info, b"one");
        queue.end();
        queue.push(SOURCE, Timestamp::UNIX_EPOCH, Level::Info, b"two");
        assert!(queue.next().await.is_none());
        queue.drain().await;
    }
}

//! Hundreds of SSH sessions in one workspace for minutes: none may stall, and their memory must be freed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::SETTLE_TIME;
use super::quickstart::Quickstart;
use crate::Setup;
use crate::process::{Running, resident_mib};
use crate::report::Row;

const SESSION_COUNT: usize = 200;
/// How often each session sends a line.
const LINE_INTERVAL: Duration = Duration::from_secs(1);
/// The variable with the seconds that they last; default a minute.
const DURATION_VARIABLE: &str = "CODER_BENCH_SESSION_SECONDS";
/// How many sessions begin at the same time.
const CONCURRENT_STARTS: usize = 10;

/// `coder ssh hello -- cat`, and the longest time that one of its lines took.
struct Session {
    process: Running,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Session {
    fn of(mut child: Child) -> Result<Self> {
        let input = child.stdin.take().context("the input is a pipe")?;
        let output = BufReader::new(child.stdout.take().context("the output is a pipe")?);
        Ok(Self { process: Running(child), input, output })
    }

    fn echo(&mut self, line: &str) -> Result<Duration> {
        let begin = Instant::now();
        self.input.write_all(line.as_bytes())?;
        let mut answer = String::new();
        self.output.read_line(&mut answer)?;
        ensure!(answer == line, "{answer:?} came back for {line:?}");
        Ok(begin.elapsed())
    }

    /// Sends lines until `end`; the longest time that one took.
    fn talk(&mut self, number: usize, end: Instant) -> Result<Duration> {
        let mut longest = Duration::ZERO;
        let mut count = 0;
        while Instant::now() < end {
            count += 1;
            longest = longest.max(self.echo(&format!("line {count} of session {number}\n"))?);
            std::thread::sleep(LINE_INTERVAL);
        }
        Ok(longest)
    }
}

/// 200 sessions at once.
pub(crate) fn sessions(setup: &Setup) -> Result<Vec<Row>> {
    let seconds = std::env::var(DURATION_VARIABLE)
        .ok()
        .map(|text| text.parse())
        .transpose()
        .context(DURATION_VARIABLE)?;
    let time = Duration::from_secs(seconds.unwrap_or(60));
    let quickstart = Quickstart::start(setup)?;
    // The first sessions allocate memory that later ones use again.
    let memory =
        || Ok::<_, anyhow::Error>((resident_mib(quickstart.agent()?)?, resident_mib(quickstart.server())?));
    crowd(&quickstart, Duration::from_secs(5))?;
    std::thread::sleep(SETTLE_TIME);
    let before = memory()?;
    let (longest, during) = crowd(&quickstart, time)?;
    std::thread::sleep(SETTLE_TIME);
    let after = memory()?;
    let what = |text: &str| format!("200 SSH sessions for {} s: {text}", time.as_secs());
    Ok(vec![
        Row::at_most(what("longest echo of a line"), longest.as_secs_f64() * 1000.0, 2000.0, "ms"),
        Row::seen(what("agent before"), before.0, "MiB"),
        Row::seen(what("agent meanwhile"), during.0, "MiB"),
        Row::at_most(what("agent after"), after.0, before.0 * 1.1 + 1.0, "MiB"),
        Row::seen(what("server before"), before.1, "MiB"),
        Row::seen(what("server meanwhile"), during.1, "MiB"),
        Row::at_most(what("server after"), after.1, before.1 * 1.1 + 1.0, "MiB"),
    ])
}

/// Opens the sessions and lets them talk; the longest echo, and the memory of agent and server at the end.
fn crowd(quickstart: &Quickstart, time: Duration) -> Result<(Duration, (f64, f64))> {
    let mut sessions = Vec::with_capacity(SESSION_COUNT);
    while sessions.len() < SESSION_COUNT {
        let mut starting = Vec::new();
        for _ in 0..CONCURRENT_STARTS {
            let mut command = quickstart.command(&["ssh", "hello", "--", "cat"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            starting.push(Session::of(command.spawn()?)?);
        }
        for mut session in starting {
            session.echo("hello\n").context("begin a session")?;
            sessions.push(session);
        }
    }
    let end = Instant::now() + time;
    let talking: Vec<_> = sessions
        .into_iter()
        .enumerate()
        .map(|(number, mut session)| {
            std::thread::spawn(move || session.talk(number, end).map(|longest| (longest, session)))
        })
        .collect();
    let mut longest = Duration::ZERO;
    let mut ended = Vec::new();
    for thread in talking {
        let Ok(talked) = thread.join() else { anyhow::bail!("a session panicked") };
        let (one, session) = talked?;
        longest = longest.max(one);
        ended.push(session);
    }
    let memory = (resident_mib(quickstart.agent()?)?, resident_mib(quickstart.server())?);
    for session in ended {
        let Session { mut process, input, output } = session;
        drop((input, output));
        let status = process.0.wait()?;
        ensure!(status.success(), "a session ended with {status}");
    }
    Ok((longest, memory))
}

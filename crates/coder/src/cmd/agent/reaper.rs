//! The process around an agent that is process 1 of a container, or that ends with its parent: runs the agent as a child, hands
//! signals on, takes the exit codes of processes whose parents have ended, and leaves none of them behind.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, set_child_subreaper, wait,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use super::Args;
use crate::parent_pipe::ParentPipe;
use crate::runtime;

/// Signals that the agent gets instead of this process.
const FORWARDED: [Signal; 6] =
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// How long the agent may take once its parent has ended: its shutdown scripts run, and its last logs are sent.
const END_TIMEOUT: Duration = Duration::from_secs(15);

/// How long processes may take to end that were killed, and how often to look.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
const KILL_INTERVAL: Duration = Duration::from_millis(2);

/// Whether this process shall run the agent as a child.
pub(super) fn is_needed(args: &Args) -> bool {
    !args.no_reap && (std::process::id() == 1 || args.end_with_stdin)
}

/// Runs the agent to its end. The process ends with the agent's code, or with 128 and the signal that ended it.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("find the path of this program")?;
    if args.end_with_stdin {
        // Processes whose parents have ended become children of this one, so that none is overlooked.
        set_child_subreaper(Some(getpid())).context("become the parent of all processes of the agent")?;
    }
    let code = runtime::small()?.block_on(async {
        // Before the child exists, so that no signal of its end is missed.
        let mut ended = signal(SignalKind::child()).context("take over signals")?;
        let mut forwarded = Vec::new();
        for number in FORWARDED {
            forwarded
                .push((number, signal(SignalKind::from_raw(number.as_raw())).context("take over signals")?));
        }
        let mut parent = ParentPipe::open(args.end_with_stdin)?;
        let mut command = Command::new(program);
        command.args(std::env::args_os().skip(1)).arg("--no-reap");
        if args.end_with_stdin {
            command.stdin(Stdio::null());
        }
        let child = command.spawn().context("start the agent")?;
        let agent = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("start the agent")?;
        let mut kill_at = None;
        loop {
            if let Some(status) = reap(agent) {
                return anyhow::Ok(exit_code(status));
            }
            let next = std::future::poll_fn(|cx| {
                for (number, stream) in &mut forwarded {
                    if stream.poll_recv(cx).is_ready() {
                        return std::task::Poll::Ready(*number);
                    }
                }
                std::task::Poll::Pending
            });
            tokio::select! {
                _ = ended.recv() => {}
                number = next => drop(kill_process(agent, number)),
                () = parent.closed(), if kill_at.is_none() => {
                    kill_at = Some(Instant::now() + END_TIMEOUT);
                    // It may have ended at this moment.
                    let _ = kill_process(agent, Signal::TERM);
                }
                () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() => {
                    let _ = kill_process(agent, Signal::KILL);
                    ended.recv().await;
                }
            }
        }
    })?;
    if args.end_with_stdin {
        end_children();
    }
    std::process::exit(i32::from(code));
}

/// Kills what the agent has left behind. The children of a killed process become children of this one.
fn end_children() {
    let until = std::time::Instant::now() + KILL_TIMEOUT;
    while std::time::Instant::now() < until {
        let children = children();
        if children.is_empty() {
            return;
        }
        for child in children {
            // It may have ended by itself.
            let _ = kill_process(child, Signal::KILL);
        }
        std::thread::sleep(KILL_INTERVAL);
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    }
}

/// The children of this process; empty without `/proc`.
fn children() -> Vec<Pid> {
    let own = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_child = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Behind the name, which may contain parentheses: state and parent.
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)) == Some(own.as_str())
    };
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| is_child(*pid)).filter_map(Pid::from_raw).collect()
}

/// Takes the codes of all processes that have ended. The agent's, if it is one of them.
fn reap(agent: Pid) -> Option<WaitStatus> {
    let mut found = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid == agent {
            found = Some(status);
        }
    }
    found
}

fn exit_code(status: WaitStatus) -> u8 {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

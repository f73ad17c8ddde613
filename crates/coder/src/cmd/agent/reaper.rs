//! Process 1 of a container: runs the agent as a child, hands signals on, and takes the exit codes of processes whose parents have ended.

use std::process::Command;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use tokio::signal::unix::{SignalKind, signal};

use crate::runtime;

/// Signals that the agent gets instead of process 1.
const FORWARDED: [Signal; 6] =
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// Whether this process is process 1 and shall reap.
pub(super) fn is_needed(is_unwanted: bool) -> bool {
    !is_unwanted && std::process::id() == 1
}

/// Runs the agent to its end. The process ends with the agent's code, or with 128 and the signal that ended it.
pub(super) fn run() -> anyhow::Result<()> {
    let program = std::env::current_exe().context("find the path of this program")?;
    let code = runtime::small()?.block_on(async {
        // Before the child exists, so that no signal of its end is missed.
        let mut ended = signal(SignalKind::child()).context("take over signals")?;
        let mut forwarded = Vec::new();
        for number in FORWARDED {
            forwarded
                .push((number, signal(SignalKind::from_raw(number.as_raw())).context("take over signals")?));
        }
        let child = Command::new(program).args(std::env::args_os().skip(1)).arg("--no-reap").spawn();
        let child = child.context("start the agent")?;
        let agent = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("start the agent")?;
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
            }
        }
    })?;
    std::process::exit(i32::from(code));
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

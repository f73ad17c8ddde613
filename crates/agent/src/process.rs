//! Processes of users: each in a session of its own, so that a signal reaches all that it started.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

use crate::environment::Variables;
use crate::shell::Invocation;

/// What a process is made of.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) invocation: Invocation,
    pub(crate) environment: Variables,
    pub(crate) directory: PathBuf,
}

impl Setup {
    /// The command without standard streams. The directory is one that exists: a workspace may have no home directory.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.invocation.program);
        command.args(&self.invocation.arguments).env_clear().envs(&self.environment);
        command.current_dir(existing(&self.directory));
        command
    }

    /// Starts it as the leader of a new session.
    pub(crate) fn spawn(&self, stdin: Stdio, stdout: Stdio, stderr: Stdio) -> io::Result<Child> {
        let mut command = self.command();
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        // SAFETY: setsid is safe between fork and exec.
        #[expect(unsafe_code, reason = "a new session can only be made in the new process")]
        unsafe {
            command.pre_exec(|| rustix::process::setsid().map(drop).map_err(io::Error::from));
        }
        command.spawn()
    }
}

/// The directory, or the nearest one above it that can be entered.
fn existing(directory: &Path) -> &Path {
    directory.ancestors().find(|directory| directory.is_dir()).unwrap_or_else(|| Path::new("/"))
}

/// The leader of a process group that is signalled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group(Option<Pid>);

impl Group {
    /// The group of a child that leads its own session.
    pub(crate) fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)))
    }

    /// Signals every process of the group. One that has ended is skipped.
    pub(crate) fn signal(self, signal: Signal) {
        if let Some(leader) = self.0 {
            let _ = kill_process_group(leader, signal);
        }
    }
}

/// The exit code that the server and SSH clients get: 255 when a signal ended the process (agent 2.6, 4.2).
pub(crate) fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or(255)
}

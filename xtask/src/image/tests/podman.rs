//! podman with a configuration and storage of its own, which go with the test.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long a server or a daemon may take to start.
const DEADLINE: Duration = Duration::from_secs(120);

/// For kernels and containers that do not let processes raise their limits.
const CONFIGURATION: &str = "\
[engine]
runtime = \"runc\"
cgroup_manager = \"cgroupfs\"
events_logger = \"none\"
[containers]
default_ulimits = [\"nofile=1024:1024\", \"nproc=4000:4000\"]
netns = \"host\"
";

pub(super) struct Podman {
    directory: tempfile::TempDir,
}

impl Podman {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("containers.conf"), CONFIGURATION).unwrap();
        Self { directory }
    }

    /// A directory that ends with the test.
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let path = |name: &str| self.directory.path().join(name);
        let mut command = Command::new("podman");
        command.env("CONTAINERS_CONF", path("containers.conf"));
        command.args(["--storage-driver", "vfs"]);
        command
            .arg("--root")
            .arg(path("root"))
            .arg("--runroot")
            .arg(path("run"))
            .arg("--tmpdir")
            .arg(path("tmp"));
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// The result of a command.
    pub(super) fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Standard output of a command that must succeed.
    #[track_caller]
    pub(super) fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "podman {arguments:?}: {}: {error}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits until a container has written a line with `words`.
    #[track_caller]
    pub(super) fn wait_for_line(&self, container: &str, words: &'static str) {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut command = self.command(&["logs", "--follow", container]);
        let mut follower = command.stdout(writer.try_clone().unwrap()).stderr(writer).spawn().unwrap();
        // The ends for writing stay open in the command.
        drop(command);
        let (found, result) = mpsc::channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(reader).lines().map_while(Result::ok);
            found.send(lines.any(|line| line.contains(words)))
        });
        let seen = result.recv_timeout(DEADLINE);
        follower.kill().unwrap();
        follower.wait().unwrap();
        assert!(seen == Ok(true), "{container} did not write {words:?}:\n{}", self.logs(container));
    }

    /// What a container wrote so far, to both streams.
    pub(super) fn logs(&self, container: &str) -> String {
        let output = self.output(&["logs", container]);
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        // Containers first: their mounts are in the directory.
        let _result = self.output(&["rm", "--all", "--force", "--time", "0"]);
        let _result = self.output(&["rmi", "--all", "--force"]);
    }
}

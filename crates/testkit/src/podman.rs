//! Containers for tests: podman with a configuration and storage of its own, which go with the value.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long a program in a container may take until it writes a line.
const LINE_TIMEOUT: Duration = Duration::from_secs(120);

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

/// Containers, images and volumes of one test. Containers have the network of the host.
pub struct Podman {
    directory: tempfile::TempDir,
    driver: &'static str,
}

impl Podman {
    /// Storage without images.
    ///
    /// # Panics
    /// When its directory cannot be made.
    #[must_use]
    pub fn in_new_directory() -> Self {
        let directory = tempfile::tempdir().expect("a directory for podman");
        std::fs::write(directory.path().join("containers.conf"), CONFIGURATION).expect("write a file");
        let mut podman = Self { directory, driver: "overlay" };
        if !podman.output(&["info"]).status.success() {
            // Not every file system can be below an overlay. This one copies the whole image for each layer and each container.
            podman.driver = "vfs";
        }
        podman
    }

    /// A directory that ends with the test.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let path = |name: &str| self.directory.path().join(name);
        let mut command = Command::new("podman");
        command.env("CONTAINERS_CONF", path("containers.conf")).args(["--storage-driver", self.driver]);
        command.arg("--root").arg(path(&format!("root-{}", self.driver)));
        command.arg("--runroot").arg(path(&format!("run-{}", self.driver)));
        command.arg("--tmpdir").arg(path("tmp")).args(arguments).stdin(Stdio::null());
        command
    }

    /// The result of a command.
    ///
    /// # Panics
    /// Without podman.
    #[must_use]
    pub fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("start podman")
    }

    /// Standard output of a command that must succeed.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "podman {arguments:?}: {}: {error}", output.status);
        String::from_utf8(output.stdout).expect("podman prints text")
    }

    /// Waits until a container has written a line with `words`.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn wait_for_line(&self, container: &str, words: &'static str) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut command = self.command(&["logs", "--follow", container]);
        command.stdout(writer.try_clone().expect("a second end of the pipe")).stderr(writer);
        let mut follower = command.spawn().expect("start podman");
        // The ends for writing stay open in the command.
        drop(command);
        let (found, result) = mpsc::channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(reader).lines().map_while(Result::ok);
            found.send(lines.any(|line| line.contains(words)))
        });
        let seen = result.recv_timeout(LINE_TIMEOUT);
        follower.kill().expect("end podman");
        follower.wait().expect("the end of podman");
        assert!(seen == Ok(true), "{container} did not write {words:?}:\n{}", self.logs(container));
    }

    /// What a container wrote so far, to both streams.
    #[must_use]
    pub fn logs(&self, container: &str) -> String {
        let output = self.output(&["logs", container]);
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        // Containers first: their mounts are in the directory.
        drop(self.output(&["rm", "--all", "--force", "--time", "0"]));
        drop(self.output(&["rmi", "--all", "--force"]));
    }
}

//! A daemon in another process, connected to a test's server by a socket.

use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::time::Duration;

use coder_domain::protocol;
use coder_provisioner::{
    Config, ConnectError, ConnectFuture, Connector, Daemon, Shutdown, TerraformSource, Transport,
};
use coder_wire::bytes::BoxedStream;
use coder_wire::extension::Extensions;
use tokio::net::{UnixListener, UnixStream};

use crate::fake_server::Server;

const SOCKET: &str = "CODER_TEST_CHILD_SOCKET";
const CACHE: &str = "CODER_TEST_CHILD_CACHE";
/// Names the program to run instead of Terraform.
pub(crate) const TERRAFORM: &str = "CODER_TEST_CHILD_TERRAFORM";
/// Names what jobs see of the home directory.
pub(crate) const JOB_HOME: &str = "CODER_TEST_CHILD_JOB_HOME";
/// The isolation mode.
pub(crate) const ISOLATION: &str = "CODER_TEST_CHILD_ISOLATION";
/// The number of slots.
pub(crate) const SLOTS: &str = "CODER_TEST_CHILD_SLOTS";

/// Serves daemons at a socket.
pub(crate) fn listen(server: &Server, socket: &Path) {
    let listener = UnixListener::bind(socket).unwrap();
    let serving = server.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            serving.serve(stream);
        }
    });
}

/// Dials the test that started this process.
struct Socket(PathBuf);

impl Connector for Socket {
    fn connect(&self) -> ConnectFuture<'_> {
        Box::pin(async {
            let stream = UnixStream::connect(&self.0).await;
            let stream = stream.map_err(|error| ConnectError::Retry(error.to_string()))?;
            let stream: BoxedStream = Box::new(stream);
            Ok(Transport { stream, extensions: Extensions::ALL, protocol: protocol::CURRENT })
        })
    }
}

/// Not a test: the daemon process that other tests start, to kill or measure it.
#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_in_a_process_of_its_own() {
    let (Some(socket), Some(cache)) = (std::env::var_os(SOCKET), std::env::var_os(CACHE)) else { return };
    let cache = PathBuf::from(cache);
    let mut config = Config::new("killed", &cache);
    config.registry = Some(cache.with_extension("registry"));
    config.update_interval = Duration::from_millis(100);
    if let Some(terraform) = std::env::var_os(TERRAFORM) {
        config.terraform = TerraformSource::File(terraform.into());
    }
    config.home = std::env::var_os(JOB_HOME).map(PathBuf::from).into_iter().collect();
    if let Ok(isolation) = std::env::var(ISOLATION) {
        config.isolation = isolation.parse().unwrap();
    }
    if let Ok(slots) = std::env::var(SLOTS) {
        config.slots = slots.parse().unwrap();
    }
    Daemon::new(config, Socket(socket.into())).run(Shutdown::new()).await.unwrap();
}

pub(crate) struct Child(process::Child);

impl Child {
    /// Starts a daemon with these environment variables.
    pub(crate) fn start(socket: &Path, cache: &Path, variables: &[(&str, &Path)]) -> Self {
        Self::spawn(Command::new(std::env::current_exe().unwrap()), socket, cache, variables)
    }

    /// The same, with a small file system as its cache directory. `None` where it cannot be mounted.
    pub(crate) fn on_small_disk(
        socket: &Path,
        cache: &Path,
        variables: &[(&str, &Path)],
        mebibytes: u32,
    ) -> Self {
        let apart = |script: &str, name: &Path| {
            let mut command = Command::new("unshare");
            if !rustix::process::geteuid().is_root() {
                command.args(["--user", "--map-root-user"]);
            }
            command.args(["--mount", "sh", "-c", script]).arg(name).arg(cache);
            command
        };
        let mount = format!("mount -t tmpfs -o size={mebibytes}m,mode=700 none \"$1\"");
        std::fs::create_dir_all(cache).unwrap();
        // The shell execs the program.
        let script = format!("{mount} && shift && exec \"$0\" \"$@\"");
        let command = apart(&script, &std::env::current_exe().unwrap());
        Self::spawn(command, socket, cache, variables)
    }

    fn spawn(mut command: Command, socket: &Path, cache: &Path, variables: &[(&str, &Path)]) -> Self {
        command
            .args(["--exact", "daemon_process::a_daemon_in_a_process_of_its_own"])
            .env(SOCKET, socket)
            .env(CACHE, cache);
        command.envs(variables.iter().copied());
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// A path in the daemon's mount namespace.
    pub(crate) fn seen(&self, path: &Path) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.0.id(), path.display()))
    }

    /// Its peak resident memory in bytes.
    pub(crate) fn peak(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

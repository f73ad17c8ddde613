//! The bootstrap script in real containers of a minimal Debian: with curl, with wget, with neither, as an ordinary user, without a
//! home directory, and with a read-only root.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use coder_api::resources::AgentStatus;
use coder_requirements::require;
use coder_testkit::server::{TestServer, settings};
use coder_testkit::tailnet::new_workspace;
use coder_testkit::wait::{poll_until, poll_within};

use crate::program::Home;

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

/// How long an agent may take to connect: its container installs what it needs.
const CONNECT_LIMIT: Duration = Duration::from_secs(120);

/// Hides a program: what is not a regular file is not found.
const NO_CURL: &str = "--volume=/dev/null:/usr/bin/curl";
const NO_WGET: &str = "--volume=/dev/null:/usr/bin/wget";

/// podman with storage of its own, and one image of a minimal Debian.
struct Podman(tempfile::TempDir);

impl Podman {
    fn with_debian(root: &Path) -> Self {
        let podman = Self(tempfile::tempdir().unwrap());
        std::fs::write(podman.0.path().join("containers.conf"), CONFIGURATION).unwrap();
        let archive = podman.0.path().join("debian.tar");
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(root).arg("-cf").arg(&archive).args([
            "--exclude=./proc/*",
            "--exclude=./sys/*",
            ".",
        ]);
        assert!(tar.status().unwrap().success());
        podman.success(&["import", archive.to_str().unwrap(), "localhost/debian:test"]);
        std::fs::remove_file(archive).unwrap();
        podman
    }

    fn output(&self, arguments: &[&str]) -> Output {
        let path = |name: &str| self.0.path().join(name);
        let mut command = Command::new("podman");
        command.env("CONTAINERS_CONF", path("containers.conf")).args(["--storage-driver", "vfs"]);
        command.arg("--root").arg(path("root")).arg("--runroot").arg(path("run"));
        command.arg("--tmpdir").arg(path("tmp")).args(arguments).stdin(Stdio::null());
        command.output().unwrap()
    }

    #[track_caller]
    fn success(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "podman {arguments:?}: {}: {error}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a container wrote so far, to both streams.
    fn logs(&self, container: &str) -> String {
        let output = self.output(&["logs", container]);
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        // Containers first: their mounts are in the directory.
        let _ = self.output(&["rm", "--all", "--force", "--time", "0"]);
        let _ = self.output(&["rmi", "--all", "--force"]);
    }
}

/// One container.
struct Trial {
    name: &'static str,
    options: &'static [&'static str],
    /// Whether the agent starts; otherwise what the log says.
    refusal: Option<&'static str>,
}

const TRIALS: &[Trial] = &[
    Trial { name: "curl", options: &[NO_WGET], refusal: None },
    Trial { name: "wget", options: &[NO_CURL], refusal: None },
    Trial {
        name: "neither",
        options: &[NO_CURL, NO_WGET],
        refusal: Some("install one of them in the workspace's image"),
    },
    Trial { name: "ordinary-user", options: &["--user=1000:1000"], refusal: None },
    // Neither an entry in /etc/passwd nor a directory.
    Trial { name: "no-home", options: &["--user=4242:4242", "--env=HOME=/nonexistent"], refusal: None },
    Trial {
        name: "read-only",
        options: &["--read-only", "--user=1000:1000", "--tmpfs=/tmp:rw,mode=1777,exec"],
        refusal: None,
    },
    // The directory for temporary files runs no programs; the home directory does.
    Trial {
        name: "noexec",
        options: &[
            "--read-only",
            "--user=1000:1000",
            "--tmpfs=/tmp:rw,mode=1777,noexec",
            "--tmpfs=/var/tmp:rw,mode=1777,exec",
            "--env=HOME=/var/tmp",
        ],
        refusal: None,
    },
    Trial {
        name: "nothing-writable",
        options: &[
            "--read-only",
            "--read-only-tmpfs=false",
            "--user=1000:1000",
            "--volume=/dev/null:/dev/shm",
        ],
        refusal: Some("No directory can be written to"),
    },
];

/// agent 1.2.
#[tokio::test(flavor = "multi_thread")]
async fn agent_starts_in_containers_of_all_kinds() {
    require!(Podman);
    let debian = require!(directory DebianRoot);
    let binary = require!(program StaticBinary);
    let podman = Podman::with_debian(&debian);
    let mut config = settings();
    config.executable = Some(binary);
    let server = TestServer::start_with(config, coder_store::testing::sqlite()).await.unwrap();
    let script = coder_provisioner::agent_script(
        "linux",
        if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
    );
    let script = script.unwrap().replace("${ACCESS_URL}", &format!("{}/", server.url()));
    let script = script.replace("${AUTH_TYPE}", "token");
    let file = podman.0.path().join("init.sh");
    std::fs::File::create(&file).unwrap().write_all(script.as_bytes()).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let volume = format!("--volume={}:/init.sh:ro", file.display());
    let mut person = Home::new();
    person
        .set("CODER_URL", server.url())
        .set("CODER_SESSION_TOKEN", server.owner.token().unwrap().expose().to_owned());
    for trial in TRIALS {
        let name = trial.name;
        let (_, agent, token) = new_workspace(&server, &server.owner, name).await.unwrap();
        let container = format!("--name={name}");
        let token = format!("--env=CODER_AGENT_TOKEN={}", token.expose());
        let run = ["run", "--detach", &container, &token, &volume];
        podman
            .success(&[&run[..], trial.options, &["localhost/debian:test", "/bin/sh", "/init.sh"]].concat());
        if let Some(words) = trial.refusal {
            poll_until("the script says why the agent cannot start", async || {
                podman.logs(name).contains(words).then_some(())
            })
            .await;
        } else {
            let client = &server.owner;
            let connected = poll_within(CONNECT_LIMIT, async || {
                let agent = client.agent(agent).await.unwrap();
                (agent.status == AgentStatus::Connected).then_some(())
            });
            assert!(connected.await.is_some(), "{name}: {}", podman.logs(name));
            let command =
                person.command(&["ssh", name, "--", "id -u; pwd; touch ~/x 2>/dev/null; echo done"]);
            let outcome = tokio::task::spawn_blocking(move || crate::program::finish(command, b""));
            let outcome = outcome.await.unwrap();
            assert!(
                outcome.status.success() && outcome.out.ends_with("done\n"),
                "{name}: {} {} {}",
                outcome.out,
                outcome.err,
                podman.logs(name)
            );
        }
        podman.success(&["rm", "--force", "--time", "0", name]);
    }
    server.stop().await.unwrap();
}

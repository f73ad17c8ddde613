//! The bootstrap script in real containers of a minimal Debian: with curl, with wget, with neither, as an ordinary user, without a
//! home directory, and with a read-only root.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use coder_api::resources::AgentStatus;
use coder_requirements::require;
use coder_testkit::podman::Podman;
use coder_testkit::server::{TestServer, settings};
use coder_testkit::tailnet::new_workspace;
use coder_testkit::wait::{poll_until, poll_within};

use crate::program::Home;

/// How long an agent may take to connect: its container installs what it needs.
const CONNECT_LIMIT: Duration = Duration::from_secs(120);

/// Hides a program: what is not a regular file is not found.
const NO_CURL: &str = "--volume=/dev/null:/usr/bin/curl";
const NO_WGET: &str = "--volume=/dev/null:/usr/bin/wget";

/// The image that all containers are started from.
const IMAGE: &str = "localhost/debian:test";

fn import_debian(podman: &Podman, root: &Path) {
    let archive = podman.directory().join("debian.tar");
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(root).arg("-cf").arg(&archive).args(["--exclude=./proc/*", "--exclude=./sys/*", "."]);
    assert!(tar.status().unwrap().success());
    podman.run(&["import", archive.to_str().unwrap(), IMAGE]);
    std::fs::remove_file(archive).unwrap();
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
    let podman = Podman::in_new_directory();
    import_debian(&podman, &debian);
    let mut config = settings();
    config.executable = Some(binary);
    let server = TestServer::start_with(config, coder_store::testing::sqlite()).await.unwrap();
    let script = coder_provisioner::agent_script(
        "linux",
        if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
    );
    let script = script.unwrap().replace("${ACCESS_URL}", &format!("{}/", server.url()));
    let script = script.replace("${AUTH_TYPE}", "token");
    let file = podman.directory().join("init.sh");
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
        podman.run(&[&run[..], trial.options, &[IMAGE, "/bin/sh", "/init.sh"]].concat());
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
        podman.run(&["rm", "--force", "--time", "0", name]);
    }
    server.stop().await.unwrap();
}

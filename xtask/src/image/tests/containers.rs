//! The images, started by podman as ordinary user with a read-only root: a server, a daemon, and a build.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use coder_requirements::require;
use coder_testkit::podman::Podman;

use super::{Parts, recipe, write};

/// A template without any provider that must be downloaded.
const TEMPLATE: &str = r#"
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_workspace" "me" {}
resource "terraform_data" "user" {
  input = data.coder_workspace.me.name
  provisioner "local-exec" {
    command = "id -u && git --version && (touch /opt/x 2>/dev/null || echo read-only root)"
  }
}
"#;

fn real_parts(directory: &Path, binary: PathBuf, debian: PathBuf, terraform: PathBuf) -> Parts {
    Parts {
        version: "0.0.0".to_owned(),
        registry: "localhost".to_owned(),
        binary,
        authorities: PathBuf::from("/etc/ssl/certs/ca-certificates.crt"),
        debian: Some(debian),
        terraform: Some(terraform),
        output: directory.to_owned(),
    }
}

#[test]
fn a_server_a_daemon_and_a_build_run_in_the_images() {
    require!(Podman);
    let binary = require!(program StaticBinary);
    let debian = require!(directory DebianRoot);
    let terraform = require!(program Terraform);
    let podman = Podman::in_new_directory();
    let parts = real_parts(podman.directory(), binary, debian, terraform);
    for name in ["coder", "coder-provisioner"] {
        let archive = write(&recipe(name), &parts).unwrap();
        let loaded = podman.run(&["load", "--input", archive.to_str().unwrap()]);
        assert!(loaded.contains(&format!("localhost/{name}:v0.0.0")), "{loaded}");
        std::fs::remove_file(archive).unwrap();
    }
    // Network namespaces are not there everywhere, so containers use the host's; the listener is closed for the server.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    let hardened = [
        "--read-only",
        "--cap-drop=all",
        "--security-opt=no-new-privileges",
        "--tmpfs=/tmp:rw,mode=1777,exec",
    ];
    let writable = ["--tmpfs=/var/cache/coder:rw,mode=1777,exec", "--tmpfs=/var/lib/coder:rw,mode=1777"];

    let server = ["run", "--detach", "--name=server"];
    let address = format!("--env=CODER_HTTP_ADDRESS=127.0.0.1:{port}");
    let access = format!("--env=CODER_ACCESS_URL={url}");
    let settings = [&*address, &*access, "--env=CODER_PROVISIONER_DAEMONS=0", "localhost/coder:v0.0.0"];
    podman.run(&[&server[..], &hardened, &writable, &settings].concat());
    podman.wait_for_line("server", "listening");

    // The command line, in the same image.
    let credentials = [
        "--env=CODER_FIRST_USER_USERNAME=admin",
        "--env=CODER_FIRST_USER_EMAIL=admin@example.com",
        "--env=CODER_FIRST_USER_PASSWORD=SomeSecurePassword!",
        "--env=CODER_FIRST_USER_TRIAL=false",
    ];
    let config = podman.directory().join("config");
    std::fs::create_dir(&config).unwrap();
    std::os::unix::fs::chown(&config, Some(1000), Some(1000)).unwrap();
    let volume = format!("--volume={}:/config", config.display());
    let cli = |arguments: &[&str]| {
        let run = ["run", "--rm", &volume, "--env=CODER_CONFIG_DIR=/config", "--entrypoint=/opt/coder"];
        let all =
            [&run[..], &hardened, &credentials, &["localhost/coder-provisioner:v0.0.0"], arguments].concat();
        let output = podman.output(&all);
        let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        if output.status.success() { Ok(text) } else { Err(text.concat()) }
    };
    cli(&["login", &url]).unwrap_or_else(|error| panic!("{error}\n{}", podman.logs("server")));
    let [token, _] = cli(&["tokens", "create"]).unwrap();
    // As the operator starts it.
    let user = podman.run(&["exec", "server", "coder", "version"]);
    assert!(user.contains("Coder"), "{user}");

    // The documented line for a container, with its variables.
    let daemon = ["run", "--detach", "--name=daemon"];
    let session = format!("--env=CODER_SESSION_TOKEN={}", token.trim());
    let address = format!("--env=CODER_URL={url}/");
    let image = ["--entrypoint=/opt/coder", "localhost/coder-provisioner:v0.0.0", "provisioner", "start"];
    podman.run(&[&daemon[..], &hardened, &writable, &[&*address, &session], &image].concat());
    podman.wait_for_line("daemon", "provisioner: successfully connected to coderd");
    let log = podman.logs("daemon");
    assert!(!log.contains("cannot be registered"), "{log}");

    let template = config.join("template");
    std::fs::create_dir(&template).unwrap();
    std::fs::write(template.join("main.tf"), TEMPLATE).unwrap();
    let pushed = cli(&["templates", "push", "try", "--directory", "/config/template", "--yes"]);
    pushed.unwrap_or_else(|error| panic!("{error}\n{}", podman.logs("daemon")));
    let built = cli(&["create", "mine", "--template", "try", "--yes"]);
    let built = built.unwrap_or_else(|error| panic!("{error}\n{}", podman.logs("daemon"))).concat();
    // What the job printed: its user, git, and that it cannot write to the image.
    for line in ["(local-exec): 1000", "git version", "read-only root"] {
        assert!(built.contains(line), "no {line:?}: {built}");
    }

    // Both stop by themselves when they are asked to.
    for container in ["daemon", "server"] {
        podman.run(&["stop", "--time", "60", container]);
        let code = podman.run(&["inspect", "--format={{.State.ExitCode}}", container]);
        assert_eq!(code.trim(), "0", "{container}: {}", podman.logs(container));
    }
}

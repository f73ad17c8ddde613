//! The provider as an ordinary plugin: a mirror laid out by the binary, and the real Terraform that starts it from there.

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::processes::{WAIT_LIMIT, has_terraform};
use crate::program::{Home, binary, finish, until, wait};

const TEMPLATE: &str = r#"
terraform {
  required_providers {
    coder = {
      source  = "coder/coder"
      version = "~> 2.13"
    }
  }
}

data "coder_workspace" "me" {}

data "coder_parameter" "size" {
  name    = "size"
  default = "small"
}

resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
  env  = { SIZE = data.coder_parameter.size.value }
}

output "found" {
  value = "${data.coder_workspace.me.name} ${coder_agent.main.init_script} ${coder_agent.main.env.SIZE}"
}
"#;

/// `sha256("size")`, the end of the name of the parameter's variable.
const SIZE: &str = "CODER_PARAMETER_ccdcbe846f3da4eb044fbdf64bf6b57902388ab72fb0c852ba72280f8d478b40";

/// A mirror in a separate home, and a directory with a template.
struct Mirror {
    home: Home,
    sockets: PathBuf,
}

impl Mirror {
    /// None without Terraform.
    fn new() -> Option<Self> {
        if !has_terraform() {
            return None;
        }
        let home = Home::new();
        let outcome = home.run(&["provider", "install", "mirror"]).success();
        std::fs::write(home.path().join("terraform.rc"), outcome.out).unwrap();
        let sockets = home.path().join("s");
        std::fs::create_dir(&sockets).unwrap();
        Some(Self { home, sockets })
    }

    fn write(&self, text: &str) {
        std::fs::write(self.home.path().join("main.tf"), text).unwrap();
    }

    fn terraform(&self, args: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut command = Command::new("terraform");
        command.args(args).current_dir(self.home.path()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.home.path());
        command.env("TMPDIR", &self.sockets).env("CHECKPOINT_DISABLE", "1");
        command.env("TF_CLI_CONFIG_FILE", self.home.path().join("terraform.rc"));
        command.envs(variables.iter().copied());
        command
    }

    #[track_caller]
    fn run(&self, args: &[&str], variables: &[(&str, &str)]) -> String {
        finish(self.terraform(args, variables), b"").success().out
    }

    /// Whether a plugin process is running.
    fn is_quiet(&self) -> bool {
        let mut entries = std::fs::read_dir(&self.sockets).unwrap().map(|entry| entry.unwrap().file_name());
        entries.all(|name| !name.to_string_lossy().ends_with(".sock"))
    }
}

fn placed(mirror: &Path, address: &str, version: &str) -> PathBuf {
    let folder = mirror.join(address).join(version);
    let platform = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    assert!(platform.file_name().unwrap().to_str().unwrap().starts_with("linux_"));
    platform.join(format!("terraform-provider-coder_v{version}"))
}

#[test]
fn a_mirror_has_both_addresses_and_every_version_asked_for() {
    let home = Home::new();
    let install =
        ["provider", "install", "m", "--provider-version", "2.13.1", "--provider-version", "2.19.0"];
    for _ in 0..2 {
        let outcome = home.run(&install).success();
        assert!(outcome.out.starts_with("provider_installation {\n"), "{}", outcome.out);
        assert!(outcome.out.contains(&format!("{:?}", home.path().join("m"))), "{}", outcome.out);
        assert!(outcome.err.contains("2.13.1, 2.19.0") && outcome.err.contains(".terraformrc"));
    }
    let mirror = home.path().join("m");
    let mut files = Vec::new();
    for address in ["registry.terraform.io/coder/coder", "registry.opentofu.org/coder/coder"] {
        for version in ["2.13.1", "2.19.0"] {
            let file = std::fs::metadata(placed(&mirror, address, version)).unwrap();
            assert_eq!(file.mode() & 0o111, 0o111);
            files.push(file.ino());
        }
    }
    files.dedup();
    assert_eq!(files.len(), 1, "the mirror holds one copy, whatever the number of versions");
    home.run(&["provider", "install", "m", "--provider-version", "2"]).refused("three numbers");
    std::fs::write(home.path().join("file"), "").unwrap();
    home.run(&["provider", "install", "file"]).refused("make file");
}

#[test]
fn started_by_hand_it_explains_itself() {
    let home = Home::new();
    let name = home.path().join("terraform-provider-coder_v2.13.1");
    symlink(binary(), &name).unwrap();
    let start = |variables: &[(&str, &str)]| {
        let mut command = Command::new(&name);
        command.env_clear().envs(variables.iter().copied());
        finish(command, b"")
    };
    start(&[]).refused("is a plugin that terraform starts by itself");
    let cookie =
        ("TF_PLUGIN_MAGIC_COOKIE", "d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2");
    start(&[("TF_PLUGIN_MAGIC_COOKIE", "x")]).refused("is a plugin");
    start(&[cookie, ("PLUGIN_PROTOCOL_VERSIONS", "6,7")]).refused("speaks the plugin protocols \"6,7\"");
    start(&[cookie, ("PLUGIN_CLIENT_CERT", "none")]).refused("PLUGIN_CLIENT_CERT");
}

#[test]
fn terraform_starts_asks_and_ends_it() {
    let Some(mirror) = Mirror::new() else { return };
    mirror.write(TEMPLATE);
    mirror.run(&["init", "-no-color", "-input=false"], &[]);
    let lock = std::fs::read_to_string(mirror.home.path().join(".terraform.lock.hcl")).unwrap();
    assert!(lock.contains("version     = \"2.13.1\""), "{lock}");
    let given = [
        ("CODER_WORKSPACE_NAME", "mine"),
        ("CODER_AGENT_SCRIPT_linux_amd64", "start"),
        (SIZE, "large"),
        ("TF_LOG", "trace"),
        ("TF_LOG_PATH", "trace.log"),
    ];
    mirror.run(&["apply", "-auto-approve", "-input=false"], &given);
    assert_eq!(mirror.run(&["output", "-raw", "found"], &[]), "mine start large");
    let trace = std::fs::read_to_string(mirror.home.path().join("trace.log")).unwrap();
    assert!(trace.contains("plugin process exited"), "the plugin ends when it is asked to");
    for wrong in ["plugin failed to exit gracefully", "stdio service not available", "error receiving data"] {
        assert!(!trace.contains(wrong), "{wrong}");
    }
    assert!(mirror.is_quiet());
    // The same without TLS, for users who have turned it off.
    mirror.run(&["plan", "-input=false"], &[("TF_DISABLE_PLUGIN_TLS", "1")]);
    assert!(mirror.is_quiet());
}

#[test]
fn plugin_ends_when_terraform_is_killed() {
    let Some(mirror) = Mirror::new() else { return };
    let wait_there = "echo $$ > pid.new; mv pid.new pid; exec sleep 300";
    let waits = format!(
        "\nresource \"terraform_data\" \"wait\" {{\n  provisioner \"local-exec\" {{\n    command = \"{wait_there}\"\n  }}\n}}\n\
         resource \"coder_env\" \"after\" {{\n  agent_id = terraform_data.wait.id\n  name = \"A\"\n}}\n"
    );
    mirror.write(&format!("{TEMPLATE}{waits}"));
    mirror.run(&["init", "-no-color", "-input=false"], &[]);
    let mut apply = mirror.terraform(&["apply", "-auto-approve", "-input=false"], &[]);
    apply.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut apply = apply.spawn().unwrap();
    let pid = until(WAIT_LIMIT, || std::fs::read_to_string(mirror.home.path().join("pid")).ok()).unwrap();
    // Terraform may start the command before it has started the plugin.
    until(WAIT_LIMIT, || (!mirror.is_quiet()).then_some(()))
        .expect("the plugin runs as long as Terraform uses it");
    apply.kill().unwrap();
    wait(&mut apply, WAIT_LIMIT);
    until(WAIT_LIMIT, || mirror.is_quiet().then_some(())).expect("the plugin ends");
    Command::new("kill").arg(pid.trim()).status().unwrap();
}

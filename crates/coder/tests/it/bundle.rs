//! Bundles: created with network access, used without.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use coder_requirements::Requirement;

use crate::processes::{EMAIL, PASSWORD, USER, has_terraform};
use crate::program::{Home, binary, finish};

/// Two providers, of which one must be downloaded, and a module that must be downloaded.
const TEMPLATE: &str = r#"
terraform {
  required_providers {
    coder  = { source = "coder/coder" }
    second = {
      source  = "example.com/acme/second"
      version = "~> 1.0"
    }
  }
}
module "remote" {
  source = "MODULE"
}
data "coder_workspace" "me" {}
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
}
resource "coder_env" "extra" {
  provider = second
  agent_id = coder_agent.main.id
  name     = "WORD"
  value    = module.remote.word
}
resource "terraform_data" "machine" {
  count = data.coder_workspace.me.start_count
  input = coder_agent.main.id
}
"#;

/// Whether a network namespace can be created here; otherwise the test is skipped.
#[track_caller]
fn has_namespaces() -> bool {
    coder_requirements::has(Requirement::NetworkNamespaces) && coder_requirements::has(Requirement::Strace)
}

/// A home with a mirror that has the second provider, and a template that uses it.
struct Maker {
    home: Home,
}

impl Maker {
    fn new(ballast: usize) -> Self {
        let mut home = Home::new();
        let root = home.path().to_owned();
        // The provider is this program under another name; the package itself is small.
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bundle/terraform-provider-coder");
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        let beside = program.with_extension(uuid());
        std::os::unix::fs::symlink(binary(), &beside).unwrap();
        std::fs::rename(&beside, &program).unwrap();
        let here = coder_provisioner::platform();
        for platform in [here.as_str(), "plan9_mips"] {
            let folder = root.join("mirror/example.com/acme/second/1.2.0").join(platform);
            std::fs::create_dir_all(&folder).unwrap();
            let file = folder.join("terraform-provider-second_v1.2.0");
            std::fs::write(&file, format!("#!/bin/sh\nexec '{}'\n", program.display())).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
            // It cannot be compressed.
            std::fs::write(folder.join("ballast"), noise(ballast)).unwrap();
        }
        let rc = root.join("terraform.rc");
        let mirror = root.join("mirror");
        let text =
            format!("provider_installation {{\n  filesystem_mirror {{\n    path = {mirror:?}\n  }}\n}}\n");
        std::fs::write(&rc, text).unwrap();
        home.set("TF_CLI_CONFIG_FILE", rc.to_str().unwrap());

        let module = root.join("module");
        std::fs::create_dir(&module).unwrap();
        std::fs::write(module.join("main.tf"), "output \"word\" {\n  value = \"fetched\"\n}\n").unwrap();
        let packed = root.join("module.tar.gz");
        let status = Command::new("tar").arg("-czf").arg(&packed).arg("-C").arg(&module).arg(".").status();
        assert!(status.unwrap().success());
        std::fs::create_dir(root.join("template")).unwrap();
        let text = TEMPLATE.replace("MODULE", packed.to_str().unwrap());
        std::fs::write(root.join("template/main.tf"), text).unwrap();
        Self { home }
    }

    fn bundle(&self, flags: &[&str]) -> PathBuf {
        let file = self.home.path().join("bundle.tar");
        let args = [&["templates", "bundle", "template", "-o", "bundle.tar"], flags].concat();
        let outcome = self.home.run(&args).success();
        assert!(outcome.err.contains("example.com/acme/second 1.2.0"), "{}", outcome.err);
        file
    }
}

fn uuid() -> String {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).unwrap();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    if length > 0 {
        getrandom::fill(&mut bytes).unwrap();
    }
    bytes
}

fn names(file: &Path) -> Vec<String> {
    let bytes = std::fs::read(file).unwrap();
    let mut archive = tar::Archive::new(bytes.as_slice());
    archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect()
}

#[test]
fn a_bundle_has_modules_and_every_platform_of_the_mirror() {
    coder_requirements::require!(Terraform);
    let maker = Maker::new(0);
    let here = coder_provisioner::platform();
    let file = maker.bundle(&["--platform", &here, "--platform", "plan9_mips"]);
    let names = names(&file);
    let package = |platform: &str| {
        format!("terraform.d/plugins/example.com/acme/second/terraform-provider-second_1.2.0_{platform}.zip")
    };
    for wanted in [
        "main.tf",
        ".terraform.lock.hcl",
        ".terraform/modules/modules.json",
        ".terraform/modules/remote/main.tf",
        ".coder-bundle.json",
        &package(&here),
        &package("plan9_mips"),
    ] {
        assert!(names.iter().any(|name| name == wanted), "{wanted} is not in {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("coder/coder")), "{names:?}");

    let none = maker.home.run(&["templates", "bundle", "template", "-o", "x", "--platform", "plan9_vax"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(none.err.contains("plan9_vax"), "{}", none.err);
    assert!(!none.err.contains('│'), "no frames are drawn: {}", none.err);
    assert!(!maker.home.path().join("x").exists());
    maker.home.run(&["templates", "bundle", "nowhere", "-o", "x"]).refused("nowhere is not a directory");
    // Checked before anything is downloaded.
    for (output, words) in
        [("absent/x", "write absent/x: No such file"), ("template", "name a file to write")]
    {
        let refused = maker.home.run(&["templates", "bundle", "template", "-o", output]).refused(words);
        assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
    }
}

/// A server, a daemon and commands without a network, except for each other.
const OFFLINE_SCRIPT: &str = r#"
set -e
ip link set lo up
"$BIN" server --http-address=127.0.0.1:0 --provisioner-daemons=1 --dangerous-disable-rate-limits > server.log 2>&1 &
server=$!
trap 'kill $server; wait $server' EXIT
until grep -q 'listening on http' server.log; do kill -0 $server; sleep 0.1; done
url=$(sed -n 's/.*listening on \(http[^ ]*\).*/\1/p' server.log | head -n 1)
"$BIN" login "$url" --first-user-username "$NAME" --first-user-email "$EMAIL" --first-user-password "$PASSWORD" --first-user-trial=false
"$BIN" templates push alone -d - -y < bundle.tar
"$BIN" create mine --template alone -y
"$BIN" show mine
"$BIN" stop mine -y
"$BIN" start mine -y
"$BIN" delete mine -y
"$BIN" templates push again -d bundle.tar -y
"#;

fn run_alone(ballast: usize) {
    if !has_terraform() || !has_namespaces() {
        return;
    }
    let maker = Maker::new(ballast);
    maker.bundle(&[]);
    // The source of the bundle is deleted.
    std::fs::remove_dir_all(maker.home.path().join("mirror")).unwrap();
    std::fs::remove_file(maker.home.path().join("module.tar.gz")).unwrap();
    let trace = maker.home.path().join("trace");
    let mut command = Command::new("unshare");
    command
        .args(["-rn", "strace", "-f", "-qq", "-e", "trace=connect,sendto,sendmsg,sendmmsg", "-o"])
        .arg(&trace)
        .args(["sh", "-c", OFFLINE_SCRIPT])
        .current_dir(maker.home.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", maker.home.path())
        .env("BIN", binary())
        .envs([("NAME", USER), ("EMAIL", EMAIL), ("PASSWORD", PASSWORD)]);
    let outcome = finish(command, b"");
    let log = std::fs::read_to_string(maker.home.path().join("server.log")).unwrap_or_default();
    assert!(outcome.status.success(), "{}\n{}\n{log}", outcome.out, outcome.err);
    assert!(outcome.err.contains("The template is a bundle"), "{}", outcome.err);
    assert!(outcome.out.contains("agent main"), "{}", outcome.out);
    let trace = std::fs::read_to_string(trace).unwrap();
    assert!(trace.contains("connect("), "the trace is of the whole run");
    let asked: Vec<_> = trace.lines().filter(|line| line.contains("htons(53)")).collect();
    assert!(asked.is_empty(), "host names were resolved:\n{}", asked.join("\n"));
}

#[test]
fn a_bundle_runs_without_a_network_and_looks_no_name_up() {
    run_alone(0);
}

/// Too long for the message of a job, so the content of the bundle is downloaded as a file.
#[test]
fn a_large_bundle_runs_without_a_network_too() {
    run_alone(6 << 20);
}

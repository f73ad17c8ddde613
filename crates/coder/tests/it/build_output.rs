//! Output about templates and builds: trees, counts of resources, positions of errors, and warnings.

use crate::end_to_end::write;
use crate::processes::Server;
use crate::program::Home;

const TEMPLATE: &str = r#"
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_workspace" "me" {}
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
}
resource "coder_app" "code" {
  agent_id = coder_agent.main.id
  slug     = "code"
  url      = "http://localhost:8080"
}
resource "terraform_data" "home" {
  input = "kept"
}
resource "terraform_data" "machine" {
  count = data.coder_workspace.me.start_count
  input = "${terraform_data.home.id} ${coder_agent.main.id}"
}
"#;

/// A server with a daemon, and the home of its first user.
fn stack() -> (Server, Home) {
    let server = Server::start(&["--provisioner-daemons=1"]);
    let home = server.first_user();
    (server, home)
}

#[test]
fn trees_and_counts() {
    coder_requirements::require!(Terraform);
    let (_server, home) = stack();
    let template = write(&home, "shown", TEMPLATE);
    let pushed = home.run(&["templates", "push", "shown", "-d", &template, "-y"]).success().err;
    assert!(!pushed.contains(".terraform.lock.hcl"), "its provider versions are fixed: {pushed}");
    for line in [
        "terraform_data.machine (computational, ephemeral)\n└─ agent main (linux, amd64)\n   └─ app code",
        "terraform_data.home (peripheral, persistent)",
    ] {
        assert!(pushed.contains(line), "{line:?} is not in: {pushed}");
    }
    let made = home.run(&["create", "mine", "--template", "shown", "-y"]).success().err;
    assert!(made.contains("[4/4] ") && made.contains("Creation complete"), "{made}");
    let shown = home.run(&["show", "mine"]).success().out;
    assert!(shown.contains("terraform_data.machine (computational, ephemeral)"), "{shown}");
    let stopped = home.run(&["stop", "mine", "-y"]).success().err;
    assert!(stopped.contains("[1/1] terraform_data.machine[0]: Destruction complete"), "{stopped}");
    let shown = home.run(&["show", "mine"]).success().out;
    assert!(shown.contains("terraform_data.home (peripheral, persistent)"), "{shown}");
}

#[test]
fn errors_say_where_they_are() {
    coder_requirements::require!(Terraform);
    let (_server, home) = stack();
    let broken = write(&home, "broken", "resource \"terraform_data\" \"x\" {\n  input = var.nowhere\n}\n");
    let outcome = home.run(&["templates", "push", "broken", "-d", &broken, "-y"]);
    assert_eq!(outcome.status.code(), Some(1));
    let (log, error) = outcome.err.split_once("error: ").unwrap();
    assert!(log.contains("on main.tf line 2") && log.contains("input = var.nowhere"), "{log}");
    assert!(error.contains("on main.tf line 2"), "{error}");
    let (mut stages, cleaned) = (log.lines().filter(|line| line.starts_with("=== ")), "=== ✔ Cleaning Up");
    assert!(stages.next().unwrap().starts_with("=== ✔ Setting up"), "{log}");
    let failed: Vec<_> = log.lines().filter(|line| line.starts_with("=== ✘ ")).collect();
    assert!(matches!(failed[..], [one] if one.contains("Detecting persistent resources")), "{log}");
    assert!(log.contains(cleaned), "{log}");
}

const FAILS: &str = r#"
resource "terraform_data" "x" {
  input = "kept"
  provisioner "local-exec" {
    command = "printf 'red \\033[31mwords\\033[0m \\033]0;title\\007\\n'; exit 3"
  }
}
"#;

#[test]
fn a_failed_build_says_why_and_what_it_leaves() {
    coder_requirements::require!(Terraform);
    let (_server, home) = stack();
    let template = write(&home, "fails", FAILS);
    home.run(&["templates", "push", "fails", "-d", &template, "-y"]).success();
    let made = home.run(&["create", "w", "--template", "fails", "-y"]);
    assert_eq!(made.status.code(), Some(1));
    assert!(made.err.contains("(local-exec): red words \n"), "{}", made.err);
    assert!(!made.err.contains('\u{1b}'), "{}", made.err);
    assert!(!home.run(&["logs", "w"]).success().out.contains('\u{1b}'));
    let shown = home.run(&["show", "w"]).success();
    assert!(shown.out.contains("Failed: terraform apply: exit status 1: local-exec"), "{}", shown.out);
    assert!(shown.err.contains("coder state pull w"), "{}", shown.err);
    assert!(home.run(&["state", "pull", "w"]).success().out.contains("\"status\": \"tainted\""));
    home.run(&["logs", "w", "-n", "7"]).refused("workspace \"w\" has no build 7: its last one is 1");
    home.run(&["state", "pull", "w", "-b", "7"]).refused("has no build 7");
    home.run(&["create", "v", "--template", "fails", "--template-version", "old", "-y"])
        .refused("template fails has no version \"old\": see `coder templates versions list fails`");
}

#[test]
fn a_missing_lock_file_is_mentioned_where_it_matters() {
    let server = Server::start(&[]);
    let home = server.first_user();
    let template = write(&home, "locked", "resource \"docker_container\" \"x\" {\n}\n");
    let push = |flags: &[&str]| {
        // No daemon runs the import.
        let args = [&["templates", "push", "locked", "-d", &template, "--name", "no name"], flags].concat();
        home.run(&args).err
    };
    assert!(push(&["-y"]).contains(
        "the template has no .terraform.lock.hcl, so each import may get other versions of docker"
    ));
    assert!(!push(&["-y", "--ignore-lockfile"]).contains(".terraform.lock.hcl"));
    std::fs::write(home.path().join("locked/.terraform.lock.hcl"), "").unwrap();
    assert!(!push(&["-y"]).contains(".terraform.lock.hcl"));
}

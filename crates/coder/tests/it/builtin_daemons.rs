//! A server that is killed while its built-in daemon works.

use std::time::{Duration, Instant};

use crate::processes::{Process, Server};
use crate::program::Home;

const TEMPLATE: &str = r#"
resource "terraform_data" "first" {
  input = "made before the kill"
}

resource "terraform_data" "slow" {
  depends_on = [terraform_data.first]
  provisioner "local-exec" {
    command = "sleep 600"
  }
}
"#;

/// The grace period of a session is two minutes; the official time limit is five.
const AT_ONCE: Duration = Duration::from_secs(45);

#[test]
fn the_next_process_ends_the_job_at_once_and_keeps_the_state() {
    coder_requirements::require!(Terraform);
    let flags = ["--provisioner-daemons=1"];
    let server = Server::in_home(Home::new(), "127.0.0.1:0", &flags);
    let home = server.first_user();
    let folder = home.path().join("slow");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("main.tf"), TEMPLATE).unwrap();
    home.run(&["templates", "push", "slow", "-y", "-d", folder.to_str().unwrap()]).success();
    let mut create = Process::start(&home, &["create", "mine", "--template", "slow", "-y"], "create.log");
    // The state of the first resource is written by then.
    create.wait_for_log("terraform_data.slow: Still creating");
    let address = server.url.strip_prefix("http://").unwrap().to_owned();
    server.process.signal("KILL");
    let server = server.restart_with(&address, &flags);
    let began = Instant::now();
    assert!(!create.end().success());
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    assert!(create.log().contains("daemon lost"), "{}", create.log());
    let state = home.run(&["state", "pull", "mine"]).success().out;
    assert!(state.contains("made before the kill"), "{state}");
    // No process of the build is left, and the daemon works.
    let deleted = home.run(&["delete", "mine", "-y"]).success();
    assert!(deleted.err.contains("terraform_data.first"), "{}", deleted.err);
    drop(server);
}

//! SIGKILL of Terraform, of the daemon, or of both at random instants of an apply. Every state that was written 250 ms
//! before is on the server, the newest state is there after the daemon has restarted on the same disk, and a deletion
//! removes all recorded resources.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::end_to_end::{json, write};
use crate::processes::{Server, WAIT_LIMIT};
use crate::program::{Home, until};

/// A state that was written this long before a kill must be on the server.
const LOSS_WINDOW: Duration = Duration::from_millis(250);

/// How long an apply takes. Kills happen during it and shortly after.
const SPAN_MS: u64 = 2_500;

/// Creates this many pairs of resources: one whose destruction removes a file, and one that creates the file after the
/// first one was recorded.
const PAIRS: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Terraform,
    Daemon,
    Both,
}

/// The history of a state file: serials in order, each with the time when it was first seen.
struct Watch {
    work: PathBuf,
    seen: Vec<(u64, Instant)>,
}

impl Watch {
    /// Reads the file once.
    fn look(&mut self) {
        let Some(serial) = self.file().and_then(|file| serial(&std::fs::read(file).ok()?)) else { return };
        if self.seen.last().is_none_or(|(last, _)| *last < serial) {
            self.seen.push((serial, Instant::now()));
        }
    }

    fn session(&self) -> Option<PathBuf> {
        let entries = std::fs::read_dir(&self.work).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).find(|path| path.is_dir())
    }

    fn file(&self) -> Option<PathBuf> {
        Some(self.session()?.join("template/terraform.tfstate"))
    }

    /// The last serial that was written this long before `at`.
    fn before(&self, at: Instant) -> u64 {
        self.seen.iter().rev().find(|(_, seen)| *seen + LOSS_WINDOW <= at).map_or(0, |(serial, _)| *serial)
    }

    fn newest(&self) -> u64 {
        self.seen.last().map_or(0, |(serial, _)| *serial)
    }
}

fn serial(state: &[u8]) -> Option<u64> {
    serde_json::from_slice::<Value>(state).ok()?["serial"].as_u64()
}

const PROVIDER: &str = r#"
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_workspace" "me" {}
"#;

fn template(files: &Path) -> String {
    let mut text = String::from(PROVIDER);
    for pair in 0..PAIRS {
        let after =
            if pair < 2 { String::new() } else { format!("depends_on = [terraform_data.make{}]", pair - 2) };
        text += &format!(
            r#"
resource "terraform_data" "keep{pair}" {{
  {after}
  input = "{files}/${{data.coder_workspace.me.name}}-{pair}"
  provisioner "local-exec" {{
    when    = destroy
    command = "rm -f '${{self.input}}'"
  }}
}}
resource "terraform_data" "make{pair}" {{
  depends_on = [terraform_data.keep{pair}]
  provisioner "local-exec" {{
    command = "sleep 0.{pair}1; echo x > '{files}/${{data.coder_workspace.me.name}}-{pair}'; sleep 0.1"
  }}
}}
"#,
            files = files.display()
        );
    }
    text
}

/// Processes that run an apply for a job in this directory.
fn applies(work: &Path) -> Vec<u32> {
    let marker = format!("CODER_PROVISIONER_WORK_DIR={}", work.display());
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let runs = |pid: &u32| {
        let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let command = read("cmdline");
        let mut words = command.split(|byte| *byte == 0);
        let is_apply = words.next().is_some_and(|program| program.ends_with(b"terraform"))
            && words.next() == Some(b"apply");
        is_apply && String::from_utf8_lossy(&read("environ")).contains(&marker)
    };
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(runs).collect()
}

fn kill(pids: &[u32]) {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    // A process that has just ended is ignored.
    let _ = Command::new("kill").args(["-s", "KILL"]).args(&pids).stderr(Stdio::null()).status();
}

fn random(below: u64) -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).unwrap();
    u64::from_ne_bytes(bytes) % below
}

fn on_server(home: &Home, name: &str) -> u64 {
    serial(home.run(&["state", "pull", name]).success().out.as_bytes()).unwrap_or(0)
}

#[test]
fn no_state_is_lost_when_terraform_or_the_daemon_is_killed() {
    coder_requirements::require!(Terraform);
    let rounds = if std::env::var("CODER_TEST_LONG").as_deref() == Ok("1") { 100 } else { 6 };
    // The server notices the daemon's end at once by its connection. No other daemon takes its job meanwhile.
    let server = Server::start(&["--daemon-grace=3s"]);
    let home = server.first_user();
    let files = tempfile::tempdir().unwrap();
    let directory = write(&home, "ten", &template(files.path()));
    let cache = home.path().join("cache-fragile");
    let mut daemon = server.daemon(&home, "fragile", &[]);
    home.run(&["templates", "push", "ten", "-y", "-d", &directory]).success();
    let victims = [Victim::Terraform, Victim::Daemon, Victim::Both];
    for round in 0..rounds {
        let (victim, name) = (victims[round % victims.len()], format!("w{round}"));
        let mut watch = Watch { work: cache.join("work"), seen: Vec::new() };
        let mut create = home.command(&["create", &name, "--template", "ten", "-y"]);
        create.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut create = create.spawn().unwrap();
        let session = until(WAIT_LIMIT, || watch.session().filter(|session| !applies(session).is_empty()));
        let session =
            session.unwrap_or_else(|| panic!("no apply started; the daemon's log: {}", daemon.log()));
        let until_kill = Instant::now() + Duration::from_millis(random(SPAN_MS));
        while Instant::now() < until_kill {
            watch.look();
        }
        let terraform = applies(&session);
        let at = Instant::now();
        match victim {
            Victim::Terraform => kill(&terraform),
            Victim::Daemon => daemon.signal("KILL"),
            Victim::Both => {
                daemon.signal("KILL");
                kill(&terraform);
            }
        }
        let promised = watch.before(at);
        // States that Terraform writes after its daemon was killed count too, until the next daemon ends it.
        watch.look();
        if victim != Victim::Terraform {
            daemon.end();
        }
        let _ = create.wait();
        let failed = json(&home, &["show", &name])["latest_build"]["status"].as_str() == Some("failed");
        let kept = on_server(&home, &name);
        assert!(
            kept >= promised,
            "round {round}, {victim:?}: {kept} is on the server, {promised} was promised"
        );
        if victim == Victim::Terraform {
            assert!(
                kept >= watch.newest(),
                "round {round}: {kept} is on the server, {:?} was written",
                watch.newest()
            );
        } else {
            watch.look();
            daemon = server.daemon(&home, "fragile", &[]);
            // The directory is removed when its state is on the server.
            let gone = until(WAIT_LIMIT, || watch.session().is_none().then_some(()));
            assert!(gone.is_some(), "round {round}: the state stays on the disk: {}", daemon.log());
            let kept = on_server(&home, &name);
            assert!(
                kept >= watch.newest(),
                "round {round}, {victim:?}: {kept} is there, not {}",
                watch.newest()
            );
        }
        eprintln!(
            "round {round}: {victim:?} killed at serial {}, promised {promised}, the server has {}, failed {failed}",
            watch.newest(),
            on_server(&home, &name)
        );
        home.run(&["delete", &name, "-y"]).success();
        let left: Vec<_> =
            std::fs::read_dir(files.path()).unwrap().map(|file| file.unwrap().path()).collect();
        assert_eq!(left, Vec::<PathBuf>::new(), "round {round}, {victim:?}: files outlived the workspace");
    }
    drop(daemon);
    server.home().run(&["server", "check"]).success();
}

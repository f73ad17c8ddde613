//! Signals to a daemon with a running job do not reach its Terraform. Also checks the exit codes.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use coder_api::jobs::Status;
use coder_api::versions::TemplateVersion;

use crate::crash_recovery::{
    Api, SMALL_TEMPLATE, order_as, processes_of_jobs, wait_for_file, wait_for_status_of,
};
use crate::durability::archive;
use crate::end_to_end::json;
use crate::processes::{Process, Server, WAIT_LIMIT};
use crate::program::{Home, until};

/// A server, and a daemon that runs a build whose script waits for a file.
struct Busy {
    daemon: Process,
    server: Server,
    home: Home,
}

/// Name of the daemon.
const DAEMON: &str = "busy";

/// Records each received signal. A shell runs its traps after the current command has ended.
const TRAP_SIGNALS: &str = "for s in INT TERM HUP QUIT; do trap 'echo '$s' >> heard' $s; done";

impl Busy {
    /// In its own process group, as a shell would start it.
    fn new(server_flags: &[&str]) -> Self {
        let server = Server::start(server_flags);
        let home = server.first_user();
        let cache = home.path().join("cache");
        let start = ["provisioner", "start", "--name", DAEMON, "--cache-dir", cache.to_str().unwrap()];
        let mut command = home.command(&start);
        // So that a signal can be sent like from a terminal.
        command.process_group(0);
        let mut daemon = Process::spawn(&home, command, "daemon.log");
        daemon.wait_for_log("successfully connected to coderd");
        let busy = Self { daemon, server, home };
        busy.order("w");
        wait_for_file(&busy.at("applying"));
        busy
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.home.path().join(name)
    }

    fn order(&self, name: &str) {
        let place = self.home.path().display();
        let script = format!(
            "cd {place}; {TRAP_SIGNALS}; : > applying; while [ ! -e gate ]; do sleep 0.05; done; echo through the gate"
        );
        order_as(&self.home, name, &script);
    }

    fn open(&self) {
        std::fs::write(self.at("gate"), "").unwrap();
    }

    fn heard(&self) -> String {
        std::fs::read_to_string(self.at("heard")).unwrap_or_default()
    }

    /// Sends a signal to the whole process group, as a terminal does with Ctrl-C.
    fn signal_group(&self, name: &str) {
        let group = format!("-{}", self.daemon.id());
        let status = Command::new("kill").args(["-s", name, "--", &group]).status().unwrap();
        assert!(status.success());
    }

    /// The job succeeded, and the daemon ended after it.
    #[track_caller]
    fn finishes(&mut self) {
        self.open();
        assert_eq!(self.daemon.end().code(), Some(0), "{}", self.daemon.log());
        let build = wait_for_status_of(&self.home, "w", "running");
        assert_eq!(build["job"]["status"], Status::Succeeded.as_str());
        assert!(self.home.run(&["logs", "-f", "w"]).success().out.contains("through the gate"));
        assert_eq!(self.heard(), "", "no signal reached Terraform's processes");
    }

    fn processes(&self) -> Vec<String> {
        processes_of_jobs(&self.at("cache"))
    }

    #[track_caller]
    fn nothing_runs_on(&self) {
        let gone = until(WAIT_LIMIT, || self.processes().is_empty().then_some(()));
        assert!(gone.is_some(), "{:?}", self.processes());
    }
}

#[test]
fn hangup_and_termination_of_the_whole_group_finish_the_job() {
    coder_requirements::require!(Terraform);
    for signal in ["HUP", "TERM"] {
        let mut busy = Busy::new(&[]);
        busy.signal_group(signal);
        busy.daemon.wait_for_log("attempting graceful shutdown");
        busy.finishes();
    }
}

/// A container runtime signals the group, and the shell that started the daemon forwards the signal.
#[test]
fn a_termination_that_arrives_twice_is_one() {
    coder_requirements::require!(Terraform);
    let mut busy = Busy::new(&[]);
    let (id, group) = (busy.daemon.id().to_string(), format!("-{}", busy.daemon.id()));
    let both = format!("kill -s TERM -- {group}; kill -s HUP {id}; kill -s TERM {id}");
    assert!(Command::new("sh").args(["-c", &both]).status().unwrap().success());
    busy.daemon.wait_for_log("attempting graceful shutdown");
    busy.finishes();
}

#[test]
fn an_interrupt_cancels_in_good_order_and_exits_0() {
    coder_requirements::require!(Terraform);
    let mut busy = Busy::new(&[]);
    busy.signal_group("INT");
    busy.daemon.wait_for_log("attempting graceful cancellation");
    assert_eq!(busy.daemon.end().code(), Some(0), "{}", busy.daemon.log());
    let list = json(&busy.home, &["list"]);
    let job = &list[0]["latest_build"]["job"];
    assert!(job["completed_at"].is_string(), "{job}");
    // Terraform may forward its interrupt to its processes. No other signal arrives.
    assert!(["", "INT\n"].contains(&busy.heard().as_str()), "{}", busy.heard());
    busy.nothing_runs_on();
}

#[test]
fn a_second_signal_forces_and_a_quit_kills() {
    coder_requirements::require!(Terraform);
    // A drain, because a graceful cancel may end before a second signal counts.
    let mut busy = Busy::new(&[]);
    busy.daemon.signal("TERM");
    busy.daemon.wait_for_log("attempting graceful shutdown");
    assert_eq!(busy.daemon.signal_again("INT").code(), Some(1), "{}", busy.daemon.log());
    busy.nothing_runs_on();
    let build = wait_for_status_of(&busy.home, "w", "failed");
    assert!(build["job"]["completed_at"].is_string(), "a forced cancel is still reported: {build}");

    // SIGQUIT ends everything at once. The job is lost, and the server reports it as lost.
    let mut busy = Busy::new(&["--daemon-grace", "1s"]);
    busy.daemon.signal("QUIT");
    assert_eq!(busy.daemon.end().code(), Some(1), "{}", busy.daemon.log());
    busy.nothing_runs_on();
    let build = wait_for_status_of(&busy.home, "w", "failed");
    assert!(build["job"]["error"].as_str().unwrap().contains("daemon lost"), "{build}");
}

#[test]
fn drained_from_afar_it_finishes_its_job_and_takes_no_other() {
    coder_requirements::require!(Terraform);
    let mut busy = Busy::new(&[]);
    busy.home.run(&["provisioner", "drain", DAEMON]).success();
    busy.daemon.wait_for_log("attempting graceful shutdown");
    let listed = busy.home.run(&["provisioner", "list"]).success().out;
    assert!(listed.contains("busy, draining"), "{listed}");
    Api::new(&busy.server, &busy.home).create("scripted-w", "next");
    let out = busy.home.run(&["provisioner", "jobs", "list", "--explain"]).success().out;
    assert!(out.contains("  draining: "), "{out}");
    busy.finishes();
    let build = wait_for_status_of(&busy.home, "next", "pending");
    assert!(build["job"]["started_at"].is_null(), "{build}");
    busy.server.home().run(&["server", "check"]).success();
}

#[test]
fn once_is_one_job() {
    coder_requirements::require!(Terraform);
    let server = Server::start(&[]);
    let home = server.first_user();
    let api = Api::new(&server, &home);
    let mut first = server.daemon(&home, DAEMON, &["--once"]);
    let jobs = [api.import_of(archive(SMALL_TEMPLATE), &[]), api.import_of(archive(SMALL_TEMPLATE), &[])];
    assert_eq!(first.end().code(), Some(0), "{}", first.log());
    let done = |version: &TemplateVersion| {
        let found = api.run(async |client| client.version(version.id).await).unwrap();
        found.job.status
    };
    assert_eq!(jobs.each_ref().map(done), [Status::Succeeded, Status::Pending]);
    let mut second = server.daemon(&home, DAEMON, &["--once"]);
    assert_eq!(second.end().code(), Some(0), "{}", second.log());
    assert_eq!(jobs.each_ref().map(done), [Status::Succeeded; 2]);
    // A daemon without a job waits, and ends on the signal.
    let mut third = server.daemon(&home, DAEMON, &["--once"]);
    third.signal("TERM");
    assert_eq!(third.end().code(), Some(0), "{}", third.log());
}

#[test]
fn a_credential_that_never_works_is_an_error_with_a_hint_and_exit_77() {
    let server = Server::start(&[]);
    let mut home = Home::new();
    home.set("CODER_URL", &server.url).set("CODER_PROVISIONER_DAEMON_KEY", "k".repeat(43));
    let outcome = home.run(&["provisioner", "start"]);
    assert_eq!(outcome.status.code(), Some(77), "{}", outcome.err);
    let errors: Vec<_> = outcome.err.lines().filter(|line| !line.contains(" [info] ")).collect();
    let [error, hint] = &errors[..] else { panic!("{}", outcome.err) };
    assert!(hint.starts_with("hint: make another key with `coder provisioner keys create"), "{hint}");
    assert!(
        error.contains(
            "the provisioner key was deleted, has expired, is not complete, or is a key of another server"
        ) && !outcome.err.contains(&"k".repeat(43)),
        "{}",
        outcome.err
    );
}

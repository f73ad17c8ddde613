//! Daemons killed with SIGKILL at random points of a build, alone and together with their server: each job ends once, the
//! newest state is kept, at most the last moment of the log is missing, and a deletion leaves nothing behind.
//! `CODER_TEST_LONG=1` kills 50 daemons.

use std::time::{Duration, Instant, SystemTime};

use coder_api::builds::WorkspaceBuild;
use coder_api::jobs::Status;
use coder_domain::clock::{Clock as _, SystemClock};
use coder_testkit::random::{Random, count};

use crate::crash_recovery::processes_of_jobs;
use crate::fault_fixture::{FaultFixture, on_postgres, on_sqlite};
use crate::log_template::{LogTemplate, WorkspaceFiles};
use crate::processes::WAIT_LIMIT;
use crate::program::{Home, until};

/// What was written this long before a kill may be missing.
const LOSS_WINDOW: Duration = Duration::from_millis(250);

/// The delay between the output of a script and its arrival at the daemon, through a shell, Terraform and the
/// scheduler.
const ARRIVAL_DELAY: Duration = Duration::from_millis(500);

/// The time in which a lost daemon may reconnect.
const GRACE: Duration = Duration::from_secs(2);

/// What happens after a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The daemon restarts at once.
    Quick,
    /// The daemon restarts after the server has ended the job.
    Late,
    /// The server is killed at the same moment.
    Both,
}

/// The largest observed values.
#[derive(Debug, Default)]
struct Seen {
    failed: usize,
    succeeded: usize,
    missing_lines: usize,
    oldest_missing: Duration,
}

/// What Terraform had done when the daemon was killed.
struct AtKill {
    at: SystemTime,
    said: Vec<SystemTime>,
    things: Vec<(usize, SystemTime)>,
}

impl AtKill {
    fn now(place: &WorkspaceFiles) -> Self {
        Self { said: place.said(), things: place.things(), at: SystemClock.now().into() }
    }

    fn age(&self, of: SystemTime) -> Duration {
        self.at.duration_since(of).unwrap_or_default()
    }
}

/// The steps in a stored state.
fn steps(rig: &FaultFixture, build: &WorkspaceBuild) -> Vec<usize> {
    let state = rig.api.run(async |client| client.build_state(build.id).await).unwrap();
    let state: serde_json::Value = serde_json::from_slice(&state.0).unwrap_or_default();
    let resources = state["resources"].as_array().cloned().unwrap_or_default();
    let step = |resource: &serde_json::Value| resource["name"].as_str()?.strip_prefix("step_")?.parse().ok();
    resources.iter().filter_map(step).collect()
}

/// The log of a lost job: from the first line on, without gaps, up to shortly before the kill.
fn is_told(rig: &FaultFixture, build: &WorkspaceBuild, kill: &AtKill, seen: &mut Seen) {
    let numbered_lines = rig.numbered_lines(build);
    let expected = rig.log_template.expected();
    assert!(expected.starts_with(&numbered_lines), "each line once, in order: {numbered_lines:?}");
    // Each numbered line has an identical one after it.
    let told = numbered_lines.len() / 2;
    seen.missing_lines = seen.missing_lines.max(kill.said.len().saturating_sub(told));
    if let Some(first) = kill.said.get(told) {
        let age = kill.age(*first);
        seen.oldest_missing = seen.oldest_missing.max(age);
        assert!(age < LOSS_WINDOW + ARRIVAL_DELAY, "a line of {age:?} before the kill is missing");
    }
}

/// A build whose daemon is killed after this time.
fn killed(rig: &mut FaultFixture, name: &str, kind: Kind, after: Duration, seen: &mut Seen) {
    let mut daemon = rig.daemon();
    let place = rig.order(name);
    std::thread::park_timeout(after);
    let kill = AtKill::now(&place);
    daemon.signal("KILL");
    if kind == Kind::Both {
        rig.kill_server();
    }
    daemon.end();
    if kind == Kind::Both {
        rig.restart_server();
    }
    let began = until(WAIT_LIMIT, || rig.build(name)).unwrap();
    if kind == Kind::Late && began.job.status != Status::Pending {
        let build = rig.ended(name);
        if build.job.status == Status::Failed {
            // The state that had been sent by then, without the disk of the daemon's machine.
            let known = steps(rig, &build);
            for (step, at) in &kill.things {
                let is_old = kill.age(*at) > LOSS_WINDOW + ARRIVAL_DELAY;
                assert!(!is_old || known.contains(step), "step {step} is not in {known:?}");
            }
        }
    }
    let next = rig.daemon();
    let build = rig.ended(name);
    if build.job.status == Status::Succeeded {
        seen.succeeded += 1;
        rig.succeeded_once(name, &place);
    } else {
        seen.failed += 1;
        assert_eq!(build.job.status, Status::Failed, "{:?}", build.job);
        assert!(build.job.error.contains("daemon lost"), "{:?}", build.job);
        is_told(rig, &build, &kill, seen);
        let runs = place.runs();
        assert!((1..).zip(&runs).all(|(wanted, step)| wanted == *step), "Terraform ran once: {runs:?}");
        // The next process reports what Terraform did after its daemon was killed.
        let made = || place.things().into_iter().map(|(step, _)| step);
        let is_known = || {
            let known = steps(rig, &build);
            made().all(|step| known.contains(&step))
        };
        let saved = until(WAIT_LIMIT, || is_known().then_some(()));
        assert!(saved.is_some(), "{:?} of {:?}\n{}", steps(rig, &build), place.things(), next.log());
        let again = rig.build(name).unwrap();
        assert_eq!((again.id, &again.job), (build.id, &build.job), "it ended once");
    }
    let cache = rig.cache();
    let left = until(WAIT_LIMIT, || processes_of_jobs(&cache).is_empty().then_some(()));
    assert!(left.is_some(), "{:?}", processes_of_jobs(&cache));
    rig.delete(name, &place);
    let clean = until(WAIT_LIMIT, || sessions(rig).is_empty().then_some(()));
    assert!(clean.is_some(), "{:?}", sessions(rig));
}

/// Directories of jobs on the daemon's disk.
fn sessions(rig: &FaultFixture) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(rig.cache().join("work")).unwrap().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

fn lose(mut home: Home) {
    coder_requirements::require!(Terraform);
    let mut random = Random::new();
    eprintln!("CODER_TEST_SEED={}", random.seed());
    home.set("CODER_DAEMON_GRACE", format!("{}s", GRACE.as_secs()));
    let mut rig = FaultFixture::new(home, LogTemplate::new(3, 12, Duration::from_millis(25)));
    // How long an undisturbed build takes here.
    let daemon = rig.daemon();
    let begun = Instant::now();
    let place = rig.order("calm");
    rig.succeeded_once("calm", &place);
    let whole = begun.elapsed();
    rig.delete("calm", &place);
    drop(daemon);
    let mut seen = Seen::default();
    let kills = count(3, 50);
    for round in 0..kills {
        let kind = [Kind::Quick, Kind::Late, Kind::Both][round % 3];
        // In the short form most kills hit a running Terraform.
        let after = if kills > 3 || round == 2 {
            random.time_below(whole)
        } else {
            whole / 2 + random.time_below(whole / 2)
        };
        killed(&mut rig, &format!("w{round}"), kind, after, &mut seen);
    }
    rig.check();
    eprintln!("{kills} kills in builds of {whole:?}: {seen:?}");
}

#[test]
fn builds_of_killed_daemons_on_sqlite() {
    on_sqlite(lose);
}

#[test]
fn builds_of_killed_daemons_on_postgres() {
    on_postgres(lose);
}

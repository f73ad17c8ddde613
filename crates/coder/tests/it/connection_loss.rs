//! Connections cut at random and servers killed in the middle of a build: one run of Terraform, one result, one owner, and
//! every line once, in order. `CODER_TEST_LONG=1` runs the long form: 50 cuts in a build of a minute.

use std::time::{Duration, Instant};

use coder_testkit::proxy::Disconnect;
use coder_testkit::random::{Random, count, is_long};

use crate::crash_recovery::wait_for_file;
use crate::fault_fixture::{FaultFixture, on_postgres, on_sqlite};
use crate::log_template::{LogTemplate, WorkspaceFiles};
use crate::processes::WAIT_LIMIT;
use crate::program::{Home, until};

/// A cut comes after at most this many further bytes.
const MAX_BYTES_TO_CUT: u64 = 600;

/// The longest time until a killed server is restarted.
const MAX_OUTAGE: Duration = Duration::from_millis(500);

fn log_template() -> LogTemplate {
    let log_template = if is_long() {
        LogTemplate::new(6, 80, Duration::from_millis(115))
    } else {
        LogTemplate::new(3, 12, Duration::from_millis(30))
    };
    log_template.gated()
}

/// Cuts this many connections, one after the other, spread over about this time.
fn cut(rig: &FaultFixture, random: &mut Random, cuts: usize, over: Duration) {
    let gap = over / u32::try_from(cuts.max(1)).unwrap() * 2;
    let goal = rig.proxy.disconnects() + cuts;
    while rig.proxy.disconnects() < goal {
        assert!(rig.api.runtime.block_on(rig.proxy.connected(WAIT_LIMIT)), "the daemon reconnects");
        std::thread::park_timeout(random.time_below(gap));
        let how = if random.below(2) == 0 { Disconnect::Close } else { Disconnect::Reset };
        let after = if random.below(2) == 0 { 0 } else { random.below(MAX_BYTES_TO_CUT) };
        let before = rig.proxy.disconnects();
        rig.proxy.disconnect(how, usize::try_from(after).unwrap());
        // A connection that just ended by itself does not count. The next one is cut instead.
        until(Duration::from_secs(5), || (rig.proxy.disconnects() > before).then_some(()));
    }
}

/// Waits until this part of all lines has arrived.
fn has_logged(rig: &FaultFixture, place: &WorkspaceFiles, share: f64) {
    let wanted = (rig.log_template.size() as f64 * share) as usize;
    let said = until(WAIT_LIMIT * 2, || (place.said().len() >= wanted).then_some(()));
    assert!(said.is_some(), "Terraform goes on");
}

fn kill_and_restart(rig: &mut FaultFixture, random: &mut Random) {
    rig.kill_server();
    std::thread::park_timeout(random.time_below(MAX_OUTAGE));
    rig.restart_server();
}

/// Cuts connections while Terraform prints, and some more while the result is sent.
fn under_cuts(rig: &FaultFixture, random: &mut Random) {
    let name = "cut";
    let begun = Instant::now();
    let place = rig.order(name);
    let cuts = count(8, 50);
    cut(rig, random, cuts, if is_long() { Duration::from_secs(50) } else { Duration::from_secs(2) });
    place.open();
    let mut after = 0;
    while after < cuts / 4 && rig.build(name).is_some_and(|build| build.job.completed_at.is_none()) {
        cut(rig, random, 1, Duration::from_millis(300));
        after += 1;
    }
    rig.succeeded_once(name, &place);
    eprintln!("{} cuts in {:?}", cuts + after, begun.elapsed());
    rig.delete(name, &place);
}

/// The server is killed twice in a build.
fn under_kills(rig: &mut FaultFixture, random: &mut Random) {
    let name = "killed";
    let place = rig.order(name);
    for share in [0.2, 0.6] {
        has_logged(rig, &place, share);
        kill_and_restart(rig, random);
    }
    place.open();
    rig.succeeded_once(name, &place);
    rig.delete(name, &place);
}

/// Both faults at once. The result also arrives at a server that was just killed.
fn under_both(rig: &mut FaultFixture, random: &mut Random) {
    let name = "both";
    let place = rig.order(name);
    let cuts = count(3, 20);
    let over = if is_long() { Duration::from_secs(20) } else { Duration::from_millis(600) };
    for share in [0.1, 0.5] {
        has_logged(rig, &place, share);
        cut(rig, random, cuts, over);
        kill_and_restart(rig, random);
    }
    wait_for_file(&place.at("at-gate"));
    place.open();
    std::thread::park_timeout(random.time_below(Duration::from_millis(150)));
    kill_and_restart(rig, random);
    rig.succeeded_once(name, &place);
    rig.delete(name, &place);
}

fn storm(home: Home) {
    coder_requirements::require!(Terraform);
    let mut random = Random::new();
    eprintln!("CODER_TEST_SEED={}", random.seed());
    let mut rig = FaultFixture::new(home, log_template());
    let daemon = rig.daemon();
    under_cuts(&rig, &mut random);
    under_kills(&mut rig, &mut random);
    under_both(&mut rig, &mut random);
    rig.check();
    assert!(!daemon.log().contains("panic"), "{}", daemon.log());
}

#[test]
fn builds_outlive_cuts_and_killed_servers_on_sqlite() {
    on_sqlite(storm);
}

#[test]
fn builds_outlive_cuts_and_killed_servers_on_postgres() {
    on_postgres(storm);
}

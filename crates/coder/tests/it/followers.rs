//! Two servers on one Postgres: a daemon works on one, and a user follows its build on the other. Lines and the end
//! arrive there within about a second, also after the first server was killed and restarted, and without notifications
//! between the servers.

use std::time::{Duration, SystemTime};

use coder_api::client::JobLogTarget;
use coder_store::testing;

use crate::crash_recovery::Api;
use crate::durability::runtime;
use crate::fault_fixture::FaultFixture;
use crate::log_template::LogTemplate;
use crate::processes::{Server, WAIT_LIMIT};
use crate::program::{Home, until};

/// Polling runs once a second; the rest is for a busy machine. Heartbeats between servers are sent every 20 seconds.
const MAX_LAG: Duration = Duration::from_secs(5);
/// The number of lines of the build, and the time between two lines.
const BUILD_LINES: usize = 200;
const LINE_INTERVAL: Duration = Duration::from_millis(100);

/// When each line arrived on the other server, and when the log ended there.
type Heard = (Vec<(SystemTime, String)>, SystemTime);

#[expect(clippy::disallowed_methods, reason = "compared with the time that the template's shell prints")]
fn now() -> SystemTime {
    SystemTime::now()
}

fn follow(variable: Option<(&str, &str)>) {
    coder_requirements::require!(Terraform);
    let Some(database) = runtime().block_on(testing::postgres()) else { return };
    let coder_store::Location::Postgres(url) = &database.location else { unreachable!("asked for Postgres") };
    let homes = [(); 2].map(|()| {
        let mut home = Home::new();
        home.set("CODER_PG_CONNECTION_URL", url.expose());
        variable.map(|(name, value)| home.set(name, value));
        home
    });
    let [home, beside] = homes;
    let mut rig = FaultFixture::new(home, LogTemplate::new(1, BUILD_LINES, LINE_INTERVAL));
    let other = Server::in_home(beside, "127.0.0.1:0", &[]);
    let there = Api::new(&other, &rig.home);
    let _daemon = rig.daemon();
    let place = rig.order("w");
    let build = until(WAIT_LIMIT, || rig.build("w")).unwrap();
    let follower = there.runtime.spawn({
        let mut log = there.client.follow_job_logs(JobLogTarget::Build(build.id), 0);
        async move {
            let mut heard = Vec::new();
            while let Some(line) = log.next().await.unwrap() {
                heard.push((now(), line.output));
            }
            (heard, now())
        }
    });
    assert!(
        until(WAIT_LIMIT * 2, || (place.said().len() >= 10).then_some(())).is_some(),
        "it does not start"
    );
    rig.kill_server();
    rig.restart_server();
    let back = now();
    rig.ended("w");
    let ended = now();
    let (heard, over): Heard = there.runtime.block_on(follower).unwrap();
    let late = over.duration_since(ended).unwrap_or_default();
    assert!(late < MAX_LAG, "the end came {late:?} late");
    // Lines from the outage arrive after its daemon has reconnected.
    let settled = back + MAX_LAG;
    let (mut compared, mut worst) = (0, Duration::ZERO);
    for (number, said) in (1..).zip(place.said()) {
        if said < settled {
            continue;
        }
        let words = format!("line 1.{number}.");
        let (at, _) = heard.iter().find(|(_, output)| output.ends_with(&words)).unwrap();
        let lag = at.duration_since(said).unwrap_or_default();
        (compared, worst) = (compared + 1, worst.max(lag));
    }
    eprintln!("{compared} lines compared, the last to arrive took {worst:?}; the end {late:?}");
    assert!(compared > 0, "the build ended before the server was back");
    assert!(worst < MAX_LAG, "a line came {worst:?} late");
}

#[test]
fn a_follower_hears_on_though_the_other_server_was_killed_and_started_again() {
    follow(None);
}

#[test]
fn a_follower_hears_within_a_second_though_no_server_hears_another() {
    follow(Some(("CODER_DANGEROUS_DROP_WAKE_UPS", "true")));
}

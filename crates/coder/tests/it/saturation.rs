//! As many builds at once as there are daemons. The next one shows its position and what it waits for, and starts when
//! a build ends. `CODER_TEST_LONG=1` has the 30 real daemons of the documentation.

use std::time::Duration;

use coder_api::client::JobFilter;
use coder_api::jobs::Status;
use coder_testkit::random::count;

use crate::crash_recovery::{Api, wait_for_file};
use crate::fault_fixture::{on_postgres, on_sqlite};
use crate::log_template::LogTemplate;
use crate::processes::Server;
use crate::program::{Home, until};

/// Longest time for all builds together.
const BUILDS_LIMIT: Duration = Duration::from_secs(600);

fn crowd(home: Home) {
    coder_requirements::require!(Terraform);
    let daemons = count(3, 30);
    let server = Server::in_home(home, "127.0.0.1:0", &[]);
    let home = server.first_user();
    let api = Api::new(&server, &home);
    let processes: Vec<_> =
        (0..daemons).map(|number| server.daemon(&home, &format!("d{number}"), &[])).collect();
    let log_template = LogTemplate::new(1, 2, Duration::from_millis(10)).gated();
    log_template.push(&home, "log-template", &[]);
    let create = |name: &str| {
        let place = log_template.place(name);
        api.create("log-template", name);
        place
    };
    let places: Vec<_> = (0..daemons).map(|number| create(&format!("w{number}"))).collect();
    for place in &places {
        let at_gate = until(BUILDS_LIMIT, || place.at("at-gate").exists().then_some(()));
        assert!(at_gate.is_some(), "every build runs at the same time");
    }
    let last = create("last");
    let waiting = || {
        let filter = JobFilter { status: vec!["pending".to_owned()], ..JobFilter::default() };
        api.run(async |client| client.jobs(api.organization, &filter).await).unwrap()
    };
    let [job] = &waiting()[..] else { panic!("one job waits: {:?}", waiting()) };
    assert_eq!((job.queue_position, job.queue_size, job.available_workers.len()), (1, 1, daemons));
    let explained = api.run(async |client| client.explain_job(api.organization, job.id).await);
    let reasons = explained.unwrap().unwrap().reasons;
    assert_eq!(reasons.iter().map(|reason| reason.code.as_str()).collect::<Vec<_>>(), ["busy"]);
    let words = format!(
        "All {daemons} daemons that can run the job are busy ({daemons} slots): position 1 of 1, oldest running since 20"
    );
    assert!(reasons[0].message.starts_with(&words), "{}", reasons[0].message);
    let out = home.run(&["provisioner", "jobs", "list", "--explain"]).success().out;
    assert!(out.contains(&format!("  busy: {words}")), "{out}");

    // One build ends, and the last one gets its daemon.
    places[0].open();
    wait_for_file(&last.at("at-gate"));
    assert_eq!(waiting(), []);
    for place in places.iter().chain([&last]) {
        place.open();
    }
    let names = (0..daemons).map(|number| format!("w{number}")).chain(["last".to_owned()]);
    let mut workers = Vec::new();
    for name in names {
        let build = until(BUILDS_LIMIT, || {
            let found = api.run(async |client| client.workspace_by_name("me", &name).await).unwrap();
            Some(found.latest_build).filter(|build| build.job.completed_at.is_some())
        });
        let job = build.unwrap().job;
        assert_eq!((job.status, job.error.as_str()), (Status::Succeeded, ""), "{name}");
        workers.push(job.worker_id.unwrap());
    }
    let first = workers.iter().take(daemons).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(first.len(), daemons, "each daemon had one build");
    assert_eq!(workers[daemons], workers[0], "the last build got the first free daemon");
    server.home().run(&["server", "check"]).success();
    for mut process in processes {
        process.signal("TERM");
        assert!(process.end().success(), "{}", process.log());
    }
}

#[test]
fn one_more_build_than_daemons_on_sqlite() {
    on_sqlite(crowd);
}

#[test]
fn one_more_build_than_daemons_on_postgres() {
    on_postgres(crowd);
}

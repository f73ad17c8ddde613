//! Keys under running builds: deleting one ends its daemons' sessions and jobs at once, rotating one interrupts nothing.

use std::time::{Duration, Instant};

use coder_api::jobs::Status;
use coder_api::keys::RotateProvisionerKeyRequest;

use crate::crash_recovery::{Api, processes_of_jobs, wait_for_file, wait_for_status_of};
use crate::fault_fixture::{on_postgres, on_sqlite};
use crate::log_template::LogTemplate;
use crate::processes::{Process, Server, WAIT_LIMIT};
use crate::program::Home;

/// A home that knows the server and this key.
fn elsewhere(server: &Server, key: &str) -> Home {
    let mut home = Home::new();
    home.set("CODER_URL", &server.url).set("CODER_PROVISIONER_DAEMON_KEY", key);
    home
}

fn new_key(home: &Home, name: &str) -> String {
    home.run(&["provisioner", "keys", "create", name]).success().out.lines().last().unwrap().to_owned()
}

/// The time from `begun` until the daemon logs the end of its connection.
#[track_caller]
fn wait_until_logged(daemon: &mut Process, words: &str, begun: Instant) -> Duration {
    daemon.wait_for_log(words);
    begun.elapsed()
}

fn delete(home: Home) {
    coder_requirements::require!(Terraform);
    let server = Server::in_home(home, "127.0.0.1:0", &[]);
    let home = server.first_user();
    let api = Api::new(&server, &home);
    let log_template = LogTemplate::new(1, 2, Duration::from_millis(10)).gated();
    let key = new_key(&home, "doomed");
    let machine = elsewhere(&server, &key);
    let mut busy = server.daemon(&machine, "busy", &[]);
    log_template.push(&home, "log-template", &[]);
    let place = log_template.place("w");
    api.create("log-template", "w");
    wait_for_file(&place.at("at-gate"));
    let mut idle = server.daemon(&machine, "idle", &[]);
    // A key of another name is not affected.
    let other = elsewhere(&server, &new_key(&home, "other"));
    let bystander = server.daemon(&other, "bystander", &[]);

    let deleted = api.run(async |client| client.delete_provisioner_key(api.organization, "doomed").await);
    let begun = Instant::now();
    deleted.unwrap();
    let idle_heard = wait_until_logged(&mut idle, "connection to coderd closed", begun);
    let busy_heard = wait_until_logged(&mut busy, "connection to coderd closed", begun);
    eprintln!(
        "after the 204 the idle daemon was disconnected in {idle_heard:?}, the busy one in {busy_heard:?}"
    );
    // One second is the target. A machine that is busy with other tests may need more.
    assert!(idle_heard.max(busy_heard) < WAIT_LIMIT / 6);
    let build = wait_for_status_of(&home, "w", "failed");
    assert!(build["job"]["error"].as_str().unwrap().contains("was deleted"), "{build}");
    // Both daemons end, because the credential can never work again. Terraform is stopped, and its state is on the
    // server or on disk.
    for daemon in [&mut idle, &mut busy] {
        assert_eq!(daemon.end().code(), Some(77), "{}", daemon.log());
    }
    assert_eq!(processes_of_jobs(&machine.path().join("cache-busy")), Vec::<String>::new());
    let state = home.run(&["state", "pull", "w"]).success().out;
    assert!(state.contains("step_1") && place.things().len() == 1, "{state}");

    // Another daemon continues from that state, and no resource is left.
    home.run(&["delete", "w", "-y"]).success();
    assert_eq!(place.things(), []);
    assert!(!bystander.log().contains("connection to coderd closed"), "{}", bystander.log());
    server.home().run(&["server", "check"]).success();
}

fn rotate(home: Home) {
    coder_requirements::require!(Terraform);
    let server = Server::in_home(home, "127.0.0.1:0", &[]);
    let home = server.first_user();
    let api = Api::new(&server, &home);
    let log_template = LogTemplate::new(1, 2, Duration::from_millis(10)).gated();
    let old = elsewhere(&server, &new_key(&home, "turning"));
    let mut daemons = vec![server.daemon(&old, "one", &[]), server.daemon(&old, "two", &[])];
    log_template.push(&home, "log-template", &[]);
    let order = |name: &str| {
        let place = log_template.place(name);
        api.create("log-template", name);
        place
    };
    let places = [order("w1"), order("w2")];
    for place in &places {
        wait_for_file(&place.at("at-gate"));
    }
    // Twice, so that the first secret becomes invalid during its builds, and the second one stays valid together with
    // the third.
    let rotated = |overlap_seconds: i64| {
        let request = RotateProvisionerKeyRequest { overlap_seconds };
        let rotated =
            api.run(async |client| client.rotate_provisioner_key(api.organization, "turning", request).await);
        rotated.unwrap().key.expose().to_owned()
    };
    let second = rotated(3600);
    let third = rotated(3600);
    let waiting = order("w3");
    let next = [second, third].map(|key| elsewhere(&server, &key));
    let new: Vec<_> =
        next.iter().zip(["three", "four"]).map(|(home, name)| server.daemon(home, name, &[])).collect();
    wait_for_file(&waiting.at("at-gate"));
    for place in places.iter().chain([&waiting]) {
        place.open();
    }
    for name in ["w1", "w2", "w3"] {
        let build = wait_for_status_of(&home, name, "running");
        assert_eq!(build["job"]["status"], Status::Succeeded.to_string());
    }
    // Daemons with the first secret disconnect after their builds, which were not interrupted.
    for daemon in &mut daemons {
        assert_eq!(daemon.end().code(), Some(0), "{}", daemon.log());
        assert_eq!(daemon.log().matches("successfully connected").count(), 1, "{}", daemon.log());
    }
    assert!(new.iter().all(|daemon| !daemon.log().contains("connection to coderd closed")));
    server.home().run(&["server", "check"]).success();
}

#[test]
fn deleting_a_key_ends_its_daemons_on_sqlite() {
    on_sqlite(delete);
}

#[test]
fn deleting_a_key_ends_its_daemons_on_postgres() {
    on_postgres(delete);
}

#[test]
fn rotating_a_key_interrupts_nothing() {
    on_sqlite(rotate);
}

//! A long outage of Postgres under a real server with real daemons.
//!
//! `CODER_TEST_OUTAGE_SECONDS` sets its length; 30 is the long form.

use std::time::{Duration, Instant};

use coder_api::client::Error;
use coder_api::files::TAR;
use coder_domain::secret::Secret;
use coder_store::testing;

use crate::crash_recovery::{
    ANSWER_LIMIT, Api, SMALL_TEMPLATE, order_as, refused, wait_for_file, wait_for_status_of,
};
use crate::durability::{archive, runtime};
use crate::end_to_end::json;
use crate::processes::{EMAIL, PASSWORD, Server, WAIT_LIMIT};
use crate::program::{Home, until};

const VARIABLE: &str = "CODER_TEST_OUTAGE_SECONDS";
const SECONDS: u64 = 5;

/// With it a daemon sends no request before it joins, so that it can start during the outage.
const PSK: &str = "a pre-shared key of sufficient length";

/// Every request during the outage is refused at once, with the documented status and text.
fn refusals(server: &Server, api: &Api) {
    let words = "The database does not answer";
    let timed = |what: &str, outcome: Result<(), Error>| {
        let start = Instant::now();
        refused(outcome, 503, words);
        assert!(start.elapsed() < ANSWER_LIMIT, "{what}: {:?}", start.elapsed());
    };
    timed("list", api.run(async |client| client.templates("").await).map(drop));
    timed("create", api.new_key("during"));
    timed("upload", api.run(async |client| client.upload(TAR, archive("x").into()).await).map(drop));
    timed("log in", api.run(async |client| client.login(EMAIL, Secret::new(PASSWORD)).await).map(drop));
    // The process is alive, so that no supervisor restarts it, but it is not ready and reports why.
    assert_eq!(page(api, server, "/healthz").0, 200);
    let (status, text) = page(api, server, "/readyz");
    assert_eq!(status, 503);
    assert!(text.contains(words), "{text}");
    // Requests that need no database still work.
    api.run(async |client| client.build_info().await).unwrap();
}

/// Status and body of a page.
fn page(api: &Api, server: &Server, path: &str) -> (u16, String) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let address = server.url.strip_prefix("http://").unwrap();
    let answer = api.runtime.block_on(async {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    });
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

#[test]
fn postgres_goes_away_for_long_and_comes_back() {
    coder_requirements::require!(Terraform);
    let seconds = std::env::var(VARIABLE).map_or(SECONDS, |text| text.parse().unwrap());
    let outage = Duration::from_secs(seconds);
    let runtime = runtime();
    let Some(postgres) = runtime.block_on(testing::PostgresServer::start()) else { return };
    let database = runtime.block_on(postgres.database());
    let coder_store::Location::Postgres(url) = &database.location else { unreachable!("asked for Postgres") };
    let mut home = Home::new();
    home.set("CODER_PG_CONNECTION_URL", url.expose());
    // The reaper also runs several times during the outage.
    let server = Server::in_home(
        home,
        "127.0.0.1:0",
        &["--job-hang-detector-interval", "200ms", "--provisioner-daemon-psk", PSK],
    );
    let home = server.first_user();
    let api = Api::new(&server, &home);
    let mut elsewhere = Home::new();
    elsewhere.set("CODER_URL", &server.url).set("CODER_PROVISIONER_DAEMON_PSK", PSK);
    let at = |name: &str| home.path().join(name);
    let shown = |name: &str| at(name).display().to_string();

    // One job ends during the outage. Another one runs through it and prints all the time.
    let mut daemons = vec![server.daemon(&home, "ends", &[])];
    let script = format!(
        ": > {}; while [ ! -e {} ]; do sleep 0.05; done; echo ended; : > {}",
        shown("ends-on"),
        shown("end"),
        shown("ended")
    );
    order_as(&home, "ends", &script);
    wait_for_file(&at("ends-on"));
    daemons.push(server.daemon(&home, "lasts", &[]));
    let script = format!(
        ": > {}; n=0; while [ ! -e {} ]; do n=$((n+1)); echo line $n.; sleep 0.2; done; echo $n > {}",
        shown("lasts-on"),
        shown("last"),
        shown("lines")
    );
    order_as(&home, "lasts", &script);
    wait_for_file(&at("lasts-on"));
    // One job waits for a daemon, and one daemon for a job.
    let waiting = api.import_of(archive(SMALL_TEMPLATE), &[("pool", "late")]);
    daemons.push(server.daemon(&home, "idle", &[]));

    postgres.crash();
    let start = Instant::now();
    let mut rounds = 0;
    while start.elapsed() < outage {
        refusals(&server, &api);
        if rounds == 0 {
            std::fs::write(at("end"), "").unwrap();
            wait_for_file(&at("ended"));
            daemons.push(server.daemon_that_tries(&elsewhere, "late", &["--tag", "pool=late"]));
            home.run(&["templates", "list"]).refused("The database does not answer");
        }
        rounds += 1;
        std::thread::park_timeout(Duration::from_millis(250));
    }
    assert!(rounds > 3, "the outage spans several requests of each kind: {rounds}");

    runtime.block_on(postgres.resume());
    let back = until(WAIT_LIMIT, || api.run(async |client| client.templates("").await).ok());
    assert_eq!(back.unwrap().len(), 2);
    assert_eq!(page(&api, &server, "/readyz").0, 200);
    // The result from the outage is stored, and the waiting job goes to the daemon that started during the outage.
    wait_for_status_of(&home, "ends", "running");
    assert!(home.run(&["logs", "-f", "ends"]).success().out.contains("(local-exec): ended"));
    assert_eq!(api.ended(&waiting).job.error, "");
    // Only the idle daemon and the one whose job ended can take a new job. The other one is still busy.
    let new = api.import_of(archive("resource \"terraform_data\" \"new\" {}\n"), &[]);
    assert_eq!(api.ended(&new).job.error, "");
    std::fs::write(at("last"), "").unwrap();
    wait_for_file(&at("lines"));
    wait_for_status_of(&home, "lasts", "running");
    let lines: usize =
        until(WAIT_LIMIT, || std::fs::read_to_string(at("lines")).unwrap().trim().parse().ok()).unwrap();
    let logs = home.run(&["logs", "-f", "lasts"]).success().out;
    for number in 1..=lines {
        let line = format!("(local-exec): line {number}.");
        assert_eq!(logs.matches(&line).count(), 1, "{line:?} once in:\n{logs}");
    }

    api.new_key("after").unwrap();
    for name in ["ends", "lasts"] {
        home.run(&["stop", name, "-y"]).success();
        home.run(&["delete", name, "-y"]).success();
    }
    assert_eq!(json(&home, &["list"]), serde_json::json!([]));
    server.home().run(&["server", "check"]).success();
}

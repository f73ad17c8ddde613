//! Scripts of the template, good and bad ones.

use coder_wire::messages::coder::agent::v2 as messages;
use messages::lifecycle::State;
use messages::timing::{Stage, Status};
use uuid::Uuid;

use super::rig::{Records, Running, Server, run};

fn source(number: u128) -> Uuid {
    Uuid::from_u128(number << 64)
}

fn script(number: u128, text: &str) -> messages::WorkspaceAgentScript {
    messages::WorkspaceAgentScript {
        id: Uuid::from_u128(number).as_bytes().to_vec(),
        log_source_id: source(number).as_bytes().to_vec(),
        script: text.to_owned(),
        display_name: format!("script {number}"),
        ..Default::default()
    }
}

fn start(number: u128, text: &str) -> messages::WorkspaceAgentScript {
    messages::WorkspaceAgentScript { run_on_start: true, ..script(number, text) }
}

fn with(scripts: Vec<messages::WorkspaceAgentScript>) -> Server {
    Server::new(messages::Manifest { scripts, ..Default::default() })
}

fn timing(records: &Records, number: u128) -> Option<&messages::Timing> {
    records.timings.iter().find(|timing| timing.script_id == Uuid::from_u128(number).as_bytes())
}

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

/// agent 2.6.
#[test]
fn start_script_has_its_environment_and_its_lines_arrive() {
    run(async {
        let text = "#!/bin/sh\necho out $CODER_WORKSPACE_NAME; echo err >&2; echo \"${CODER_SCRIPT_DATA_DIR}\"\n\
                    printf '#!/bin/sh\\necho tool' > $CODER_SCRIPT_BIN_DIR/tool; chmod +x $CODER_SCRIPT_BIN_DIR/tool; tool";
        let server = with(vec![start(1, text)]);
        let agent = Running::start(&server);
        let records =
            server.until(|records| timing(records, 1).is_some() && records.lines(source(1)).len() == 4).await;
        let timing = timing(&records, 1).unwrap();
        assert_eq!((timing.status(), timing.stage(), timing.exit_code), (Status::Ok, Stage::Start, 0));
        let data = agent.path("data/coder-script-data").join(source(1).to_string());
        let mut lines = records.lines(source(1));
        lines.sort_unstable();
        let mut want = ["out dev", "err", data.to_str().unwrap(), "tool"];
        want.sort_unstable();
        assert_eq!(lines, want);
        let level = |line: &str| records.logs.iter().find(|(_, text, _)| text == line).unwrap().2;
        assert_eq!((level("out dev"), level("err")), (3, 5));
        let log =
            std::fs::read_to_string(agent.path(&format!("log/coder-script-{}.log", source(1)))).unwrap();
        assert!(log.contains("out dev\n"), "{log}");
        agent.end().await;
    });
}

#[test]
fn failed_script_fails_the_start_and_says_why() {
    run(async {
        let server = with(vec![start(1, "echo fine"), start(2, "echo broken >&2; exit 7")]);
        let agent = Running::start(&server);
        let records = server.until(|records| records.states.len() == 2 && timing(records, 2).is_some()).await;
        assert_eq!(records.states, [State::Starting, State::StartError]);
        let timing = timing(&records, 2).unwrap();
        assert_eq!((timing.status(), timing.exit_code), (Status::ExitFailure, 7));
        agent.end().await;
    });
}

#[test]
fn script_that_never_ends_is_stopped_with_all_that_it_started() {
    run(async {
        let text =
            "trap '' HUP; echo $$ > pids; (trap '' HUP; echo $BASHPID >> pids; sleep 1000) & sleep 1000";
        let endless = messages::WorkspaceAgentScript { timeout: seconds(1), ..start(1, "sleep 1000 & wait") };
        let stubborn = messages::WorkspaceAgentScript { timeout: seconds(1), ..start(2, text) };
        let server = with(vec![endless, stubborn]);
        let agent = Running::start(&server);
        let records = server.until(|records| records.states.len() == 2).await;
        assert_eq!(records.states, [State::Starting, State::StartTimeout]);
        let records = server.until(|records| records.timings.len() == 2).await;
        assert!(
            records.timings.iter().all(|timing| timing.status() == Status::TimedOut),
            "{:?}",
            records.timings
        );
        let last = |records: &Records| {
            records.lines(source(2)).iter().any(|line| line.contains("did not end within 1s"))
        };
        server.until(last).await;
        let first: u32 = std::fs::read_to_string(agent.path("home/pids"))
            .unwrap()
            .lines()
            .next()
            .unwrap()
            .parse()
            .unwrap();
        assert!(!std::path::Path::new(&format!("/proc/{first}/exe")).exists(), "it was killed");
        agent.end().await;
    });
}

#[test]
fn process_in_the_background_is_no_reason_to_wait_for_ever() {
    run(async {
        let server = with(vec![start(1, "sleep 12 & echo started")]);
        let agent = Running::start(&server);
        let begun = tokio::time::Instant::now();
        let records = server.until(|records| timing(records, 1).is_some()).await;
        assert_eq!(timing(&records, 1).unwrap().status(), Status::PipesLeftOpen);
        assert!(begun.elapsed().as_secs() >= 9);
        let records =
            server.until(|records| records.lines(source(1)).len() == 2 && records.states.len() == 2).await;
        assert!(records.lines(source(1))[1].contains("keeps its output open"));
        assert_eq!(records.states, [State::Starting, State::Ready]);
        agent.end().await;
    });
}

#[test]
fn flood_of_output_is_bounded_and_does_not_stop_the_script() {
    run(async {
        let text = "head -c 3000000 /dev/urandom; yes 0123456789012345678901234567890123456789 | head -n 200000; echo done > done";
        let server = with(vec![start(1, text)]);
        let agent = Running::start(&server);
        let records = server.until(|records| timing(records, 1).is_some()).await;
        assert_eq!(timing(&records, 1).unwrap().status(), Status::Ok);
        assert!(agent.path("home/done").exists());
        let bytes: usize = server.records().logs.iter().map(|(_, line, _)| line.len()).sum();
        assert!(bytes <= 1 << 20, "{bytes}");
        agent.end().await;
    });
}

#[test]
fn agent_goes_on_after_the_servers_log_limit() {
    run(async {
        let server = with(vec![start(1, "echo one; sleep 1.5; echo two; exit 0")]);
        server.set_log_limit(5);
        let agent = Running::start(&server);
        let records = server.until(|records| timing(records, 1).is_some()).await;
        assert!(records.lines(source(1)).len() <= 1);
        server.until(|records| records.states == [State::Starting, State::Ready]).await;
        agent.end().await;
        assert_eq!(server.records().states.last(), Some(&State::Off));
    });
}

#[test]
fn stop_scripts_run_once_and_are_reported() {
    run(async {
        let kept = tempfile::tempdir().unwrap();
        let stopped = kept.path().join("stopped");
        let text = format!("echo bye; echo x >> {}", stopped.display());
        let stop = messages::WorkspaceAgentScript { run_on_stop: true, ..script(1, &text) };
        let failing = messages::WorkspaceAgentScript { run_on_stop: true, ..script(2, "exit 1") };
        let server = with(vec![stop, failing]);
        let agent = Running::start(&server);
        server.until(|records| records.states.len() == 2).await;
        assert!(!stopped.exists());
        agent.end().await;
        assert_eq!(std::fs::read_to_string(&stopped).unwrap(), "x\n");
        let records = server.records();
        assert_eq!(records.states[2..], [State::ShuttingDown, State::ShutdownError]);
        assert_eq!(records.lines(source(1)), ["bye"]);
        assert_eq!(timing(&records, 1).unwrap().stage(), Stage::Stop);
    });
}

#[test]
fn schedule_runs_and_a_malformed_one_is_named() {
    run(async {
        let often =
            messages::WorkspaceAgentScript { cron: "* * * * * *".to_owned(), ..script(1, "echo tick") };
        let broken =
            messages::WorkspaceAgentScript { cron: "whenever".to_owned(), ..script(2, "echo never") };
        let server = with(vec![often, broken]);
        let agent = Running::start(&server);
        let records =
            server.until(|records| records.timings.len() >= 2 && !records.lines(source(2)).is_empty()).await;
        assert!(records.timings.iter().all(|timing| timing.stage() == Stage::Cron));
        assert!(records.lines(source(2))[0].contains("the schedule \"whenever\" cannot be read"));
        agent.end().await;
    });
}

#[test]
fn script_runs_without_home_and_where_nothing_can_be_written() {
    run(async {
        let server = with(vec![start(1, "pwd")]);
        let agent = Running::start_with(&server, |config| {
            config.user.home = "/nonexistent/home".into();
            // Nothing can be made there, even as root.
            config.log_dir = "/proc/log".into();
            config.script_data_dir = "/proc/data".into();
        });
        let records = server.until(|records| timing(records, 1).is_some()).await;
        assert_eq!(timing(&records, 1).unwrap().status(), Status::Ok);
        let records = server.until(|records| records.lines(source(1)).contains(&"/")).await;
        assert!(records.lines(source(1)).iter().any(|line| line.contains("cannot be made")));
        agent.end().await;
    });
}

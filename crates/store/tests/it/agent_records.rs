//! What agents report, their sub-agents, their sessions and shared ports.

use std::slice;

use coder_domain::build::Transition;
use coder_domain::ids::{AgentId, AppId, JobId, LogSourceId, ScriptId, WorkspaceId};
use coder_domain::secret::Secret;
use coder_domain::tags::TagSet;
use coder_store::jobs::logs::Level;
use coder_store::workspaces::agent_connections::{self, AgentPlace};
use coder_store::workspaces::agent_logs::{self, AgentLogOutcome, LogSource, NewAgentLogLine};
use coder_store::workspaces::agent_reports::{self, LifecycleChange, MetadataValue, ScriptTiming, Startup};
use coder_store::workspaces::agents::{self, Agent, App, AppDefinition, Definition};
use coder_store::workspaces::connection_log::{self, ConnectionLogFilter, ListedSession};
use coder_store::workspaces::port_shares::{self, PortShare};
use coder_store::{Error, Tx};
use uuid::Uuid;

use crate::agents::new_agent;
use crate::fixture::{Fixture, at, on_both_engines};
use crate::workspaces::{end, new_build, new_workspace, template};

on_both_engines!(
    an_agent_reports_how_it_starts,
    each_state_of_an_agent_sets_its_times,
    the_health_of_several_apps_is_stored_at_once,
    metadata_and_timings_of_scripts_have_their_newest_value,
    sub_agents_belong_to_their_parent,
    agents_of_former_builds_may_not_connect,
    a_full_log_says_so_once,
    lines_and_sources_of_logs_come_back,
    sessions_are_selected_by_each_field,
    shared_ports_belong_to_a_workspace,
);

/// An agent that belongs to no workspace.
async fn lonely(fixture: &Fixture, token: &str) -> Agent {
    let job = fixture.job(&TagSet::untagged()).await;
    new_agent(fixture, job, token, 1).await
}

async fn find(tx: &mut Tx, id: AgentId) -> Agent {
    agents::find(tx, id).await.unwrap().unwrap()
}

async fn an_agent_reports_how_it_starts(fixture: Fixture) {
    let (agent, other) = (lonely(&fixture, "a").await, lonely(&fixture, "b").await);
    let startup = Startup {
        version: "v2.30.0".to_owned(),
        api_version: "2.7".to_owned(),
        expanded_directory: "/home/ada".to_owned(),
        subsystems: vec!["envbox".to_owned(), "exectrace".to_owned()],
    };
    let mut tx = fixture.store.single().await.unwrap();
    agent_reports::update_startup(&mut tx, agent.id, &startup, at(9)).await.unwrap();
    let expected = Agent {
        version: startup.version.clone(),
        api_version: startup.api_version.clone(),
        expanded_directory: startup.expanded_directory.clone(),
        subsystems: startup.subsystems.clone(),
        updated_at: at(9),
        ..agent
    };
    assert_eq!(find(&mut tx, expected.id).await, expected);
    assert_eq!(find(&mut tx, other.id).await, other);
    assert_eq!(agents::find(&mut tx, AgentId::random()).await.unwrap(), None);
    let missing = agent_reports::update_startup(&mut tx, AgentId::random(), &startup, at(9)).await;
    assert!(matches!(missing, Err(Error::Stale { .. })), "{missing:?}");
}

async fn each_state_of_an_agent_sets_its_times(fixture: Fixture) {
    let agent = lonely(&fixture, "a").await.id;
    let mut tx = fixture.store.single().await.unwrap();
    let change = |state: &str, starts, ends_start, second| LifecycleChange {
        state: state.to_owned(),
        starts,
        ends_start,
        changed_at: at(second),
    };
    for (change, started, ready) in [
        // The report of the beginning was lost.
        (change("ready", false, true, 5), Some(5), Some(5)),
        (change("starting", true, false, 10), Some(10), None),
        (change("start_timeout", false, false, 15), Some(10), None),
        (change("ready", false, true, 20), Some(10), Some(20)),
        (change("shutting_down", false, false, 30), Some(10), Some(20)),
        (change("starting", true, false, 40), Some(40), None),
    ] {
        agent_reports::update_lifecycle(&mut tx, agent, &change, at(50)).await.unwrap();
        let found = find(&mut tx, agent).await;
        assert_eq!((&found.lifecycle_state, found.updated_at), (&change.state, at(50)));
        assert_eq!((found.started_at, found.ready_at), (started.map(at), ready.map(at)), "{change:?}");
    }
    let ready = change("ready", false, true, 60);
    let missing = agent_reports::update_lifecycle(&mut tx, AgentId::random(), &ready, at(60)).await;
    assert!(matches!(missing, Err(Error::Stale { .. })), "{missing:?}");
}

async fn the_health_of_several_apps_is_stored_at_once(fixture: Fixture) {
    let agent = lonely(&fixture, "a").await.id;
    let app = |position, slug: &str| App {
        id: AppId::random(),
        agent_id: agent,
        position,
        slug: slug.to_owned(),
        definition: AppDefinition { command: slug.to_owned(), ..AppDefinition::default() },
        health: "initializing".to_owned(),
        created_at: at(position),
    };
    let mut apps = [app(0, "code"), app(1, "web"), app(2, "shell")];
    let mut tx = fixture.store.single().await.unwrap();
    agents::insert_apps(&mut tx, &[]).await.unwrap();
    agents::insert_apps(&mut tx, &apps).await.unwrap();
    let ids = [apps[0].id, apps[2].id];
    assert_eq!(agent_reports::update_app_health(&mut tx, &ids, "healthy").await.unwrap(), 2);
    assert_eq!(agent_reports::update_app_health(&mut tx, &ids, "healthy").await.unwrap(), 0, "no change");
    for number in [0, 2] {
        apps[number].health = "healthy".to_owned();
    }
    assert_eq!(agents::list_apps(&mut tx, &[agent]).await.unwrap(), apps);
    assert_eq!(agents::list_apps(&mut tx, &[AgentId::random()]).await.unwrap(), []);
}

async fn metadata_and_timings_of_scripts_have_their_newest_value(fixture: Fixture) {
    let (first, second) = (lonely(&fixture, "a").await.id, lonely(&fixture, "b").await.id);
    let value = |agent_id, key: &str, number: i64| MetadataValue {
        agent_id,
        key: key.to_owned(),
        value: format!("value {number}"),
        error: format!("error {number}"),
        collected_at: at(number),
    };
    let mut tx = fixture.store.single().await.unwrap();
    let old = [value(first, "cpu", 1), value(second, "cpu", 2), value(first, "a", 3)];
    agent_reports::upsert_metadata(&mut tx, &old).await.unwrap();
    agent_reports::upsert_metadata(&mut tx, &[value(first, "cpu", 4)]).await.unwrap();
    let of_first = [value(first, "a", 3), value(first, "cpu", 4)];
    assert_eq!(agent_reports::list_metadata(&mut tx, first).await.unwrap(), of_first);
    assert_eq!(agent_reports::list_metadata(&mut tx, second).await.unwrap(), old[1..2]);

    let scripts = [ScriptId::random(), ScriptId::random()];
    let timing = |agent_id, script: usize, stage: &str, number: i64| ScriptTiming {
        agent_id,
        script_id: scripts[script],
        stage: stage.to_owned(),
        status: format!("status {number}"),
        exit_code: number,
        started_at: at(number),
        ended_at: at(number + 1),
    };
    for timing in [
        timing(first, 0, "start", 10),
        timing(first, 1, "start", 5),
        timing(second, 0, "start", 7),
        timing(first, 0, "stop", 20),
        timing(first, 0, "start", 30),
    ] {
        agent_reports::upsert_script_timing(&mut tx, &timing).await.unwrap();
    }
    let own = [timing(first, 1, "start", 5), timing(first, 0, "stop", 20), timing(first, 0, "start", 30)];
    assert_eq!(agent_reports::list_script_timings(&mut tx, &[first]).await.unwrap(), own);
    let of_second = [timing(second, 0, "start", 7)];
    assert_eq!(agent_reports::list_script_timings(&mut tx, &[second]).await.unwrap(), of_second);
    assert_eq!(agent_reports::list_script_timings(&mut tx, &[first, second]).await.unwrap().len(), 4);
    let missing = timing(AgentId::random(), 0, "start", 1);
    let missing = agent_reports::upsert_script_timing(&mut tx, &missing).await;
    assert!(matches!(missing, Err(Error::Reference(_))), "{missing:?}");
}

async fn sub_agents_belong_to_their_parent(fixture: Fixture) {
    let (parent, other) = (lonely(&fixture, "a").await, lonely(&fixture, "b").await);
    let child = |parent: &Agent, name: &str, second| Agent {
        parent_id: Some(parent.id),
        auth_instance_id: format!("instance of {name}"),
        ..Agent::reported(
            parent.resource_id,
            second,
            name.to_owned(),
            Secret::new(name),
            Definition { directory: name.to_owned(), ..Definition::default() },
            at(second),
        )
    };
    let [first, second, foreign] =
        [child(&parent, "one", 5), child(&parent, "two", 4), child(&other, "three", 6)];
    let mut tx = fixture.store.single().await.unwrap();
    agents::insert(&mut tx, &[]).await.unwrap();
    agents::insert(&mut tx, &[first.clone(), second.clone(), foreign.clone()]).await.unwrap();
    assert_eq!(agents::list_children(&mut tx, parent.id).await.unwrap(), [second.clone(), first.clone()]);
    assert_eq!(agents::list_children(&mut tx, other.id).await.unwrap(), slice::from_ref(&foreign));
    assert_eq!(agents::list_children(&mut tx, first.id).await.unwrap(), []);
    for (id, of) in [(foreign.id, parent.id), (parent.id, parent.id), (AgentId::random(), parent.id)] {
        let refused = agents::delete_child(&mut tx, id, of, at(9)).await;
        assert!(matches!(refused, Err(Error::Stale { .. })), "{refused:?}");
    }
    agents::delete_child(&mut tx, second.id, parent.id, at(9)).await.unwrap();
    assert!(agents::delete_child(&mut tx, second.id, parent.id, at(9)).await.is_err(), "removed before");
    assert_eq!(agents::list_children(&mut tx, parent.id).await.unwrap(), [first]);
    assert_eq!(agents::find(&mut tx, second.id).await.unwrap(), None);
    assert_eq!(agents::list_children(&mut tx, other.id).await.unwrap(), [foreign]);
}

/// A workspace with two starts, each with an agent.
async fn two_starts(fixture: &Fixture) -> (WorkspaceId, Vec<(AgentPlace, JobId, AgentId)>) {
    let template = template(fixture).await;
    let workspace = new_workspace(fixture, &template, "dev").await.id;
    let mut made = Vec::new();
    for token in ["first", "second"] {
        let (build, job, number) = new_build(fixture, &template, workspace, Transition::Start).await.unwrap();
        end(fixture, job).await;
        let place = AgentPlace { workspace_id: workspace, build_id: build, is_latest: number == 2 };
        made.push((place, job, new_agent(fixture, job, token, 1).await.id));
    }
    (workspace, made)
}

async fn agents_of_former_builds_may_not_connect(fixture: Fixture) {
    let (workspace, made) = two_starts(&fixture).await;
    let lonely = lonely(&fixture, "lonely").await.id;
    let [(first_place, _, first), (second_place, job, second)] = made[..] else { panic!("two builds") };
    let mut tx = fixture.store.single().await.unwrap();
    let all = [first, second, lonely, AgentId::random()];
    assert_eq!(agent_connections::list_allowed(&mut tx, &all).await.unwrap(), [second]);
    assert_eq!(agent_connections::list_allowed(&mut tx, &[first]).await.unwrap(), []);
    for (agent, place) in
        [(first, Some(first_place)), (second, Some(second_place)), (lonely, None), (AgentId::random(), None)]
    {
        assert_eq!(agent_connections::find_place(&mut tx, agent).await.unwrap(), place);
    }
    let authenticate = async |tx: &mut Tx, token: &str| {
        agent_connections::authenticate(tx, &Secret::new(token)).await.unwrap()
    };
    assert_eq!(authenticate(&mut tx, "first").await, None);
    let identity = authenticate(&mut tx, "second").await.unwrap();
    assert_eq!((identity.agent_id, identity.agent_name.as_str(), identity.parent_id), (second, "main", None));
    assert_eq!((identity.workspace_id, identity.workspace_name.as_str()), (workspace, "dev"));
    assert_eq!((identity.build_id, identity.job_id), (second_place.build_id, job));
    assert_eq!((identity.owner_id, identity.owner_username.as_str()), (fixture.user, "ada"));
    assert_eq!((identity.organization_id, identity.owner_active), (fixture.organization, true));
    coder_store::workspaces::delete(&mut tx, workspace, at(99)).await.unwrap();
    assert_eq!(authenticate(&mut tx, "second").await, None);
    assert_eq!(agent_connections::list_allowed(&mut tx, &all).await.unwrap(), []);
}

fn line(level: Level, output: &str) -> NewAgentLogLine {
    NewAgentLogLine { level, output: output.to_owned() }
}

async fn a_full_log_says_so_once(fixture: Fixture) {
    let source = LogSourceId::random();
    let append = async |agent, lines: &[NewAgentLogLine]| {
        fixture
            .store
            .write(async |tx| agent_logs::append(tx, agent, source, lines, at(5)).await)
            .await
            .unwrap()
    };
    let bytes = usize::try_from(agent_logs::MAX_BYTES).unwrap();
    let by_bytes = lonely(&fixture, "a").await.id;
    let half = "x".repeat(bytes / 2);
    let halves = [line(Level::Info, &half), line(Level::Info, &half[1..])];
    assert_eq!(append(by_bytes, &halves).await, AgentLogOutcome::Stored(1));
    let two = [line(Level::Info, "xy")];
    assert_eq!(append(by_bytes, &two).await, AgentLogOutcome::Overflowed(true));
    assert_eq!(append(by_bytes, &two).await, AgentLogOutcome::Overflowed(false));
    assert_eq!(append(by_bytes, &[line(Level::Info, "x")]).await, AgentLogOutcome::Overflowed(false));
    let mut tx = fixture.store.reader().await.unwrap();
    let row = find(&mut tx, by_bytes).await;
    assert_eq!((row.logs_bytes, row.logs_overflowed), (agent_logs::MAX_BYTES - 1, true));
    drop(tx);
    let by_lines = lonely(&fixture, "b").await.id;
    let count = usize::try_from(agent_logs::MAX_LINES).unwrap();
    assert_eq!(append(by_lines, &vec![line(Level::Info, ""); count]).await, AgentLogOutcome::Stored(1));
    assert_eq!(append(by_lines, &two).await, AgentLogOutcome::Overflowed(true));
    let row = find(&mut fixture.store.reader().await.unwrap(), by_lines).await;
    assert_eq!((row.logs_bytes, row.logs_overflowed), (0, true));
}

async fn lines_and_sources_of_logs_come_back(fixture: Fixture) {
    let (agent, other) = (lonely(&fixture, "a").await.id, lonely(&fixture, "b").await.id);
    let source = |agent_id, number: i64| LogSource {
        agent_id,
        id: LogSourceId::random(),
        display_name: format!("source {number}"),
        icon: format!("/icon/{number}"),
        created_at: at(number),
    };
    let [first, second, foreign] = [source(agent, 2), source(agent, 1), source(other, 3)];
    let mut tx = fixture.store.begin().await.unwrap();
    for source in [&first, &second, &foreign] {
        agent_logs::insert_source(&mut tx, source).await.unwrap();
    }
    let renamed = LogSource { display_name: "renamed".to_owned(), ..first.clone() };
    agent_logs::insert_source(&mut tx, &renamed).await.unwrap();
    let listed = agent_logs::list_sources(&mut tx, &[agent]).await.unwrap();
    assert_eq!(listed, [second, first.clone()], "oldest first, and never changed");
    assert_eq!(agent_logs::list_sources(&mut tx, &[other]).await.unwrap(), slice::from_ref(&foreign));

    let lines = [line(Level::Trace, "a\0"), line(Level::Error, ""), line(Level::Warn, "c")];
    for (agent, source, lines, stored) in [
        (agent, first.id, &lines[..2], 1),
        (other, foreign.id, &lines[..1], 1),
        (agent, foreign.id, &lines[2..], 3),
    ] {
        let outcome = agent_logs::append(&mut tx, agent, source, lines, at(stored)).await.unwrap();
        assert_eq!(outcome, AgentLogOutcome::Stored(stored));
    }
    let mut expected = Vec::new();
    for (id, source, second, line) in [
        (1, first.id, 1, line(Level::Trace, "a\u{fffd}")),
        (2, first.id, 1, lines[1].clone()),
        (3, foreign.id, 3, lines[2].clone()),
    ] {
        expected.push(agent_logs::AgentLogLine { id, created_at: at(second), source_id: source, line });
    }
    for after in [-5, 0, 1, 2, 3] {
        let from = usize::try_from(after).unwrap_or(0);
        assert_eq!(agent_logs::list(&mut tx, agent, after).await.unwrap(), expected[from..], "after {after}");
    }
    assert_eq!(agent_logs::list(&mut tx, AgentId::random(), 0).await.unwrap(), []);
}

async fn sessions_are_selected_by_each_field(fixture: Fixture) {
    let (workspace, made) = two_starts(&fixture).await;
    let agent = made[1].2;
    let ids = [1, 2, 3].map(Uuid::from_u128);
    let mut tx = fixture.store.single().await.unwrap();
    for (id, kind, second) in [(ids[0], "ssh", 10), (ids[1], "vscode", 20), (ids[2], "ssh", 30)] {
        connection_log::insert(&mut tx, agent, id, kind, &format!("::{second}"), at(second)).await.unwrap();
    }
    connection_log::insert(&mut tx, agent, ids[1], "again", "::1", at(50)).await.unwrap();
    connection_log::update_ended(&mut tx, agent, ids[1], at(40), 3, "bye").await.unwrap();
    connection_log::update_ended(&mut tx, agent, ids[1], at(60), 4, "late").await.unwrap();
    connection_log::update_ended(&mut tx, made[0].2, ids[0], at(40), 5, "another agent").await.unwrap();
    let session = |number: usize, kind: &str, second: i64| ListedSession {
        id: ids[number],
        kind: kind.to_owned(),
        ip: format!("::{second}"),
        connected_at: at(second),
        disconnected_at: None,
        status_code: 0,
        reason: String::new(),
        agent_name: "main".to_owned(),
        workspace_id: workspace,
        workspace_name: "dev".to_owned(),
        organization_id: fixture.organization,
        owner_id: fixture.user,
        owner_username: "ada".to_owned(),
    };
    let ended = ListedSession {
        disconnected_at: Some(at(40)),
        status_code: 3,
        reason: "bye".to_owned(),
        ..session(1, "vscode", 20)
    };
    let all = [session(2, "ssh", 30), ended, session(0, "ssh", 10)];
    let any = ConnectionLogFilter::default;
    let ssh = || Some("ssh".to_owned());
    for (filter, found) in [
        (any(), vec![0, 1, 2]),
        (ConnectionLogFilter { organization_id: Some(fixture.organization), ..any() }, vec![0, 1, 2]),
        (ConnectionLogFilter { organization_id: Some(Default::default()), ..any() }, vec![]),
        (ConnectionLogFilter { owner_id: Some(fixture.user), ..any() }, vec![0, 1, 2]),
        (ConnectionLogFilter { owner_id: Some(Default::default()), ..any() }, vec![]),
        (ConnectionLogFilter { workspace_id: Some(workspace), ..any() }, vec![0, 1, 2]),
        (ConnectionLogFilter { workspace_id: Some(Default::default()), ..any() }, vec![]),
        (ConnectionLogFilter { kind: ssh(), ..any() }, vec![0, 2]),
        (ConnectionLogFilter { id: Some(ids[1]), ..any() }, vec![1]),
        (ConnectionLogFilter { since: Some(at(20)), ..any() }, vec![0, 1]),
        (ConnectionLogFilter { until: Some(at(30)), ..any() }, vec![1, 2]),
        (ConnectionLogFilter { has_ended: Some(true), ..any() }, vec![1]),
        (ConnectionLogFilter { has_ended: Some(false), ..any() }, vec![0, 2]),
        (ConnectionLogFilter { kind: ssh(), has_ended: Some(true), ..any() }, vec![]),
    ] {
        let found: Vec<_> = found.into_iter().map(|number| all[number].clone()).collect();
        assert_eq!(connection_log::page(&mut tx, &filter, 9, 0).await.unwrap(), found, "{filter:?}");
        let count = connection_log::count(&mut tx, &filter).await.unwrap();
        assert_eq!(count, i64::try_from(found.len()).unwrap(), "{filter:?}");
    }
    assert_eq!(connection_log::page(&mut tx, &any(), 1, 1).await.unwrap(), all[1..2]);
    assert_eq!(connection_log::purge(&mut tx, at(10)).await.unwrap(), 0);
    assert_eq!(connection_log::purge(&mut tx, at(30)).await.unwrap(), 2);
    assert_eq!(connection_log::page(&mut tx, &any(), 9, 0).await.unwrap(), all[..1]);
}

async fn shared_ports_belong_to_a_workspace(fixture: Fixture) {
    let template = template(&fixture).await;
    let (one, two) = (
        new_workspace(&fixture, &template, "one").await.id,
        new_workspace(&fixture, &template, "two").await.id,
    );
    let share = |workspace_id, agent_name: &str, port, share_level: &str, protocol: &str| PortShare {
        workspace_id,
        agent_name: agent_name.to_owned(),
        port,
        share_level: share_level.to_owned(),
        protocol: protocol.to_owned(),
    };
    let kept = [
        share(one, "dev", 443, "organization", "https"),
        share(one, "main", 80, "public", "https"),
        share(one, "main", 8080, "authenticated", "http"),
    ];
    let foreign = share(two, "main", 80, "public", "http");
    let mut tx = fixture.store.single().await.unwrap();
    for share in [&share(one, "main", 80, "authenticated", "http"), &kept[2], &kept[1], &foreign, &kept[0]] {
        assert!(port_shares::upsert(&mut tx, share).await.unwrap());
    }
    assert_eq!(port_shares::list(&mut tx, one).await.unwrap(), kept);
    assert_eq!(port_shares::list(&mut tx, two).await.unwrap(), slice::from_ref(&foreign));
    port_shares::delete(&mut tx, one, "main", 80).await.unwrap();
    let again = port_shares::delete(&mut tx, one, "main", 80).await;
    assert!(matches!(again, Err(Error::Stale { .. })), "{again:?}");
    assert_eq!(port_shares::list(&mut tx, one).await.unwrap(), [kept[0].clone(), kept[2].clone()]);
    assert_eq!(port_shares::list(&mut tx, two).await.unwrap(), [foreign]);
    assert_eq!(port_shares::list(&mut tx, WorkspaceId::random()).await.unwrap(), []);
    let lonely = share(WorkspaceId::random(), "main", 80, "public", "http");
    let missing = port_shares::upsert(&mut tx, &lonely).await;
    assert!(matches!(missing, Err(Error::Reference(_))), "{missing:?}");
}

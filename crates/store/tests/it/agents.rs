//! What is stored of agents while they run. The server's tests cover most of it.

use coder_domain::build::Transition;
use coder_domain::ids::{AgentId, JobId, LogSourceId, ResourceId};
use coder_domain::secret::Secret;
use coder_store::jobs::logs::Level;
use coder_store::workspaces::agent_logs::{self, AgentLogOutcome, NewAgentLogLine};
use coder_store::workspaces::agents::{self, Agent, Definition};
use coder_store::workspaces::connection_log;
use coder_store::workspaces::port_shares::{self, MAX_SHARES, PortShare};
use coder_store::workspaces::resources::{self, Resource};
use coder_store::workspaces::{agent_connections, agent_reports};
use uuid::Uuid;

use crate::fixture::{Fixture, at, on_both_engines};
use crate::templates::{new_template, new_version};
use crate::workspaces::{end, new_build, new_workspace};

on_both_engines!(
    contacts_are_in_order_though_the_clock_is_not,
    logs_of_replaced_agents_are_purged,
    rows_that_agents_and_users_add_are_bounded,
    the_newest_agent_of_a_token_counts,
);

pub(crate) async fn new_agent(fixture: &Fixture, job: JobId, token: &str, now: i64) -> Agent {
    let resource = Resource {
        id: ResourceId::random(),
        job_id: job,
        position: 0,
        transition: Transition::Start,
        kind: "vm".to_owned(),
        name: "dev".to_owned(),
        hide: false,
        icon: String::new(),
        instance_type: String::new(),
        daily_cost: 0,
        module_path: String::new(),
        metadata: Vec::new(),
        created_at: at(now),
    };
    let token = Secret::new(token);
    let agent = Agent::reported(resource.id, 0, "main".to_owned(), token, Definition::default(), at(now));
    let made = async |tx: &mut coder_store::Tx| {
        resources::insert(tx, std::slice::from_ref(&resource)).await?;
        agents::insert(tx, std::slice::from_ref(&agent)).await
    };
    fixture.store.write(made).await.unwrap();
    agent
}

fn line(output: &str) -> NewAgentLogLine {
    NewAgentLogLine { level: Level::Info, output: output.to_owned() }
}

async fn append(fixture: &Fixture, agent: AgentId, lines: &[NewAgentLogLine], now: i64) -> AgentLogOutcome {
    let source = LogSourceId::random();
    fixture.store.write(async |tx| agent_logs::append(tx, agent, source, lines, at(now)).await).await.unwrap()
}

async fn contacts_are_in_order_though_the_clock_is_not(fixture: Fixture) {
    let job = fixture.job(&coder_domain::tags::TagSet::untagged()).await;
    let agent = new_agent(&fixture, job, "t", 1).await.id;
    let mut tx = fixture.store.single().await.unwrap();
    let times = async |tx: &mut coder_store::Tx| {
        let row = agents::find(tx, agent).await.unwrap().unwrap();
        (row.first_connected_at, row.last_connected_at, row.disconnected_at)
    };
    agent_connections::connect(&mut tx, agent, "a", at(100)).await.unwrap();
    assert_eq!(
        agent_connections::update_contacts(&mut tx, &[agent, AgentId::random()], at(110)).await.unwrap(),
        1
    );
    // An older instant changes nothing.
    assert_eq!(agent_connections::update_contacts(&mut tx, &[agent], at(90)).await.unwrap(), 0);
    assert_eq!(times(&mut tx).await, (Some(at(100)), Some(at(110)), None));
    // The clock was set back before the end, and before the next connection.
    assert!(agent_connections::disconnect(&mut tx, agent, "a", at(50)).await.unwrap());
    assert_eq!(times(&mut tx).await.2, Some(at(110)));
    assert_eq!(
        agent_connections::update_contacts(&mut tx, &[agent], at(120)).await.unwrap(),
        0,
        "it has ended"
    );
    agent_connections::connect(&mut tx, agent, "b", at(60)).await.unwrap();
    let (first, last, ended) = times(&mut tx).await;
    assert!(first == Some(at(100)) && last > ended, "{last:?} {ended:?}");
    assert!(!agent_connections::disconnect(&mut tx, agent, "a", at(200)).await.unwrap(), "a late end");
    assert_eq!(times(&mut tx).await.2, ended);
    assert_eq!(agent_connections::update_contacts(&mut tx, &[agent], at(130)).await.unwrap(), 1);
}

async fn logs_of_replaced_agents_are_purged(fixture: Fixture) {
    let version = new_version(&fixture, "v1").await;
    let template = new_template(&fixture, "docker", &version).await;
    end(&fixture, version.job_id).await;
    let workspace = new_workspace(&fixture, &template, "dev").await.id;
    let mut made = Vec::new();
    for number in 0..2 {
        let (_, job, _) = new_build(&fixture, &template, workspace, Transition::Start).await.unwrap();
        end(&fixture, job).await;
        let agent = new_agent(&fixture, job, &format!("t{number}"), number).await.id;
        assert_eq!(append(&fixture, agent, &[line("a"), line("b")], 10).await, AgentLogOutcome::Stored(1));
        assert_eq!(append(&fixture, agent, &[line("c")], 20).await, AgentLogOutcome::Stored(3));
        made.push(agent);
    }
    let mut tx = fixture.store.single().await.unwrap();
    assert_eq!(agent_logs::purge(&mut tx, at(15)).await.unwrap(), 1);
    let outputs = async |tx: &mut coder_store::Tx, agent| {
        let lines = agent_logs::list(tx, agent, 0).await.unwrap();
        lines.into_iter().map(|line| (line.id, line.line.output)).collect::<Vec<_>>()
    };
    assert_eq!(outputs(&mut tx, made[0]).await, [(3, "c".to_owned())]);
    assert_eq!(outputs(&mut tx, made[1]).await.len(), 3, "its build is the latest");
    assert_eq!(agent_logs::list(&mut tx, made[1], 1).await.unwrap()[0].id, 2, "in the middle of a batch");
}

async fn rows_that_agents_and_users_add_are_bounded(fixture: Fixture) {
    let version = new_version(&fixture, "v1").await;
    let template = new_template(&fixture, "docker", &version).await;
    let workspace = new_workspace(&fixture, &template, "dev").await.id;
    let agent = new_agent(&fixture, version.job_id, "t", 1).await.id;
    let mut tx = fixture.store.begin().await.unwrap();
    let share = |port| PortShare {
        workspace_id: workspace,
        agent_name: "main".to_owned(),
        port,
        share_level: "public".to_owned(),
        protocol: "http".to_owned(),
    };
    for port in 0..MAX_SHARES {
        assert!(port_shares::upsert(&mut tx, &share(port)).await.unwrap());
    }
    assert!(!port_shares::upsert(&mut tx, &share(MAX_SHARES)).await.unwrap());
    let source = |id| agent_logs::LogSource {
        agent_id: agent,
        id,
        display_name: String::new(),
        icon: String::new(),
        created_at: at(1),
    };
    for _ in 0..=agent_logs::MAX_SOURCES {
        agent_logs::insert_source(&mut tx, &source(LogSourceId::random())).await.unwrap();
    }
    let sources = agent_logs::list_sources(&mut tx, &[agent]).await.unwrap();
    assert_eq!(i64::try_from(sources.len()).unwrap(), agent_logs::MAX_SOURCES);
    connection_log::insert(&mut tx, agent, Uuid::new_v4(), "ssh", "::1", at(1)).await.unwrap();
    assert_eq!(connection_log::purge(&mut tx, at(2)).await.unwrap(), 1);
    // Values of agents that are gone are left out of a batch.
    let value = |agent_id| agent_reports::MetadataValue {
        agent_id,
        key: "cpu".to_owned(),
        value: "1".to_owned(),
        error: String::new(),
        collected_at: at(1),
    };
    agent_reports::upsert_metadata(&mut tx, &[value(agent), value(AgentId::random())]).await.unwrap();
    assert_eq!(agent_reports::list_metadata(&mut tx, agent).await.unwrap(), [value(agent)]);
    tx.commit().await.unwrap();
}

async fn the_newest_agent_of_a_token_counts(fixture: Fixture) {
    let version = new_version(&fixture, "v1").await;
    let template = new_template(&fixture, "docker", &version).await;
    end(&fixture, version.job_id).await;
    let mut made = Vec::new();
    for name in ["one", "two"] {
        let workspace = new_workspace(&fixture, &template, name).await.id;
        let (_, job, _) = new_build(&fixture, &template, workspace, Transition::Start).await.unwrap();
        let now = i64::try_from(made.len()).unwrap();
        made.push((workspace, new_agent(&fixture, job, "same", now).await.id));
    }
    let mut tx = fixture.store.reader().await.unwrap();
    let found = agent_connections::authenticate(&mut tx, &Secret::new("same")).await.unwrap().unwrap();
    assert_eq!((found.workspace_id, found.agent_id), made[1]);
    // An agent of an import has no workspace.
    drop(tx);
    let imported = new_agent(&fixture, version.job_id, "import", 1).await.id;
    let mut tx = fixture.store.reader().await.unwrap();
    assert_eq!(agent_connections::authenticate(&mut tx, &Secret::new("import")).await.unwrap(), None);
    assert_eq!(agent_connections::find_place(&mut tx, imported).await.unwrap(), None);
}

//! Columns with secrets: the list contains every column of the schema, and the columns with secrets are encrypted.

use std::collections::{BTreeMap, BTreeSet};

use coder_domain::build::Transition;
use coder_domain::ids::{AppId, BuildId, FileId, JobId, LogSourceId, ResourceId, TemplateVersionId, UserId};
use coder_domain::key::Sha256Digest;
use coder_domain::secret::Secret;
use coder_store::external_auth_links::{self as links, OAuthTokens};
use coder_store::jobs::journals::{self, JournalEntry, StateVersion};
use coder_store::jobs::{self, assignments};
use coder_store::templates::version_details::{self, Plan, Variable};
use coder_store::users::GitSshKey;
use coder_store::workspaces::agents::{self, Agent, App, AppDefinition, Definition};
use coder_store::workspaces::resources::{self, Metadata, Resource};
use coder_store::workspaces::{agent_connections, agent_logs, build_inputs, builds};
use coder_store::{Document, Error, Location, StateKeys, Store, encryption, files, server_secrets, users};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, Row as _};

use crate::encryption::{keys, with_keys};
use crate::fixture::{Fixture, at, new_user, on_both_engines};
use crate::templates::{new_template, new_version};
use crate::workspaces::{end, new_build, new_workspace};

on_both_engines!(
    every_column_is_known_as_secret_or_not,
    secrets_are_encrypted_in_every_column_and_come_back,
    a_server_without_the_key_or_with_another_says_so_at_its_start,
);

/// Part of every secret.
const CANARY: &str = "hunter2-of-the-canary";

/// Each column with its class: `encrypted`, `hashed` (random, or hashed slowly, and never needed in clear), or `open`.
fn known() -> BTreeMap<(&'static str, &'static str), &'static str> {
    let line = |line: &'static str| {
        let (name, class) = line.split_once(' ').unwrap();
        (name.split_once('.').unwrap(), class)
    };
    include_str!("columns.txt").lines().map(line).collect()
}

/// The columns of the schema.
async fn columns(fixture: &Fixture) -> BTreeSet<(String, String)> {
    match &fixture.database().location {
        Location::Sqlite(path) => {
            let conn = rusqlite::Connection::open(path).unwrap();
            let text = "select master.name, info.name from sqlite_master as master join pragma_table_info(master.name) as info
                where master.type = 'table' and master.name <> 'schema_migrations'";
            let mut statement = conn.prepare(text).unwrap();
            let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
            found.map(Result::unwrap).collect()
        }
        Location::Postgres(url) => {
            let mut conn = sqlx::PgConnection::connect(url.expose()).await.unwrap();
            let text = "select table_name::text, column_name::text from information_schema.columns
                where table_schema = current_schema() and table_name <> 'schema_migrations'";
            let rows = sqlx::query(text).fetch_all(&mut conn).await.unwrap();
            rows.iter().map(|row| (row.get(0), row.get(1))).collect()
        }
    }
}

/// The values of a column as bytes, empty ones left out.
async fn values(fixture: &Fixture, table: &str, column: &str) -> Vec<Vec<u8>> {
    let found: Vec<Option<Vec<u8>>> = match &fixture.database().location {
        Location::Sqlite(path) => {
            let conn = rusqlite::Connection::open(path).unwrap();
            let mut statement = conn.prepare(&format!("select cast({column} as blob) from {table}")).unwrap();
            let found = statement.query_map([], |row| row.get(0)).unwrap();
            found.map(Result::unwrap).collect()
        }
        Location::Postgres(url) => {
            let mut conn = sqlx::PgConnection::connect(url.expose()).await.unwrap();
            let text = format!("select case when pg_typeof({column})::text in ('blob', 'bytea') then decode(substr({column}::text, 3), 'hex')
                else convert_to({column}::text, 'UTF8') end from {table}");
            let rows = sqlx::query(AssertSqlSafe(text)).fetch_all(&mut conn).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        }
    };
    found.into_iter().flatten().filter(|value| !value.is_empty()).collect()
}

async fn every_column_is_known_as_secret_or_not(fixture: Fixture) {
    let known = known();
    let named: BTreeSet<_> =
        known.keys().map(|(table, column)| ((*table).to_owned(), (*column).to_owned())).collect();
    let found = columns(&fixture).await;
    let missing: Vec<_> = found.difference(&named).collect();
    assert!(missing.is_empty(), "add these columns with their class to columns.txt: {missing:?}");
    assert_eq!(
        named.difference(&found).collect::<Vec<_>>(),
        Vec::<&(String, String)>::new(),
        "these are gone"
    );
    let of =
        |class: &str| known.iter().filter(|(_, known)| **known == class).map(|(name, _)| *name).collect();
    let encrypted: BTreeSet<_> = of("encrypted");
    assert_eq!(encryption::rotation::columns().collect::<BTreeSet<_>>(), encrypted);
    let classes: BTreeSet<_> = known.values().copied().collect();
    assert_eq!(classes, BTreeSet::from(["encrypted", "hashed", "open"]));
}

/// The written rows, which are read again.
struct Written {
    build: BuildId,
    job: JobId,
    version: TemplateVersionId,
    import: JobId,
    resource: ResourceId,
    file: FileId,
    long_file: FileId,
    user: UserId,
}

fn lines(count: usize) -> Vec<jobs::logs::NewLine> {
    let line = |number| jobs::logs::NewLine {
        created_at: at(1),
        source: jobs::logs::Source::Provisioner,
        level: jobs::logs::Level::Info,
        stage: "Plan".to_owned(),
        output: format!("{number} {CANARY}"),
    };
    (0..count).map(line).collect()
}

fn variable() -> Variable {
    Variable {
        name: "token of all".to_owned(),
        description: String::new(),
        kind: "string".to_owned(),
        value: Secret::new(CANARY),
        default_value: Secret::new(format!("default {CANARY}")),
        required: false,
        sensitive: true,
    }
}

fn input(text: &str) -> Document {
    Document(json!({ "value": format!("{text} {CANARY}") }))
}

fn tokens() -> OAuthTokens {
    OAuthTokens { access: Secret::new(CANARY), refresh: Secret::new(CANARY), expires_at: None }
}

fn parameters() -> BTreeMap<String, String> {
    [("a password".to_owned(), CANARY.to_owned()), ("empty".to_owned(), String::new())].into()
}

/// Writes one row of each kind.
async fn write(fixture: &Fixture, name: &str) -> Written {
    let version = new_version(fixture, name).await;
    let template = new_template(fixture, name, &version).await;
    let import = version.job_id;
    let mut tx = fixture.store.begin().await.unwrap();
    jobs::update_input(&mut tx, import, &input("import")).await.unwrap();
    jobs::logs::append_system(&mut tx, import, &lines(1)).await.unwrap();
    jobs::logs::append_system(&mut tx, import, &lines(400)).await.unwrap();
    version_details::update_variables(&mut tx, version.id, &[variable()]).await.unwrap();
    let plan = Plan { plan: CANARY.into(), module_file_id: None, provisioner_version: String::new() };
    version_details::update_plan(&mut tx, version.id, plan, at(1)).await.unwrap();
    let data = format!("{name} {CANARY}").into_bytes();
    let (hash, size) = (files::hash(&data), data.len() as u64);
    let new = files::NewFile { hash, size, created_by: fixture.user, mimetype: "application/x-tar" };
    let file = files::insert(&mut tx, &new, &mut &data[..], at(1)).await;
    let file = file.unwrap().0.id;
    let long = data.repeat(files::PART_BYTES / data.len() + 1);
    let new = files::NewFile { hash: files::hash(&long), size: long.len() as u64, ..new };
    let long_file = files::insert(&mut tx, &new, &mut &long[..], at(1)).await.unwrap().0.id;
    let user = new_user(name);
    users::insert(&mut tx, &user).await.unwrap();
    let pair = GitSshKey {
        user_id: user.id,
        public_key: "public".to_owned(),
        private_key: Secret::new(CANARY),
        created_at: at(1),
        updated_at: at(1),
    };
    users::insert_git_ssh_key(&mut tx, &pair).await.unwrap();
    links::put(&mut tx, user.id, "github", &tokens(), at(1)).await.unwrap();
    server_secrets::find_or_insert(&mut tx, name, &Secret::new(CANARY)).await.unwrap();
    tx.commit().await.unwrap();
    end(fixture, import).await;
    let workspace = new_workspace(fixture, &template, name).await.id;
    let (build, job, _) = new_build(fixture, &template, workspace, Transition::Start).await.unwrap();
    let mut tx = fixture.store.begin().await.unwrap();
    builds::insert_parameters(&mut tx, build, &parameters()).await.unwrap();
    builds::update_state(&mut tx, build, CANARY.into()).await.unwrap();
    jobs::update_input(&mut tx, job, &input("build")).await.unwrap();
    let version_of_state = StateVersion { serial: 1, lineage: "l".to_owned(), sha256: Sha256Digest::of("x") };
    let entry = JournalEntry { version: version_of_state, cipher: String::new(), state: CANARY.into() };
    assert!(
        journals::put(&mut tx, job, &entry.version, entry.state.clone(), None, at(5)).await.unwrap().kept
    );
    let resource = Resource {
        id: ResourceId::random(),
        job_id: job,
        position: 0,
        transition: Transition::Start,
        kind: "docker_container".to_owned(),
        name: "main".to_owned(),
        hide: false,
        icon: String::new(),
        instance_type: String::new(),
        daily_cost: 0,
        module_path: String::new(),
        metadata: vec![Metadata { key: "token".to_owned(), value: CANARY.to_owned(), sensitive: true }],
        created_at: at(1),
    };
    resources::insert(&mut tx, std::slice::from_ref(&resource)).await.unwrap();
    let env = [("TOKEN".to_owned(), CANARY.to_owned())].into();
    let definition = Definition { env, ..Definition::default() };
    let token = Secret::new(format!("{name} {CANARY}"));
    let agent = Agent::reported(resource.id, 0, "main".to_owned(), token, definition, at(1));
    agents::insert(&mut tx, std::slice::from_ref(&agent)).await.unwrap();
    let app = App {
        id: AppId::random(),
        agent_id: agent.id,
        position: 0,
        slug: "code".to_owned(),
        definition: AppDefinition { url: format!("http://x?token={CANARY}"), ..AppDefinition::default() },
        health: "disabled".to_owned(),
        created_at: at(1),
    };
    agents::insert_apps(&mut tx, &[app]).await.unwrap();
    let line = agent_logs::NewAgentLogLine { level: jobs::logs::Level::Info, output: CANARY.to_owned() };
    agent_logs::append(&mut tx, agent.id, LogSourceId::random(), &[line], at(1)).await.unwrap();
    tx.commit().await.unwrap();
    Written { build, job, version: version.id, import, resource: resource.id, file, long_file, user: user.id }
}

/// Reads all secrets with every function that reads them.
async fn read(store: &Store, name: &str, written: &Written) -> Result<(), Error> {
    let mut tx = store.reader().await?;
    assert_eq!(jobs::get(&mut tx, written.import).await?.input, input("import"));
    assert_eq!(jobs::get(&mut tx, written.job).await?.input, input("build"));
    let logs = jobs::logs::list(&mut tx, written.import, 0, 1000, i64::MAX).await?;
    assert_eq!(logs.iter().filter(|line| line.line.output.ends_with(CANARY)).count(), 401);
    assert!(jobs::logs::find_last(&mut tx, written.import).await?.is_some());
    assert_eq!(version_details::list_variables(&mut tx, written.version).await?, [variable()]);
    assert!(version_details::find_plan(&mut tx, written.version).await?.unwrap().plan == CANARY.as_bytes());
    let data = format!("{name} {CANARY}").into_bytes();
    assert!(files::get_data(&mut tx, written.file).await? == data);
    let long = data.repeat(files::PART_BYTES / data.len() + 1);
    assert!(files::get_data(&mut tx, written.long_file).await? == long);
    let pair = users::find_git_ssh_key(&mut tx, written.user).await?.unwrap();
    assert_eq!(pair.private_key.expose(), CANARY);
    assert_eq!(links::find(&mut tx, written.user, "github").await?.unwrap().tokens, tokens());
    assert_eq!(server_secrets::find(&mut tx, name).await?.unwrap().expose(), CANARY);
    assert_eq!(builds::list_parameters(&mut tx, written.build).await?, parameters());
    assert_eq!(
        build_inputs::list_parameters(&mut tx, written.version, Some(written.build)).await?.values,
        parameters()
    );
    assert!(builds::find_state(&mut tx, written.build).await?.unwrap() == CANARY.as_bytes());
    assert!(journals::find(&mut tx, written.job).await?.unwrap().state == CANARY.as_bytes());
    let assignment = assignments::get(&mut tx, written.job).await?;
    assert!(
        assignment.state.unwrap() == CANARY.as_bytes() && assignment.archive.unwrap().data.unwrap() == b"tar"
    );
    assert_eq!(assignments::list_parameters(&mut tx, &assignment.context.unwrap()).await?.0, parameters());
    let resources = resources::list(&mut tx, &[written.job]).await?;
    assert_eq!(resources[0].metadata[0].value, CANARY);
    let agents = agents::list(&mut tx, &[written.resource]).await?;
    assert_eq!(agents[0].definition.env["TOKEN"], CANARY);
    let token = Secret::new(format!("{name} {CANARY}"));
    let found = agent_connections::authenticate(&mut tx, &token).await?.map(|found| found.agent_id);
    assert_eq!(found, Some(agents[0].id), "by its hash");
    let hash = &agents[0].auth_token;
    assert_eq!(agent_connections::authenticate(&mut tx, hash).await?, None, "the hash is not a token");
    let log = agent_logs::list(&mut tx, agents[0].id, 0).await?;
    assert_eq!(log[0].line.output, CANARY);
    let apps = agents::list_apps(&mut tx, &[agents[0].id]).await?;
    assert!(apps[0].definition.url.ends_with(CANARY));
    assert_eq!(encryption::rotation::list_undecryptable(store).await?, []);
    Ok(())
}

/// Every column that holds secrets has a value, all their values are encrypted, and no column contains the secret.
async fn all_is_encrypted(fixture: &Fixture) {
    for (table, column) in encryption::rotation::columns() {
        let values = values(fixture, table, column).await;
        assert!(!values.is_empty(), "{table}.{column} is not tried");
        let is_marked = |value: &Vec<u8>| value.starts_with(b"\0cst1") || value.starts_with(b"\x01cst1:");
        assert!(values.iter().all(is_marked), "{table}.{column} has a value that is not encrypted");
    }
    for (table, column) in known().into_keys() {
        for value in values(fixture, table, column).await {
            let has = value.windows(CANARY.len()).any(|part| part == CANARY.as_bytes());
            assert!(!has, "{table}.{column} has the secret: {}", String::from_utf8_lossy(&value));
        }
    }
}

async fn secrets_are_encrypted_in_every_column_and_come_back(mut fixture: Fixture) {
    let plain = write(&fixture, "plain").await;
    // The token as earlier releases stored it.
    let token = format!("update workspace_agents set auth_token = 'plain {CANARY}'");
    fixture.database().execute(&token).await;
    let without = with_keys(&fixture, &[]).await;
    encryption::register(&without, at(8)).await.unwrap();
    assert_eq!(encryption::complete(&without, at(9)).await.unwrap(), None, "there is no key");
    let tokens = values(&fixture, "workspace_agents", "auth_token").await;
    assert!(tokens.iter().all(|token| token.starts_with(b"sha256:")), "hashed without a key, too");
    let before = without.statement_counts().work;
    assert_eq!(encryption::complete(&without, at(9)).await.unwrap(), None);
    assert_eq!(without.statement_counts().work - before, 1, "the tokens are searched only once");

    fixture.store = with_keys(&fixture, &[1]).await;
    encryption::register(&fixture.store, at(10)).await.unwrap();
    let changed = encryption::complete(&fixture.store, at(11)).await.unwrap().unwrap().changed;
    assert!(changed > 15, "{changed}");
    all_is_encrypted(&fixture).await;
    read(&fixture.store, "plain", &plain).await.unwrap();
    let sealed = write(&fixture, "sealed").await;
    all_is_encrypted(&fixture).await;
    read(&fixture.store, "sealed", &sealed).await.unwrap();
    assert_eq!(encryption::complete(&fixture.store, at(12)).await.unwrap(), None, "done before");

    fixture.store = with_keys(&fixture, &[2, 1]).await;
    read(&fixture.store, "plain", &plain).await.unwrap();
    encryption::register(&fixture.store, at(13)).await.unwrap();
    let rotated = encryption::complete(&fixture.store, at(14)).await.unwrap().unwrap();
    assert_eq!(
        rotated.changed,
        encryption::rotation::rotate(&fixture.store, &keys(&[2])).await.unwrap().total
            - empty(&fixture).await
    );
    let new = with_keys(&fixture, &[2]).await;
    encryption::register(&new, at(15)).await.unwrap();
    for (name, written) in [("plain", &plain), ("sealed", &sealed)] {
        read(&new, name, written).await.unwrap();
    }
    encryption::rotate(&new, &StateKeys::default(), at(16)).await.unwrap();
    let without = with_keys(&fixture, &[]).await;
    encryption::register(&without, at(17)).await.unwrap();
    read(&without, "sealed", &sealed).await.unwrap();
}

/// The number of empty or null values, which stay empty.
async fn empty(fixture: &Fixture) -> u64 {
    let mut empty = 0;
    for (table, column) in encryption::rotation::columns() {
        let all = values(fixture, table, "1").await.len();
        empty += all - values(fixture, table, column).await.len();
    }
    u64::try_from(empty).unwrap()
}

async fn a_server_without_the_key_or_with_another_says_so_at_its_start(fixture: Fixture) {
    let start =
        async |numbers: &[u8]| encryption::register(&with_keys(&fixture, numbers).await, at(20)).await;
    let missing = |result: Result<(), Error>, number: u8| {
        let error = result.unwrap_err();
        let name = keys(&[number]).current().unwrap();
        assert!(matches!(&error, Error::EncryptionKeyMissing { key } if *key == name), "{error}");
        assert!(error.to_string().contains("--state-encryption-keys"), "{error}");
    };
    // A state of an earlier release, which had no list of keys.
    let version = new_version(&fixture, "v1").await;
    let template = new_template(&fixture, "docker", &version).await;
    end(&fixture, version.job_id).await;
    let workspace = new_workspace(&fixture, &template, "dev").await.id;
    let (build, _, _) = new_build(&fixture, &template, workspace, Transition::Start).await.unwrap();
    let old = with_keys(&fixture, &[1]).await;
    builds::update_state(&mut old.single().await.unwrap(), build, CANARY.into()).await.unwrap();
    missing(start(&[]).await, 1);
    missing(start(&[2]).await, 1);
    start(&[1]).await.unwrap();
    // From now on the list exists.
    missing(start(&[]).await, 1);
    missing(start(&[2]).await, 1);
    start(&[2, 1]).await.unwrap();
    missing(start(&[1]).await, 2);
    let both = with_keys(&fixture, &[2, 1]).await;
    encryption::complete(&both, at(21)).await.unwrap().unwrap();
    start(&[2]).await.unwrap();
    missing(start(&[1]).await, 2);
    // Two keys with one id are distinguished.
    fixture.database().execute("update encryption_keys set proof = 'coder2'").await;
    missing(start(&[2]).await, 2);
}

#[test]
fn what_may_hold_a_secret_is_shown_without_it() {
    let metadata = Metadata { key: "token".to_owned(), value: CANARY.to_owned(), sensitive: true };
    assert_eq!(format!("{metadata:?}"), "Metadata(\"token\", …)");
    assert_eq!(format!("{:?}", input("build")), "Document(…)");
    let version = StateVersion { serial: 7, lineage: "l".to_owned(), sha256: Sha256Digest::of("x") };
    let entry = JournalEntry { version: version.clone(), cipher: String::new(), state: CANARY.into() };
    assert_eq!(format!("{entry:?}"), format!("JournalEntry {{ version: {version:?}, .. }}"));
}

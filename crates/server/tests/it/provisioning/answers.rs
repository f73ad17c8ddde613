//! The answers of the API about one deployment, whole: a template with everything that a template can have, its workspace, and what
//! was done with them. The answers are compared with `answers.txt`; ids and random texts are numbered in the order in which they appear.
//!
//! `UPDATE_REFERENCE=1` writes the file. Review the difference before committing it.

use std::collections::HashMap;
use std::fmt::Write;

use coder_server::router;
use coder_wire::messages::provisioner::{
    Agent, App, Env, Healthcheck, Module, Prebuild, Preset, PresetParameter, Resource, RichParameter,
    RichParameterOption, Script, TemplateVariable, Timing, agent, resource,
};
use coder_wire::messages::provisionerd::CommitQuotaRequest;
use http::Method;
use regex::Regex;

use super::*;
use crate::harness::{Answer, START};

/// The answers as they were.
const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/provisioning/answers.txt");
/// What does not end, is not JSON, or is for daemons and agents.
const NOT_WALKED: [&str; 10] = [
    "/me/",
    "/serve",
    "/watch",
    "/coordinate",
    "/pty",
    "/tailnet",
    "/derp-map",
    "/files/",
    "/debug/",
    "/state",
];

/// A server, and what it has answered.
struct Story {
    server: TestServer,
    owner: String,
    told: String,
}

impl Story {
    async fn ask(&mut self, method: Method, path: &str, body: Value) -> Answer {
        self.server.advance(1);
        let answer = self.server.ask(&self.owner, method.clone(), &format!("/api/v2{path}"), body).await;
        writeln!(self.told, "{method} {path}\n{}", answer.status.as_u16()).unwrap();
        if !answer.body.is_empty() {
            writeln!(self.told, "{}", serde_json::to_string_pretty(&answer.json()).unwrap()).unwrap();
        }
        self.told.push('\n');
        answer
    }

    async fn post(&mut self, path: &str, body: Value) -> Value {
        self.ask(Method::POST, path, body).await.expect(201)
    }

    /// The daemon gets this job.
    async fn hand_out(&mut self, daemon: &Daemon, wanted: JobId) {
        let mut job = daemon.acquire().await;
        assert_eq!(job.job_id, wanted.to_string());
        job.template_source_archive.clear();
        writeln!(self.told, "A daemon gets\n{job:#?}\n").unwrap();
    }

    async fn get(&mut self, path: &str) -> Answer {
        self.ask(Method::GET, path, Value::Null).await
    }
}

/// Numbers what is random.
fn numbered(text: &str) -> String {
    let random = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9A-Za-z]{10}-[0-9A-Za-z]{22}\
        |ssh-ed25519 [0-9A-Za-z+/]+|-----BEGIN OPENSSH PRIVATE KEY.*OPENSSH PRIVATE KEY-----|\"[0-9A-Za-z]{10}\"|\"[0-9A-Za-z]{43}\"";
    let nil = uuid::Uuid::nil().to_string();
    let mut known = HashMap::from([(nil.clone(), nil)]);
    let number = |found: &regex::Captures<'_>| {
        let next = known.len();
        known.entry(found[0].to_owned()).or_insert_with(|| format!("<{next}>")).clone()
    };
    Regex::new(random).unwrap().replace_all(text, number).into_owned()
}

fn at(seconds: i64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds: START.as_second() + seconds, nanos: 500_000_000 })
}

fn timing(stage: &str, resource: &str, begin: i64, end: i64, state: i32) -> Timing {
    Timing {
        start: at(begin),
        end: at(end),
        action: "create".to_owned(),
        source: "docker".to_owned(),
        resource: resource.to_owned(),
        stage: stage.to_owned(),
        state,
    }
}

fn machine() -> Resource {
    let health = Healthcheck { url: "http://localhost:8000/healthz".to_owned(), interval: 5, threshold: 6 };
    let web = App {
        slug: "web".to_owned(),
        display_name: "Web".to_owned(),
        url: "http://localhost:8000".to_owned(),
        icon: "/icon/code.svg".to_owned(),
        subdomain: true,
        healthcheck: Some(health),
        sharing_level: 2,
        open_in: 1,
        group: "Editors".to_owned(),
        tooltip: "Opens the *editor*".to_owned(),
        ..App::default()
    };
    let shell = App {
        slug: "shell".to_owned(),
        display_name: "Shell".to_owned(),
        command: "htop".to_owned(),
        order: 1,
        hidden: true,
        ..App::default()
    };
    let docs = App {
        slug: "docs".to_owned(),
        url: "https://example.com".to_owned(),
        external: true,
        order: 2,
        open_in: 2,
        ..App::default()
    };
    let script = Script {
        display_name: "Startup".to_owned(),
        icon: "/icon/run.svg".to_owned(),
        script: "make".to_owned(),
        cron: "0 0 * * *".to_owned(),
        start_blocks_login: true,
        run_on_start: true,
        run_on_stop: true,
        timeout_seconds: 60,
        log_path: "start.log".to_owned(),
    };
    let item = agent::Metadata {
        key: "cpu".to_owned(),
        display_name: "CPU".to_owned(),
        script: "top".to_owned(),
        interval: 10,
        timeout: 2,
        order: 3,
    };
    let main = Agent {
        name: "main".to_owned(),
        env: [("A".to_owned(), "1".to_owned())].into(),
        operating_system: "linux".to_owned(),
        architecture: "arm64".to_owned(),
        directory: "/work".to_owned(),
        apps: vec![web, shell, docs],
        connection_timeout_seconds: 90,
        troubleshooting_url: "https://help.example.com".to_owned(),
        motd_file: "/etc/motd".to_owned(),
        metadata: vec![item],
        scripts: vec![script],
        extra_envs: vec![Env { name: "B".to_owned(), value: "2".to_owned() }],
        ..Agent::default()
    };
    let shown = |key: &str, value: &str, sensitive, is_null| resource::Metadata {
        key: key.to_owned(),
        value: value.to_owned(),
        sensitive,
        is_null,
    };
    Resource {
        agents: vec![main],
        metadata: vec![
            shown("cores", "4", false, false),
            shown("password", "secret", true, false),
            shown("later", "", false, true),
        ],
        icon: "/icon/box.svg".to_owned(),
        instance_type: "large".to_owned(),
        daily_cost: 7,
        module_path: "module.box".to_owned(),
        ..resource("machine")
    }
}

fn import_of_everything(job: JobId) -> CompletedJob {
    let option = |name: &str, value: &str| RichParameterOption {
        name: name.to_owned(),
        description: format!("In *{name}*"),
        value: value.to_owned(),
        icon: "/icon/flag.svg".to_owned(),
    };
    let region = RichParameter {
        name: "region".to_owned(),
        description: "**Where**".to_owned(),
        r#type: "string".to_owned(),
        mutable: true,
        default_value: "eu".to_owned(),
        icon: "/icon/map.svg".to_owned(),
        options: vec![option("Europe", "eu"), option("America", "us")],
        display_name: "Region".to_owned(),
        order: 1,
        ..RichParameter::default()
    };
    let size = RichParameter {
        name: "size".to_owned(),
        r#type: "number".to_owned(),
        default_value: "2".to_owned(),
        validation_min: Some(1),
        validation_max: Some(8),
        validation_error: "From 1 to 8.".to_owned(),
        validation_monotonic: "increasing".to_owned(),
        mutable: true,
        order: 2,
        ..RichParameter::default()
    };
    let once = RichParameter {
        name: "once".to_owned(),
        r#type: "string".to_owned(),
        default_value: "a".to_owned(),
        validation_regex: "^[a-z]$".to_owned(),
        validation_error: "One letter.".to_owned(),
        mutable: true,
        ephemeral: true,
        order: 3,
        ..RichParameter::default()
    };
    let preset = Preset {
        name: "Large".to_owned(),
        parameters: vec![PresetParameter { name: "size".to_owned(), value: "8".to_owned() }],
        prebuild: Some(Prebuild { instances: 2, ..Prebuild::default() }),
        default: true,
        description: "Much of everything".to_owned(),
        icon: "/icon/big.svg".to_owned(),
    };
    let module = Module {
        source: "./box".to_owned(),
        version: "1.0.0".to_owned(),
        key: "box".to_owned(),
        ..Module::default()
    };
    let import = completed_job::TemplateImport {
        start_resources: vec![machine(), resource("disk")],
        stop_resources: vec![resource("disk")],
        rich_parameters: vec![region, size, once],
        presets: vec![preset],
        start_modules: vec![module],
        ..completed_job::TemplateImport::default()
    };
    CompletedJob { job_id: job.to_string(), r#type: Some(completed_job::Type::TemplateImport(import)) }
}

fn id_in(value: &Value) -> String {
    value["id"].as_str().unwrap().to_owned()
}

fn job_in(value: &Value) -> JobId {
    value["job"]["id"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn of_one_deployment_are_as_they_were() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    server.user(&owner, "dev", &["auditor"]).await;
    let daemon = Daemon::tagged(&server, "builder", &[("zone", "a")]).await;
    let file = server.file(&owner).await;
    let mut story = Story { server, owner, told: String::new() };

    // People, tokens, organizations and keys.
    let blue = json!({ "name": "blue", "display_name": "Blue", "description": "The blue ones", "icon": "/blue.svg" });
    story.post("/organizations", blue).await;
    story
        .ask(Method::PATCH, "/organizations/blue", json!({ "display_name": "Very blue", "description": "" }))
        .await;
    story.ask(Method::POST, "/organizations/blue/members/dev", Value::Null).await;
    let roles = json!({ "roles": ["organization-auditor"] });
    story.ask(Method::PUT, "/organizations/blue/members/dev/roles", roles).await;
    story.ask(Method::PUT, "/users/dev/roles", json!({ "roles": ["template-admin"] })).await;
    story.ask(Method::PUT, "/users/dev/profile", json!({ "username": "dev", "name": "De Veloper" })).await;
    story
        .ask(Method::PUT, "/users/dev/quiet-hours", json!({ "schedule": "CRON_TZ=Europe/Berlin 30 2 * * *" }))
        .await;
    story.ask(Method::PUT, "/users/dev/status/suspend", json!({})).await;
    story.ask(Method::PUT, "/users/dev/status/activate", json!({})).await;
    let token =
        json!({ "token_name": "ci", "scopes": ["workspace:read"], "lifetime": 7_200_000_000_000_i64 });
    story.post("/users/me/keys/tokens", token).await;
    let key = json!({ "name": "fleet", "tags": { "zone": "b" } });
    story.post("/organizations/default/provisionerkeys", key).await;

    // A template whose import brings everything.
    let version = json!({ "name": "v1", "message": "The first", "file_id": file, "storage_method": "file",
        "provisioner": "terraform", "tags": { "zone": "a" },
        "user_variable_values": [{ "name": "image", "value": "debian" }] });
    let version = story.post("/organizations/default/templateversions", version).await;
    let imported = job_in(&version);
    story.hand_out(&daemon, imported).await;
    let variables = vec![
        TemplateVariable { description: "What runs".to_owned(), ..variable("image", "alpine", false) },
        TemplateVariable {
            sensitive: true,
            r#type: "string".to_owned(),
            ..variable("password", "secret", false)
        },
    ];
    let update = UpdateJobRequest {
        job_id: imported.to_string(),
        logs: vec![line("planning"), line("planned")],
        template_variables: variables,
        readme: b"# Hello".as_slice().into(),
        ..UpdateJobRequest::default()
    };
    daemon.calls.update_job(&update).await.unwrap();
    daemon.calls.complete_job(&import_of_everything(imported)).await.unwrap();
    let version = id_in(&version);
    let template = json!({ "name": "hello", "display_name": "Hello", "description": "Says it", "icon": "/hello.svg",
        "template_version_id": version, "default_ttl_ms": 3_600_000, "activity_bump_ms": 1_800_000,
        "max_port_share_level": "authenticated", "allow_user_cancel_workspace_jobs": false });
    let template = id_in(&story.post("/organizations/default/templates", template).await);
    let changes = json!({ "description": "Says it again", "failure_ttl_ms": 86_400_000, "require_active_version": true,
        "allow_user_autostart": true, "allow_user_autostop": true,
        "autostart_requirement": { "days_of_week": ["monday", "friday"] }, "deprecation_message": "Use bye" });
    story.ask(Method::PATCH, &format!("/templates/{template}"), changes).await;
    let again = json!({ "deprecation_message": "", "default_ttl_ms": 3_600_000, "require_active_version": true,
        "allow_user_autostart": true, "allow_user_autostop": true });
    story.ask(Method::PATCH, &format!("/templates/{template}"), again).await;
    story
        .ask(
            Method::PATCH,
            &format!("/templateversions/{version}"),
            json!({ "name": "v1.0", "message": "First" }),
        )
        .await;

    // A workspace that was built, is used, and whose stop fails.
    let workspace = json!({ "template_id": template, "name": "w", "ttl_ms": 7_200_000,
        "autostart_schedule": "CRON_TZ=UTC 30 9 * * 1-5", "automatic_updates": "always",
        "rich_parameter_values": [{ "name": "region", "value": "us" }] });
    let workspace = story.post("/users/me/workspaces", workspace).await;
    let built = job_in(&workspace["latest_build"]);
    story.hand_out(&daemon, built).await;
    daemon.update(built, 2).await.unwrap();
    let quota = CommitQuotaRequest { job_id: built.to_string(), daily_cost: 7 };
    daemon.calls.commit_quota(&quota).await.unwrap();
    let made = completed_job::WorkspaceBuild {
        state: b"{}".as_slice().into(),
        resources: vec![machine()],
        timings: vec![timing("plan", "machine", 1, 4, 2), timing("apply", "disk", 4, 9, 3)],
        ..Default::default()
    };
    let result =
        CompletedJob { job_id: built.to_string(), r#type: Some(completed_job::Type::WorkspaceBuild(made)) };
    daemon.calls.complete_job(&result).await.unwrap();
    let (workspace, build) = (id_in(&workspace), id_in(&workspace["latest_build"]));
    let found = story.get(&format!("/workspaces/{workspace}")).await.expect(200);
    let agent = id_in(&found["latest_build"]["resources"][0]["agents"][0]);
    let share =
        json!({ "agent_name": "main", "port": 8080, "share_level": "organization", "protocol": "https" });
    story.ask(Method::POST, &format!("/workspaces/{workspace}/port-share"), share).await;
    for (what, body) in [
        ("favorite", Value::Null),
        ("autostart", json!({ "schedule": "CRON_TZ=UTC 0 8 * * 1" })),
        ("ttl", json!({ "ttl_ms": 3_600_000 })),
        ("autoupdates", json!({ "automatic_updates": "never" })),
        ("dormant", json!({ "dormant": true })),
        ("dormant", json!({ "dormant": false })),
    ] {
        story.ask(Method::PUT, &format!("/workspaces/{workspace}/{what}"), body).await;
    }
    let later = START.checked_add(jiff::SignedDuration::from_hours(9)).unwrap();
    story.ask(Method::PUT, &format!("/workspaces/{workspace}/extend"), json!({ "deadline": later })).await;
    let stop = json!({ "transition": "stop", "reason": "dashboard" });
    let stop = job_in(&story.post(&format!("/workspaces/{workspace}/builds"), stop).await);
    story.hand_out(&daemon, stop).await;
    daemon.fail(stop, "it does not stop").await.unwrap();
    let dry_run =
        json!({ "workspace_name": "x", "rich_parameter_values": [{ "name": "size", "value": "3" }] });
    let dry_run = id_in(&story.post(&format!("/templateversions/{version}/dry-run"), dry_run).await);

    let names = [
        ("organization", "default"),
        ("organizationname", "blue"),
        ("user", "dev"),
        ("template", template.as_str()),
        ("templatename", "hello"),
        ("templateversion", version.as_str()),
        ("templateversionname", "v1.0"),
        ("workspace", workspace.as_str()),
        ("workspacename", "w"),
        ("workspaceagent", agent.as_str()),
        ("workspacebuild", build.as_str()),
        ("buildnumber", "2"),
        ("job", dry_run.as_str()),
        ("keyname", "ci"),
        ("provisionerkey", "fleet"),
        ("externalauth", "none"),
    ];
    for row in router::rows(story.server.app.clone()) {
        let Some(path) = row.path.strip_prefix("/api/v2") else { continue };
        if row.method != Method::GET || NOT_WALKED.iter().any(|part| path.contains(part)) {
            continue;
        }
        // What belongs to a user is the owner's, but for the user.
        let user = if path.contains("/keys") || path.contains("/workspace") { "me" } else { "dev" };
        let path = path.replace("{user}", user);
        let path = names.iter().fold(path, |path, (name, value)| path.replace(&format!("{{{name}}}"), value));
        if !path.contains('{') {
            story.get(&path).await;
        }
    }
    for path in [
        format!("/workspacebuilds/{build}/logs?after=1"),
        format!("/workspaces/{workspace}/builds?limit=1"),
        "/workspaces?q=owner:me+name:w+template:hello+status:failed".to_owned(),
        "/workspaces?q=status:running".to_owned(),
        "/audit?q=resource_type:workspace&limit=2&offset=1".to_owned(),
        "/audit?q=action:delete".to_owned(),
        "/users?q=role:owner".to_owned(),
        "/users/me/keys/tokens?include_all=true".to_owned(),
        "/organizations/default/provisionerjobs?status=failed".to_owned(),
        "/organizations/default/provisionerdaemons?offline=true&tags=%7B%22zone%22%3A%22a%22%7D".to_owned(),
    ] {
        story.get(&path).await;
    }

    let told = numbered(&story.told);
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(REFERENCE, &told).unwrap();
        return;
    }
    let known = std::fs::read_to_string(REFERENCE).unwrap();
    for (told, known) in told.split("\n\n").zip(known.split("\n\n")) {
        assert_eq!(told, known, "an answer changed; see the head of answers.rs");
    }
    assert_eq!(told.len(), known.len(), "answers were added or removed; see the head of answers.rs");
}

//! The conversion against captured outputs where they exist, and against small templates made here.

use coder_wire::messages::provisioner as pb;
use serde_json::{Value, json};

use super::*;
use crate::terraform::graph::Graph;
use crate::terraform::state::Module;

fn module(resources: Value) -> Module {
    serde_json::from_value(json!({ "resources": resources })).unwrap()
}

fn resource(address: &str, values: Value) -> Value {
    let local = address.rsplit("module.").next().unwrap();
    let local = local.split_once('.').filter(|_| address.contains("module.")).map_or(local, |(_, rest)| rest);
    let (mode, local) = local.strip_prefix("data.").map_or(("managed", local), |rest| ("data", rest));
    let (kind, name) = local.split_once('.').unwrap();
    let name = name.split('[').next().unwrap();
    json!({"address": address, "mode": mode, "type": kind, "name": name, "values": values})
}

/// A graph of labels, with edges from the dependent to what it depends on.
fn graph(edges: &[(&str, &str)]) -> Graph {
    let mut text = String::from("digraph {\n");
    for label in edges.iter().flat_map(|(a, b)| [a, b]) {
        text.push_str(&format!("\"[root] {label} (expand)\" [label = \"{label}\"]\n"));
    }
    for (from, to) in edges {
        text.push_str(&format!("\"[root] {from} (expand)\" -> \"[root] {to} (expand)\"\n"));
    }
    text.push('}');
    Graph::parse(&text).unwrap()
}

fn agent(name: &str, id: &str) -> Value {
    resource(
        &format!("coder_agent.{name}"),
        json!({"id": id, "os": "linux", "arch": "amd64", "auth": "token", "token": "t"}),
    )
}

#[test]
fn two_agents_two_resources_and_metadata_find_their_places() {
    let module = module(json!([
        agent("one", "1"),
        agent("two", "2"),
        resource("terraform_data.a", json!({})),
        resource("terraform_data.b[0]", json!({})),
        resource("terraform_data.b[1]", json!({})),
        resource("coder_app.x", json!({"agent_id": "2", "slug": "x", "share": "Public", "open_in": "tab"})),
        resource("coder_script.s", json!({"agent_id": "1", "display_name": "s", "timeout": 3})),
        resource("coder_env.e", json!({"agent_id": "1", "name": "E", "value": "v"})),
        resource(
            "coder_metadata.m",
            json!({"resource_id": "ignored", "daily_cost": 4, "icon": "/i", "item": [
            {"key": "k", "value": "v", "sensitive": true}, {"key": "n", "value": null, "is_null": true}]})
        ),
    ]));
    let graph = graph(&[
        ("terraform_data.a", "coder_agent.one"),
        ("terraform_data.b", "coder_agent.two"),
        ("coder_metadata.m", "terraform_data.b"),
        ("coder_app.x", "coder_agent.two"),
    ]);
    let converted = convert(&[module], &graph).unwrap();
    let names: Vec<_> = converted.resources.iter().map(|r| (r.r#type.as_str(), r.name.as_str())).collect();
    assert_eq!(
        names,
        [("coder_env", "e"), ("terraform_data", "a"), ("terraform_data", "b"), ("terraform_data", "b")]
    );
    let a = &converted.resources[1];
    assert_eq!(a.agents[0].name, "one");
    assert_eq!(a.agents[0].extra_envs[0].name, "E");
    assert_eq!(a.agents[0].scripts[0].timeout_seconds, 3);
    assert!(a.metadata.is_empty() && a.daily_cost == 0);
    for b in &converted.resources[2..] {
        assert_eq!(b.agents[0].name, "two");
        assert_eq!(b.agents[0].apps[0].sharing_level(), pb::AppSharingLevel::Public);
        assert_eq!(b.agents[0].apps[0].open_in(), pb::AppOpenIn::Tab);
        assert_eq!((b.daily_cost, b.icon.as_str(), b.metadata.len()), (4, "/i", 2));
        assert!(b.metadata[0].sensitive && b.metadata[1].is_null);
    }
}

#[test]
fn unknown_ids_attach_by_direct_edges() {
    let module = module(json!([
        resource("coder_agent.one", json!({"os": "linux"})),
        resource("coder_agent.two", json!({"os": "linux"})),
        resource("terraform_data.a", json!({})),
        resource("coder_app.x", json!({"slug": "x"})),
    ]));
    let graph = graph(&[
        ("terraform_data.a", "coder_agent.one"),
        ("terraform_data.a", "coder_agent.two"),
        ("coder_app.x", "coder_agent.two"),
    ]);
    let converted = convert(&[module], &graph).unwrap();
    let agents = &converted.resources[0].agents;
    assert!(agents[0].apps.is_empty());
    assert_eq!(agents[1].apps[0].display_name, "x");
    assert!(uuid::Uuid::parse_str(&agents[1].apps[0].id).is_ok());
}

#[test]
fn agents_without_an_owner_are_checked_and_dropped() {
    let graph = graph(&[("coder_app.x", "coder_agent.one")]);
    let alone = module(json!([agent("one", "1")]));
    assert!(convert(&[alone], &graph).unwrap().resources.is_empty());
    let missing = module(json!([agent("other", "1")]));
    assert_eq!(
        convert(&[missing], &graph).unwrap_err().to_string(),
        "couldn't find node on graph: \"coder_agent.other\""
    );
}

#[test]
fn names_and_slugs_are_checked() {
    let graph =
        graph(&[("r.r", "coder_agent.a"), ("r.r", "coder_agent.bad_name"), ("r.r", "coder_agent.bad--name")]);
    let check = |resources: Value| convert(&[module(resources)], &graph).unwrap_err().to_string();
    assert!(check(json!([agent("bad_name", "")])).contains("underscores"));
    assert!(check(json!([agent("bad--name", "")])).contains("does not match regex"));
    let nested = resource("module.m.coder_agent.A", json!({}));
    assert_eq!(check(json!([agent("a", ""), nested])), "duplicate agent name: a");
    for slug in ["$$$", "invalid--slug", "invalid_slug", "Invalid"] {
        let app = resource("coder_app.x", json!({"slug": slug}));
        assert!(check(json!([app])).contains("app slug"), "{slug}");
    }
    let apps =
        json!([resource("coder_app.x", json!({"slug": "s"})), resource("coder_app.y", json!({"slug": "s"}))]);
    assert!(check(apps).contains("duplicate app slug"));
}

#[test]
fn metadata_of_one_resource_may_come_once() {
    let graph = graph(&[("coder_metadata.m", "r.r"), ("coder_metadata.n", "r.r")]);
    let twice = module(json!([
        resource("r.r", json!({})),
        resource("coder_metadata.m", json!({})),
        resource("coder_metadata.n", json!({})),
    ]));
    assert_eq!(convert(&[twice], &graph).unwrap_err().to_string(), "duplicate metadata resource: r.r");
}

#[test]
fn instance_identity_comes_from_the_instance() {
    let agent = resource("coder_agent.main", json!({"id": "1", "auth": "aws-instance-identity"}));
    let vm = resource("aws_instance.vm", json!({"id": "i-1", "instance_type": "t3"}));
    let graph = graph(&[("aws_instance.vm", "coder_agent.main")]);
    let converted = convert(&[module(json!([agent, vm]))], &graph).unwrap();
    assert_eq!(converted.resources[0].instance_type, "t3");
    assert_eq!(converted.resources[0].agents[0].auth, Some(pb::agent::Auth::InstanceId("i-1".to_owned())));
    let explicit = resource("coder_agent_instance.i", json!({"agent_id": "1", "instance_id": "i-2"}));
    let converted = convert(&[module(json!([agent, vm, explicit]))], &graph).unwrap();
    assert_eq!(converted.resources[0].agents[0].auth, Some(pb::agent::Auth::InstanceId("i-2".to_owned())));
}

#[test]
fn parameters_keep_bounds_order_and_unique_names() {
    let parameter = |name: &str, rest: Value| {
        let mut values = json!({"name": name, "type": "number", "optional": true, "form_type": "slider"});
        values.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        resource(&format!("data.coder_parameter.{name}"), values)
    };
    let new = json!({"validation": [{"min": 0, "max": 5, "min_disabled": false, "max_disabled": true}]});
    let old = json!({"validation": [{"min": 0, "max": 5}]});
    let unset = json!({"validation": [{"min": 0, "max": 0}], "optional": false});
    let empty = Graph::default();
    let list = json!([parameter("z", new), parameter("a", old), parameter("m", unset)]);
    let parameters = convert(&[module(list)], &empty).unwrap().parameters;
    let seen: Vec<_> = parameters
        .iter()
        .map(|p| (p.name.as_str(), p.validation_min, p.validation_max, p.required))
        .collect();
    assert_eq!(seen, [("z", Some(0), None, false), ("a", Some(0), Some(5), false), ("m", None, None, true)]);
    let same = |names: &[&str]| {
        let list: Vec<Value> = names.iter().map(|name| parameter(name, json!({}))).collect();
        convert(&[module(Value::Array(list))], &empty).unwrap_err().to_string()
    };
    assert_eq!(
        same(&["a", "b", "a", "b", "c", "c", "a"]),
        "coder_parameter names must be unique but \"a\", \"b\" and \"c\" appear multiple times"
    );
    assert_eq!(same(&["a", "a"]), "coder_parameter names must be unique but \"a\" appears multiple times");
    let odd = module(json!([parameter("a", json!({"form_type": "wheel"}))]));
    assert!(convert(&[odd], &empty).unwrap_err().to_string().contains("form_type"));
}

#[test]
fn one_default_preset_at_most() {
    let preset = |name: &str| {
        resource(
            &format!("data.coder_workspace_preset.{name}"),
            json!({"name": name, "default": true, "parameters": {"b": "1", "a": "2"}}),
        )
    };
    let empty = Graph::default();
    let one = convert(&[module(json!([preset("p")]))], &empty).unwrap();
    assert_eq!(one.presets[0].parameters[0].name, "a");
    assert!(one.presets[0].prebuild.is_some());
    let two = convert(&[module(json!([preset("p"), preset("q")]))], &empty).unwrap_err();
    assert!(two.to_string().contains("but 2 are set"), "{two}");
}

mod golden {
    //! Captured plans and states with the reference's result for each; they are not part of this repository.

    use std::path::{Path, PathBuf};

    use super::*;

    fn fixtures() -> Option<PathBuf> {
        let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/terraform");
        let dir = std::env::var_os("CODER_TEST_TERRAFORM_FIXTURES").map_or(beside, PathBuf::from);
        dir.is_dir().then_some(dir)
    }

    #[test]
    fn conversions_equal_the_captured_ones() {
        let Some(dir) = fixtures() else {
            eprintln!(
                "SKIPPED: no conversion fixtures (set CODER_TEST_TERRAFORM_FIXTURES to their directory)"
            );
            return;
        };
        let mut compared = 0;
        for case in std::fs::read_dir(dir).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
            for kind in ["plan", "state"] {
                let read = |name: String| std::fs::read_to_string(case.path().join(name)).unwrap();
                let tree: Value = serde_json::from_str(&read(format!("tf{kind}.json"))).unwrap();
                let graph = Graph::parse(&read(format!("tf{kind}.dot"))).unwrap();
                let golden: Value = serde_json::from_str(&read(format!("{kind}.golden"))).unwrap();
                let roots = match kind {
                    "plan" => vec![
                        &tree["planned_values"]["root_module"],
                        &tree["prior_state"]["values"]["root_module"],
                    ],
                    _ => vec![&tree["values"]["root_module"]],
                };
                let modules: Vec<Module> = roots
                    .into_iter()
                    .filter(|root| !root.is_null())
                    .map(|root| serde_json::from_value(root.clone()).unwrap())
                    .collect();
                let ours = match convert(&modules, &graph) {
                    Ok(converted) => shape(converted),
                    Err(error) => Value::String(error.to_string()),
                };
                assert_eq!(ours, golden, "{} {kind}", case.path().display());
                compared += 1;
            }
        }
        assert!(compared > 0);
    }

    /// The captured results' JSON: zero values are left out, lists are sorted, ids of apps are derived.
    fn shape(converted: Converted) -> Value {
        let mut resources: Vec<Value> = converted.resources.into_iter().map(resource).collect();
        resources.sort_by_key(|r| (r["name"].to_string(), r["type"].to_string()));
        json!({
            "Resources": resources,
            "Parameters": converted.parameters.into_iter().map(parameter).collect::<Vec<_>>(),
            "Presets": converted.presets.into_iter().map(preset).collect::<Vec<_>>(),
            "ExternalAuthProviders": converted.external_auth_providers.into_iter()
                .map(|p| trim(json!({"id": p.id, "optional": p.optional}))).collect::<Vec<_>>(),
            "AITasks": converted.ai_tasks.into_iter()
                .map(|t| json!({"id": t.id, "app_id": t.app_id})).collect::<Vec<_>>(),
            "HasAITasks": converted.has_ai_tasks,
            "HasExternalAgents": converted.has_external_agents,
        })
    }

    /// Without zero values.
    fn trim(value: Value) -> Value {
        let Value::Object(map) = value else { return value };
        let zero = |value: &Value| match value {
            Value::Null => true,
            Value::Bool(value) => !value,
            Value::Number(number) => number.as_i64() == Some(0),
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty(),
        };
        Value::Object(map.into_iter().filter(|(_, value)| !zero(value)).collect())
    }

    fn insert(value: &mut Value, key: &str, entry: Value) {
        value.as_object_mut().unwrap().insert(key.to_owned(), entry);
    }

    fn resource(from: pb::Resource) -> Value {
        let mut agents: Vec<Value> = from.agents.into_iter().map(agent).collect();
        agents.sort_by_key(|agent| agent["name"].to_string());
        let metadata: Vec<Value> = from
            .metadata
            .into_iter()
            .map(|m| {
                trim(json!({"key": m.key, "value": m.value, "sensitive": m.sensitive, "is_null": m.is_null}))
            })
            .collect();
        trim(
            json!({"name": from.name, "type": from.r#type, "agents": agents, "metadata": metadata, "hide": from.hide,
            "icon": from.icon, "instance_type": from.instance_type, "daily_cost": from.daily_cost,
            "module_path": from.module_path}),
        )
    }

    fn agent(from: pb::Agent) -> Value {
        let apps: Vec<Value> = from.apps.into_iter().map(app).collect();
        let metadata: Vec<Value> = from
            .metadata
            .into_iter()
            .map(|m| {
                trim(json!({"key": m.key, "display_name": m.display_name, "script": m.script,
                "interval": m.interval, "timeout": m.timeout, "order": m.order}))
            })
            .collect();
        let scripts: Vec<Value> = from
            .scripts
            .into_iter()
            .map(|s| {
                trim(
                    json!({"display_name": s.display_name, "icon": s.icon, "script": s.script, "cron": s.cron,
                "start_blocks_login": s.start_blocks_login, "run_on_start": s.run_on_start,
                "run_on_stop": s.run_on_stop, "timeout_seconds": s.timeout_seconds, "log_path": s.log_path}),
                )
            })
            .collect();
        let devcontainers: Vec<Value> = from
            .devcontainers
            .into_iter()
            .map(|d| trim(json!({"workspace_folder": d.workspace_folder, "config_path": d.config_path, "name": d.name})))
            .collect();
        let display = from.display_apps.unwrap();
        let display = trim(json!({"vscode": display.vscode, "vscode_insiders": display.vscode_insiders,
            "web_terminal": display.web_terminal, "ssh_helper": display.ssh_helper,
            "port_forwarding_helper": display.port_forwarding_helper}));
        let auth = match from.auth.unwrap() {
            pb::agent::Auth::Token(token) => json!({"Token": token}),
            pb::agent::Auth::InstanceId(id) => json!({"InstanceId": id}),
        };
        assert_eq!(from.resources_monitoring, Some(pb::ResourcesMonitoring::default()));
        let mut value = trim(json!({"id": from.id, "name": from.name, "env": from.env,
            "operating_system": from.operating_system, "architecture": from.architecture,
            "directory": from.directory, "apps": apps, "connection_timeout_seconds": from.connection_timeout_seconds,
            "troubleshooting_url": from.troubleshooting_url, "motd_file": from.motd_file, "metadata": metadata,
            "scripts": scripts, "order": from.order, "devcontainers": devcontainers,
            "api_key_scope": from.api_key_scope}));
        insert(&mut value, "Auth", auth);
        insert(&mut value, "display_apps", display);
        insert(&mut value, "resources_monitoring", json!({}));
        value
    }

    fn app(from: pb::App) -> Value {
        use sha2::{Digest as _, Sha256};
        let digest = Sha256::digest(format!("{}{}", from.slug, from.display_name));
        let id = uuid::Uuid::from_slice(&digest[..16]).unwrap();
        assert!(from.healthcheck.is_none());
        trim(
            json!({"slug": from.slug, "display_name": from.display_name, "command": from.command, "url": from.url,
            "icon": from.icon, "subdomain": from.subdomain, "sharing_level": from.sharing_level,
            "external": from.external, "order": from.order, "hidden": from.hidden, "open_in": from.open_in,
            "group": from.group, "id": id.to_string(), "tooltip": from.tooltip}),
        )
    }

    fn parameter(from: pb::RichParameter) -> Value {
        let options: Vec<Value> = from
            .options
            .into_iter()
            .map(|o| {
                trim(json!({"name": o.name, "description": o.description, "value": o.value, "icon": o.icon}))
            })
            .collect();
        let mut value = trim(json!({"name": from.name, "display_name": from.display_name,
            "description": from.description, "type": from.r#type, "mutable": from.mutable,
            "default_value": from.default_value, "icon": from.icon, "options": options,
            "validation_regex": from.validation_regex, "validation_error": from.validation_error,
            "validation_monotonic": from.validation_monotonic, "required": from.required, "order": from.order,
            "ephemeral": from.ephemeral, "form_type": from.form_type}));
        if let Some(min) = from.validation_min {
            insert(&mut value, "validation_min", json!(min));
        }
        if let Some(max) = from.validation_max {
            insert(&mut value, "validation_max", json!(max));
        }
        value
    }

    fn preset(from: pb::Preset) -> Value {
        let prebuild = from.prebuild.unwrap();
        let scheduling = prebuild.scheduling.map(|s| {
            let schedule: Vec<Value> =
                s.schedule.into_iter().map(|s| json!({"cron": s.cron, "instances": s.instances})).collect();
            json!({"timezone": s.timezone, "schedule": schedule})
        });
        let parameters: Vec<Value> =
            from.parameters.into_iter().map(|p| json!({"name": p.name, "value": p.value})).collect();
        let mut value = trim(json!({"name": from.name, "parameters": parameters, "default": from.default,
            "description": from.description, "icon": from.icon}));
        let policy = prebuild.expiration_policy.map(|policy| json!({"ttl": policy.ttl}));
        insert(
            &mut value,
            "prebuild",
            trim(json!({"instances": prebuild.instances, "expiration_policy": policy,
            "scheduling": scheduling})),
        );
        value
    }
}

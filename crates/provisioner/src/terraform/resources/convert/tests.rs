//! The conversion of captured outputs, if available, and of small templates.

use serde_json::{Value, json};

use super::*;
use crate::terraform::resources::graph::Graph;
use crate::terraform::resources::state::Module;

pub(super) fn module(resources: Value) -> Module {
    serde_json::from_value(json!({ "resources": resources })).unwrap()
}

pub(super) fn resource(address: &str, values: Value) -> Value {
    let local = address.rsplit("module.").next().unwrap();
    let local = local.split_once('.').filter(|_| address.contains("module.")).map_or(local, |(_, rest)| rest);
    let (mode, local) = local.strip_prefix("data.").map_or(("managed", local), |rest| ("data", rest));
    let (kind, name) = local.split_once('.').unwrap();
    let name = name.split('[').next().unwrap();
    json!({"address": address, "mode": mode, "type": kind, "name": name, "values": values})
}

/// A graph of labels; edges lead from the dependent to its dependency.
pub(super) fn graph(edges: &[(&str, &str)]) -> Graph {
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

pub(super) fn agent(name: &str, id: &str) -> Value {
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
    //! Captured plans and states with the result of the reference implementation; they are not part of this
    //! repository.

    use super::*;
    use crate::terraform::resources::convert::text::{TextSource, convert_text};

    #[test]
    fn conversions_equal_the_captured_ones() {
        let dir = coder_requirements::require!(directory ConversionFixtures);
        let mut compared = 0;
        for case in std::fs::read_dir(dir).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
            for kind in ["plan", "state"] {
                let read = |name: String| std::fs::read_to_string(case.path().join(name)).unwrap();
                let golden: Value = serde_json::from_str(&read(format!("{kind}.golden"))).unwrap();
                let source = if kind == "plan" { TextSource::Plan } else { TextSource::State };
                let (shown, graph) = (read(format!("tf{kind}.json")), read(format!("tf{kind}.dot")));
                let ours = convert_text(source, shown.as_bytes(), &graph)
                    .unwrap_or_else(|error| Value::String(error.to_string()));
                assert_eq!(ours, golden, "{} {kind}", case.path().display());
                compared += 1;
            }
        }
        assert!(compared > 0);
    }
}

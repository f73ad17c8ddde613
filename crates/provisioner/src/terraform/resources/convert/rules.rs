//! Rules of the conversion that need several templates to test (terraform section 4).

use serde_json::{Value, json};

use super::tests::{agent, graph, module, resource};
use super::*;

fn convert_all(resources: Value, edges: &[(&str, &str)]) -> ConvertedResources {
    convert(&[module(resources)], &graph(edges)).unwrap()
}

/// The agents of the resource `terraform_data.<name>`.
fn agents<'c>(converted: &'c ConvertedResources, name: &str) -> Vec<&'c pb::Agent> {
    converted.resources.iter().filter(|r| r.name == name).flat_map(|r| &r.agents).collect()
}

/// One agent with the given attributes, on a resource.
fn one_agent(values: Value) -> pb::Agent {
    let list = json!([resource("coder_agent.main", values), resource("terraform_data.r", json!({}))]);
    convert_all(list, &[("terraform_data.r", "coder_agent.main")]).resources[0].agents[0].clone()
}

#[test]
fn agents_have_defaults_and_keep_orders() {
    let plain = one_agent(json!({"os": "linux"}));
    let apps = plain.display_apps.unwrap();
    assert!(apps.vscode && apps.web_terminal && apps.ssh_helper && apps.port_forwarding_helper);
    assert!(!apps.vscode_insiders);
    assert_eq!(
        plain.auth,
        Some(pb::agent::Auth::InstanceId(String::new())),
        "an agent without auth has no token"
    );
    assert_eq!(plain.resources_monitoring, Some(pb::ResourcesMonitoring::default()));

    let full = one_agent(json!({
        "auth": "token",
        "env": {"A": "1", "B": null},
        "order": 3.7,
        "connection_timeout": 5,
        "display_apps": [{"vscode_insiders": true}, {"vscode": true}],
        "metadata": [{"key": "z", "interval": 2}, {"key": "a", "timeout": 3, "order": 4}],
        "resources_monitoring": [{
            "memory": [{"enabled": true, "threshold": 1}, {"enabled": false, "threshold": 2}],
            "volume": [{"path": "/b"}, {"path": "/a", "enabled": true, "threshold": 9}],
        }],
    }));
    assert_eq!(full.auth, Some(pb::agent::Auth::Token(String::new())));
    assert_eq!((full.env["A"].as_str(), full.env["B"].as_str()), ("1", ""));
    assert_eq!((full.order, full.connection_timeout_seconds), (3, 5), "numbers are cut");
    let apps = full.display_apps.unwrap();
    assert!(apps.vscode_insiders && !apps.vscode, "the first block counts, with its own values only");
    let keys: Vec<_> = full.metadata.iter().map(|m| m.key.as_str()).collect();
    assert_eq!(keys, ["z", "a"]);
    let monitoring = full.resources_monitoring.unwrap();
    assert_eq!(monitoring.memory.unwrap().threshold, 2, "the last block counts");
    let paths: Vec<_> = monitoring.volumes.iter().map(|v| v.path.as_str()).collect();
    assert_eq!(paths, ["/b", "/a"]);
}

#[test]
fn scripts_of_agents_come_first_and_may_block_logins() {
    let blocking = |values: Value| {
        let agent = one_agent(values);
        let names: Vec<_> = agent.scripts.iter().map(|s| s.display_name.clone()).collect();
        assert_eq!(names, ["Startup Script", "Shutdown Script"]);
        assert!(agent.scripts[0].run_on_start && agent.scripts[1].run_on_stop);
        agent.scripts[0].start_blocks_login
    };
    let both = |more: Value| {
        let mut values = json!({"startup_script": "a", "shutdown_script": "b"});
        values.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        values
    };
    assert!(!blocking(both(json!({}))));
    assert!(blocking(both(json!({"startup_script_behavior": "blocking"}))));
    assert!(blocking(both(json!({"login_before_ready": false}))));
    assert!(!blocking(both(json!({"login_before_ready": true}))));
    assert!(!blocking(both(json!({"login_before_ready": false, "startup_script_behavior": "non-blocking"}))));

    let script = |name: &str| {
        resource(
            &format!("coder_script.{name}"),
            json!({"agent_id": "1", "display_name": name, "cron": "@daily"}),
        )
    };
    let env = |key: &str, value: &str| {
        resource(&format!("coder_env.{key}"), json!({"agent_id": "1", "name": "SAME", "value": value}))
    };
    let main = resource("coder_agent.main", json!({"id": "1", "startup_script": "x"}));
    let list = json!([
        script("z"),
        script("a"),
        env("y", "2"),
        env("x", "1"),
        main,
        resource("terraform_data.r", json!({}))
    ]);
    let converted = convert_all(list, &[("terraform_data.r", "coder_agent.main")]);
    let agent = agents(&converted, "r")[0];
    let names: Vec<_> = agent.scripts.iter().map(|s| s.display_name.as_str()).collect();
    assert_eq!(names, ["Startup Script", "a", "z"], "then by address");
    let values: Vec<_> = agent.extra_envs.iter().map(|e| e.value.as_str()).collect();
    assert_eq!(values, ["1", "2"], "equal names stay, by address");
}

#[test]
fn apps_fill_their_gaps() {
    let app = |name: &str, values: Value| {
        let mut values = values;
        values["agent_id"] = json!("1");
        resource(&format!("coder_app.{name}"), values)
    };
    let list = json!([
        agent("main", "1"),
        resource("terraform_data.r", json!({})),
        app("a", json!({"name": "Old Name", "share": "everyone", "open_in": "window"})),
        app(
            "b",
            json!({"slug": "bee", "share": "AUTHENTICATED", "open_in": "TAB", "hidden": true, "order": 2})
        ),
        app(
            "c",
            json!({"display_name": "Sea", "healthcheck": [
            {"url": "u", "interval": 1, "threshold": 2}, {"url": "v"}], "group": "g", "tooltip": "t"})
        ),
        resource("coder_app.lost", json!({"agent_id": "nobody"})),
    ]);
    let converted = convert_all(list, &[("terraform_data.r", "coder_agent.main")]);
    let apps = &agents(&converted, "r")[0].apps;
    let names: Vec<_> = apps.iter().map(|a| (a.slug.as_str(), a.display_name.as_str())).collect();
    assert_eq!(
        names,
        [("a", "Old Name"), ("bee", "bee"), ("c", "Sea")],
        "what belongs to no agent is dropped"
    );
    assert_eq!(apps[0].sharing_level(), pb::AppSharingLevel::Owner);
    assert_eq!(apps[0].open_in(), pb::AppOpenIn::SlimWindow);
    assert_eq!(apps[1].sharing_level(), pb::AppSharingLevel::Authenticated);
    assert_eq!(apps[1].open_in(), pb::AppOpenIn::Tab);
    assert!(apps[1].hidden && apps[1].order == 2);
    assert_eq!(apps[2].healthcheck.as_ref().unwrap().url, "u", "the first block counts");
    assert_eq!((apps[2].group.as_str(), apps[2].tooltip.as_str()), ("g", "t"));
}

#[test]
fn a_bad_slug_is_an_error_even_without_an_agent() {
    let apps = module(json!([resource("coder_app.x", json!({"slug": "no_good", "agent_id": "nobody"}))]));
    let error = convert(&[apps], &Graph::default()).unwrap_err().to_string();
    assert_eq!(error, "app slug \"no_good\" does not match regex \"^[a-z0-9](-?[a-z0-9])*$\"");
}

#[test]
fn apps_in_modules_find_their_agent_only_by_its_id() {
    let list = |id: &str| {
        json!([
            agent("main", id),
            resource("terraform_data.r", json!({})),
            resource("module.m.coder_app.x", json!({"agent_id": id})),
            resource("module.m.coder_devcontainer.d", json!({"agent_id": id, "workspace_folder": "/w"})),
        ])
    };
    let edges = [
        ("terraform_data.r", "coder_agent.main"),
        ("module.m.coder_app.x", "coder_agent.main"),
        ("module.m.coder_devcontainer.d", "coder_agent.main"),
    ];
    let planned = convert_all(list(""), &edges);
    assert!(agents(&planned, "r")[0].apps.is_empty() && agents(&planned, "r")[0].devcontainers.is_empty());
    let applied = convert_all(list("1"), &edges);
    assert_eq!(agents(&applied, "r")[0].apps.len(), 1);
    assert_eq!(agents(&applied, "r")[0].devcontainers[0].name, "d");
}

#[test]
fn only_things_of_others_and_external_agents_own_agents() {
    let list = json!([
        agent("main", "1"),
        resource("coder_env.near", json!({"agent_id": "1"})),
        resource("coder_external_agent.far", json!({"agent_id": "1"})),
        resource("data.http.page", json!({})),
    ]);
    let edges = [
        ("coder_env.near", "coder_agent.main"),
        ("data.http.page", "coder_agent.main"),
        ("coder_external_agent.far", "coder_env.near"),
    ];
    let converted = convert_all(list, &edges);
    let owners: Vec<_> =
        converted.resources.iter().filter(|r| !r.agents.is_empty()).map(|r| r.name.as_str()).collect();
    assert_eq!(owners, ["far"]);
    assert!(converted.has_external_agents && !converted.has_ai_tasks);
}

#[test]
fn things_that_only_describe_are_not_listed() {
    let kinds = [
        "coder_agent",
        "coder_agent_instance",
        "coder_ai_task",
        "coder_app",
        "coder_devcontainer",
        "coder_env",
        "coder_external_agent",
        "coder_metadata",
        "coder_script",
        "terraform_data",
    ];
    let list: Vec<_> = kinds.iter().map(|kind| resource(&format!("{kind}.x"), json!({}))).collect();
    let converted = convert_all(Value::Array(list), &[("coder_agent.x", "a"), ("coder_metadata.x", "a")]);
    let listed: Vec<_> = converted.resources.iter().map(|r| r.r#type.as_str()).collect();
    assert_eq!(
        listed,
        ["coder_ai_task", "coder_devcontainer", "coder_env", "coder_external_agent", "terraform_data"]
    );
}

#[test]
fn instances_name_themselves_by_their_kind() {
    for (kind, shape, id) in [
        ("google_compute_instance", "machine_type", "instance_id"),
        ("aws_instance", "instance_type", "id"),
        ("aws_spot_instance_request", "instance_type", "spot_instance_id"),
        ("azurerm_linux_virtual_machine", "size", "virtual_machine_id"),
        ("azurerm_windows_virtual_machine", "size", "virtual_machine_id"),
    ] {
        let vm = format!("{kind}.vm");
        let machine = resource(&vm, json!({shape: "big", id: "i-1"}));
        let identity = resource("coder_agent.main", json!({"id": "1", "auth": "some-instance-identity"}));
        let token = resource("coder_agent.other", json!({"id": "2", "auth": "token", "token": "t"}));
        let instance = |agent: &str| {
            resource(&format!("coder_agent_instance.{agent}"), json!({"agent_id": "2", "instance_id": "i-2"}))
        };
        let odd = resource("coder_agent_instance.odd", json!({"agent_id": "1", "instance_id": 7}));
        let edges = [(vm.as_str(), "coder_agent.main"), (vm.as_str(), "coder_agent.other")];
        let converted = convert_all(json!([machine, identity, token, instance("i"), odd]), &edges);
        let machine = &converted.resources[0];
        assert_eq!(machine.instance_type, "big", "{kind}");
        let auth: Vec<_> = machine.agents.iter().map(|a| a.auth.clone().unwrap()).collect();
        let wanted = [pb::agent::Auth::InstanceId("i-1".into()), pb::agent::Auth::Token("t".into())];
        assert_eq!(auth, wanted, "{kind}: an explicit instance is nothing to an agent with a token");
    }
    let counted = json!([
        resource("coder_agent.main", json!({"id": "1", "auth": "aws-instance-identity"})),
        resource("aws_instance.vm[0]", json!({})),
        resource("aws_instance.vm[1]", json!({"id": "i-1"})),
        resource("aws_instance.vm[2]", json!({"id": "i-2"})),
    ]);
    for vm in convert_all(counted, &[("aws_instance.vm", "coder_agent.main")]).resources {
        let first = Some(pb::agent::Auth::InstanceId("i-1".into()));
        assert_eq!(vm.agents[0].auth, first, "all instances show one agent, which has one id");
    }
    let other = resource("other_instance.vm", json!({"instance_type": "big", "id": "i"}));
    assert_eq!(convert_all(json!([other]), &[]).resources[0].instance_type, "");
}

#[test]
fn metadata_reaches_through_what_is_between_and_every_instance() {
    let list = json!([
        resource("terraform_data.far[\"a/b\"]", json!({})),
        resource("terraform_data.far[\"c]\"]", json!({})),
        resource(
            "coder_metadata.m",
            json!({"hide": true, "daily_cost": 2.9, "item": [
            {"key": "s", "value": "x", "sensitive": true}, {"key": "e", "value": ""}, {"key": "n"}]})
        ),
        resource("coder_metadata.of_nothing", json!({"hide": true})),
    ]);
    let edges = [
        ("coder_metadata.m", "local.x"),
        ("local.x", "terraform_data.far"),
        ("coder_metadata.of_nothing", "local.y"),
    ];
    let converted = convert_all(list, &edges);
    assert_eq!(converted.resources.len(), 2);
    for far in &converted.resources {
        assert_eq!((far.hide, far.daily_cost), (true, 2));
        let keys: Vec<_> = far.metadata.iter().map(|m| (m.key.as_str(), m.sensitive, m.is_null)).collect();
        assert_eq!(keys, [("s", true, false), ("e", false, false), ("n", false, false)]);
    }
}

#[test]
fn later_trees_replace_equal_addresses() {
    let old = module(json!([resource("coder_env.e", json!({"name": "OLD"})), resource("a.gone", json!({}))]));
    let new = module(json!([resource("coder_env.e", json!({"name": "NEW"}))]));
    let converted = convert(&[old, new], &Graph::default()).unwrap();
    let names: Vec<_> = converted.resources.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["gone", "e"]);
}

#[test]
fn parameters_come_from_the_deepest_module_first() {
    let parameter = |address: &str, name: &str| resource(address, json!({"name": name, "default": null}));
    let tree: Module = serde_json::from_value(json!({
        "resources": [parameter("data.coder_parameter.r2", "root2"), parameter("data.coder_parameter.r1", "root1")],
        "child_modules": [
            {"resources": [parameter("module.z.data.coder_parameter.p", "z")],
             "child_modules": [{"resources": [parameter("module.z.module.y.data.coder_parameter.p", "zy")]}]},
            {"resources": [parameter("module.a.data.coder_parameter.p", "a")]},
        ],
    }))
    .unwrap();
    let parameters = convert(&[tree], &Graph::default()).unwrap().parameters;
    let names: Vec<_> = parameters.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["zy", "z", "a", "root2", "root1"]);
    assert!(parameters.iter().all(|p| p.required && p.default_value.is_empty()));
}

#[test]
fn only_a_single_validation_counts() {
    let parameter = |blocks: Value| {
        let values = json!({"name": "p", "type": "string", "validation": blocks, "order": 5_000_000_000_i64});
        convert_all(json!([resource("data.coder_parameter.p", values)]), &[]).parameters.remove(0)
    };
    let one = parameter(json!([{"regex": "^a", "error": "no", "monotonic": "increasing",
        "min_disabled": true, "max_disabled": false, "max": 0, "min": 3}]));
    assert_eq!((one.validation_min, one.validation_max), (None, Some(0)));
    assert_eq!((one.validation_regex.as_str(), one.validation_monotonic.as_str()), ("^a", "increasing"));
    assert_eq!(one.order, i32::MAX);
    let two = parameter(json!([{"regex": "a"}, {"regex": "b"}]));
    assert_eq!(two.validation_regex, "");
    assert_eq!(parameter(json!([])).validation_max, None);
}

#[test]
fn presets_always_have_prebuilds_and_may_share_a_name() {
    let preset =
        |label: &str, values: Value| resource(&format!("data.coder_workspace_preset.{label}"), values);
    let list = json!([
        preset("b", json!({"name": "same", "parameters": {"undefined": "x"}})),
        preset(
            "a",
            json!({"name": "same", "prebuilds": [{
            "instances": 9_000_000_000_i64,
            "expiration_policy": [{"ttl": 3600}, {"ttl": 1}],
            "scheduling": [{"timezone": "UTC", "schedule": [
                {"cron": "* 8 * * *", "instances": 2}, {"cron": "* 1 * * *", "instances": 0}]}],
        }, {"instances": 1}]})
        ),
    ]);
    let presets = convert_all(list, &[]).presets;
    assert_eq!(presets[0].prebuild, Some(pb::Prebuild::default()));
    assert_eq!(presets[0].parameters[0].name, "undefined");
    let prebuild = presets[1].prebuild.as_ref().unwrap();
    assert_eq!(prebuild.instances, i32::MAX);
    assert_eq!(prebuild.expiration_policy.as_ref().unwrap().ttl, 3600);
    assert_eq!(prebuild.scheduling.as_ref().unwrap().schedule[0].cron, "* 8 * * *");
}

#[test]
fn tasks_are_told_by_the_graph_and_counted_by_instances() {
    let none = convert_all(json!([]), &[("module.m.coder_ai_task.t", "coder_app.x")]);
    assert!(none.has_ai_tasks && none.ai_tasks.is_empty(), "one with count 0");
    let list = json!([
        resource("coder_ai_task.a", json!({"id": "1", "app_id": "app", "sidebar_app": [{"id": "old"}]})),
        resource("coder_ai_task.b", json!({"id": "2", "sidebar_app": [{"id": "side"}]})),
        resource("coder_ai_task.c", json!({})),
    ]);
    let tasks = convert_all(list, &[]).ai_tasks;
    let apps: Vec<_> =
        tasks.iter().map(|t| (t.app_id.as_str(), t.sidebar_app.as_ref().unwrap().id.as_str())).collect();
    assert_eq!(apps, [("app", "app"), ("side", "side"), ("", "")]);
}

#[test]
fn external_auth_is_unique_by_id_and_wins_over_git_auth() {
    let auth = |address: &str, values: Value| resource(address, values);
    let list = json!([
        auth("data.coder_external_auth.z", json!({"id": "z"})),
        auth("data.coder_external_auth.a", json!({"id": "a", "optional": true})),
        auth("module.m.data.coder_git_auth.a", json!({"id": "a", "optional": false})),
        auth("data.coder_git_auth.g", json!({"id": "g"})),
    ]);
    let found = convert_all(list, &[]).external_auth_providers;
    let seen: Vec<_> = found.iter().map(|p| (p.id.as_str(), p.optional)).collect();
    assert_eq!(seen, [("a", true), ("g", false), ("z", false)]);
    let bad = module(json!([auth("data.coder_external_auth.x", json!({"id": 3}))]));
    assert!(convert(&[bad], &Graph::default()).is_err());
}

#[test]
fn wrong_kinds_of_attributes_are_errors() {
    for (address, values) in [
        ("coder_agent.a", json!({"os": 3})),
        ("coder_agent.a", json!({"env": ["x"]})),
        ("coder_agent.a", json!({"metadata": {"key": "x"}})),
        ("coder_app.a", json!({"order": "first"})),
        ("coder_metadata.a", json!({"hide": "yes"})),
        ("data.coder_parameter.a", json!({"name": "a", "mutable": "no"})),
        ("data.coder_workspace_preset.a", json!({"parameters": "a=b"})),
    ] {
        let graph = graph(&[(address, "terraform_data.r")]);
        let list = module(json!([resource(address, values), resource("terraform_data.r", json!({}))]));
        let error = convert(&[list], &graph).unwrap_err().to_string();
        assert!(error.starts_with(&format!("decode {address} attributes")), "{error}");
    }
}

mod keyed_modules {
    //! Agents in modules with `count` and `for_each`, on which the reference implementation fails.

    use super::*;

    /// An agent, its resource, an app and metadata, in one instance of a module.
    fn instance(key: &str, id: &str) -> Vec<Value> {
        let at = |rest: &str| format!("module.m[{key}].{rest}");
        vec![
            resource(&at("coder_agent.main"), json!({"id": id, "auth": "token", "token": "t"})),
            resource(&at("terraform_data.vm"), json!({})),
            resource(&at("coder_app.x"), json!({"agent_id": id, "slug": format!("app-{id}")})),
            resource(&at("coder_metadata.m"), json!({"icon": format!("/{id}")})),
        ]
    }

    const EDGES: [(&str, &str); 3] = [
        ("module.m.terraform_data.vm", "module.m.coder_agent.main"),
        ("module.m.coder_app.x", "module.m.coder_agent.main"),
        ("module.m.coder_metadata.m", "module.m.terraform_data.vm"),
    ];

    #[test]
    fn one_instance_is_as_without_a_key() {
        let converted = convert_all(Value::Array(instance("0", "1")), &EDGES);
        let vm = &converted.resources[0];
        assert_eq!(
            (vm.name.as_str(), vm.module_path.as_str(), vm.icon.as_str()),
            ("vm", "module.m[0]", "/1")
        );
        assert_eq!((vm.agents[0].name.as_str(), vm.agents[0].apps[0].slug.as_str()), ("main", "app-1"));
    }

    #[test]
    fn each_instance_has_its_own_agent_under_a_name_of_its_own() {
        let mut list = instance(r#""eu/west [1]""#, "1");
        list.extend(instance(r#""us""#, "2"));
        let converted = convert_all(Value::Array(list), &EDGES);
        let seen: Vec<_> = converted
            .resources
            .iter()
            .map(|vm| {
                (vm.module_path.as_str(), vm.icon.as_str(), vm.agents.len(), vm.agents[0].name.as_str())
            })
            .collect();
        let wanted = [
            (r#"module.m["eu/west [1]"]"#, "/1", 1, "main-eu-west-1"),
            (r#"module.m["us"]"#, "/2", 1, "main-us"),
        ];
        assert_eq!(seen, wanted);
        assert_eq!(converted.resources[1].agents[0].apps[0].slug, "app-2");
    }

    #[test]
    fn a_resource_outside_owns_the_agents_it_uses() {
        let list = json!([
            resource("module.m[0].module.n[\"a\"].coder_agent.main", json!({"id": "1"})),
            resource("terraform_data.r", json!({})),
        ]);
        let edges = [
            ("terraform_data.r", "module.m.output.id"),
            ("module.m.output.id", "module.m.module.n.coder_agent.main"),
        ];
        assert_eq!(agents(&convert_all(list, &edges), "r")[0].name, "main");
    }

    #[test]
    fn names_that_meet_again_are_duplicates() {
        let mut list = instance("0", "1");
        list.push(agent("Main", "3"));
        let edges = [&EDGES[..], &[("terraform_data.r", "coder_agent.Main")]].concat();
        let error = convert(&[module(Value::Array(list))], &graph(&edges)).unwrap_err();
        assert!(error.to_string().starts_with("duplicate agent name: "), "{error}");
        let counted = json!([agent("a[0]", "1"), agent("a[1]", "2")]);
        let error =
            convert(&[module(counted)], &graph(&[("terraform_data.r", "coder_agent.a")])).unwrap_err();
        assert_eq!(error.to_string(), "duplicate agent name: a");
    }

    #[test]
    fn without_such_an_agent_nothing_in_such_modules_owns_or_describes() {
        let list = json!([
            agent("main", "1"),
            resource("module.m[0].terraform_data.near", json!({})),
            resource("module.m[0].coder_metadata.m", json!({"hide": true})),
            resource("terraform_data.far", json!({})),
        ]);
        let edges = [
            ("module.m.terraform_data.near", "coder_agent.main"),
            ("terraform_data.far", "module.m.terraform_data.near"),
            ("module.m.coder_metadata.m", "module.m.terraform_data.near"),
        ];
        let converted = convert_all(list, &edges);
        assert_eq!(agents(&converted, "far").len(), 1);
        assert!(converted.resources.iter().all(|r| !r.hide));
    }
}

//! The result of a conversion as JSON: names of the protocol, no zero values, lists in a fixed order.

use coder_wire::messages::provisioner as pb;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::ConvertedResources;

pub(super) fn of(converted: ConvertedResources) -> Value {
    let mut resources = converted.resources;
    resources.sort_by(|a, b| (&a.name, &a.r#type).cmp(&(&b.name, &b.r#type)));
    let mut providers = converted.external_auth_providers;
    providers.sort_by(|a, b| a.id.cmp(&b.id));
    json!({
        "Resources": list(resources, resource),
        "Parameters": list(converted.parameters, parameter),
        "Presets": list(converted.presets, preset),
        "ExternalAuthProviders": list(providers, |p| writable(json!({"id": p.id, "optional": p.optional}))),
        "AITasks": list(converted.ai_tasks, ai_task),
        "HasAITasks": converted.has_ai_tasks,
        "HasExternalAgents": converted.has_external_agents,
    })
}

fn list<T>(items: Vec<T>, of: impl FnMut(T) -> Value) -> Value {
    Value::Array(items.into_iter().map(of).collect())
}

/// Removes zero values.
fn writable(value: Value) -> Value {
    let Value::Object(map) = value else { return value };
    let is_zero = |value: &Value| match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    };
    Value::Object(map.into_iter().filter(|(_, value)| !is_zero(value)).collect())
}

/// Removes zero values except in `always`.
fn filled_with(value: Value, always: impl IntoIterator<Item = (&'static str, Option<Value>)>) -> Value {
    let mut object = match writable(value) {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    let present = always.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    object.extend(present);
    Value::Object(object)
}

fn resource(mut from: pb::Resource) -> Value {
    from.agents.sort_by(|a, b| a.name.cmp(&b.name));
    let metadata = |m: pb::resource::Metadata| {
        writable(json!({"key": m.key, "value": m.value, "sensitive": m.sensitive, "is_null": m.is_null}))
    };
    writable(json!({
        "name": from.name,
        "type": from.r#type,
        "agents": list(from.agents, agent),
        "metadata": list(from.metadata, metadata),
        "hide": from.hide,
        "icon": from.icon,
        "instance_type": from.instance_type,
        "daily_cost": from.daily_cost,
        "module_path": from.module_path,
    }))
}

fn agent(mut from: pb::Agent) -> Value {
    from.apps.sort_by(|a, b| a.slug.cmp(&b.slug));
    from.extra_envs.sort_by(|a, b| a.name.cmp(&b.name));
    from.scripts.sort_by(|a, b| a.display_name.cmp(&b.display_name));
    from.devcontainers.sort_by(|a, b| a.name.cmp(&b.name));
    let metadata = |m: pb::agent::Metadata| {
        writable(json!({
            "key": m.key, "display_name": m.display_name, "script": m.script,
            "interval": m.interval, "timeout": m.timeout, "order": m.order,
        }))
    };
    let devcontainer = |d: pb::Devcontainer| {
        writable(
            json!({"workspace_folder": d.workspace_folder, "config_path": d.config_path, "name": d.name}),
        )
    };
    let display = |d: pb::DisplayApps| {
        writable(json!({
            "vscode": d.vscode, "vscode_insiders": d.vscode_insiders, "web_terminal": d.web_terminal,
            "ssh_helper": d.ssh_helper, "port_forwarding_helper": d.port_forwarding_helper,
        }))
    };
    let auth = |auth: pb::agent::Auth| match auth {
        pb::agent::Auth::Token(token) => json!({ "Token": token }),
        pb::agent::Auth::InstanceId(id) => json!({ "InstanceId": id }),
    };
    let value = json!({
        "id": from.id,
        "name": from.name,
        "env": from.env,
        "operating_system": from.operating_system,
        "architecture": from.architecture,
        "directory": from.directory,
        "apps": list(from.apps, app),
        "connection_timeout_seconds": from.connection_timeout_seconds,
        "troubleshooting_url": from.troubleshooting_url,
        "motd_file": from.motd_file,
        "metadata": list(from.metadata, metadata),
        "scripts": list(from.scripts, script),
        "extra_envs": list(from.extra_envs, |env| writable(json!({"name": env.name, "value": env.value}))),
        "order": from.order,
        "devcontainers": list(from.devcontainers, devcontainer),
        "api_key_scope": from.api_key_scope,
    });
    filled_with(
        value,
        [
            ("Auth", from.auth.map(auth)),
            ("display_apps", from.display_apps.map(display)),
            ("resources_monitoring", from.resources_monitoring.map(monitoring)),
        ],
    )
}

fn monitoring(from: pb::ResourcesMonitoring) -> Value {
    let memory = from.memory.map(|m| writable(json!({"enabled": m.enabled, "threshold": m.threshold})));
    let volume = |v: pb::VolumeResourceMonitor| {
        writable(json!({"path": v.path, "enabled": v.enabled, "threshold": v.threshold}))
    };
    filled_with(json!({ "volumes": list(from.volumes, volume) }), [("memory", memory)])
}

fn script(from: pb::Script) -> Value {
    writable(json!({
        "display_name": from.display_name, "icon": from.icon, "script": from.script, "cron": from.cron,
        "start_blocks_login": from.start_blocks_login, "run_on_start": from.run_on_start,
        "run_on_stop": from.run_on_stop, "timeout_seconds": from.timeout_seconds, "log_path": from.log_path,
    }))
}

fn app(from: pb::App) -> Value {
    let digest = Sha256::digest(format!("{}{}", from.slug, from.display_name));
    let id = uuid::Uuid::from_slice(&digest[..16]).unwrap_or_default();
    let healthcheck = from.healthcheck.map(|check| {
        writable(json!({"url": check.url, "interval": check.interval, "threshold": check.threshold}))
    });
    let value = json!({
        "slug": from.slug, "display_name": from.display_name, "command": from.command, "url": from.url,
        "icon": from.icon, "subdomain": from.subdomain, "sharing_level": from.sharing_level,
        "external": from.external, "order": from.order, "hidden": from.hidden, "open_in": from.open_in,
        "group": from.group, "id": id.to_string(), "tooltip": from.tooltip,
    });
    filled_with(value, [("healthcheck", healthcheck)])
}

fn ai_task(from: pb::AiTask) -> Value {
    let sidebar = from.sidebar_app.map(|app| writable(json!({ "id": app.id })));
    filled_with(json!({"id": from.id, "app_id": from.app_id}), [("sidebar_app", sidebar)])
}

fn parameter(from: pb::RichParameter) -> Value {
    let option = |o: pb::RichParameterOption| {
        writable(json!({"name": o.name, "description": o.description, "value": o.value, "icon": o.icon}))
    };
    let value = json!({
        "name": from.name, "display_name": from.display_name, "description": from.description,
        "type": from.r#type, "mutable": from.mutable, "default_value": from.default_value, "icon": from.icon,
        "options": list(from.options, option), "validation_regex": from.validation_regex,
        "validation_error": from.validation_error, "validation_monotonic": from.validation_monotonic,
        "required": from.required, "order": from.order, "ephemeral": from.ephemeral,
        "form_type": from.form_type,
    });
    let bounds = [
        ("validation_min", from.validation_min.map(Value::from)),
        ("validation_max", from.validation_max.map(Value::from)),
    ];
    filled_with(value, bounds)
}

fn preset(from: pb::Preset) -> Value {
    let parameter = |p: pb::PresetParameter| writable(json!({"name": p.name, "value": p.value}));
    let value = json!({
        "name": from.name, "description": from.description, "icon": from.icon, "default": from.default,
        "parameters": list(from.parameters, parameter),
    });
    filled_with(value, [("prebuild", from.prebuild.map(prebuild))])
}

fn prebuild(from: pb::Prebuild) -> Value {
    let policy = from.expiration_policy.map(|policy| writable(json!({ "ttl": policy.ttl })));
    let entry = |s: pb::Schedule| writable(json!({"cron": s.cron, "instances": s.instances}));
    let scheduling = from
        .scheduling
        .map(|s| writable(json!({"timezone": s.timezone, "schedule": list(s.schedule, entry)})));
    filled_with(
        json!({ "instances": from.instances }),
        [("expiration_policy", policy), ("scheduling", scheduling)],
    )
}

//! What belongs to agents: instances, apps, environment variables, scripts and dev containers (terraform 4.5).

use std::collections::HashSet;

use coder_wire::messages::provisioner as pb;
use pb::agent::Auth;
use uuid::Uuid;

use super::ConvertError;
use super::agents::Agents;
use super::attributes::Attributes;
use super::index::ResourceIndex;
use crate::terraform::resources::graph::Graph;
use crate::terraform::resources::state::Resource;

pub(super) const SLUG_PATTERN: &str = "^[a-z0-9](-?[a-z0-9])*$";

/// Letters and digits joined by single hyphens.
pub(super) fn is_hyphenated(text: &str, any_case: bool) -> bool {
    let letter =
        |c: char| c.is_ascii_digit() || c.is_ascii_lowercase() || (any_case && c.is_ascii_uppercase());
    !text.is_empty() && text.split('-').all(|part| !part.is_empty() && part.chars().all(letter))
}

pub(super) fn attach(
    index: &ResourceIndex<'_>,
    graph: &Graph,
    agents: &mut Agents,
) -> Result<(), ConvertError> {
    instances(index, agents);
    apps(index, graph, agents)?;
    for resource in index.managed("coder_env") {
        let from = Attributes::of(resource);
        let env = pb::Env { name: from.string("name")?, value: from.string("value")? };
        each_owner(resource, graph, agents, |agent| agent.extra_envs.push(env.clone()))?;
    }
    for resource in index.managed("coder_script") {
        let script = script(Attributes::of(resource))?;
        each_owner(resource, graph, agents, |agent| agent.scripts.push(script.clone()))?;
    }
    for resource in index.managed("coder_devcontainer") {
        let from = Attributes::of(resource);
        let devcontainer = pb::Devcontainer {
            name: resource.name.clone(),
            workspace_folder: from.string("workspace_folder")?,
            config_path: from.string("config_path")?,
        };
        each_owner(resource, graph, agents, |agent| agent.devcontainers.push(devcontainer.clone()))?;
    }
    Ok(())
}

fn each_owner(
    resource: &Resource,
    graph: &Graph,
    agents: &mut Agents,
    mut add: impl FnMut(&mut pb::Agent),
) -> Result<(), ConvertError> {
    let agent_id = Attributes::of(resource).string("agent_id")?;
    for agent in agents.iter_mut() {
        let belongs = if agent.id.is_empty() && agent_id.is_empty() {
            let name = format!("{}.{}", resource.kind, resource.name);
            graph.root_edge(&name, &format!("coder_agent.{}", agent.name))
        } else {
            agent.id == agent_id
        };
        if belongs {
            add(agent);
        }
    }
    Ok(())
}

fn instances(index: &ResourceIndex<'_>, agents: &mut Agents) {
    for resource in index.managed("coder_agent_instance") {
        let from = Attributes::of(resource);
        let (Some(agent_id), Some(instance_id)) =
            (from.string_if_any("agent_id"), from.string_if_any("instance_id"))
        else {
            continue;
        };
        for agent in agents.iter_mut().filter(|agent| agent.id == agent_id) {
            if !matches!(agent.auth, Some(Auth::Token(_))) {
                agent.auth = Some(Auth::InstanceId(instance_id.to_owned()));
            }
        }
    }
}

fn apps(index: &ResourceIndex<'_>, graph: &Graph, agents: &mut Agents) -> Result<(), ConvertError> {
    let mut slugs = HashSet::new();
    for resource in index.managed("coder_app") {
        let app = app(&resource.name, Attributes::of(resource))?;
        if !is_hyphenated(&app.slug, false) {
            return Err(ConvertError::AppSlug(app.slug));
        }
        if !slugs.insert(app.slug.clone()) {
            return Err(ConvertError::DuplicateApp(app.slug));
        }
        each_owner(resource, graph, agents, |agent| agent.apps.push(app.clone()))?;
    }
    Ok(())
}

fn first_filled(candidates: [String; 3]) -> String {
    candidates.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
}

fn app(name: &str, from: Attributes<'_>) -> Result<pb::App, ConvertError> {
    let slug = first_filled([from.string("slug")?, name.to_owned(), String::new()]);
    let display_name = first_filled([from.string("display_name")?, from.string("name")?, slug.clone()]);
    let healthcheck = match from.blocks("healthcheck")?.first() {
        None => None,
        Some(block) => Some(pb::Healthcheck {
            url: block.string("url")?,
            interval: block.small_integer("interval")?,
            threshold: block.small_integer("threshold")?,
        }),
    };
    let sharing_level = match from.string("share")?.to_ascii_lowercase().as_str() {
        "authenticated" => pb::AppSharingLevel::Authenticated,
        "public" => pb::AppSharingLevel::Public,
        _ => pb::AppSharingLevel::Owner,
    };
    let open_in = match from.string("open_in")?.to_ascii_lowercase().as_str() {
        "tab" => pb::AppOpenIn::Tab,
        _ => pb::AppOpenIn::SlimWindow,
    };
    let mut id = from.string("id")?;
    if id.is_empty() {
        id = Uuid::new_v4().to_string();
    }
    Ok(pb::App {
        slug,
        display_name,
        command: from.string("command")?,
        url: from.string("url")?,
        icon: from.string("icon")?,
        subdomain: from.boolean("subdomain")?,
        healthcheck,
        sharing_level: sharing_level.into(),
        external: from.boolean("external")?,
        order: from.integer("order")?,
        hidden: from.boolean("hidden")?,
        open_in: open_in.into(),
        group: from.string("group")?,
        id,
        tooltip: from.string("tooltip")?,
    })
}

fn script(from: Attributes<'_>) -> Result<pb::Script, ConvertError> {
    Ok(pb::Script {
        display_name: from.string("display_name")?,
        icon: from.string("icon")?,
        script: from.string("script")?,
        cron: from.string("cron")?,
        start_blocks_login: from.boolean("start_blocks_login")?,
        run_on_start: from.boolean("run_on_start")?,
        run_on_stop: from.boolean("run_on_stop")?,
        timeout_seconds: from.small_integer("timeout")?,
        log_path: from.string("log_path")?,
    })
}

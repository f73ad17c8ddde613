//! Validates the resources, agents and apps in a report, and converts them to rows. All ids are generated here. Ids in the
//! message are only validated (wire-protocol 5.6).

use std::collections::HashSet;

use coder_domain::Timestamp;
use coder_domain::build::Transition;
use coder_domain::ids::{AgentId, AppId, JobId, LogSourceId, ResourceId, ScriptId};
use coder_domain::secret::Secret;
use coder_store::Tx;
use coder_store::jobs::timings;
use coder_store::jobs::timings::Timing;
use coder_store::workspaces::agents::{
    Agent, App, AppDefinition, Definition, Devcontainer, MetadataItem, Monitor, Script,
};
use coder_store::workspaces::resources::{Metadata, Module, Resource};
use coder_store::workspaces::{agents, resources};
use coder_wire::messages::provisioner as wire;
use uuid::Uuid;

use super::refusal::Refusal;

/// Rows of one report.
#[derive(Debug, Default)]
pub struct Results {
    resources: Vec<Resource>,
    agents: Vec<Agent>,
    apps: Vec<App>,
    modules: Vec<Module>,
    timings: Vec<Timing>,
}

impl Results {
    /// Adds the resources of one transition.
    pub fn add_resources(
        &mut self,
        job: JobId,
        transition: Transition,
        reported: Vec<wire::Resource>,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        for (position, resource) in (0..).zip(reported) {
            let id = ResourceId::random();
            self.add_agents(id, &resource.name, resource.agents, now)?;
            // Values that Terraform does not know yet are left out.
            let metadata = resource.metadata.into_iter().filter(|item| !item.is_null);
            let metadata =
                metadata.map(|item| Metadata { key: item.key, value: item.value, sensitive: item.sensitive });
            self.resources.push(Resource {
                id,
                job_id: job,
                position,
                transition,
                kind: resource.r#type,
                name: resource.name,
                hide: resource.hide,
                icon: resource.icon,
                instance_type: resource.instance_type,
                daily_cost: i64::from(resource.daily_cost),
                module_path: resource.module_path,
                metadata: metadata.collect(),
                created_at: now,
            });
        }
        Ok(())
    }

    fn add_agents(
        &mut self,
        resource: ResourceId,
        on: &str,
        reported: Vec<wire::Agent>,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let (mut names, mut slugs) = (HashSet::new(), HashSet::new());
        for (position, mut agent) in (0..).zip(reported) {
            let name = std::mem::take(&mut agent.name);
            if !is_dashed(&name, true) {
                return Err(Refusal::invalid(format!(
                    "agent name {name:?} on resource {on:?} must be letters and digits with single dashes between them"
                )));
            }
            if !names.insert(name.to_lowercase()) {
                return Err(Refusal::invalid(format!("duplicate agent name {name:?} on resource {on:?}")));
            }
            let (token, instance) = credentials(agent.auth.take())?;
            let apps = std::mem::take(&mut agent.apps);
            let mut row = Agent::reported(resource, position, name, token, definition(agent), now);
            row.auth_instance_id = instance;
            self.add_apps(row.id, apps, &mut slugs, now)?;
            self.agents.push(row);
        }
        Ok(())
    }

    fn add_apps(
        &mut self,
        agent: AgentId,
        reported: Vec<wire::App>,
        slugs: &mut HashSet<String>,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        for (position, app) in (0..).zip(reported) {
            if !is_dashed(&app.slug, false) {
                return Err(Refusal::invalid(format!(
                    "app slug {:?} must be lower-case letters and digits with single dashes between them",
                    app.slug
                )));
            }
            if !slugs.insert(app.slug.clone()) {
                return Err(Refusal::invalid(format!("duplicate app slug {:?}", app.slug)));
            }
            if !app.id.is_empty() && Uuid::try_parse(&app.id).is_err() {
                return Err(Refusal::invalid(format!("the id of app {:?} must be a UUID", app.slug)));
            }
            let health = if app.healthcheck.as_ref().is_some_and(|check| !check.url.is_empty()) {
                "initializing"
            } else {
                "disabled"
            };
            self.apps.push(App {
                id: AppId::random(),
                agent_id: agent,
                position,
                slug: app.slug.clone(),
                definition: app_definition(app)?,
                health: health.to_owned(),
                created_at: now,
            });
        }
        Ok(())
    }

    /// Adds modules, without the root module.
    pub fn add_modules(&mut self, transition: Transition, reported: Vec<wire::Module>) {
        let row = |module: wire::Module| Module {
            transition,
            source: module.source,
            version: module.version,
            key: module.key,
        };
        self.modules.extend(reported.into_iter().map(row));
    }

    /// Adds timings. Those without start and end, or of an unknown stage, are skipped.
    pub fn add_timings(&mut self, reported: Vec<wire::Timing>) {
        self.timings.extend(reported.into_iter().filter_map(timing));
    }

    /// Whether an agent is external (`coder_external_agent`).
    #[must_use]
    pub fn has_external_agent(&self) -> bool {
        self.resources.iter().any(|resource| resource.kind == "coder_external_agent")
    }

    /// Stores everything, one statement per table.
    pub async fn store(&self, tx: &mut Tx, job: JobId) -> Result<(), coder_store::Error> {
        resources::insert(tx, &self.resources).await?;
        agents::insert(tx, &self.agents).await?;
        agents::insert_apps(tx, &self.apps).await?;
        resources::insert_modules(tx, job, &self.modules).await?;
        timings::insert(tx, job, &self.timings).await
    }
}

/// Whether a text has only letters, digits and single dashes between them (terraform 4.4, 4.5).
fn is_dashed(text: &str, upper: bool) -> bool {
    let plain =
        |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase() || (upper && byte.is_ascii_uppercase());
    let part = |part: &str| !part.is_empty() && part.bytes().all(plain);
    text.split('-').all(part)
}

/// The credential of an agent: the UUID of its template, or a cloud instance with a UUID that is generated here (AGT-1).
fn credentials(auth: Option<wire::agent::Auth>) -> Result<(Secret, String), Refusal> {
    let fresh = || Secret::new(Uuid::new_v4().to_string());
    match auth {
        Some(wire::agent::Auth::Token(token)) if !token.is_empty() => match Uuid::try_parse(&token) {
            Ok(token) => Ok((Secret::new(token.to_string()), String::new())),
            Err(_) => Err(Refusal::invalid("invalid auth token format; must be uuid")),
        },
        Some(wire::agent::Auth::InstanceId(instance)) => Ok((fresh(), instance)),
        _ => Ok((fresh(), String::new())),
    }
}

fn definition(agent: wire::Agent) -> Definition {
    let script = |script: wire::Script| Script {
        id: ScriptId::random(),
        log_source_id: LogSourceId::random(),
        display_name: script.display_name,
        icon: script.icon,
        script: script.script,
        cron: script.cron,
        start_blocks_login: script.start_blocks_login,
        run_on_start: script.run_on_start,
        run_on_stop: script.run_on_stop,
        timeout_seconds: script.timeout_seconds,
        log_path: script.log_path,
    };
    let item = |item: wire::agent::Metadata| MetadataItem {
        key: item.key,
        display_name: item.display_name,
        script: item.script,
        interval: item.interval,
        timeout: item.timeout,
        order: item.order,
    };
    let of_container = agent.devcontainers.iter().map(|container| container_script(&container.name));
    let scripts = agent.scripts.into_iter().map(script).chain(of_container).collect();
    let container = |container: wire::Devcontainer| Devcontainer {
        workspace_folder: container.workspace_folder,
        config_path: container.config_path,
        name: container.name,
    };
    let monitoring = agent.resources_monitoring.unwrap_or_default();
    let volume = |volume: wire::VolumeResourceMonitor| {
        (volume.path, Monitor { enabled: volume.enabled, threshold: volume.threshold })
    };
    let memory = |memory: wire::MemoryResourceMonitor| Monitor {
        enabled: memory.enabled,
        threshold: memory.threshold,
    };
    Definition {
        env: agent.env,
        extra_envs: agent.extra_envs.into_iter().map(|env| (env.name, env.value)).collect(),
        operating_system: agent.operating_system,
        architecture: agent.architecture,
        directory: agent.directory,
        connection_timeout_seconds: agent.connection_timeout_seconds,
        troubleshooting_url: agent.troubleshooting_url,
        motd_file: agent.motd_file,
        display_apps: display_apps(agent.display_apps),
        scripts,
        metadata: agent.metadata.into_iter().map(item).collect(),
        memory_monitor: monitoring.memory.map(memory),
        volume_monitors: monitoring.volumes.into_iter().map(volume).collect(),
        devcontainers: agent.devcontainers.into_iter().map(container).collect(),
        order: agent.order,
        api_key_scope: if agent.api_key_scope == "no_user_data" {
            agent.api_key_scope
        } else {
            "all".to_owned()
        },
    }
}

/// The script of a dev container, so that its output has a log source and a name, as on the official server. Agents that
/// manage dev containers do not run it.
fn container_script(name: &str) -> Script {
    Script {
        id: ScriptId::random(),
        log_source_id: LogSourceId::random(),
        display_name: format!("Dev Container ({name})"),
        icon: "/emojis/1f4e6.png".to_owned(),
        script:
            "echo 'This agent starts no dev containers. Only an official agent with CODER_AGENT_DEVCONTAINERS_ENABLE=true does.'"
                .to_owned(),
        run_on_start: true,
        ..Script::default()
    }
}

/// The display apps in the order of the official API; by default all but the insiders editor (wire-protocol 7.3).
fn display_apps(chosen: Option<wire::DisplayApps>) -> Vec<String> {
    let chosen = chosen.unwrap_or(wire::DisplayApps {
        vscode: true,
        vscode_insiders: false,
        web_terminal: true,
        ssh_helper: true,
        port_forwarding_helper: true,
    });
    let all = [
        (chosen.vscode, "vscode"),
        (chosen.vscode_insiders, "vscode_insiders"),
        (chosen.ssh_helper, "ssh_helper"),
        (chosen.port_forwarding_helper, "port_forwarding_helper"),
        (chosen.web_terminal, "web_terminal"),
    ];
    all.into_iter().filter(|(on, _)| *on).map(|(_, word)| word.to_owned()).collect()
}

fn app_definition(app: wire::App) -> Result<AppDefinition, Refusal> {
    let sharing_level = match wire::AppSharingLevel::try_from(app.sharing_level) {
        Ok(wire::AppSharingLevel::Owner) => "owner",
        Ok(wire::AppSharingLevel::Authenticated) => "authenticated",
        Ok(wire::AppSharingLevel::Public) => "public",
        Err(_) => return Err(Refusal::invalid(format!("unknown sharing level {}", app.sharing_level))),
    };
    // The value 0 is deprecated and stored as the slim window (wire-protocol 4.6).
    let open_in = if app.open_in == wire::AppOpenIn::Tab as i32 { "tab" } else { "slim-window" };
    let check = app.healthcheck.unwrap_or_default();
    Ok(AppDefinition {
        display_name: app.display_name,
        command: app.command,
        url: app.url,
        icon: app.icon,
        subdomain: app.subdomain,
        healthcheck_url: check.url,
        healthcheck_interval: check.interval,
        healthcheck_threshold: check.threshold,
        sharing_level: sharing_level.to_owned(),
        external: app.external,
        order: app.order,
        hidden: app.hidden,
        open_in: open_in.to_owned(),
        group: app.group,
        tooltip: app.tooltip,
    })
}

fn timing(timing: wire::Timing) -> Option<Timing> {
    let instant = |at: Option<prost_types::Timestamp>| {
        let at = at.filter(|at| at.seconds > 0)?;
        Timestamp::new(at.seconds, at.nanos).ok()
    };
    if !matches!(timing.stage.as_str(), "init" | "plan" | "graph" | "apply") {
        return None;
    }
    Some(Timing {
        started_at: instant(timing.start)?,
        ended_at: instant(timing.end)?,
        stage: timing.stage,
        source: timing.source,
        action: timing.action,
        resource: timing.resource,
    })
}

#[cfg(test)]
mod tests {
    use coder_store::workspaces::agents::hash_token;

    use super::*;

    fn agent(name: &str, apps: &[&str]) -> wire::Agent {
        let app = |slug: &&str| wire::App { slug: (*slug).to_owned(), ..wire::App::default() };
        wire::Agent { name: name.to_owned(), apps: apps.iter().map(app).collect(), ..wire::Agent::default() }
    }

    fn resource(agents: Vec<wire::Agent>) -> wire::Resource {
        wire::Resource { name: "main".to_owned(), agents, ..wire::Resource::default() }
    }

    fn read(all: Vec<wire::Resource>) -> Result<Results, Refusal> {
        let mut results = Results::default();
        results
            .add_resources(JobId::random(), Transition::Start, all, Timestamp::UNIX_EPOCH)
            .map(|()| results)
    }

    #[test]
    fn agt_2_names_are_checked_and_unique_on_their_resource_without_regard_to_case() {
        for bad in ["", "a_b", "-a", "a-", "a--b", "ä", "a b"] {
            assert!(read(vec![resource(vec![agent(bad, &[])])]).is_err(), "{bad:?}");
        }
        assert!(read(vec![resource(vec![agent("dev", &[]), agent("Dev", &[])])]).is_err());
        let two = read(vec![resource(vec![agent("dev", &[])]), resource(vec![agent("dev", &[])])]).unwrap();
        assert_eq!(two.agents.len(), 2);
        assert_ne!(two.agents[0].id, two.agents[1].id);
    }

    #[test]
    fn agt_2_slugs_are_checked_and_unique_on_their_resource() {
        for bad in ["", "A", "a_b", "a-"] {
            assert!(read(vec![resource(vec![agent("dev", &[bad])])]).is_err(), "{bad:?}");
        }
        assert!(read(vec![resource(vec![agent("a", &["code"]), agent("b", &["code"])])]).is_err());
        let long = "a-".repeat(100) + "z";
        assert!(read(vec![resource(vec![agent(&long, &["code", "web-1", &long])])]).is_ok());
    }

    #[test]
    fn agt_1_tokens_are_uuids_and_made_here_when_missing() {
        let with = |auth| wire::Agent { auth, ..agent("dev", &[]) };
        let token = Uuid::new_v4().to_string();
        let given = read(vec![resource(vec![with(Some(wire::agent::Auth::Token(token.clone())))])]).unwrap();
        assert_eq!(given.agents[0].auth_token, hash_token(&Secret::new(token)));
        let bad = with(Some(wire::agent::Auth::Token("nonsense".to_owned())));
        let error = read(vec![resource(vec![bad])]).unwrap_err();
        assert_eq!(error.to_string(), "invalid auth token format; must be uuid");
        let instance =
            read(vec![resource(vec![with(Some(wire::agent::Auth::InstanceId("i-1".to_owned())))])]).unwrap();
        assert_eq!(instance.agents[0].auth_instance_id, "i-1");
        assert_ne!(instance.agents[0].auth_token, hash_token(&Secret::new("")));
    }

    #[test]
    fn ids_in_messages_are_never_used() {
        let mut dev = agent("dev", &["code"]);
        dev.id = Uuid::new_v4().to_string();
        dev.apps[0].id = Uuid::new_v4().to_string();
        let (agent_id, app_id) = (dev.id.clone(), dev.apps[0].id.clone());
        let rows = read(vec![resource(vec![dev])]).unwrap();
        assert_ne!(rows.agents[0].id.to_string(), agent_id);
        assert_ne!(rows.apps[0].id.to_string(), app_id);
    }

    #[test]
    fn null_metadata_and_broken_timings_are_skipped() {
        let item = |key: &str, is_null| wire::resource::Metadata {
            key: key.to_owned(),
            is_null,
            ..wire::resource::Metadata::default()
        };
        let with = wire::Resource { metadata: vec![item("a", false), item("b", true)], ..resource(vec![]) };
        let mut rows = read(vec![with]).unwrap();
        assert_eq!(rows.resources[0].metadata.len(), 1);
        let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
        let step = |stage: &str, start, end| wire::Timing {
            stage: stage.to_owned(),
            start,
            end,
            ..wire::Timing::default()
        };
        rows.add_timings(vec![
            step("init", at(1), at(2)),
            step("dance", at(1), at(2)),
            step("plan", None, at(2)),
            step("plan", at(0), at(2)),
        ]);
        assert_eq!(rows.timings.len(), 1);
    }
}

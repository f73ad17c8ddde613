//! What an agent is and what it has to run (agent 2.3).

use coder_domain::apps::SubdomainName;
use coder_domain::ids::AgentId;
use coder_store::workspaces::agent_connections::AgentIdentity;
use coder_store::workspaces::agents::{
    self, App as StoredApp, Definition, Devcontainer, MetadataItem, Script,
};
use coder_wire::messages::coder::agent::v2 as pb;
use prost_types::Duration;
use sha2::{Digest as _, Sha256};

use super::session::{AgentSession, Answer};
use crate::apps::destination::access_port;
use crate::config::Config;
use crate::http::AccessUrl;
use crate::network::derp_map;

/// Types of external authentication providers that are for git.
const GIT_PROVIDERS: [&str; 7] = [
    "azure-devops",
    "azure-devops-entra",
    "bitbucket-cloud",
    "bitbucket-server",
    "gitea",
    "github",
    "gitlab",
];

/// Answers `GetManifest`.
pub(super) async fn get(session: &AgentSession, _: pb::GetManifestRequest) -> Answer<pb::Manifest> {
    let (app, identity) = (&session.app, &session.identity);
    let row = session.row().await?;
    let apps = async {
        let mut tx = app.store.reader().await?;
        agents::list_apps(&mut tx, &[identity.agent_id]).await
    };
    let apps = apps.await.map_err(|error| session.failed(&error))?;
    let providers = app.external_auth.providers();
    let git = providers.iter().filter(|provider| GIT_PROVIDERS.contains(&provider.kind.as_str())).count();
    let Definition { extra_envs, env, directory, motd_file, scripts, metadata, devcontainers, .. } =
        row.definition.clone();
    Ok(pb::Manifest {
        agent_id: identity.agent_id.0.as_bytes().to_vec(),
        git_auth_configs: u32::try_from(git).unwrap_or(u32::MAX),
        environment_variables: extra_envs.into_iter().chain(env).collect(),
        directory,
        vs_code_port_proxy_uri: port_uri(&app.config, &session.url, identity),
        motd_path: motd_file,
        disable_direct_connections: app.config.tailnet.block_direct,
        derp_force_websockets: app.config.tailnet.force_websockets,
        derp_map: Some(derp_map::of(&app.config, &session.url).to_message()),
        scripts: scripts.into_iter().map(script).collect(),
        apps: apps.into_iter().map(|row| workspace_app(row, identity)).collect(),
        metadata: metadata.into_iter().map(description).collect(),
        owner_username: identity.owner_username.clone(),
        workspace_id: identity.workspace_id.0.as_bytes().to_vec(),
        agent_name: identity.agent_name.clone(),
        workspace_name: identity.workspace_name.clone(),
        devcontainers: devcontainers.into_iter().map(|item| devcontainer(identity.agent_id, item)).collect(),
        parent_id: identity.parent_id.map(|id| id.0.as_bytes().to_vec()),
    })
}

fn seconds(seconds: i32) -> Duration {
    Duration { seconds: i64::from(seconds), nanos: 0 }
}

fn script(row: Script) -> pb::WorkspaceAgentScript {
    pb::WorkspaceAgentScript {
        log_source_id: row.log_source_id.0.as_bytes().to_vec(),
        log_path: row.log_path,
        script: row.script,
        cron: row.cron,
        run_on_start: row.run_on_start,
        run_on_stop: row.run_on_stop,
        start_blocks_login: row.start_blocks_login,
        timeout: Some(seconds(row.timeout_seconds)),
        display_name: row.display_name,
        id: row.id.0.as_bytes().to_vec(),
    }
}

/// The number of seconds stands in the place of the nanoseconds, as official agents read it (agent 2.3).
fn seconds_as_nanos(seconds: i64) -> Duration {
    Duration { seconds: 0, nanos: i32::try_from(seconds).unwrap_or(i32::MAX).clamp(0, 999_999_999) }
}

fn description(row: MetadataItem) -> pb::workspace_agent_metadata::Description {
    pb::workspace_agent_metadata::Description {
        display_name: row.display_name,
        key: row.key,
        script: row.script,
        interval: Some(seconds_as_nanos(row.interval)),
        timeout: Some(seconds_as_nanos(row.timeout)),
    }
}

/// Where editors show ports of the workspace; empty without a wildcard host.
fn port_uri(config: &Config, url: &AccessUrl, identity: &AgentIdentity) -> String {
    let Some(wildcard) = &config.apps.wildcard else { return String::new() };
    let scheme = if url.0.starts_with("https://") { "https" } else { "http" };
    let AgentIdentity { agent_name, workspace_name, owner_username, .. } = identity;
    let label = format!("{{{{port}}}}--{agent_name}--{workspace_name}--{owner_username}");
    format!("{scheme}://{}", wildcard.with_label(&label, access_port(url)))
}

fn workspace_app(row: StoredApp, identity: &AgentIdentity) -> pb::WorkspaceApp {
    use pb::workspace_app::{Health, Healthcheck, SharingLevel};
    let definition = row.definition;
    // Official agents refuse a manifest with a level or a health that they do not know.
    let sharing_level = match definition.sharing_level.as_str() {
        "authenticated" => SharingLevel::Authenticated,
        "organization" => SharingLevel::Organization,
        "public" => SharingLevel::Public,
        _ => SharingLevel::Owner,
    };
    let health = match row.health.as_str() {
        "initializing" => Health::Initializing,
        "healthy" => Health::Healthy,
        "unhealthy" => Health::Unhealthy,
        _ => Health::Disabled,
    };
    let subdomain_name = if definition.subdomain {
        SubdomainName::of_app(&row.slug, &identity.workspace_name, &identity.owner_username)
    } else {
        String::new()
    };
    pb::WorkspaceApp {
        id: row.id.0.as_bytes().to_vec(),
        url: definition.url,
        external: definition.external,
        slug: row.slug,
        display_name: definition.display_name,
        command: definition.command,
        icon: definition.icon,
        subdomain: definition.subdomain,
        subdomain_name,
        sharing_level: sharing_level.into(),
        healthcheck: Some(Healthcheck {
            url: definition.healthcheck_url,
            interval: Some(seconds(definition.healthcheck_interval)),
            threshold: definition.healthcheck_threshold,
        }),
        health: health.into(),
        hidden: definition.hidden,
    }
}

/// Definitions have no ids of containers; this one is the same for each connection of the agent.
fn devcontainer(agent: AgentId, row: Devcontainer) -> pb::WorkspaceAgentDevcontainer {
    let digest = Sha256::new().chain_update(agent.0.as_bytes()).chain_update(&row.name).finalize();
    pb::WorkspaceAgentDevcontainer {
        id: digest[..16].to_vec(),
        workspace_folder: row.workspace_folder,
        config_path: row.config_path,
        name: row.name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_of_metadata_are_sent_as_nanoseconds() {
        assert_eq!(seconds_as_nanos(10), Duration { seconds: 0, nanos: 10 });
        assert_eq!(seconds_as_nanos(i64::MAX), Duration { seconds: 0, nanos: 999_999_999 });
        assert_eq!(seconds_as_nanos(-1), Duration { seconds: 0, nanos: 0 });
        assert_eq!(seconds(10), Duration { seconds: 10, nanos: 0 });
    }
}

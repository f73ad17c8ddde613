//! What the server says about the agent: the manifest, read and checked once.

use std::collections::BTreeMap;
use std::time::Duration;

use coder_tailnet::derp::DerpMap;
use coder_wire::messages::coder::agent::v2 as messages;
use uuid::Uuid;

/// Scripts, apps and metadata of one agent that are read; templates have a few dozen.
const MAX_ENTRIES: usize = 1000;

/// The checked manifest.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Manifest {
    pub(crate) agent_id: Uuid,
    pub(crate) agent_name: String,
    pub(crate) owner_name: String,
    pub(crate) workspace_id: Uuid,
    pub(crate) workspace_name: String,
    /// Providers of external authentication that Git uses.
    pub(crate) git_auth_configs: u32,
    pub(crate) environment: BTreeMap<String, String>,
    /// As the template has it, not expanded.
    pub(crate) directory: String,
    pub(crate) port_proxy_uri: String,
    pub(crate) motd_path: String,
    pub(crate) force_websockets: bool,
    pub(crate) derp_map: DerpMap,
    pub(crate) scripts: Vec<Script>,
    pub(crate) apps: Vec<App>,
    pub(crate) metadata: Vec<Metadata>,
}

/// A script of the template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) id: Uuid,
    pub(crate) log_source: Uuid,
    pub(crate) log_path: String,
    pub(crate) text: String,
    pub(crate) cron: String,
    pub(crate) runs_on_start: bool,
    pub(crate) runs_on_stop: bool,
    /// None for no limit.
    pub(crate) timeout: Option<Duration>,
    pub(crate) name: String,
}

/// An app whose health is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct App {
    pub(crate) id: Uuid,
    pub(crate) slug: String,
    pub(crate) url: String,
    pub(crate) interval: Duration,
    pub(crate) threshold: u32,
}

/// A value that a script finds out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(crate) key: String,
    pub(crate) script: String,
    /// None to run it once.
    pub(crate) interval: Option<Duration>,
    pub(crate) timeout: Duration,
}

/// A manifest that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server's manifest is malformed: {0}")]
pub(crate) struct ManifestError(&'static str);

/// The limit when a metadata script names neither timeout nor interval.
const METADATA_TIMEOUT: Duration = Duration::from_secs(3);

impl TryFrom<messages::Manifest> for Manifest {
    type Error = ManifestError;

    fn try_from(message: messages::Manifest) -> Result<Self, ManifestError> {
        let derp_map = message.derp_map.ok_or(ManifestError("it has no relays"))?;
        if [message.scripts.len(), message.apps.len(), message.metadata.len()]
            .iter()
            .any(|count| *count > MAX_ENTRIES)
        {
            return Err(ManifestError("it has more than 1000 scripts, apps or metadata"));
        }
        let apps = message.apps.into_iter().map(app).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            agent_id: id(&message.agent_id)?,
            agent_name: message.agent_name,
            owner_name: message.owner_username,
            workspace_id: id(&message.workspace_id)?,
            workspace_name: message.workspace_name,
            git_auth_configs: message.git_auth_configs,
            environment: message.environment_variables.into_iter().collect(),
            directory: message.directory,
            port_proxy_uri: message.vs_code_port_proxy_uri,
            motd_path: message.motd_path,
            force_websockets: message.derp_force_websockets,
            derp_map: DerpMap::from_message(derp_map),
            scripts: message.scripts.into_iter().map(script).collect::<Result<_, _>>()?,
            apps: apps.into_iter().flatten().collect(),
            metadata: message.metadata.into_iter().map(metadata).collect(),
        })
    }
}

fn id(bytes: &[u8]) -> Result<Uuid, ManifestError> {
    Uuid::from_slice(bytes).map_err(|_| ManifestError("an id does not have 16 bytes"))
}

fn duration(value: Option<prost_types::Duration>) -> Option<Duration> {
    value.and_then(|value| Duration::try_from(value).ok()).filter(|value| !value.is_zero())
}

fn script(script: messages::WorkspaceAgentScript) -> Result<Script, ManifestError> {
    Ok(Script {
        id: id(&script.id)?,
        log_source: id(&script.log_source_id)?,
        log_path: script.log_path,
        text: script.script,
        cron: script.cron,
        runs_on_start: script.run_on_start,
        runs_on_stop: script.run_on_stop,
        timeout: duration(script.timeout),
        name: script.display_name,
    })
}

/// None for an app whose health is not checked (agent 2.8).
fn app(app: messages::WorkspaceApp) -> Result<Option<App>, ManifestError> {
    let id = id(&app.id)?;
    let Some(check) = app.healthcheck else { return Ok(None) };
    let (Some(interval), Ok(threshold @ 1..)) = (duration(check.interval), u32::try_from(check.threshold))
    else {
        return Ok(None);
    };
    if check.url.is_empty() {
        return Ok(None);
    }
    Ok(Some(App { id, slug: app.slug, url: check.url, interval, threshold }))
}

fn metadata(description: messages::workspace_agent_metadata::Description) -> Metadata {
    let interval = metadata_seconds(description.interval);
    let timeout = metadata_seconds(description.timeout).or(interval).unwrap_or(METADATA_TIMEOUT);
    Metadata { key: description.key, script: description.script, interval, timeout }
}

/// Durations of metadata carry seconds in the number of nanoseconds (agent 2.3).
fn metadata_seconds(value: Option<prost_types::Duration>) -> Option<Duration> {
    let value = value?;
    let nanos = i128::from(value.seconds) * 1_000_000_000 + i128::from(value.nanos);
    u32::try_from(nanos)
        .ok()
        .filter(|seconds| *seconds > 0)
        .map(|seconds| Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coder_wire::messages::coder::tailnet::v2 as tailnet;

    fn message() -> messages::Manifest {
        messages::Manifest {
            agent_id: vec![1; 16],
            workspace_id: vec![2; 16],
            derp_map: Some(tailnet::DerpMap::default()),
            ..messages::Manifest::default()
        }
    }

    fn seconds(seconds: i64) -> Option<prost_types::Duration> {
        Some(prost_types::Duration { seconds, nanos: 0 })
    }

    #[test]
    fn malformed_manifests_are_refused() {
        assert!(Manifest::try_from(message()).is_ok());
        assert!(Manifest::try_from(messages::Manifest { agent_id: vec![1; 15], ..message() }).is_err());
        assert!(Manifest::try_from(messages::Manifest { derp_map: None, ..message() }).is_err());
        let scripts = vec![messages::WorkspaceAgentScript::default()];
        assert!(Manifest::try_from(messages::Manifest { scripts, ..message() }).is_err());
        let metadata = vec![messages::workspace_agent_metadata::Description::default(); MAX_ENTRIES + 1];
        assert!(Manifest::try_from(messages::Manifest { metadata, ..message() }).is_err());
    }

    /// agent 2.8.
    #[test]
    fn only_apps_with_a_whole_check_are_checked() {
        let app = |url: &str, interval, threshold| messages::WorkspaceApp {
            id: vec![3; 16],
            healthcheck: Some(messages::workspace_app::Healthcheck {
                url: url.to_owned(),
                interval,
                threshold,
            }),
            ..messages::WorkspaceApp::default()
        };
        let without = messages::WorkspaceApp { id: vec![4; 16], ..messages::WorkspaceApp::default() };
        let apps = vec![
            app("http://a", seconds(5), 3),
            app("", seconds(5), 3),
            app("b", None, 3),
            app("c", seconds(5), 0),
            without,
        ];
        let manifest = Manifest::try_from(messages::Manifest { apps, ..message() }).unwrap();
        let urls: Vec<_> = manifest.apps.iter().map(|app| app.url.as_str()).collect();
        assert_eq!(urls, ["http://a"]);
    }

    /// agent 2.3, 2.7.
    #[test]
    fn durations_of_metadata_count_seconds_in_nanoseconds() {
        let check = |interval: i32, timeout: i32, want: (Option<u64>, u64)| {
            let nanos = |nanos| Some(prost_types::Duration { seconds: 0, nanos });
            let read = metadata(messages::workspace_agent_metadata::Description {
                interval: nanos(interval),
                timeout: nanos(timeout),
                ..Default::default()
            });
            assert_eq!((read.interval.map(|interval| interval.as_secs()), read.timeout.as_secs()), want);
        };
        check(10, 4, (Some(10), 4));
        check(10, 0, (Some(10), 10));
        check(0, 0, (None, 3));
        assert_eq!(
            metadata_seconds(seconds(1)),
            Some(Duration::from_secs(1_000_000_000)),
            "more than a minute, less than ever"
        );
        assert_eq!(metadata_seconds(seconds(-1)), None);
    }
}

//! Agents: validation, fields, and which resource owns each (terraform 4.4).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use coder_wire::messages::provisioner as pb;
use pb::agent::Auth;

use super::attributes::Attributes;
use super::index::ResourceIndex;
use super::{ConvertError, address, attached};
use crate::terraform::resources::graph::{Direction, Graph};
use crate::terraform::resources::state::Resource;

pub(super) const NAME_PATTERN: &str = "(?i)^[a-z0-9](-?[a-z0-9])*$";

struct OwnedAgent {
    /// The label of its owner.
    owner: String,
    /// The agent's own address, which identifies its module instances.
    address: String,
    agent: pb::Agent,
}

impl OwnedAgent {
    fn is_of(&self, label: &str, instance: &str) -> bool {
        self.owner == label && address::agree(&self.address, instance)
    }
}

pub(super) struct Agents(Vec<OwnedAgent>);

impl Agents {
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut pb::Agent> {
        self.0.iter_mut().map(|owned| &mut owned.agent)
    }

    /// Sets the instance id of an owner's agents that authenticate by instance and have none yet. The first
    /// instance counts, because all instances show the same agents (terraform 4.7).
    pub(super) fn identify(&mut self, label: &str, instance: &str, id: &str) {
        for owned in self.0.iter_mut().filter(|owned| owned.is_of(label, instance)) {
            let unset = match &owned.agent.auth {
                None => true,
                Some(Auth::Token(value) | Auth::InstanceId(value)) => value.is_empty(),
            };
            if unset {
                owned.agent.auth = Some(Auth::InstanceId(id.to_owned()));
            }
        }
    }

    /// The agents of one instance of the owner.
    pub(super) fn owned_by(&self, label: &str, instance: &str) -> Vec<pb::Agent> {
        let of_it = self.0.iter().filter(|owned| owned.is_of(label, instance));
        of_it.map(|owned| owned.agent.clone()).collect()
    }
}

pub(super) fn collect(index: &ResourceIndex<'_>, graph: &Graph) -> Result<Agents, ConvertError> {
    // In how many module instances a block occurs; instances of the block itself share a name and are
    // duplicates.
    let mut modules: HashMap<Cow<'_, str>, HashSet<Vec<&str>>> = HashMap::new();
    for resource in index.managed("coder_agent") {
        let keys = address::module_keys(&resource.address);
        modules.entry(index.label(&resource.address)).or_default().insert(keys);
    }
    let mut agents = Vec::new();
    let mut names = HashSet::new();
    for resource in index.managed("coder_agent") {
        check_name(&resource.name)?;
        let label = index.label(&resource.address);
        let is_repeated = modules.get(&label).is_some_and(|instances| instances.len() > 1);
        let name = if is_repeated { name_with_keys(resource) } else { resource.name.clone() };
        if !names.insert(name.to_ascii_lowercase()) {
            return Err(ConvertError::DuplicateAgent(name.to_ascii_lowercase()));
        }
        let agent = agent(&name, Attributes::of(resource))?;
        let node = graph.find(&label).ok_or_else(|| ConvertError::NoNode(label.clone().into_owned()))?;
        if let Some(owner) = graph.nearest(node, Direction::Up, |label| index.is_owner(label)) {
            agents.push(OwnedAgent { owner: owner.to_owned(), address: resource.address.clone(), agent });
        }
    }
    Ok(Agents(agents))
}

/// The name of one of several agents that differ only in their module instance: the instance keys, as far as a
/// name may contain them, follow the block's name.
fn name_with_keys(resource: &Resource) -> String {
    let mut parts = vec![resource.name.as_str()];
    let keys = address::module_keys(&resource.address);
    for key in &keys {
        parts.extend(key.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty()));
    }
    parts.join("-")
}

fn check_name(name: &str) -> Result<(), ConvertError> {
    if name.is_empty() {
        return Err(ConvertError::AgentNameEmpty);
    }
    if attached::is_hyphenated(name, true) {
        return Ok(());
    }
    if name.contains('_') {
        return Err(ConvertError::AgentNameUnderscore(name.to_owned()));
    }
    Err(ConvertError::AgentName(name.to_owned()))
}

fn agent(name: &str, from: Attributes<'_>) -> Result<pb::Agent, ConvertError> {
    let auth = if from.string("auth")? == "token" {
        Auth::Token(from.string("token")?)
    } else {
        Auth::InstanceId(String::new())
    };
    let mut metadata = Vec::new();
    for block in from.blocks("metadata")? {
        metadata.push(pb::agent::Metadata {
            key: block.string("key")?,
            display_name: block.string("display_name")?,
            script: block.string("script")?,
            interval: block.integer("interval")?,
            timeout: block.integer("timeout")?,
            order: block.integer("order")?,
        });
    }
    Ok(pb::Agent {
        id: from.string("id")?,
        name: name.to_owned(),
        env: from.string_map("env")?.into_iter().collect(),
        operating_system: from.string("os")?,
        architecture: from.string("arch")?,
        directory: from.string("dir")?,
        connection_timeout_seconds: from.small_integer("connection_timeout")?,
        troubleshooting_url: from.string("troubleshooting_url")?,
        motd_file: from.string("motd_file")?,
        order: from.integer("order")?,
        api_key_scope: from.string("api_key_scope")?,
        metadata,
        display_apps: Some(display_apps(from)?),
        resources_monitoring: Some(monitoring(from)?),
        scripts: scripts(from)?,
        auth: Some(auth),
        ..pb::Agent::default()
    })
}

fn display_apps(from: Attributes<'_>) -> Result<pb::DisplayApps, ConvertError> {
    let Some(block) = from.blocks("display_apps")?.into_iter().next() else {
        return Ok(pb::DisplayApps {
            vscode: true,
            vscode_insiders: false,
            web_terminal: true,
            ssh_helper: true,
            port_forwarding_helper: true,
        });
    };
    Ok(pb::DisplayApps {
        vscode: block.boolean("vscode")?,
        vscode_insiders: block.boolean("vscode_insiders")?,
        web_terminal: block.boolean("web_terminal")?,
        ssh_helper: block.boolean("ssh_helper")?,
        port_forwarding_helper: block.boolean("port_forwarding_helper")?,
    })
}

fn monitoring(from: Attributes<'_>) -> Result<pb::ResourcesMonitoring, ConvertError> {
    let mut result = pb::ResourcesMonitoring::default();
    for block in from.blocks("resources_monitoring")? {
        for memory in block.blocks("memory")? {
            result.memory = Some(pb::MemoryResourceMonitor {
                enabled: memory.boolean("enabled")?,
                threshold: memory.small_integer("threshold")?,
            });
        }
        for volume in block.blocks("volume")? {
            result.volumes.push(pb::VolumeResourceMonitor {
                path: volume.string("path")?,
                enabled: volume.boolean("enabled")?,
                threshold: volume.small_integer("threshold")?,
            });
        }
    }
    Ok(result)
}

/// The scripts in an agent's own attributes; they precede `coder_script` entries.
fn scripts(from: Attributes<'_>) -> Result<Vec<pb::Script>, ConvertError> {
    let behavior = from.string("startup_script_behavior")?;
    let blocking = if behavior.is_empty() {
        from.value("login_before_ready").is_some() && !from.boolean("login_before_ready")?
    } else {
        behavior == "blocking"
    };
    let mut scripts = Vec::new();
    let startup = from.string("startup_script")?;
    if !startup.is_empty() {
        scripts.push(pb::Script {
            display_name: "Startup Script".to_owned(),
            icon: "/emojis/25b6-fe0f.png".to_owned(),
            log_path: "coder-startup-script.log".to_owned(),
            script: startup,
            run_on_start: true,
            start_blocks_login: blocking,
            ..pb::Script::default()
        });
    }
    let shutdown = from.string("shutdown_script")?;
    if !shutdown.is_empty() {
        scripts.push(pb::Script {
            display_name: "Shutdown Script".to_owned(),
            icon: "/emojis/25c0.png".to_owned(),
            log_path: "coder-shutdown-script.log".to_owned(),
            script: shutdown,
            run_on_stop: true,
            ..pb::Script::default()
        });
    }
    Ok(scripts)
}

//! Converts Terraform's module trees and graph into the messages that a job reports (terraform section 4).

pub(crate) mod address;
mod agents;
mod attached;
pub(crate) mod attributes;
mod index;
mod json;
mod metadata;
mod parameters;
mod presets;
pub(crate) mod text;

use coder_wire::messages::provisioner as pb;

use self::attributes::{Attributes, DecodeError};
use self::index::ResourceIndex;
use super::graph::{Graph, GraphError};
use super::state::Module;

/// Everything that a graph step reports.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct ConvertedResources {
    pub(crate) resources: Vec<pb::Resource>,
    pub(crate) parameters: Vec<pb::RichParameter>,
    pub(crate) presets: Vec<pb::Preset>,
    pub(crate) external_auth_providers: Vec<pb::ExternalAuthProviderResource>,
    pub(crate) ai_tasks: Vec<pb::AiTask>,
    pub(crate) has_ai_tasks: bool,
    pub(crate) has_external_agents: bool,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ConvertError {
    #[error(transparent)]
    Graph(#[from] GraphError),
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("agent name cannot be empty")]
    AgentNameEmpty,
    #[error(
        "agent name {0:?} contains underscores, which are no longer supported; use hyphens (it must match {re})",
        re = agents::NAME_PATTERN
    )]
    AgentNameUnderscore(String),
    #[error("agent name {0:?} does not match regex {re:?}", re = agents::NAME_PATTERN)]
    AgentName(String),
    #[error("duplicate agent name: {0}")]
    DuplicateAgent(String),
    #[error("couldn't find node on graph: {0:?}")]
    NoNode(String),
    #[error("app slug {0:?} does not match regex {re:?}", re = attached::SLUG_PATTERN)]
    AppSlug(String),
    #[error("duplicate app slug, they must be unique per template: {0:?}")]
    DuplicateApp(String),
    #[error("duplicate metadata resource: {0}")]
    DuplicateMetadata(String),
    #[error("decode form_type of coder_parameter {parameter:?}: unknown form type {form_type:?}")]
    FormType { parameter: String, form_type: String },
    #[error("coder_parameter names must be unique but {0} multiple times")]
    DuplicateParameters(String),
    #[error("a maximum of 1 coder_workspace_preset can be marked as default, but {0} are set")]
    DefaultPresets(usize),
    #[error("external auth provider {0} has no id")]
    ExternalAuthId(String),
}

/// Converts module trees, in the given order, with the graph of their configuration.
pub(crate) fn convert(modules: &[Module], graph: &Graph) -> Result<ConvertedResources, ConvertError> {
    let index = ResourceIndex::new(modules);
    let mut agents = agents::collect(&index, graph)?;
    attached::attach(&index, graph, &mut agents)?;
    let metadata = metadata::collect(&index, graph)?;

    let listed = || index.by_address().filter(|resource| resource.is_managed() && is_listed(&resource.kind));
    for resource in listed() {
        if let Some(id) = instance_id(&resource.kind, Attributes::of(resource)) {
            agents.identify(&index.label(&resource.address), &resource.address, id);
        }
    }
    let mut resources = Vec::new();
    for resource in listed() {
        let label = index.label(&resource.address);
        let attributes = Attributes::of(resource);
        let mut converted = pb::Resource {
            name: resource.name.clone(),
            r#type: resource.kind.clone(),
            instance_type: instance_type(&resource.kind, attributes),
            module_path: address::module_path(&resource.address),
            agents: agents.owned_by(&label, &resource.address),
            ..pb::Resource::default()
        };
        metadata.apply(&label, &resource.address, &mut converted);
        resources.push(converted);
    }

    Ok(ConvertedResources {
        resources,
        parameters: parameters::convert(&index)?,
        presets: presets::convert(&index)?,
        external_auth_providers: external_auth(&index)?,
        ai_tasks: ai_tasks(&index)?,
        has_ai_tasks: graph.has_resource_type("coder_ai_task"),
        has_external_agents: graph.has_resource_type("coder_external_agent"),
    })
}

/// Resource types that only describe others are not listed (terraform 4.7).
fn is_listed(kind: &str) -> bool {
    !matches!(kind, "coder_agent" | "coder_agent_instance" | "coder_app" | "coder_script" | "coder_metadata")
}

fn instance_type(kind: &str, attributes: Attributes<'_>) -> String {
    let attribute = match kind {
        "google_compute_instance" => "machine_type",
        "aws_instance" | "aws_spot_instance_request" => "instance_type",
        "azurerm_linux_virtual_machine" | "azurerm_windows_virtual_machine" => "size",
        _ => return String::new(),
    };
    attributes.string_if_any(attribute).unwrap_or_default().to_owned()
}

fn instance_id<'a>(kind: &str, attributes: Attributes<'a>) -> Option<&'a str> {
    let attribute = match kind {
        "google_compute_instance" => "instance_id",
        "aws_instance" => "id",
        "aws_spot_instance_request" => "spot_instance_id",
        "azurerm_linux_virtual_machine" | "azurerm_windows_virtual_machine" => "virtual_machine_id",
        _ => return None,
    };
    attributes.string_if_any(attribute).filter(|id| !id.is_empty())
}

fn ai_tasks(index: &ResourceIndex<'_>) -> Result<Vec<pb::AiTask>, ConvertError> {
    let mut tasks = Vec::new();
    for resource in index.in_order("coder_ai_task") {
        let attributes = Attributes::of(resource);
        let mut app_id = attributes.string("app_id")?;
        if app_id.is_empty()
            && let Some(sidebar) = attributes.blocks("sidebar_app")?.first()
        {
            app_id = sidebar.string("id")?;
        }
        tasks.push(pb::AiTask {
            id: attributes.string("id")?,
            sidebar_app: Some(pb::AiTaskSidebarApp { id: app_id.clone() }),
            app_id,
        });
    }
    Ok(tasks)
}

/// Providers sorted by unique id; `coder_external_auth` overrides the older `coder_git_auth` (terraform 4.10).
fn external_auth(index: &ResourceIndex<'_>) -> Result<Vec<pb::ExternalAuthProviderResource>, ConvertError> {
    let mut providers = std::collections::BTreeMap::new();
    for kind in ["coder_git_auth", "coder_external_auth"] {
        for resource in index.by_address().filter(|resource| resource.kind == kind) {
            let attributes = Attributes::of(resource);
            let id = attributes
                .string_if_any("id")
                .ok_or_else(|| ConvertError::ExternalAuthId(resource.address.clone()))?;
            providers.insert(id.to_owned(), attributes.boolean("optional")?);
        }
    }
    Ok(providers
        .into_iter()
        .map(|(id, optional)| pb::ExternalAuthProviderResource { id, optional })
        .collect())
}

#[cfg(test)]
mod rules;
#[cfg(test)]
mod tests;

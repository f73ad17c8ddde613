//! How resources, their agents, apps and metadata are shown to people.

use coder_api::resources::{WorkspaceAgent, WorkspaceResource};

use crate::output::{Look, Printer};

/// Lines for `resources`; with `workspace`, agents say whether they are connected.
pub(crate) fn lines(
    printer: &Printer,
    resources: &[WorkspaceResource],
    workspace: Option<&str>,
) -> Vec<String> {
    let mut lines = Vec::new();
    let mut sorted: Vec<_> = resources.iter().filter(|resource| !resource.hide).collect();
    sorted.sort_by_key(|resource| (resource.agents.is_empty(), &resource.kind, &resource.name));
    for resource in sorted {
        let kind = if resource.agents.is_empty() { "peripheral" } else { "computational" };
        let name = printer.paint(Look::Bold, &format!("{}.{}", resource.kind, resource.name));
        lines.push(format!("{name} {}", printer.paint(Look::Faint, &format!("({kind})"))));
        let mut children: Vec<String> = Vec::new();
        // A plan does not know all values yet.
        let known = resource.metadata.iter().filter(|item| workspace.is_some() || !item.value.is_empty());
        for item in known {
            let value = if item.sensitive { "(sensitive)" } else { &item.value };
            children.push(format!("{} = {value}", item.key));
        }
        for agent in &resource.agents {
            children.extend(agent_lines(printer, agent, workspace.is_some()));
        }
        lines.extend(children.iter().map(|child| format!("  {child}")));
    }
    lines
}

fn agent_lines(printer: &Printer, agent: &WorkspaceAgent, live: bool) -> Vec<String> {
    let mut text = format!("agent {} ({}, {})", agent.name, agent.operating_system, agent.architecture);
    if live {
        let look = if agent.status.as_str() == "connected" { Look::Good } else { Look::Warn };
        text.push_str(&format!(" {}", printer.paint(look, agent.status.as_str())));
    }
    let mut lines = vec![text];
    for app in agent.apps.iter().filter(|app| !app.hidden) {
        let name = if app.display_name.is_empty() { &app.slug } else { &app.display_name };
        let target = if app.url.is_empty() { &app.command } else { &app.url };
        lines.push(format!("  app {name} {}", printer.paint(Look::Faint, target)));
    }
    lines
}

//! Prints resources with their agents, apps and metadata as a tree.

use std::collections::BTreeSet;

use coder_api::builds::Transition;
use coder_api::resources::{WorkspaceAgent, WorkspaceResource};

use crate::terminal::output::{Printer, Style, strip_control};

/// The resources that a stopped workspace keeps, by type and name.
#[derive(Debug, Default)]
pub(crate) struct Persistent(BTreeSet<(String, String)>);

impl Persistent {
    /// Computes it from the resources of an import for both transitions.
    pub(crate) fn of(found: &[WorkspaceResource]) -> Self {
        let stopped = found.iter().filter(|resource| resource.workspace_transition == Transition::Stop);
        Self(stopped.map(|resource| (resource.kind.clone(), resource.name.clone())).collect())
    }

    fn has(&self, resource: &WorkspaceResource) -> bool {
        resource.workspace_transition == Transition::Stop
            || self.0.contains(&(resource.kind.clone(), resource.name.clone()))
    }
}

/// A line with its children.
struct Node {
    text: String,
    below: Vec<Node>,
}

impl Node {
    fn leaf(text: String) -> Self {
        Self { text, below: Vec::new() }
    }

    /// A text of others as one line.
    fn plain(text: &str) -> String {
        strip_control(text).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn write(&self, prefix: &str, lines: &mut Vec<String>) {
        for (at, node) in self.below.iter().enumerate() {
            let is_last = at + 1 == self.below.len();
            let (branch, rest) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            lines.push(format!("{prefix}{branch}{}", node.text));
            node.write(&format!("{prefix}{rest}"), lines);
        }
    }
}

/// Lines for `resources`. With `is_live`, they show whether agents are connected. Persistence is shown only if it is
/// known.
pub(crate) fn lines(
    printer: &Printer,
    resources: &[WorkspaceResource],
    persistent: Option<&Persistent>,
    is_live: bool,
) -> Vec<String> {
    let mut blocks: Vec<(Vec<String>, usize)> = Vec::new();
    let mut sorted: Vec<_> = resources.iter().filter(|resource| !resource.hide).collect();
    sorted.sort_by_key(|resource| (resource.agents.is_empty(), &resource.kind, &resource.name));
    for resource in sorted {
        let kind = if resource.agents.is_empty() { "peripheral" } else { "computational" };
        let kind = match persistent {
            None => format!("({kind})"),
            Some(persistent) if persistent.has(resource) => format!("({kind}, persistent)"),
            Some(_) => format!("({kind}, ephemeral)"),
        };
        let name = printer.paint(Style::Bold, &Node::plain(&format!("{}.{}", resource.kind, resource.name)));
        let mut lines = vec![format!("{name} {}", printer.paint(Style::Faint, &kind))];
        let mut below = Vec::new();
        // A plan does not know all values yet.
        let known = resource.metadata.iter().filter(|item| is_live || !item.value.is_empty());
        for item in known {
            let value = if item.sensitive { "(sensitive)" } else { &item.value };
            below.push(Node::leaf(Node::plain(&format!("{} = {value}", item.key))));
        }
        below.extend(resource.agents.iter().map(|agent| agent_node(printer, agent, is_live)));
        Node { text: String::new(), below }.write("", &mut lines);
        match blocks.last_mut() {
            // Instances of one resource have the same name here.
            Some((last, count)) if *last == lines => *count += 1,
            _ => blocks.push((lines, 1)),
        }
    }
    let counted = |(mut lines, count): (Vec<String>, usize)| {
        if count > 1 {
            lines[0].push_str(&printer.paint(Style::Faint, &format!(" ×{count}")));
        }
        lines
    };
    blocks.into_iter().flat_map(counted).collect()
}

fn agent_node(printer: &Printer, agent: &WorkspaceAgent, is_live: bool) -> Node {
    let mut text =
        Node::plain(&format!("agent {} ({}, {})", agent.name, agent.operating_system, agent.architecture));
    if is_live {
        let look = if agent.status.as_str() == "connected" { Style::Good } else { Style::Warn };
        text.push_str(&format!(" {}", printer.paint(look, agent.status.as_str())));
        let details = live_details(agent);
        if !details.is_empty() {
            text.push_str(&format!(" {}", printer.paint(Style::Faint, &format!("({})", details.join(", ")))));
        }
    }
    let shown = agent.apps.iter().filter(|app| !app.hidden);
    let app = |app: &coder_api::resources::WorkspaceApp| {
        let name = if app.display_name.is_empty() { &app.slug } else { &app.display_name };
        let target = if app.url.is_empty() { &app.command } else { &app.url };
        let (name, target) = (Node::plain(name), Node::plain(target));
        Node::leaf(format!("app {name} {}", printer.paint(Style::Faint, &target)).trim_end().to_owned())
    };
    Node { text, below: shown.map(app).collect() }
}

/// What an agent that has been connected says about itself, and what is wrong with it.
fn live_details(agent: &WorkspaceAgent) -> Vec<String> {
    let mut details = Vec::new();
    if agent.first_connected_at.is_some() {
        details.push(agent.lifecycle_state.as_str().replace('_', " "));
    }
    if !agent.version.is_empty() {
        details.push(Node::plain(&agent.version));
    }
    if !agent.health.reason.is_empty() {
        details.push(Node::plain(&agent.health.reason));
    }
    details
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_agent_says_how_it_is() {
        let id = "11111111-1111-4111-8111-111111111111";
        let agent = |more: serde_json::Value| -> WorkspaceAgent {
            let mut agent = serde_json::json!({
                "id": id, "resource_id": id, "created_at": "2025-01-01T00:00:00Z", "updated_at": "2025-01-01T00:00:00Z",
                "status": "connected", "lifecycle_state": "start_error", "name": "main", "architecture": "amd64",
                "operating_system": "linux", "version": "v2.30.0", "first_connected_at": "2025-01-01T00:00:00Z",
                "health": { "healthy": false, "reason": "agent startup script exited with an error" },
            });
            agent.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value(agent).unwrap()
        };
        let text = |agent: &WorkspaceAgent, is_live| agent_node(&Printer::plain(), agent, is_live).text;
        let failed = agent(serde_json::json!({}));
        assert_eq!(
            text(&failed, true),
            "agent main (linux, amd64) connected (start error, v2.30.0, agent startup script exited with an error)"
        );
        assert_eq!(text(&failed, false), "agent main (linux, amd64)");
        let fresh = agent(serde_json::json!({
            "status": "connecting", "lifecycle_state": "created", "version": "", "first_connected_at": null,
            "health": { "healthy": true },
        }));
        assert_eq!(text(&fresh, true), "agent main (linux, amd64) connecting");
    }

    fn resource(kind: &str, name: &str, transition: &str, agents: serde_json::Value) -> WorkspaceResource {
        let id = "11111111-1111-4111-8111-111111111111";
        serde_json::from_value(serde_json::json!({
            "id": id, "job_id": id, "created_at": "2025-01-01T00:00:00Z", "workspace_transition": transition,
            "type": kind, "name": name, "agents": agents, "metadata": [{"key": "size", "value": "5\n\u{1b}[2J GiB"}],
        }))
        .unwrap()
    }

    #[test]
    fn names_do_not_control_the_terminal() {
        let wild = "x\u{1b}[2J\r\nforged\u{9b}2J\u{202e}";
        let mut found = resource(wild, wild, "start", serde_json::json!([]));
        found.metadata.clear();
        assert_eq!(lines(&Printer::plain(), &[found], None, true), ["x forged2J.x forged2J (peripheral)"]);
        let id = "11111111-1111-4111-8111-111111111111";
        let agent: WorkspaceAgent = serde_json::from_value(serde_json::json!({
            "id": id, "resource_id": id, "created_at": "2025-01-01T00:00:00Z", "updated_at": "2025-01-01T00:00:00Z",
            "status": "connecting", "lifecycle_state": "created", "name": "main", "architecture": wild, "operating_system": wild,
        }))
        .unwrap();
        assert_eq!(agent_node(&Printer::plain(), &agent, false).text, "agent main (x forged2J, x forged2J)");
    }

    #[test]
    fn persistent_and_ephemeral_resources_are_marked() {
        let found = [
            resource("vm", "dev", "start", serde_json::json!([])),
            resource("disk", "home", "start", serde_json::json!([])),
            resource("disk", "home", "stop", serde_json::json!([])),
        ];
        let persistent = Persistent::of(&found);
        let lines = lines(&Printer::plain(), &found[..2], Some(&persistent), false);
        assert_eq!(
            lines,
            [
                "disk.home (peripheral, persistent)",
                "└─ size = 5 GiB",
                "vm.dev (peripheral, ephemeral)",
                "└─ size = 5 GiB"
            ]
        );
        let unknown = super::lines(&Printer::plain(), &found[..1], None, false);
        assert_eq!(unknown[0], "vm.dev (peripheral)");
    }

    #[test]
    fn instances_that_look_alike_are_counted() {
        let instance = |value: &str| {
            let mut found = resource("vm", "dev", "start", serde_json::json!([]));
            found.metadata[0].value = value.to_owned();
            found
        };
        let found = [instance("a"), instance("a"), instance("b")];
        let lines = lines(&Printer::plain(), &found, None, false);
        assert_eq!(lines, ["vm.dev (peripheral) ×2", "└─ size = a", "vm.dev (peripheral)", "└─ size = b"]);
    }

    #[test]
    fn branches_lead_to_what_hangs_below() {
        let leaf = |text: &str| Node::leaf(text.to_owned());
        let agent = |name: &str| Node { text: name.to_owned(), below: vec![leaf("app")] };
        let root = Node { text: String::new(), below: vec![leaf("fact"), agent("one"), agent("two")] };
        let mut lines = Vec::new();
        root.write("", &mut lines);
        assert_eq!(lines, ["├─ fact", "├─ one", "│  └─ app", "└─ two", "   └─ app"]);
    }
}

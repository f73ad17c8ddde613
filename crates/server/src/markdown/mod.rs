//! Markdown as plain text, as official servers write it into `description_plaintext`: marks are dropped, links become
//! `text (url)`, numbers of lists stay, bullets do not.

mod autolink;
mod html;
mod table;
mod tree;
mod url;

use pulldown_cmark::LinkType;
use tree::{Node, NodeKind};

/// Longest description that is rendered, in bytes: some marks take the parser a time that grows with the square.
const MAX_MARKDOWN_BYTES: usize = 64 << 10;

/// The plain text of a description. One that is too long, or nested too deep, stays as it is.
#[must_use]
pub fn plain_text(markdown: &str) -> String {
    let root = (markdown.len() <= MAX_MARKDOWN_BYTES).then(|| tree::parse(markdown)).flatten();
    let Some(root) = root else { return markdown.trim().to_owned() };
    let mut out = String::new();
    blocks(&root, false, &mut out);
    out.trim().to_owned()
}

/// Writes the children of a block.
fn blocks(parent: &Node, in_list: bool, out: &mut String) {
    for (index, child) in parent.children.iter().enumerate() {
        block(parent, index, child, in_list, out);
    }
}

fn block(parent: &Node, index: usize, node: &Node, in_list: bool, out: &mut String) {
    match &node.kind {
        // The paragraphs of an item follow each other without a break.
        NodeKind::Paragraph if matches!(parent.kind, NodeKind::Item) => inlines(&node.children, out),
        NodeKind::Paragraph => {
            break_before(index, out);
            let start = out.len();
            inlines(&node.children, out);
            if out[start..].trim().is_empty() {
                out.truncate(start);
            } else {
                out.push('\n');
            }
        }
        NodeKind::Heading => {
            break_before(index, out);
            inlines(&node.children, out);
        }
        NodeKind::Quote => {
            out.push('\n');
            blocks(node, in_list, out);
        }
        NodeKind::List(start) => {
            out.push('\n');
            list(node, *start, in_list, out);
        }
        NodeKind::CodeBlock => {
            out.push('\n');
            node.children.iter().for_each(|text| out.push_str(&tree::without_backslashes(text.text())));
        }
        NodeKind::HtmlBlock => {
            let text: String = node.children.iter().map(Node::text).collect();
            out.push_str(&html::text(&text));
        }
        NodeKind::Table(alignments) => {
            out.push('\n');
            table::write(node, alignments, out);
            out.push('\n');
        }
        NodeKind::Definitions => {
            blocks(node, in_list, out);
            out.push('\n');
        }
        NodeKind::Term => {
            out.push('\n');
            inlines(&node.children, out);
        }
        NodeKind::Definition => {
            blocks(node, in_list, out);
            out.push('\n');
        }
        NodeKind::Rule => {}
        _ => inline(node, out),
    }
}

fn break_before(index: usize, out: &mut String) {
    if index > 0 {
        out.push('\n');
    }
}

/// A list; one in a list is indented.
fn list(node: &Node, start: Option<u64>, in_list: bool, out: &mut String) {
    let mut inner = String::new();
    let last = node.children.len().saturating_sub(1);
    for (index, item) in node.children.iter().enumerate() {
        let is_task = item
            .children
            .iter()
            .flat_map(tree::with_first_child)
            .take(2)
            .any(|node| node.kind == NodeKind::Task);
        if let (Some(start), false) = (start, is_task) {
            inner.push_str(&format!("{}. ", start.saturating_add(index as u64)));
        }
        blocks(item, true, &mut inner);
        let ends_in_list = item.children.last().is_some_and(|last| matches!(last.kind, NodeKind::List(_)));
        if index < last && !ends_in_list {
            inner.push('\n');
        }
    }
    inner.push('\n');
    let indent = if in_list { "    " } else { "" };
    for line in inner.split_inclusive('\n') {
        out.push_str(indent);
        out.push_str(line);
    }
}

fn inlines(nodes: &[Node], out: &mut String) {
    nodes.iter().for_each(|node| inline(node, out));
}

fn inline(node: &Node, out: &mut String) {
    match &node.kind {
        NodeKind::Text(text) | NodeKind::Code(text) => out.push_str(text),
        NodeKind::Break => out.push('\n'),
        NodeKind::Html(text) => out.push_str(&html::text(text)),
        NodeKind::Strikethrough => out.push_str(&words(node)),
        NodeKind::Link(kind, url) => link(node, *kind, url, out),
        NodeKind::Image(url) => {
            out.push_str(&words(node));
            if !url.is_empty() {
                out.push_str(&format!(" ({})", url::resolved(url)));
            }
        }
        _ => inlines(&node.children, out),
    }
}

fn link(node: &Node, kind: LinkType, url: &str, out: &mut String) {
    if kind == LinkType::Autolink {
        out.push_str(&format!("({url})"));
        return;
    }
    inlines(&node.children, out);
    if kind == LinkType::Email {
        out.push_str(&format!(" (mailto:{})", url.trim_start_matches("mailto:")));
    } else if url::is_shown(url) {
        out.push_str(&format!(" ({})", url::resolved(url)));
    }
}

/// The text below a node, without addresses.
fn words(node: &Node) -> String {
    match &node.kind {
        NodeKind::Text(text) | NodeKind::Code(text) => text.clone(),
        NodeKind::Break => "\n".to_owned(),
        _ => node.children.iter().map(words).collect(),
    }
}

#[cfg(test)]
mod tests;

//! The tree of a Markdown text, as far as its plain form depends on it.

use std::ops::Range;

use pulldown_cmark::{Alignment, Event, LinkType, Options, Parser, Tag};

use super::{autolink, html};

/// Deepest tree that is built, because it is walked recursively.
const MAX_DEPTH: usize = 64;
/// Punctuation whose escapes the official renderer keeps.
const KEPT_ESCAPES: &str = "\"$%&',/:;=?@^~";
/// Punctuation whose escapes it resolves.
const ESCAPES: &str = "\\`*_{}[]<>()#+-.!|";

/// A node and what is in it.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    pub(super) children: Vec<Node>,
}

#[derive(Debug, PartialEq)]
pub(super) enum NodeKind {
    Paragraph,
    Heading,
    Quote,
    /// With the number of the first item, if there are numbers.
    List(Option<u64>),
    Item,
    CodeBlock,
    HtmlBlock,
    Table(Vec<Alignment>),
    Row,
    Cell,
    Definitions,
    Term,
    Definition,
    Rule,
    Text(String),
    Code(String),
    Html(String),
    Break,
    Task,
    Strikethrough,
    Link(LinkType, String),
    Image(String),
    /// Emphasis, and the root.
    Group,
}

impl Node {
    pub(super) const fn new(kind: NodeKind) -> Self {
        Self { kind, children: Vec::new() }
    }

    /// The text of a text node; others have none.
    pub(super) fn text(&self) -> &str {
        match &self.kind {
            NodeKind::Text(text) | NodeKind::Html(text) => text,
            _ => "",
        }
    }
}

/// A node, then its first child.
pub(super) fn with_first_child(node: &Node) -> impl Iterator<Item = &Node> {
    std::iter::once(node).chain(node.children.first())
}

/// The tree, or none when it is too deep.
pub(super) fn parse(markdown: &str) -> Option<Node> {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_DEFINITION_LIST;
    let mut open = vec![Node::new(NodeKind::Group)];
    for (event, range) in Parser::new_ext(markdown, options).into_offset_iter() {
        match event {
            Event::Start(tag) => {
                if open.len() == MAX_DEPTH {
                    return None;
                }
                open.push(Node::new(kind(tag)));
            }
            Event::End(_) => {
                let node = open.pop()?;
                let in_link = open.iter().any(|node| matches!(node.kind, NodeKind::Link(..)));
                open.last_mut()?.children.push(if in_link { node } else { link_addresses(node) });
            }
            event => add(&mut open, markdown, event, range),
        }
    }
    open.pop().map(link_addresses)
}

fn add(open: &mut [Node], markdown: &str, event: Event<'_>, range: Range<usize>) {
    let is_code = open.iter().any(|node| node.kind == NodeKind::CodeBlock);
    let Some(top) = open.last_mut() else { return };
    let kind = match event {
        Event::Text(text) => {
            let escaped = !is_code
                && markdown[..range.start].ends_with('\\')
                && text.starts_with(|c| KEPT_ESCAPES.contains(c));
            let text = if escaped { format!("\\{text}") } else { text.into_string() };
            // The parser splits texts at characters that turn out not to be markup.
            if let Some(Node { kind: NodeKind::Text(before), .. }) = top.children.last_mut() {
                before.push_str(&text);
                return;
            }
            NodeKind::Text(text)
        }
        Event::Code(text) => NodeKind::Code(html::decoded(&code(&markdown[range], &text)).into_owned()),
        Event::Html(text) | Event::InlineHtml(text) => NodeKind::Html(text.into_string()),
        Event::SoftBreak | Event::HardBreak => NodeKind::Break,
        Event::Rule => NodeKind::Rule,
        Event::TaskListMarker(_) => NodeKind::Task,
        _ => return,
    };
    top.children.push(Node::new(kind));
}

fn kind(tag: Tag<'_>) -> NodeKind {
    match tag {
        Tag::Paragraph => NodeKind::Paragraph,
        Tag::Heading { .. } => NodeKind::Heading,
        Tag::BlockQuote(_) => NodeKind::Quote,
        Tag::CodeBlock(_) => NodeKind::CodeBlock,
        Tag::HtmlBlock => NodeKind::HtmlBlock,
        Tag::List(start) => NodeKind::List(start),
        Tag::Item => NodeKind::Item,
        Tag::Table(alignments) => NodeKind::Table(alignments),
        Tag::TableHead | Tag::TableRow => NodeKind::Row,
        Tag::TableCell => NodeKind::Cell,
        Tag::DefinitionList => NodeKind::Definitions,
        Tag::DefinitionListTitle => NodeKind::Term,
        Tag::DefinitionListDefinition => NodeKind::Definition,
        Tag::Strikethrough => NodeKind::Strikethrough,
        Tag::Link { link_type, dest_url, .. } => NodeKind::Link(link_type, dest_url.into_string()),
        Tag::Image { dest_url, .. } => NodeKind::Image(dest_url.into_string()),
        _ => NodeKind::Group,
    }
}

/// The content of a code span: the parser's, but with the line breaks of the source.
fn code(source: &str, parsed: &str) -> String {
    if !source.contains('\n') {
        return parsed.to_owned();
    }
    let inner = source.trim_matches('`');
    let padded = inner.starts_with([' ', '\n']) && inner.ends_with([' ', '\n']) && !inner.trim().is_empty();
    let inner = if padded { &inner[1..inner.len() - 1] } else { inner };
    let lines = inner.lines().enumerate();
    let lines =
        lines.map(|(index, line)| if index == 0 { line } else { line.trim_start_matches([' ', '\t', '>']) });
    lines.collect::<Vec<_>>().join("\n")
}

/// Makes links of addresses in the texts directly below a node.
fn link_addresses(mut node: Node) -> Node {
    let is_left_alone = matches!(
        node.kind,
        NodeKind::Link(..) | NodeKind::Image(_) | NodeKind::CodeBlock | NodeKind::HtmlBlock
    );
    if is_left_alone || !node.children.iter().any(|child| matches!(child.kind, NodeKind::Text(_))) {
        return node;
    }
    let mut children = Vec::with_capacity(node.children.len());
    let mut at_start = true;
    for child in node.children {
        let next_at_start = matches!(child.kind, NodeKind::Break | NodeKind::Task);
        match child.kind {
            NodeKind::Text(text) => autolink::split(&text, at_start, &mut children),
            kind => children.push(Node { kind, children: child.children }),
        }
        at_start = next_at_start;
    }
    node.children = children;
    node
}

/// Resolves escapes in code blocks, as the official renderer does, although Markdown has none there.
pub(super) fn without_backslashes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match rest.peek() {
            Some(next) if c == '\\' && ESCAPES.contains(*next) => plain.extend(rest.next()),
            _ => plain.push(c),
        }
    }
    plain
}

//! Parser for the DOT output of `terraform graph`, and the search for the resource that owns another one.

use std::collections::{HashMap, VecDeque};

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("parse graph: {what} at byte {offset}")]
pub(crate) struct GraphError {
    what: &'static str,
    offset: usize,
}

/// Nodes and edges of a graph; an edge leads from the dependent to its dependency.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    names: Vec<String>,
    labels: Vec<Option<String>>,
    by_name: HashMap<String, usize>,
    dependencies: Vec<Vec<usize>>,
    dependents: Vec<Vec<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Towards dependents.
    Up,
    /// Towards dependencies.
    Down,
}

impl Graph {
    pub(crate) fn parse(text: &str) -> Result<Self, GraphError> {
        let tokens = tokenize(text)?;
        let mut graph = Self::default();
        DotParser { tokens: &tokens, at: 0, end: text.len() }.document(&mut graph)?;
        Ok(graph)
    }

    fn node(&mut self, name: &str) -> usize {
        if let Some(&id) = self.by_name.get(name) {
            return id;
        }
        let id = self.names.len();
        self.names.push(name.to_owned());
        self.labels.push(None);
        self.dependencies.push(Vec::new());
        self.dependents.push(Vec::new());
        self.by_name.insert(name.to_owned(), id);
        id
    }

    /// The node with this label.
    pub(crate) fn find(&self, label: &str) -> Option<usize> {
        self.labels.iter().position(|l| l.as_deref() == Some(label))
    }

    pub(crate) fn labels(&self) -> impl Iterator<Item = &str> {
        self.labels.iter().flatten().map(String::as_str)
    }

    /// Whether any node is a resource of this type, in any module (terraform 4.10).
    pub(crate) fn has_resource_type(&self, kind: &str) -> bool {
        let (root, nested) = (format!("{kind}."), format!(".{kind}."));
        self.labels().any(|label| label.starts_with(&root) || label.contains(&nested))
    }

    /// Whether there is a direct edge between two nodes of the root module, given as `type.name` (terraform 4.5).
    pub(crate) fn root_edge(&self, from: &str, to: &str) -> bool {
        let (from, to) = (format!("] {from} (expand)"), format!("] {to} (expand)"));
        self.names.iter().enumerate().any(|(id, name)| {
            name.ends_with(&from)
                && self.dependencies[id].iter().any(|&other| self.names[other].ends_with(&to))
        })
    }

    /// The label nearest to `start` that `accept` takes; among equally near ones the smallest (terraform 4.3).
    pub(crate) fn nearest(
        &self,
        start: usize,
        direction: Direction,
        mut accept: impl FnMut(&str) -> bool,
    ) -> Option<&str> {
        let edges = match direction {
            Direction::Up => &self.dependents,
            Direction::Down => &self.dependencies,
        };
        let mut seen = vec![false; self.names.len()];
        let mut queue: VecDeque<(usize, usize)> = edges[start].iter().map(|&next| (next, 0)).collect();
        let mut best: Option<(usize, &str)> = None;
        while let Some((id, distance)) = queue.pop_front() {
            if std::mem::replace(&mut seen[id], true) {
                continue;
            }
            if best.is_some_and(|(found, _)| distance > found) {
                break;
            }
            if let Some(label) = self.labels[id].as_deref()
                && accept(label)
                && best.is_none_or(|(found, name)| (distance, label) < (found, name))
            {
                best = Some((distance, label));
            }
            queue.extend(edges[id].iter().map(|&next| (next, distance + 1)));
        }
        best.map(|(_, label)| label)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum DotToken {
    /// An identifier, or a quoted string whose escapes are kept.
    Word(String),
    Arrow,
    Punct(char),
}

fn tokenize(text: &str) -> Result<Vec<(DotToken, usize)>, GraphError> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            b' ' | b'\t' | b'\r' | b'\n' => at += 1,
            b'"' => {
                at += 1;
                loop {
                    match bytes.get(at) {
                        None => return Err(GraphError { what: "string without end", offset: start }),
                        Some(b'"') => break,
                        Some(b'\\') => at += 2,
                        Some(_) => at += 1,
                    }
                }
                let inner = text
                    .get(start + 1..at)
                    .ok_or(GraphError { what: "broken escape in a string", offset: start })?;
                tokens.push((DotToken::Word(inner.to_owned()), start));
                at += 1;
            }
            b'-' if bytes.get(at + 1) == Some(&b'>') => {
                tokens.push((DotToken::Arrow, start));
                at += 2;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                while at < bytes.len() && bytes[at] != b'\n' {
                    at += 1;
                }
            }
            punct @ (b'{' | b'}' | b'[' | b']' | b'=' | b',' | b';') => {
                tokens.push((DotToken::Punct(char::from(punct)), start));
                at += 1;
            }
            byte if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-') => {
                while at < bytes.len()
                    && (bytes[at].is_ascii_alphanumeric() || matches!(bytes[at], b'_' | b'.' | b'-'))
                {
                    at += 1;
                }
                tokens.push((DotToken::Word(text[start..at].to_owned()), start));
            }
            _ => return Err(GraphError { what: "unexpected character", offset: start }),
        }
    }
    Ok(tokens)
}

struct DotParser<'t> {
    tokens: &'t [(DotToken, usize)],
    at: usize,
    end: usize,
}

impl<'t> DotParser<'t> {
    fn peek(&self) -> Option<&'t DotToken> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn next(&mut self) -> Option<&'t DotToken> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn fail<T>(&self, what: &'static str) -> Result<T, GraphError> {
        let offset = self.tokens.get(self.at).map_or(self.end, |(_, offset)| *offset);
        Err(GraphError { what, offset })
    }

    fn accept(&mut self, punct: char) -> bool {
        let found = self.peek() == Some(&DotToken::Punct(punct));
        if found {
            self.at += 1;
        }
        found
    }

    fn word(&mut self) -> Result<&'t str, GraphError> {
        match self.peek() {
            Some(DotToken::Word(word)) => {
                self.at += 1;
                Ok(word)
            }
            _ => self.fail("expected a name"),
        }
    }

    fn document(&mut self, graph: &mut Graph) -> Result<(), GraphError> {
        if self.word()? != "digraph" {
            self.at -= 1;
            return self.fail("expected digraph");
        }
        if let Some(DotToken::Word(_)) = self.peek() {
            self.at += 1;
        }
        if !self.accept('{') {
            return self.fail("expected an opening brace");
        }
        // Counts the depth instead of recursing, so no input can exhaust the stack.
        let mut depth = 1_usize;
        while depth > 0 {
            if self.accept('}') {
                depth -= 1;
            } else if self.accept(';') {
            } else if self.peek().is_some() {
                depth += usize::from(self.statement(graph)?);
            } else {
                return self.fail("expected a closing brace");
            }
        }
        if self.peek().is_some() {
            return self.fail("text after the graph");
        }
        Ok(())
    }

    /// One statement; returns true when it opened a subgraph.
    fn statement(&mut self, graph: &mut Graph) -> Result<bool, GraphError> {
        let first = self.word()?;
        if first == "subgraph" {
            if let Some(DotToken::Word(_)) = self.peek() {
                self.at += 1;
            }
            return if self.accept('{') { Ok(true) } else { self.fail("expected an opening brace") };
        }
        if self.accept('=') {
            self.word()?;
            return Ok(false);
        }
        if matches!(first, "node" | "edge" | "graph") && self.peek() == Some(&DotToken::Punct('[')) {
            self.attributes()?;
            return Ok(false);
        }
        let mut from = graph.node(first);
        let mut edges = false;
        while self.peek() == Some(&DotToken::Arrow) {
            self.at += 1;
            let to = graph.node(self.word()?);
            graph.dependencies[from].push(to);
            graph.dependents[to].push(from);
            from = to;
            edges = true;
        }
        let label = self.attributes()?;
        if !edges && label.is_some() {
            graph.labels[from] = label;
        }
        Ok(false)
    }

    /// An optional attribute list; returns its `label`.
    fn attributes(&mut self) -> Result<Option<String>, GraphError> {
        let mut label = None;
        while self.accept('[') {
            while !self.accept(']') {
                let key = self.word()?;
                if !self.accept('=') {
                    return self.fail("expected an equals sign");
                }
                let value = self.word()?;
                if key == "label" {
                    label = Some(unescape(value));
                }
                if !self.accept(',') {
                    self.accept(';');
                }
                if self.next().is_none() {
                    return self.fail("attribute list without end");
                }
                self.at -= 1;
            }
        }
        Ok(label)
    }
}

fn unescape(text: &str) -> String {
    text.replace("\\\"", "\"").replace("\\\\", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAIN: &str = r#"digraph {
        compound = "true"
        subgraph "root" {
            "[root] coder_agent.main (expand)" [label = "coder_agent.main", shape = "box"]
            "[root] null_resource.b (expand)" [label = "null_resource.b", shape = "box"]
            "[root] null_resource.a (expand)" [label = "null_resource.a"]
            "[root] provider[\"x\"]" [label = "provider[\"x\"]", shape = "diamond"]
            "[root] null_resource.b (expand)" -> "[root] coder_agent.main (expand)"
            "[root] null_resource.a (expand)" -> "[root] null_resource.b (expand)"
            "[root] root" -> "[root] null_resource.a (expand)"
        }
    }"#;

    #[test]
    fn nearest_dependent_wins() {
        let graph = Graph::parse(CHAIN).unwrap();
        let agent = graph.find("coder_agent.main").unwrap();
        let owner = graph.nearest(agent, Direction::Up, |l| l.starts_with("null_resource"));
        assert_eq!(owner, Some("null_resource.b"));
        let far = graph.nearest(agent, Direction::Up, |l| l == "null_resource.a");
        assert_eq!(far, Some("null_resource.a"));
        assert_eq!(graph.nearest(agent, Direction::Down, |_| true), None);
    }

    #[test]
    fn ties_go_to_the_smallest_label() {
        let text = r#"digraph { "a" [label = "r.second"] "b" [label = "r.first"] "x" [label = "agent"]
            "a" -> "x" "b" -> "x" }"#;
        let graph = Graph::parse(text).unwrap();
        let start = graph.find("agent").unwrap();
        assert_eq!(graph.nearest(start, Direction::Up, |_| true), Some("r.first"));
    }

    #[test]
    fn cycles_end() {
        let graph = Graph::parse(r#"digraph { "a" [label = "a"] "a" -> "b" "b" -> "a" }"#).unwrap();
        assert_eq!(graph.nearest(0, Direction::Up, |l| l == "z"), None);
    }

    #[test]
    fn only_direct_edges_of_the_root_module_attach() {
        let graph = Graph::parse(CHAIN).unwrap();
        assert!(graph.root_edge("null_resource.b", "coder_agent.main"));
        assert!(!graph.root_edge("null_resource.a", "coder_agent.main"));
        assert!(!graph.root_edge("resource.b", "coder_agent.main"));
    }

    #[test]
    fn empty_graph_is_valid_and_garbage_is_not() {
        assert!(Graph::parse("digraph {}").is_ok());
        for bad in [
            "",
            "digraph {",
            "graph {}",
            "digraph { \"a",
            "digraph { a -> }",
            "digraph {} x",
            "digraph { \"a\\",
        ] {
            assert!(Graph::parse(bad).is_err(), "{bad}");
        }
        let deep = format!("digraph {{{}", "subgraph a {".repeat(100_000));
        assert!(Graph::parse(&deep).is_err());
    }

    #[test]
    fn resource_types_are_found_in_modules() {
        let graph = Graph::parse(r#"digraph { "n" [label = "module.m.coder_ai_task.a"] }"#).unwrap();
        assert!(graph.has_resource_type("coder_ai_task"));
        assert!(!graph.has_resource_type("coder_ai"));
    }
}

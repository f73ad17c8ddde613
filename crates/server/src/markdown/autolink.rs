//! Addresses in texts, which GitHub's Markdown makes links.

use std::sync::LazyLock;

use pulldown_cmark::LinkType;
use regex::Regex;

use super::tree::{Node, NodeKind};

/// An address with a scheme or `www.` at the start of a text. Hosts need a dot.
static WEB: LazyLock<Regex> = LazyLock::new(|| {
    let host = r"[-\w@:%.+~#=]{1,256}\.[a-z]+";
    let path = r"(?:[/#?][-\w@:%+.~#$!?&/=();,'>\x22\\^{}\[\]`]*)?";
    let pattern = format!(r"^(?-u:(?:(?:https?|ftp)://{host}(?::\d+)?|www\.{host}){path})");
    Regex::new(&pattern).expect("the pattern is constant")
});

/// An e-mail address at the start of a text.
static MAIL: LazyLock<Regex> = LazyLock::new(|| {
    let label = r"[a-zA-Z0-9](?:[-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?";
    let pattern = format!(r"^[-\w.!#$%&'*+/=?^`{{|}}~]+@{label}(?:\.{label})+");
    Regex::new(&format!("^(?-u:{})", pattern.trim_start_matches('^'))).expect("the pattern is constant")
});

/// Where a link may begin: after one of these, and at the start of a line.
const LINK_PREDECESSORS: [char; 5] = [' ', '*', '_', '~', '('];

/// Splits a text into texts and links.
pub(super) fn split(text: &str, at_start: bool, into: &mut Vec<Node>) {
    let mut from = 0;
    let mut may_begin = at_start;
    let mut skip_to = 0;
    for (at, c) in text.char_indices() {
        if at >= skip_to
            && may_begin
            && (c.is_ascii_alphanumeric() || c == '.')
            && let Some((length, kind)) = length(&text[at..])
        {
            push_text(&text[from..at], into);
            let shown = &text[at..at + length];
            let url = if shown.starts_with("www.") { format!("http://{shown}") } else { shown.to_owned() };
            let children = vec![Node::new(NodeKind::Text(shown.to_owned()))];
            into.push(Node { kind: NodeKind::Link(kind, url), children });
            (from, skip_to) = (at + length, at + length);
        }
        may_begin = LINK_PREDECESSORS.contains(&c);
    }
    push_text(&text[from..], into);
}

fn push_text(text: &str, into: &mut Vec<Node>) {
    if !text.is_empty() {
        into.push(Node::new(NodeKind::Text(text.to_owned())));
    }
}

/// The length of the address that a text starts with.
fn length(text: &str) -> Option<(usize, LinkType)> {
    let is_web = ["http://", "https://", "ftp://", "www."].iter().any(|start| text.starts_with(start));
    let (found, kind) = match is_web.then(|| WEB.find(text)).flatten() {
        Some(found) => (without_end(found.as_str()), LinkType::Autolink),
        None => {
            let found = MAIL.find(text)?.as_str();
            if text[found.len()..].starts_with(['-', '_']) {
                return None;
            }
            (found, LinkType::Email)
        }
    };
    let length = found.trim_end_matches(['?', '!', '.', ',', ':', '*', '_', '~']).len();
    (length > 0).then_some((length, kind))
}

/// Without brackets that nothing in the address opens, and without an entity at its end.
fn without_end(url: &str) -> &str {
    if url.ends_with(')') {
        let count = |bracket: char| url.chars().filter(|c| *c == bracket).count();
        let surplus = count(')').saturating_sub(count('('));
        return &url[..url.len() - surplus.min(url.len())];
    }
    if let Some(body) = url.strip_suffix(';') {
        let start = body.trim_end_matches(|c: char| c.is_ascii_alphanumeric());
        if start.len() < body.len() && start.ends_with('&') {
            return &start[..start.len() - 1];
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts and links of a text, links in brackets.
    fn parts(text: &str, at_start: bool) -> String {
        let mut nodes = Vec::new();
        split(text, at_start, &mut nodes);
        let part = |node: &Node| match &node.kind {
            NodeKind::Text(text) => text.clone(),
            NodeKind::Link(kind, url) => format!("[{kind:?} {url} {}]", node.children[0].text()),
            other => format!("{other:?}"),
        };
        nodes.iter().map(part).collect()
    }

    #[test]
    fn addresses_become_links() {
        let web = |url: &str| format!("[Autolink {url} {url}]");
        for (text, want) in [
            ("a http://b.cd e", format!("a {} e", web("http://b.cd"))),
            ("(https://b.cd/(x))", format!("({})", web("https://b.cd/(x)"))),
            ("https://b.cd/x))", format!("{}))", web("https://b.cd/x"))),
            ("ftp://b.cd:21/x?y#z.", format!("{}.", web("ftp://b.cd:21/x?y#z"))),
            ("http://b.cd/x&y;", format!("{}&y;", web("http://b.cd/x"))),
            ("http://b.cd/x&;", web("http://b.cd/x&;")),
            ("http://b.cd/x;", web("http://b.cd/x;")),
            ("http://b.cd?!.,:*_~", format!("{}?!.,:*_~", web("http://b.cd"))),
            ("www.b.cd", "[Autolink http://www.b.cd www.b.cd]".to_owned()),
            ("http://b", "http://b".to_owned()),
            ("xhttp://b.cd", "xhttp://b.cd".to_owned()),
            ("-http://b.cd", "-http://b.cd".to_owned()),
            ("a@b.cd", "[Email a@b.cd a@b.cd]".to_owned()),
            ("~.a@b.cd.", "~[Email .a@b.cd .a@b.cd].".to_owned()),
            ("a@b.cd-", "a@b.cd-".to_owned()),
            ("a@b.cd_e", "a@b.cd_e".to_owned()),
            ("a@b", "a@b".to_owned()),
            ("http://b.cd http://e.fg", format!("{} {}", web("http://b.cd"), web("http://e.fg"))),
        ] {
            assert_eq!(parts(text, true), want, "{text}");
        }
        assert_eq!(parts("http://b.cd", false), "http://b.cd");
        assert_eq!(parts("x http://b.cd", false), format!("x {}", web("http://b.cd")));
    }
}

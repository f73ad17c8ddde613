//! References to `docs/spec`: every section and every rule that a comment, a test or a document cites must exist there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use regex::Regex;

use super::{relative, walk};
use crate::run::root;

const SPECIFICATIONS: &str = "docs/spec";

/// Where references are looked for, besides [`DOCUMENTS`].
const FOLDERS: [&str; 11] = [
    ".github", "benches", "crates", "deploy", "docs", "examples", "fuzz", "interop", "proto", "tools",
    "xtask",
];
const DOCUMENTS: [&str; 6] =
    [".ci/run", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "Cargo.toml", "README.md"];
const EXTENSIONS: [&str; 20] = [
    "conf", "css", "go", "html", "js", "json", "md", "proto", "ps1", "py", "rs", "service", "sh", "sql",
    "tf", "toml", "tpl", "txt", "yaml", "yml",
];

/// Names of standards that look like rules.
const STANDARDS: [&str; 6] = ["AES", "ECMA", "ISO", "SHA", "SSH", "UTF"];

/// A section's number or a rule's id.
const ITEM: &str = r"(?:[0-9]+(?:\.[0-9]+)*|[A-Z]{2,4}-[0-9]+)\b";

/// Every reference of the tree that does not resolve, and whatever is specified twice.
pub(super) fn problems() -> Result<Vec<String>> {
    let mut specifications = Specifications::default();
    let mut files = Vec::new();
    walk(&root().join(SPECIFICATIONS), "md", &mut files)?;
    let mut problems = Vec::new();
    for path in &files {
        problems.extend(specifications.add(&stem(path), &read(path)?));
    }
    let finder = Finder::new(&specifications)?;
    for path in sources()? {
        let own = path.starts_with(root().join(SPECIFICATIONS)).then(|| stem(&path));
        for (line, reference) in finder.unresolved(&specifications, own.as_deref(), &read(&path)?) {
            let shown = relative(&path).display();
            problems.push(format!("{shown}:{line}: {reference} is not in {SPECIFICATIONS}"));
        }
    }
    Ok(problems)
}

pub(super) fn sources() -> Result<Vec<PathBuf>> {
    let mut files: Vec<_> = DOCUMENTS.iter().map(|name| root().join(name)).collect();
    for folder in FOLDERS {
        for extension in EXTENSIONS {
            walk(&root().join(folder), extension, &mut files)?;
        }
    }
    Ok(files)
}

pub(super) fn read(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// What can be referred to, by the name of the document.
#[derive(Default)]
struct Specifications(BTreeMap<String, BTreeSet<String>>);

impl Specifications {
    /// Reads the section numbers of the headings and the rule ids in bold; returns those that are there twice.
    fn add(&mut self, name: &str, text: &str) -> Vec<String> {
        let known = self.0.entry(name.to_owned()).or_default();
        let mut twice = Vec::new();
        for line in text.lines() {
            let heading = line.strip_prefix("## ").or_else(|| line.strip_prefix("### "));
            let item = match (heading, line.strip_prefix("**").and_then(|rest| rest.split_once("**"))) {
                (Some(heading), _) => heading.split(' ').next().filter(|word| is_number(word)),
                (None, Some((bold, _))) => Some(bold).filter(|word| is_rule(word)),
                (None, None) => None,
            };
            if let Some(item) = item
                && !known.insert(item.to_owned())
            {
                twice.push(format!("{SPECIFICATIONS}/{name}.md: {item} is there twice"));
            }
        }
        twice
    }

    fn has(&self, document: &str, item: &str) -> bool {
        self.0.get(document).is_some_and(|known| known.contains(item))
    }

    fn has_rule(&self, rule: &str) -> bool {
        self.0.values().any(|known| known.contains(rule))
    }

    /// Whether some rule begins with this word.
    fn has_prefix(&self, prefix: &str) -> bool {
        let rules = self.0.values().flatten().filter(|item| is_rule(item));
        rules.filter_map(|rule| rule.split('-').next()).any(|known| known == prefix)
    }
}

fn is_number(word: &str) -> bool {
    word.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_rule(word: &str) -> bool {
    word.split_once('-').is_some_and(|(prefix, number)| {
        !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_uppercase()) && is_number(number)
    })
}

/// Finds references in texts.
struct Finder {
    /// A document's name and the items after it.
    named: Regex,
    /// Sections of the document that a text is itself.
    own: Regex,
    rule: Regex,
    item: Regex,
    /// A name with a hyphen and a section's number.
    section: Regex,
}

impl Finder {
    fn new(specifications: &Specifications) -> Result<Self> {
        let names: Vec<_> = specifications.0.keys().map(|name| regex::escape(name)).collect();
        let items = format!(r"({ITEM}(?:(?:, and |, or |, | and | or | to |–){ITEM})*)");
        Ok(Self {
            named: Regex::new(&format!(r"(?i:\b({}))(?:\.md)? (?:sections? )?{items}", names.join("|")))?,
            own: Regex::new(&format!(r"\bsections? {items}"))?,
            rule: Regex::new(r"\b([A-Z]{2,5})-[0-9]+\b")?,
            item: Regex::new(ITEM)?,
            section: Regex::new(r"\b([a-z]+(?:-[a-z]+)+) [0-9]+\.[0-9]+\b")?,
        })
    }

    /// The references that lead nowhere, with their lines. `own` is the specification that the text is, if it is one.
    fn unresolved(
        &self,
        specifications: &Specifications,
        own: Option<&str>,
        text: &str,
    ) -> Vec<(usize, String)> {
        let prose = Prose::of(text);
        let mut found = BTreeSet::new();
        for captures in self.named.captures_iter(&prose.text) {
            let (name, items) = (&captures[1], captures.get(2).expect("the pattern has items"));
            let line = prose.line(items.start());
            if !is_cited(specifications, name, own.is_some() || prose.is_comment(line)) {
                continue;
            }
            let name = name.to_lowercase();
            for item in self.item.find_iter(items.as_str()) {
                if !specifications.has(&name, item.as_str()) {
                    found.insert((line, format!("{name} {}", item.as_str())));
                }
            }
        }
        for captures in self.own.captures_iter(&prose.text) {
            let (Some(own), Some(items)) = (own, captures.get(1)) else { continue };
            for item in self.item.find_iter(items.as_str()) {
                if !specifications.has(own, item.as_str()) {
                    found.insert((prose.line(items.start()), format!("section {}", item.as_str())));
                }
            }
        }
        for captures in self.rule.captures_iter(&prose.text) {
            let (rule, prefix) = (captures.get_match(), &captures[1]);
            let line = prose.line(rule.start());
            // Elsewhere than in comments an unknown word before a number is not a rule.
            let is_cited =
                specifications.has_prefix(prefix) || (prose.is_comment(line) && !STANDARDS.contains(&prefix));
            if is_cited && !specifications.has_rule(rule.as_str()) {
                found.insert((line, rule.as_str().to_owned()));
            }
        }
        for captures in self.section.captures_iter(&prose.text) {
            let line = prose.line(captures.get_match().start());
            if prose.is_comment(line) && !specifications.0.contains_key(&captures[1]) {
                found.insert((line, captures[0].to_owned()));
            }
        }
        found.into_iter().collect()
    }
}

/// Whether a document's name before a number means the document. A name of one word is an ordinary word, too: "terraform
/// 1.1 or newer" in an error text is a version.
fn is_cited(specifications: &Specifications, name: &str, is_comment: bool) -> bool {
    name.contains('-') || (is_comment && specifications.0.contains_key(name))
}

/// A text in one line without the marks of comments, so that a reference may be broken across lines.
struct Prose {
    text: String,
    /// Where each line begins, and whether it is a comment.
    lines: Vec<(usize, bool)>,
}

impl Prose {
    fn of(text: &str) -> Self {
        let mut prose = Self { text: String::new(), lines: Vec::new() };
        for line in text.lines() {
            let trimmed = line.trim();
            let marks = ["///", "//!", "//", "--", "# "];
            let comment = marks.iter().find_map(|mark| trimmed.strip_prefix(mark));
            prose.lines.push((prose.text.len(), comment.is_some()));
            prose.text.push_str(comment.unwrap_or(trimmed).trim());
            prose.text.push(' ');
        }
        prose
    }

    /// The line of an offset, from 1.
    fn line(&self, offset: usize) -> usize {
        self.lines.partition_point(|(start, _)| *start <= offset)
    }

    fn is_comment(&self, line: usize) -> bool {
        self.lines.get(line.wrapping_sub(1)).is_some_and(|(_, comment)| *comment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str =
        "# Orders\n\n## 1 Making\n\n### 1.2 Paying\n\n**ORD-1** One order.\n\n**ORD-2** Another.\n";

    fn unresolved_in(own: Option<&str>, text: &str) -> Vec<(usize, String)> {
        let mut specifications = Specifications::default();
        assert_eq!(specifications.add("order-book", RULES), Vec::<String>::new());
        assert_eq!(specifications.add("stock", "## 3 Counting\n"), Vec::<String>::new());
        Finder::new(&specifications).expect("patterns").unresolved(&specifications, own, text)
    }

    fn unresolved(text: &str) -> Vec<String> {
        unresolved_in(None, text)
            .into_iter()
            .map(|(line, reference)| format!("{line}: {reference}"))
            .collect()
    }

    const NONE: Vec<String> = Vec::new();

    #[test]
    fn a_reference_that_resolves_is_no_problem() {
        assert_eq!(unresolved("//! Pays (order-book 1.2)."), NONE);
        assert_eq!(unresolved("/// Order-book sections 1 and 1.2, order-book ORD-1, then (ORD-2)."), NONE);
        assert_eq!(unresolved("assert!(paid, \"order-book 1.2: {paid}\");"), NONE);
        assert_eq!(unresolved("// stock 3"), NONE);
    }

    #[test]
    fn an_unknown_section_is_told_with_its_line() {
        assert_eq!(unresolved("a();\n// As order-book 9.9 says.\nb();"), ["2: order-book 9.9"]);
        assert_eq!(unresolved("// order-book 1.2, 1.3 and 1.4"), ["1: order-book 1.3", "1: order-book 1.4"]);
        assert_eq!(unresolved("// order-book 1.2–1.7"), ["1: order-book 1.7"]);
        assert_eq!(unresolved("    // stock 4"), ["1: stock 4"]);
        assert_eq!(unresolved("// stock 1.2"), ["1: stock 1.2"]);
    }

    #[test]
    fn an_unknown_rule_is_told_with_its_line() {
        assert_eq!(unresolved("\n\n/// Refused (ORD-7)."), ["3: ORD-7"]);
        assert_eq!(unresolved("/// ORD-1 to ORD-5"), ["1: ORD-5"]);
        assert_eq!(unresolved("/// stock ORD-1"), ["1: stock ORD-1"]);
        assert_eq!(unresolved("/// order-book NEW-1"), ["1: NEW-1", "1: order-book NEW-1"]);
        assert_eq!(unresolved("// Refused (PAY-3).\nlet zone = \"EU-1\";"), ["1: PAY-3"]);
    }

    #[test]
    fn a_section_of_an_unknown_document_is_told() {
        assert_eq!(unresolved("// As pay-desk 2.1 says.\nrun(\"musl-libc 1.2\");"), ["1: pay-desk 2.1"]);
    }

    #[test]
    fn a_reference_may_be_broken_across_lines() {
        assert_eq!(unresolved("//! Pays (order-book\n//! 1.2, 1.3)."), ["2: order-book 1.3"]);
        assert_eq!(
            unresolved("/// As it is (order-book 1.2,\n    /// ORD-9)."),
            ["1: order-book ORD-9", "2: ORD-9"]
        );
    }

    #[test]
    fn what_only_looks_alike_is_no_reference() {
        assert_eq!(
            unresolved("// SHA-256 of UTF-8, ISO-8859 and AES-256; steps 3 and 4; section 8; 9.9"),
            NONE
        );
        assert_eq!(unresolved("error(\"use stock 7.1 or newer\") // Stock 7.1"), NONE);
        assert_eq!(unresolved("// order-book 1.2, step 7; my-order-books 9"), NONE);
    }

    #[test]
    fn a_specification_may_name_its_own_sections() {
        assert_eq!(unresolved_in(Some("order-book"), "See section 1.2 and stock 3."), []);
        let found = unresolved_in(Some("order-book"), "See section 1.3.\nAnd stock 5.");
        assert_eq!(found, [(1, "section 1.3".to_owned()), (2, "stock 5".to_owned())]);
    }

    #[test]
    fn what_is_specified_twice_is_told() {
        let twice =
            Specifications::default().add("stock", "## 3 A\n\n**ORD-1** A.\n\n### 3 B\n\n**ORD-1** B.\n");
        assert_eq!(twice.len(), 2, "{twice:?}");
    }

    #[test]
    fn references_of_the_tree_resolve() {
        assert_eq!(problems().expect("sources"), NONE);
    }
}

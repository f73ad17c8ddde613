//! What documents and comments say of the tree is true: links, anchors, paths of files and names in the glossary lead somewhere, and
//! every table has a head.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};
use regex::Regex;

use super::vocabulary::{GLOSSARY, HEADING};
use super::{references, relative, walk};
use crate::run::root;

/// A path in backticks that begins with one of these is one of this tree.
const FOLDERS: [&str; 10] =
    ["benches", "crates", "deploy", "docs", "examples", "fuzz", "interop", "proto", "tools", "xtask"];

/// Everything in a document that leads nowhere or is not shown as it was meant.
pub(super) fn problems() -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for path in
        references::sources()?.into_iter().filter(|path| path.extension().is_some_and(|end| end == "md"))
    {
        let text = references::read(&path)?;
        let shown = relative(&path).display().to_string();
        let found = links(&path, &text)?.into_iter().chain(paths(&text)?).chain(headless_tables(&text));
        problems.extend(found.map(|(line, problem)| format!("{shown}:{line}: {problem}")));
    }
    let mut sources = Vec::new();
    for folder in FOLDERS {
        walk(&root().join(folder), "rs", &mut sources)?;
    }
    let known: Vec<_> = sources.iter().map(|path| relative(path)).collect();
    for path in &sources {
        let shown = relative(path).display();
        let lost = lost_files(&references::read(path)?, &known)?;
        problems.extend(lost.into_iter().map(|(line, file)| format!("{shown}:{line}: there is no {file}")));
    }
    let glossary = std::fs::read_to_string(root().join(GLOSSARY)).context(GLOSSARY)?;
    let unknown = unknown_names(&glossary, &names_of_the_crates()?)?;
    problems
        .extend(unknown.into_iter().map(|(line, name)| format!("{GLOSSARY}:{line}: no crate has {name:?}")));
    Ok(problems)
}

/// The lines outside of code blocks, counted from one.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let is_prose = |(_, line): &(usize, &str)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    };
    (1..).zip(text.lines()).filter(is_prose).collect()
}

/// Relative links to files that do not exist, or to headings that their documents do not have.
fn links(document: &Path, text: &str) -> Result<Vec<(usize, String)>> {
    let folder = document.parent().context("a document is in a folder")?;
    let mut problems = Vec::new();
    for (number, line) in prose(text) {
        for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") || target.contains(char::is_whitespace) {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { document.to_owned() } else { folder.join(file) };
            let leads = match path.extension() {
                Some(end) if end == "md" && !anchor.is_empty() => {
                    path.exists() && anchors(&references::read(&path)?).contains(anchor)
                }
                _ => path.exists(),
            };
            if !leads {
                problems.push((number, format!("the link to {target} leads nowhere")));
            }
        }
    }
    Ok(problems)
}

/// The anchors of a document's headings, as forges make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).into_iter().filter_map(|(_, line)| {
        line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#'))
    });
    headings
        .map(|heading| {
            let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.collect::<String>().to_lowercase().replace(' ', "-")
        })
        .collect()
}

/// Paths in backticks that do not exist. Patterns and placeholders (`crates/CRATE/…`, `<resource>`, `*`) do not count.
fn paths(text: &str) -> Result<Vec<(usize, String)>> {
    let quoted = Regex::new("`([^`]+)`")?;
    let is_placeholder = |part: Component<'_>| {
        let part = part.as_os_str().to_string_lossy();
        !part.is_empty() && part.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    };
    let leads = |path: &str| {
        let first = path.split('/').next().unwrap_or_default();
        let is_plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
        !(is_plain && path.contains('/') && FOLDERS.contains(&first))
            || Path::new(path).components().any(is_placeholder)
            || root().join(path).exists()
    };
    let mut problems = Vec::new();
    for (number, line) in prose(text) {
        let found = quoted.captures_iter(line).map(|found| found.extract::<1>().1[0]);
        let lost = found.filter(|path| !leads(path));
        problems.extend(lost.map(|path| (number, format!("there is no {path}"))));
    }
    Ok(problems)
}

/// Names of source files in the comments of a source file that no path of `known` ends with.
fn lost_files(text: &str, known: &[&Path]) -> Result<Vec<(usize, String)>> {
    let quoted = Regex::new(r"`((?:[\w-]+/)*[\w-]+\.rs)`")?;
    let comments = (1..).zip(text.lines()).filter(|(_, line)| line.trim_start().starts_with("//"));
    let names = comments.flat_map(|(number, line)| {
        quoted.captures_iter(line).map(move |found| (number, found.extract::<1>().1[0].to_owned()))
    });
    Ok(names.filter(|(_, name)| !known.iter().any(|path| path.ends_with(name))).collect())
}

/// Tables whose second line does not separate a head from rows, such as rows that an empty line cuts off: they are shown as text.
fn headless_tables(text: &str) -> Vec<(usize, String)> {
    let lines = prose(text);
    let is_row = |index: usize| lines.get(index).is_some_and(|(_, line)| line.starts_with('|'));
    let is_separator = |index: usize| {
        lines
            .get(index)
            .is_some_and(|(_, line)| line.starts_with('|') && line.chars().all(|c| " |:-".contains(c)))
    };
    let begins = |index: &usize| is_row(*index) && (*index == 0 || !is_row(*index - 1));
    let headless = (0..lines.len()).filter(begins).filter(|index| !is_separator(*index + 1));
    headless.map(|index| (lines[index].0, "a table without a head".to_owned())).collect()
}

/// Names in the last column of the glossary's tables that are not in `known`.
fn unknown_names(glossary: &str, known: &BTreeSet<String>) -> Result<Vec<(usize, String)>> {
    let (quoted, name) = (Regex::new("`([^`]+)`")?, Regex::new(r"[A-Za-z_]\w*")?);
    let mut unknown = Vec::new();
    let present = glossary.split_once(HEADING).map_or(glossary, |(present, _)| present);
    for (number, line) in prose(present) {
        let Some(cell) = line.trim_end().strip_suffix('|').and_then(|line| line.rsplit(" | ").next()) else {
            continue;
        };
        for text in quoted.captures_iter(cell).map(|found| found.extract::<1>().1[0]) {
            let names = name.find_iter(text).map(|found| found.as_str());
            unknown.extend(names.filter(|name| !known.contains(*name)).map(|name| (number, name.to_owned())));
        }
    }
    Ok(unknown)
}

/// The words of the crates' sources, and the names of their files and folders.
fn names_of_the_crates() -> Result<BTreeSet<String>> {
    let mut files: Vec<PathBuf> = Vec::new();
    walk(&root().join("crates"), "rs", &mut files)?;
    let word = Regex::new(r"[A-Za-z_]\w*")?;
    let mut names = BTreeSet::new();
    for file in files {
        let text = references::read(&file)?;
        names.extend(word.find_iter(&text).map(|found| found.as_str().to_owned()));
        let path = relative(&file).to_string_lossy().into_owned();
        names.extend(word.find_iter(&path).map(|found| found.as_str().to_owned()));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(found: &[(usize, String)]) -> Vec<String> {
        found.iter().map(|(line, problem)| format!("{line}: {problem}")).collect()
    }

    #[test]
    fn what_documents_say_of_the_tree_is_true() {
        assert_eq!(problems().expect("documents"), Vec::<String>::new());
    }

    #[test]
    fn links_need_their_file_and_their_heading() {
        let folder = tempfile::tempdir().expect("a directory");
        let (here, there) = (folder.path().join("here.md"), folder.path().join("there.md"));
        std::fs::write(&there, "# The `coder` word, twice\n").expect("a file");
        let good = "# A b\n[a](there.md) [b](there.md#the-coder-word-twice) [c](#a-b) [d](https://x.test/no)\n```\n[e](no)\n```\n";
        std::fs::write(&here, good).expect("a file");
        assert_eq!(links(&here, good).expect("links"), []);
        let bad = "[a](nowhere.md)\n[b](there.md#other)\n";
        let problems = of(&links(&here, bad).expect("links"));
        assert_eq!(
            problems,
            ["1: the link to nowhere.md leads nowhere", "2: the link to there.md#other leads nowhere"]
        );
    }

    #[test]
    fn paths_in_backticks_exist() {
        let good = "`crates/domain/src/lib.rs`, `crates/CRATE/src`, `crates/<one>/x.rs`, `crates/*/src`, `lib/x.js`, `docs`";
        assert_eq!(paths(good).expect("paths"), []);
        assert_eq!(of(&paths("`xtask/src/none.rs`").expect("paths")), ["1: there is no xtask/src/none.rs"]);
    }

    #[test]
    fn source_files_in_comments_exist() {
        let known = [Path::new("crates/x/src/job/one.rs")];
        let text =
            "//! `one.rs`, `job/one.rs`\n/// In `files/one.rs`.\nlet text = \"`two.rs`\";\n// `two.rs`\n";
        let lost = lost_files(text, &known).expect("names");
        assert_eq!(of(&lost), ["2: files/one.rs", "4: two.rs"]);
    }

    #[test]
    fn tables_have_heads() {
        assert_eq!(headless_tables("| a | b |\n| --- | --: |\n| 1 | 2 |\n"), []);
        let cut = "| a |\n| --- |\n| 1 |\n\n| 2 |\n| 3 |\n";
        assert_eq!(of(&headless_tables(cut)), ["5: a table without a head"]);
    }

    #[test]
    fn the_glossary_names_what_exists() {
        let known = ["jobs", "Lease"].map(str::to_owned).into();
        let glossary = "| lease | a right | `jobs::Lease`, `jobs::Gone` |\n| `Word` | text | none |\n\n## Retired words\n\n| `Hold` |\n";
        assert_eq!(of(&unknown_names(glossary, &known).expect("names")), ["1: Gone"]);
    }
}

//! The vocabulary of `docs/glossary.md`: words that were replaced do not come back, neither in texts nor as names of files.
//! Texts negate verbs, not nouns.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use regex::Regex;

use super::{references, relative};
use crate::run::root;

pub(super) const GLOSSARY: &str = "docs/glossary.md";
/// The heading in the glossary under which the retired words stand, each in the first column of a table.
pub(super) const HEADING: &str = "## Retired words";

/// Every place of the tree where a retired word or a negated noun is.
pub(super) fn problems() -> Result<Vec<String>> {
    let glossary = std::fs::read_to_string(root().join(GLOSSARY)).context(GLOSSARY)?;
    let retired = Retired::read(&glossary)?;
    let negated = NegatedNouns::new()?;
    let mut problems = Vec::new();
    for path in references::sources()? {
        let shown = relative(&path);
        if shown == Path::new(GLOSSARY) || shown.components().any(|part| part.as_os_str() == "corpus") {
            continue;
        }
        let name = shown.display().to_string();
        let in_name = retired.find(&name).into_iter().map(|(_, word)| (0, word.to_owned()));
        let text = references::read(&path)?;
        let in_text = retired.find(&text).into_iter().map(|(line, word)| (line, word.to_owned()));
        for (line, word) in in_name.chain(in_text) {
            problems.push(format!("{name}:{line}: {word:?} is a retired word: see {GLOSSARY}"));
        }
        for (line, words) in negated.find(&text) {
            problems.push(format!("{name}:{line}: {words:?} negates a noun: negate the verb"));
        }
    }
    Ok(problems)
}

/// Finds any of the retired words.
struct Retired(Regex);

impl Retired {
    fn read(glossary: &str) -> Result<Self> {
        let section = glossary.split_once(HEADING).with_context(|| format!("no section {HEADING:?}"))?.1;
        let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
        let words: Vec<_> = section
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
            .map(|(word, _)| regex::escape(word))
            .collect();
        ensure!(!words.is_empty(), "{HEADING:?} lists no word");
        Ok(Self(Regex::new(&format!(r"\b(?:{})\b", words.join("|")))?))
    }

    /// Lines, counted from one, and the words in them.
    fn find<'a>(&self, text: &'a str) -> Vec<(usize, &'a str)> {
        let lines = text.lines().zip(1..);
        lines
            .flat_map(|(line, number)| self.0.find_iter(line).map(move |word| (number, word.as_str())))
            .collect()
    }
}

/// Finds texts that negate a noun where plain English negates the verb.
struct NegatedNouns(Regex);

impl NegatedNouns {
    fn new() -> Result<Self> {
        Ok(Self(Regex::new(r"(?:\b([A-Za-z]+) )?\b(?:is|are|was|were|been) no ([a-z]+)")?))
    }

    /// Lines, counted from one, and the words in them.
    fn find<'a>(&self, text: &'a str) -> Vec<(usize, &'a str)> {
        let lines = text.lines().zip(1..);
        lines
            .flat_map(|(line, number)| self.0.captures_iter(line).map(move |found| (number, found)))
            .filter(|(_, found)| {
                let before = found.get(1).map_or("", |word| word.as_str());
                let after = found.get(2).map_or("", |word| word.as_str());
                !before.eq_ignore_ascii_case("there") && !["longer", "more", "less"].contains(&after)
            })
            .map(|(number, found)| (number, found.get(0).map_or("", |words| words.as_str())))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_follows_the_vocabulary() {
        assert_eq!(problems().expect("sources"), Vec::<String>::new());
    }

    #[test]
    fn retired_words_are_found_as_whole_words() {
        let glossary = "# G\n\n## Retired words\n\n| word | instead |\n| --- | --- |\n| `Zork` | `Fork` |\n| `far accounts` | x |\n\n## Next\n\n| `fine` | |\n";
        let retired = Retired::read(glossary).expect("a glossary");
        let text = "a fine Zork\nZorked\nfar accounts";
        assert_eq!(retired.find(text), [(1, "Zork"), (3, "far accounts")]);
        assert_eq!(retired.find("crates/x/src/Zork.rs"), [(1, "Zork")], "a file may not be called so either");
    }

    #[test]
    fn negated_nouns_are_found() {
        let verb = ["is", "no"].join(" ");
        let text = format!("x {verb} number\nThere {verb} number\nit {verb} longer one\n({verb} member)");
        let found = NegatedNouns::new().expect("a pattern").find(&text).into_iter();
        let lines: Vec<_> = found.map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 4]);
    }

    #[test]
    fn a_glossary_without_the_list_is_an_error() {
        assert!(Retired::read("# G\n").is_err());
        assert!(Retired::read("## Retired words\n\nnone\n").is_err());
    }
}

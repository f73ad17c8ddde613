//! The tests that `docs/security.md` names as proofs exist.
//!
//! A cell of its last column lists tests in backticks: `crate: module::test`, `module::*` for a whole module, or `prefix_*`. A crate
//! is named once and holds for what follows in the cell.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use anyhow::{Context, Result};
use regex::Regex;

use super::walk;
use crate::run::root;

const DOCUMENT: &str = "docs/security.md";

/// Every proof that no test or module has the name of.
pub(super) fn problems() -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root().join(DOCUMENT)).context(DOCUMENT)?;
    let quoted = Regex::new("`([^`]+)`")?;
    let (mut problems, mut crates) = (Vec::new(), BTreeMap::new());
    for (line, number) in text.lines().zip(1..) {
        let Some(cell) = line.strip_suffix('|').and_then(|line| line.rsplit(" | ").next()) else { continue };
        let mut tests: Option<&Tests> = None;
        for proof in quoted.captures_iter(cell).map(|found| found.extract::<1>().1[0]) {
            let path = match proof.split_once(": ") {
                Some((name, path)) => {
                    tests = Some(match crates.entry(name) {
                        Entry::Occupied(known) => &*known.into_mut(),
                        Entry::Vacant(unread) => &*unread.insert(Tests::of(name)?),
                    });
                    path
                }
                None => proof,
            };
            if let Some(tests) = tests
                && !tests.have(path)
            {
                problems.push(format!("{DOCUMENT}:{number}: no test or module is called {proof:?}"));
            }
        }
    }
    Ok(problems)
}

/// The names of a crate's functions, and of its modules.
struct Tests {
    functions: Vec<String>,
    modules: Vec<String>,
}

impl Tests {
    fn of(name: &str) -> Result<Self> {
        let folder = root().join("crates").join(name);
        let mut files = Vec::new();
        walk(&folder.join("src"), "rs", &mut files)?;
        walk(&folder.join("tests"), "rs", &mut files)?;
        let (function, module) = (Regex::new(r"\bfn (\w+)")?, Regex::new(r"\bmod (\w+) \{")?);
        let mut tests = Self { functions: Vec::new(), modules: Vec::new() };
        for file in files {
            let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            let names = |pattern: &Regex| -> Vec<String> {
                pattern.captures_iter(&text).map(|found| found.extract::<1>().1[0].to_owned()).collect()
            };
            tests.functions.extend(names(&function));
            tests.modules.extend(names(&module));
            let inside = file.strip_prefix(&folder).unwrap_or(&file).with_extension("");
            tests.modules.extend(inside.iter().map(|part| part.to_string_lossy().into_owned()));
        }
        Ok(tests)
    }

    fn have(&self, path: &str) -> bool {
        let mut segments: Vec<_> = path.split("::").collect();
        let last = segments.pop().unwrap_or_default();
        let named = match last.strip_suffix('*') {
            Some(prefix) => self.functions.iter().any(|name| name.starts_with(prefix)),
            None => {
                [&self.functions, &self.modules].iter().any(|names| names.iter().any(|name| name == last))
            }
        };
        named && segments.iter().all(|segment| self.modules.iter().any(|module| module == segment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_proof_exists() {
        assert_eq!(problems().expect("sources"), Vec::<String>::new());
    }

    #[test]
    fn a_proof_is_a_test_a_module_or_a_prefix() {
        let tests = Tests { functions: vec!["a_key_ends".to_owned()], modules: vec!["keys".to_owned()] };
        for proof in ["a_key_ends", "keys::a_key_ends", "keys::*", "a_key_*", "keys"] {
            assert!(tests.have(proof), "{proof}");
        }
        for proof in ["a_key_starts", "locks::a_key_ends", "locks::*", "no_*", "Path"] {
            assert!(!tests.have(proof), "{proof}");
        }
    }
}

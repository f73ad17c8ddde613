//! Names of types: one that others can see means one thing in its crate.
//!
//! Names that only their own file can see may repeat. Generated code and tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::Result;
use regex::Regex;

use super::{is_generated, relative, walk};
use crate::run::root;

/// Names by convention: what they belong to is in front of them, as in `duration::Error`.
const CONVENTIONAL: &[&str] = &["Args", "Command", "Error", "Inner"];
/// Arguments of a subcommand, which clap derives in its module.
const ARGUMENTS: &str = "Args";

/// Crates with names that mean several things, with the reason.
const EXCEPTIONS: &[(&str, &[&str])] = &[
    // Several protocols in one crate: the words of their specifications, named with the protocol's module.
    ("wire", &["Client", "Decoder", "FrameError", "Kind", "Service"]),
    (
        "tailnet",
        &["Config", "Counts", "Frame", "Incoming", "Message", "Node", "Peer", "Region", "TooMany", "Waiting"],
    ),
];

/// Every name that is defined in several files and can be seen outside one of them, and every exception without need.
pub(super) fn problems() -> Result<Vec<String>> {
    let mut sources = vec![("xtask".to_owned(), root().join("xtask/src"))];
    for entry in std::fs::read_dir(root().join("crates"))? {
        let entry = entry?;
        sources.push((entry.file_name().to_string_lossy().into_owned(), entry.path().join("src")));
    }
    let mut problems = Vec::new();
    for (name, folder) in sources {
        let mut files = Vec::new();
        walk(&folder, "rs", &mut files)?;
        files.retain(|file| !is_generated(file));
        let texts =
            files.into_iter().map(|file| Ok((relative(&file).to_owned(), std::fs::read_to_string(&file)?)));
        let repeated = repeated(&texts.collect::<Result<Vec<_>>>()?)?;
        let allowed =
            EXCEPTIONS.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, names)| *names);
        for (repeated, files) in &repeated {
            if !allowed.contains(&repeated.as_str()) {
                let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
                problems.push(format!("type {repeated} means several things: {}", files.join(", ")));
            }
        }
        let unneeded = allowed.iter().filter(|name| !repeated.contains_key(**name));
        problems.extend(unneeded.map(|exception| {
            format!("xtask/src/tidy/type_names.rs: type {exception} of {name} needs no exception")
        }));
    }
    Ok(problems)
}

/// The names that break the rule, and the files that define them.
fn repeated(files: &[(PathBuf, String)]) -> Result<BTreeMap<String, BTreeSet<PathBuf>>> {
    // An indented `type` is an associated type.
    let definition = Regex::new(
        r"(?m)^(?:\s*(pub(?:\([^)]*\))? )?(?:struct|enum|trait|union)|(pub(?:\([^)]*\))? )?type) (\w+)",
    )?;
    let mut found: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
    let mut visible = BTreeSet::new();
    for (file, text) in files {
        for definition in definition.captures_iter(text) {
            let name = definition[3].to_owned();
            if CONVENTIONAL.contains(&name.as_str()) || name.ends_with(ARGUMENTS) {
                continue;
            }
            if definition.get(1).or(definition.get(2)).is_some() {
                visible.insert(name.clone());
            }
            found.entry(name).or_default().insert(file.clone());
        }
    }
    found.retain(|name, files| files.len() > 1 && visible.contains(name));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|(file, text)| (file.into(), (*text).to_owned())).collect();
        repeated(&files).unwrap().into_keys().collect()
    }

    #[test]
    fn a_visible_name_means_one_thing() {
        let shown = ("a.rs", "/// Some.\npub(crate) struct Page;\n");
        assert_eq!(names(&[shown, ("b.rs", "mod x {\n    enum Page {}\n}\n")]), ["Page"]);
        assert_eq!(names(&[shown, ("b.rs", "pub type Page = u8;\n")]), ["Page"]);
        assert!(names(&[shown, ("b.rs", "impl X for Y {\n    type Page = u8;\n}\n")]).is_empty());
        assert!(names(&[shown, ("b.rs", "struct Pages;\n")]).is_empty());
    }

    #[test]
    fn private_and_conventional_names_may_repeat() {
        assert!(names(&[("a.rs", "struct Row;\n"), ("b.rs", "struct Row;\n")]).is_empty());
        let [a, b] = ["a.rs", "b.rs"].map(|file| (file, "pub enum Error {}\npub struct CreateArgs;\n"));
        assert!(names(&[a, b]).is_empty());
        assert!(names(&[("a.rs", "pub struct Watcher;\npub struct Watcher;\n")]).is_empty(), "by platform");
    }
}

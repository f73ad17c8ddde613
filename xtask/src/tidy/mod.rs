//! House rules as tests: dependency edges, import circles, names of modules and types, vocabulary, file sizes, bans, what
//! documents say of the tree, references to specifications and to tests.

mod circles;
mod documents;
mod proofs;
mod references;
mod type_names;
mod vocabulary;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::run::{cargo, output, root};

/// Which of our crates each may use outside tests (ARCHITECTURE.md, crate map).
const EDGES: &[(&str, &[&str])] = &[
    ("coder-domain", &[]),
    ("coder-wire", &[]),
    ("coder-requirements", &[]),
    ("coder-api", &["coder-domain"]),
    ("coder-source", &["coder-domain"]),
    // The requirements belong to its feature `testing`.
    ("coder-store", &["coder-domain", "coder-requirements"]),
    ("coder-tfprovider", &["coder-domain"]),
    ("coder-tailnet", &["coder-domain", "coder-wire"]),
    ("coder-agent", &["coder-api", "coder-domain", "coder-tailnet", "coder-wire"]),
    ("coder-operator", &["coder-api", "coder-domain"]),
    ("coder-provisioner", &["coder-api", "coder-domain", "coder-source", "coder-tfprovider", "coder-wire"]),
    (
        "coder-server",
        &["coder-api", "coder-domain", "coder-source", "coder-store", "coder-tailnet", "coder-wire"],
    ),
    (
        "coder",
        &[
            "coder-agent",
            "coder-api",
            "coder-domain",
            "coder-operator",
            "coder-provisioner",
            "coder-server",
            "coder-source",
            "coder-store",
            "coder-tailnet",
            "coder-tfprovider",
            "coder-wire",
        ],
    ),
];

/// Crates that only these may depend on.
const EXCEPT: &[&str] = &["russh-sftp"];

/// Crates that must not appear anywhere else in the product, with the reason.
const BANNED: &[(&str, &str)] = &[
    ("aws-lc-rs", "one crypto provider: ring"),
    ("openssl", "one TLS stack: rustls"),
    ("native-tls", "one TLS stack: rustls"),
    ("chrono", "one time library: jiff"),
];

const FORBIDDEN_NAMES: &[&str] =
    &["utils", "util", "common", "helpers", "helper", "misc", "shared", "core", "types", "manager"];

/// The size above which a file must say in its first lines why it is one thing.
const LARGE: usize = 600;

/// Prints the ten largest files and checks every rule.
pub(crate) fn run() -> Result<()> {
    let mut files = sources()?;
    files.sort_by_key(|(_, lines)| std::cmp::Reverse(*lines));
    for (path, lines) in files.iter().take(10) {
        println!("{lines:6} {}", path.display());
    }
    let problems = problems()?;
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    Ok(())
}

fn problems() -> Result<Vec<String>> {
    let mut problems = edges()?;
    problems.extend(names()?);
    problems.extend(openings()?);
    problems.extend(documents::problems()?);
    problems.extend(references::problems()?);
    problems.extend(proofs::problems()?);
    problems.extend(circles::problems()?);
    problems.extend(type_names::problems()?);
    problems.extend(vocabulary::problems()?);
    Ok(problems)
}

fn metadata() -> Result<serde_json::Value> {
    let text = output(&mut cargo(&["metadata", "--format-version", "1", "--all-features"]))?;
    serde_json::from_str(&text).context("cargo metadata")
}

fn edges() -> Result<Vec<String>> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().context("packages")?;
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        EDGES.iter().map(|(name, uses)| (*name, uses.iter().copied().collect())).collect();
    let ours = |name: &str| name == "coder" || name.starts_with("coder-");
    let mut problems = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        if let Some((_, reason)) = BANNED.iter().find(|(banned, _)| *banned == name)
            && package["source"].is_string()
            && reachable(&metadata, name)
        {
            problems.push(format!("{name} must not be used: {reason}"));
        }
        let Some(allowed) = allowed.get(name) else { continue };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().unwrap_or_default();
            let only_tests = dependency["kind"] == "dev";
            if ours(used) && !only_tests && !allowed.contains(used) {
                problems.push(format!("{name} must not depend on {used}"));
            }
        }
    }
    Ok(problems)
}

/// Whether anything in the resolved graph depends on `name` (metadata also lists what only other targets use).
fn reachable(metadata: &serde_json::Value, name: &str) -> bool {
    let nodes = metadata["resolve"]["nodes"].as_array().into_iter().flatten();
    let is_excepted = |node: &serde_json::Value| {
        let id = node["id"].as_str().unwrap_or_default();
        EXCEPT.iter().any(|name| id.contains(&format!("#{name}@")))
    };
    let mut users = nodes
        .filter(|node| !is_excepted(node))
        .flat_map(|node| node["deps"].as_array().into_iter().flatten());
    let wanted = name.replace('-', "_");
    users.any(|dependency| {
        let for_linux = |kind: &serde_json::Value| kind["target"].is_null();
        dependency["name"] == wanted.as_str()
            && dependency["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(for_linux))
    })
}

fn sources() -> Result<Vec<(PathBuf, usize)>> {
    let mut files = Vec::new();
    for folder in ["crates", "xtask", "benches"] {
        walk(&root().join(folder), "rs", &mut files)?;
    }
    files.retain(|path| !is_generated(path));
    files
        .into_iter()
        .map(|path| {
            let lines = std::fs::read_to_string(&path)?.lines().count();
            Ok((path.strip_prefix(root())?.to_path_buf(), lines))
        })
        .collect()
}

/// A path as people write it: from the root of the repository.
fn relative(path: &Path) -> &Path {
    path.strip_prefix(root()).unwrap_or(path)
}

fn is_generated(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "messages" || part.as_os_str() == "generated")
        || std::fs::read_to_string(path).is_ok_and(|text| text.starts_with("// @generated"))
}

fn walk(folder: &Path, extension: &str, files: &mut Vec<PathBuf>) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if path.is_dir() && !hidden && !path.ends_with("target") && !path.ends_with("node_modules") {
            walk(&path, extension, files)?;
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    Ok(())
}

fn names() -> Result<Vec<String>> {
    let bad = |path: &PathBuf| {
        path.iter()
            .filter_map(|part| Path::new(part).file_stem())
            .any(|stem| FORBIDDEN_NAMES.iter().any(|name| stem == *name))
    };
    let files = sources()?.into_iter().map(|(path, _)| path);
    Ok(files.filter(bad).map(|path| format!("{}: the name says nothing", path.display())).collect())
}

/// Every file opens with one sentence that says what lives there; a large one says why it is one thing.
fn openings() -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for (path, lines) in sources()? {
        let text = std::fs::read_to_string(root().join(&path))?;
        let opening: Vec<_> = text.lines().take_while(|line| line.starts_with("//!")).collect();
        if opening.is_empty() && lines > 0 {
            problems.push(format!("{}: the first line must say what lives here (//! …)", path.display()));
        }
        let is_test = path.iter().any(|part| part == "tests");
        if lines > LARGE && !is_test && opening.len() < 2 {
            problems.push(format!(
                "{}: {lines} lines; split it, or say in its //! why it is one thing",
                path.display()
            ));
        }
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_point_one_way() {
        assert_eq!(edges().expect("metadata"), Vec::<String>::new());
    }

    #[test]
    fn names_say_something() {
        assert_eq!(names().expect("sources"), Vec::<String>::new());
    }

    #[test]
    fn files_say_what_lives_in_them() {
        assert_eq!(openings().expect("sources"), Vec::<String>::new());
    }
}

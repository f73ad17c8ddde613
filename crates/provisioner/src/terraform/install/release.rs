//! The release index, the file names of a release, and its checksum list.

use std::cmp::Ordering;
use std::collections::HashMap;

use serde::Deserialize;

use crate::terraform::binary::choose::choose;
use crate::terraform::binary::program::{Binary, BinaryOrigin, MINIMUM_VERSION, Product};
use crate::terraform::binary::required::TemplateRequirements;
use crate::terraform::binary::version::Version;

/// Newer ones may print other output; operators can still provide them.
const FIRST_UNSUPPORTED: (u64, u64, u64) = (2, 0, 0);

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReleaseError {
    #[error("index.json is not an index of releases ({0}): the mirror's address must be the one it lies at")]
    Index(String),
    #[error("none of the {count} releases of Terraform for {platform} fits {required}")]
    None { count: usize, platform: String, required: String },
    #[error("{list} has no checksum of {archive}")]
    NotListed { list: String, archive: String },
}

/// The fields of the index that are used. File names are not taken from it, because it is not signed.
#[derive(Deserialize)]
struct ReleaseIndex {
    versions: HashMap<String, IndexEntry>,
}

#[derive(Deserialize)]
struct IndexEntry {
    #[serde(default)]
    builds: Vec<IndexBuild>,
}

#[derive(Deserialize)]
struct IndexBuild {
    #[serde(default)]
    os: String,
    #[serde(default)]
    arch: String,
}

/// A release for this platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Release {
    pub(super) version: Version,
}

impl Release {
    pub(super) fn archive(&self) -> String {
        format!("terraform_{}_{}_{}.zip", self.version, os(), arch())
    }

    pub(super) fn list(&self) -> String {
        format!("terraform_{}_SHA256SUMS", self.version)
    }

    /// The path of a file, relative to the index.
    pub(super) fn path(&self, file: &str) -> String {
        format!("{}/{file}", self.version)
    }
}

/// The newest release that fits. Pre-releases are never installed, only used where operators provide them.
pub(super) fn newest(index: &[u8], required: &TemplateRequirements) -> Result<Release, ReleaseError> {
    let index: ReleaseIndex =
        serde_json::from_slice(index).map_err(|error| ReleaseError::Index(error.to_string()))?;
    let mut releases: Vec<Binary> = index
        .versions
        .into_iter()
        .filter(|(_, entry)| entry.builds.iter().any(|build| build.os == os() && build.arch == arch()))
        .filter_map(|(text, _)| Version::parse(&text))
        .filter(|version| {
            // The text becomes part of paths.
            version.is_release() && !version.to_string().contains('+')
        })
        .filter(|version| version.numbers >= MINIMUM_VERSION && version.numbers < FIRST_UNSUPPORTED)
        .map(|version| Binary {
            path: version.to_string().into(),
            version,
            product: Product::Terraform,
            origin: BinaryOrigin::Installed,
        })
        .collect();
    releases.sort_by(|one, other| match other.version.order(&one.version) {
        Ordering::Equal => one.path.cmp(&other.path),
        order => order,
    });
    let chosen = choose(&releases, required).ok_or_else(|| ReleaseError::None {
        count: releases.len(),
        platform: format!("{}_{}", os(), arch()),
        required: required.to_string(),
    })?;
    Ok(Release { version: chosen.version.clone() })
}

/// The hexadecimal SHA-256 of a file in the list: `SUM  NAME` on each line.
pub(super) fn checksum(sums: &[u8], list: &str, archive: &str) -> Result<String, ReleaseError> {
    let text = String::from_utf8_lossy(sums);
    let found = text.lines().find_map(|line| {
        let (sum, name) = line.split_once(char::is_whitespace)?;
        let is_it = name.trim().trim_start_matches('*') == archive;
        (is_it && sum.len() == 64).then(|| sum.to_ascii_lowercase())
    });
    found.ok_or_else(|| ReleaseError::NotListed { list: list.to_owned(), archive: archive.to_owned() })
}

/// This platform in the notation of the release index.
fn os() -> &'static str {
    match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    }
}

fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terraform::binary::constraint::Constraint;
    use crate::terraform::binary::required::VersionRequirement;

    fn index(versions: &[&str]) -> Vec<u8> {
        let entry = |version: &&str| {
            let builds = serde_json::json!([{"os": os(), "arch": arch()}]);
            ((*version).to_owned(), serde_json::json!({"version": version, "builds": builds}))
        };
        let mut versions: serde_json::Map<_, _> = versions.iter().map(entry).collect();
        versions.insert("1.99.0".to_owned(), serde_json::json!({"builds": [{"os": "plan9", "arch": "386"}]}));
        serde_json::to_vec(&serde_json::json!({"name": "terraform", "versions": versions})).unwrap()
    }

    fn newest_of(versions: &[&str], constraint: Option<&str>) -> Result<String, String> {
        let requirement = |text| VersionRequirement {
            constraint: Constraint::parse(text).unwrap(),
            place: "main.tf:1".to_owned(),
            opentofu_only: false,
            replaced: false,
        };
        let required = TemplateRequirements {
            requirements: constraint.map(requirement).into_iter().collect(),
            ..TemplateRequirements::default()
        };
        let found = newest(&index(versions), &required);
        found.map(|release| release.version.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_newest_release_for_this_machine() {
        let all =
            ["0.15.5", "1.0.11", "1.5.7", "1.10.0", "1.9.8", "1.11.0-rc1", "2.0.0", "../x", "1.9.8+ent"];
        assert_eq!(newest_of(&all, None).unwrap(), "1.10.0");
        assert_eq!(newest_of(&all, Some("~> 1.9.0")).unwrap(), "1.9.8");
        for (constraint, count) in [("~> 1.6.0", "3"), ("< 1.1", "3"), (">= 1.11", "3"), ("= 1.99.0", "3")] {
            let error = newest_of(&all, Some(constraint)).unwrap_err();
            assert!(error.contains(&format!("none of the {count} releases")), "{error}");
            assert!(error.contains("main.tf:1"), "{error}");
        }
        assert!(
            newest(b"<html>", &TemplateRequirements::default())
                .unwrap_err()
                .to_string()
                .contains("index.json")
        );
    }

    #[test]
    fn a_list_names_each_archive() {
        let sum = "A".repeat(64);
        let list = format!(
            "{sum}  a.zip\n{}  b.zip\nshort  c.zip\n{}  a.zip.more\n",
            "b".repeat(64),
            "c".repeat(64)
        );
        let found = |name| checksum(list.as_bytes(), "list", name);
        assert_eq!(found("a.zip").unwrap(), "a".repeat(64));
        assert_eq!(found("b.zip").unwrap(), "b".repeat(64));
        for name in ["c.zip", "d.zip", ""] {
            assert_eq!(found(name).unwrap_err().to_string(), format!("list has no checksum of {name}"));
        }
    }
}

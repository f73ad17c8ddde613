//! What a template requires of Terraform: `required_version`, and files that only OpenTofu reads.
//!
//! It is read before anything runs, so it covers the template and the modules that came with a build. Invalid
//! content is ignored: Terraform reports it with its position.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use coder_source::files::SourceName;
use hcl_edit::Span as _;
use hcl_edit::expr::Expression;
use hcl_edit::structure::Body;
use serde_json::Value;

use super::constraint::Constraint;
use crate::terraform::cache::modules::calls;
use crate::terraform::cache::modules::calls::{CallAttributes, one_or_many};
use crate::terraform::cache::modules::source::is_local;

/// Further module directories are ignored.
const MAX_FOLDERS: usize = 256;

const MODULES: &str = ".terraform/modules";

/// A version constraint and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VersionRequirement {
    pub(crate) constraint: Constraint,
    /// File and line, relative to the template's directory.
    pub(crate) place: String,
    /// It is in a file that only OpenTofu reads.
    pub(crate) opentofu_only: bool,
    /// OpenTofu reads its own file instead of this one.
    pub(crate) replaced: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TemplateRequirements {
    pub(crate) requirements: Vec<VersionRequirement>,
    /// There are files that only OpenTofu reads.
    pub(crate) prefers_opentofu: bool,
    /// One of them for which Terraform has no replacement.
    pub(crate) opentofu_only_file: Option<String>,
}

impl fmt::Display for TemplateRequirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = self
            .requirements
            .iter()
            .map(|requirement| format!("{:?} ({})", requirement.constraint.to_string(), requirement.place))
            .collect();
        words.extend(
            self.opentofu_only_file.iter().map(|file| format!("OpenTofu, because only it reads {file}")),
        );
        f.write_str(&words.join(" and "))
    }
}

impl TemplateRequirements {
    /// Reads a template's directory. Blocks: call it off the async threads.
    pub(crate) fn read(root: &Path) -> Self {
        let mut found = Self::default();
        let mut pending = vec![root.to_owned()];
        pending.extend(downloaded_module_dirs(root));
        let mut seen = BTreeSet::new();
        while let Some(dir) = pending.pop() {
            let Ok(dir) = dir.canonicalize() else { continue };
            let inside = root.canonicalize().is_ok_and(|root| dir.starts_with(root));
            if inside && seen.len() < MAX_FOLDERS && seen.insert(dir.clone()) {
                found.read_folder(root, &dir, &mut pending);
            }
        }
        found.requirements.sort_by(|one, other| one.place.cmp(&other.place));
        found
    }

    fn read_folder(&mut self, root: &Path, dir: &Path, pending: &mut Vec<PathBuf>) {
        let root = root.canonicalize().unwrap_or_default();
        let mut here: Vec<VersionRequirement> = Vec::new();
        let files = files(dir);
        let replaced: Vec<bool> = files
            .iter()
            .map(|(name, kind)| {
                let has_twin = SourceName::parse(name)
                    .is_some_and(|source| files.iter().any(|(other, _)| *other == source.counterpart()));
                if kind.opentofu_only {
                    self.prefers_opentofu = true;
                    let shown = dir.strip_prefix(&root).unwrap_or(dir).join(name).display().to_string();
                    if !has_twin && self.opentofu_only_file.is_none() {
                        self.opentofu_only_file = Some(shown);
                    }
                }
                has_twin && !kind.opentofu_only
            })
            .collect();
        for ((name, kind), replaced) in files.into_iter().zip(replaced) {
            let Ok(text) = std::fs::read_to_string(dir.join(&name)) else { continue };
            let sources = ["required_version", "\"./", "\"../"];
            if !sources.iter().any(|wanted| text.contains(wanted)) {
                continue;
            }
            let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
            let read = if kind.is_json { read_json(text) } else { read_hcl(text) };
            let shown = dir.strip_prefix(&root).unwrap_or(dir).join(&name);
            let requirements = read.constraints.into_iter().filter_map(|(line, text)| {
                let constraint = Constraint::parse(&text)?;
                let place = format!("{}:{line}", shown.display());
                Some(VersionRequirement { constraint, place, opentofu_only: kind.opentofu_only, replaced })
            });
            let requirements: Vec<_> = requirements.collect();
            if kind.is_override && !requirements.is_empty() {
                here.clear();
            }
            here.extend(requirements);
            pending.extend(read.folders.into_iter().map(|folder| dir.join(folder)));
        }
        self.requirements.append(&mut here);
    }
}

#[derive(Debug, Clone, Copy)]
struct SourceKind {
    opentofu_only: bool,
    is_json: bool,
    is_override: bool,
}

/// Source files of a directory; override files last.
fn files(dir: &Path) -> Vec<(String, SourceKind)> {
    let mut files: Vec<(String, SourceKind)> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let source = SourceName::parse(&name)?;
            let SourceName { is_tofu: opentofu_only, is_json, .. } = source;
            let kind = SourceKind { opentofu_only, is_json, is_override: source.is_override() };
            Some((name, kind))
        })
        .collect();
    files.sort_by(|(one, kind), (other, other_kind)| {
        (kind.is_override, one).cmp(&(other_kind.is_override, other))
    });
    files
}

/// Directories of the modules that came with a build.
fn downloaded_module_dirs(root: &Path) -> Vec<PathBuf> {
    let manifest = std::fs::read(root.join(MODULES).join("modules.json")).unwrap_or_default();
    let Ok(manifest) = serde_json::from_slice::<Value>(&manifest) else { return Vec::new() };
    let modules = manifest.get("Modules").and_then(Value::as_array);
    let folders = modules.into_iter().flatten().filter_map(|module| module.get("Dir")?.as_str());
    folders.map(|folder| root.join(folder)).collect()
}

#[derive(Default)]
struct SourceContents {
    /// Lines and texts.
    constraints: Vec<(usize, String)>,
    /// Directories of local modules, relative to the file's.
    folders: Vec<String>,
}

impl SourceContents {
    fn add(&mut self, calls: Vec<(String, CallAttributes)>) {
        let sources = calls.into_iter().filter_map(|(_, said)| said.source?);
        self.folders.extend(sources.filter(|source| is_local(source)));
    }
}

fn read_hcl(text: &str) -> SourceContents {
    let mut read = SourceContents::default();
    let Ok(body) = text.parse::<Body>() else { return read };
    for block in body.get_blocks("terraform") {
        let Some(attribute) = block.body.get_attribute("required_version") else { continue };
        let start = attribute.span().map_or(0, |span| span.start).min(text.len());
        let line = text.as_bytes()[..start].iter().filter(|&&byte| byte == b'\n').count() + 1;
        if let Some(constraint) = literal(&attribute.value) {
            read.constraints.push((line, constraint));
        }
    }
    read.add(calls::in_body(&body));
    read
}

fn literal(expression: &Expression) -> Option<String> {
    crate::terraform::template::literal::text(expression)
}

fn read_json(text: &str) -> SourceContents {
    let mut read = SourceContents::default();
    let Ok(root) = serde_json::from_str::<Value>(text) else { return read };
    for root in one_or_many(Some(&root)) {
        for block in one_or_many(root.get("terraform")) {
            let Some(constraint) = block.get("required_version").and_then(Value::as_str) else { continue };
            let line = text.lines().position(|line| line.contains("required_version")).unwrap_or(0) + 1;
            read.constraints.push((line, constraint.to_owned()));
        }
    }
    read.add(calls::in_json(&root));
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> TemplateRequirements {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        TemplateRequirements::read(dir.path())
    }

    fn block(constraint: &str) -> String {
        format!("terraform {{\n  required_version = \"{constraint}\"\n}}\n")
    }

    #[test]
    fn conditions_with_their_places() {
        let main = format!("# a template\n{}{}", block(">= 1.2"), block("< 2"));
        let json = "{\n  \"terraform\": [{\"required_version\": \"~> 1.5\"}]\n}";
        let required = read(&[
            ("main.tf", &main),
            ("more.tf.json", json),
            (".hidden.tf", &block("= 9")),
            ("notes.txt", &block("= 9")),
            ("other/main.tf", &block("= 9")),
        ]);
        assert_eq!(
            required.to_string(),
            "\">= 1.2\" (main.tf:3) and \"< 2\" (main.tf:6) and \"~> 1.5\" (more.tf.json:2)"
        );
        assert!(required.opentofu_only_file.is_none() && !required.prefers_opentofu);
        assert_eq!(read(&[("main.tf", "variable \"a\" {}\n")]), TemplateRequirements::default());
    }

    #[test]
    fn modules_of_the_template_count_and_what_is_outside_does_not() {
        let call = |source: &str| format!("module \"m\" {{\n  source = \"{source}\"\n}}\n");
        let required = read(&[
            ("main.tf", &format!("{}{}", call("./a"), call("../outside").replace("\"m\"", "\"n\""))),
            ("a/main.tf", &format!("{}{}", call("../b"), block(">= 1.3"))),
            ("b/main.tf", &format!("{}{}", call("../a"), block("< 1.9"))),
            (
                ".terraform/modules/modules.json",
                r#"{"Modules":[{"Key":"","Dir":"."},{"Key":"far","Dir":".terraform/modules/far"}]}"#,
            ),
            (".terraform/modules/far/main.tf", &block("!= 1.4.0")),
        ]);
        let places: Vec<_> = required.requirements.iter().map(|one| one.place.as_str()).collect();
        assert_eq!(places, [".terraform/modules/far/main.tf:2", "a/main.tf:5", "b/main.tf:5"]);
    }

    #[test]
    fn overrides_replace_and_opentofus_files_are_recognized() {
        let required = read(&[("main.tf", &block("~> 1.2.0")), ("override.tf", &block("~> 1.5.0"))]);
        assert_eq!(required.to_string(), "\"~> 1.5.0\" (override.tf:2)");
        let required = read(&[("main.tf", &block("~> 1.2.0")), ("more.tofu", &block(">= 1.8"))]);
        assert!(
            required.prefers_opentofu
                && required.requirements[1].opentofu_only
                && !required.requirements[0].opentofu_only
        );
        assert!(required.to_string().ends_with("OpenTofu, because only it reads more.tofu"), "{required}");
    }

    #[test]
    fn a_template_that_both_can_read_needs_neither() {
        let both = [("main.tf", &*block("~> 1.2.0")), ("main.tofu", &block(">= 1.8"))];
        let required = read(&both);
        assert!(required.prefers_opentofu && required.opentofu_only_file.is_none(), "{required}");
        let [terraforms, tofus] = &required.requirements[..] else { panic!("{required}") };
        assert!(terraforms.replaced && !terraforms.opentofu_only && tofus.opentofu_only && !tofus.replaced);
        // JSON does not replace HCL, and a module counts like the template.
        let call = "module \"m\" {\n  source = \"./m\"\n}\n";
        let required = read(&[("main.tf", call), ("m/x.tf.json", "{}"), ("m/x.tofu", "")]);
        assert_eq!(required.opentofu_only_file.as_deref(), Some("m/x.tofu"));
    }

    #[test]
    fn unreadable_requirements_are_left_to_terraform() {
        for text in ["terraform {", "terraform {\n required_version = var.x\n}\n", &block("latest")] {
            assert!(read(&[("main.tf", text)]).requirements.is_empty(), "{text}");
        }
        assert!(read(&[("main.tf.json", "{")]).requirements.is_empty());
    }
}

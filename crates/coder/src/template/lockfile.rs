//! Finds out whether a template lacks a lock file.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use coder_source::files::SourceName;
use regex::Regex;

/// Providers that are part of every daemon or of Terraform: they have one version, lock file or not.
const BUILT_IN: [&str; 2] = ["coder", "terraform"];
/// The deepest directory that is searched.
const MAX_DEPTH: usize = 16;

/// The providers without a pinned version: those of a template without a lock file, except the ones that are part of
/// every daemon. Remote modules are not searched.
pub(crate) fn unpinned(template: &Path) -> Vec<String> {
    if template.join(".terraform.lock.hcl").exists() {
        return Vec::new();
    }
    // Types begin with the local name of their provider.
    let Ok(block) = Regex::new(
        r#"(?m)^\s*(?:resource|data|ephemeral)\s+"?([A-Za-z0-9-]+)(?:_[A-Za-z0-9_-]*)?"?\s+"?[A-Za-z_]"#,
    ) else {
        return Vec::new();
    };
    let mut found = BTreeSet::new();
    look(template, 0, &mut |name, text| {
        if SourceName::parse(name).is_some_and(|source| !source.is_json) {
            found.extend(block.captures_iter(text).map(|block| block[1].to_owned()));
        } else if let Ok(root) = serde_json::from_str::<serde_json::Value>(text) {
            for kind in ["resource", "data", "ephemeral"] {
                let types = root.get(kind).and_then(serde_json::Value::as_object).into_iter().flatten();
                found.extend(types.filter_map(|(kind, _)| kind.split('_').next()).map(str::to_owned));
            }
        }
    });
    found.into_iter().filter(|provider| !BUILT_IN.contains(&provider.as_str())).collect()
}

fn look(folder: &Path, depth: usize, read: &mut impl FnMut(&str, &str)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(kind) = entry.file_type() else { continue };
        if name.starts_with('.') {
            continue;
        }
        if kind.is_dir() && depth < MAX_DEPTH {
            look(&entry.path(), depth + 1, read);
        } else if kind.is_file()
            && SourceName::parse(&name).is_some()
            && let Ok(text) = fs::read_to_string(entry.path())
        {
            read(&name, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        unpinned(dir.path())
    }

    #[test]
    fn only_providers_that_could_change_count() {
        let ours = "resource \"coder_agent\" \"main\" {\n}\ndata \"coder_workspace\" \"me\" {}\nresource \"terraform_data\" \"x\" {}\n";
        assert!(of(&[("main.tf", ours)]).is_empty());
        let docker =
            "  resource \"docker_container\" \"c\" {\n # resource \"aws_x\" \"y\"\n}\ndata http page {\n}\n";
        assert_eq!(of(&[("main.tf", ours), ("modules/a/vm.tf", docker)]), ["docker", "http"]);
        assert!(of(&[("main.tf", docker), (".terraform.lock.hcl", "")]).is_empty());
        assert_eq!(of(&[("main.tf.json", r#"{"resource":{"null_resource":{"x":{}}}}"#)]), ["null"]);
        assert_eq!(of(&[("vm.tofu", docker)]), ["docker", "http"]);
        assert!(of(&[("README.md", docker)]).is_empty());
    }
}

//! Which files of a folder are configuration, and which of them Terraform or OpenTofu reads.
//!
//! OpenTofu has its own names, `x.tofu` and `x.tofu.json`. It reads them in addition to Terraform's files, and instead of a
//! Terraform file with the same stem (`x.tf`, `x.tf.json`). Terraform ignores them.

use std::collections::BTreeSet;

/// The program whose rules decide which files of a folder are configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Terraform, and OpenTofu before 1.8.
    Terraform,
    /// OpenTofu from 1.8 on.
    OpenTofu,
}

/// The parsed name of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceName<'n> {
    stem: &'n str,
    /// Only OpenTofu reads the file.
    pub is_tofu: bool,
    /// JSON instead of HCL.
    pub is_json: bool,
}

impl<'n> SourceName<'n> {
    /// None for other files; hidden files and backups of editors are not configuration.
    #[must_use]
    pub fn parse(name: &'n str) -> Option<Self> {
        let (rest, is_json) = name.strip_suffix(".json").map_or((name, false), |rest| (rest, true));
        let (stem, is_tofu) = match (rest.strip_suffix(".tf"), rest.strip_suffix(".tofu")) {
            (Some(stem), _) => (stem, false),
            (None, Some(stem)) => (stem, true),
            (None, None) => return None,
        };
        (!name.starts_with('.')).then_some(Self { stem, is_tofu, is_json })
    }

    /// Whether the file overrides blocks of other files.
    #[must_use]
    pub fn is_override(&self) -> bool {
        self.stem == "override" || self.stem.ends_with("_override")
    }

    /// The name of the same file for the other program: `x.tf` for `x.tofu`, and `x.tofu` for `x.tf`.
    #[must_use]
    pub fn counterpart(&self) -> String {
        let extension = if self.is_tofu { "tf" } else { "tofu" };
        format!("{}.{extension}{}", self.stem, if self.is_json { ".json" } else { "" })
    }
}

/// The files of a folder that `dialect` reads, in the order in which they apply: overrides last.
pub fn configuration_files(dialect: Dialect, names: impl IntoIterator<Item = String>) -> Vec<String> {
    let names: BTreeSet<String> = names.into_iter().collect();
    let counts = |name: &&String| match (SourceName::parse(name), dialect) {
        (None, _) => false,
        (Some(source), Dialect::Terraform) => !source.is_tofu,
        (Some(source), Dialect::OpenTofu) => source.is_tofu || !names.contains(&source.counterpart()),
    };
    let mut read: Vec<String> = names.iter().filter(counts).cloned().collect();
    read.sort_by_cached_key(|name| {
        (SourceName::parse(name).is_some_and(|source| source.is_override()), name.clone())
    });
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_configuration() {
        for (name, is_tofu, is_json, is_override) in [
            ("main.tf", false, false, false),
            ("main.tf.json", false, true, false),
            ("main.tofu", true, false, false),
            ("x_override.tofu.json", true, true, true),
            ("override.tf", false, false, true),
        ] {
            let source = SourceName::parse(name).unwrap();
            assert_eq!(
                (source.is_tofu, source.is_json, source.is_override()),
                (is_tofu, is_json, is_override),
                "{name}"
            );
        }
        for name in
            [".main.tf", "main.tf~", "#main.tf#", "main.json", "tofu", "main.tofuvars", ".hidden.tofu"]
        {
            assert_eq!(SourceName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn opentofu_reads_its_own_file_instead_of_its_counterpart() {
        let names = [
            "b.tf",
            "a.tofu",
            "a.tf",
            "c.tf.json",
            "c.tofu",
            "override.tofu",
            "override.tf",
            "z.tofu.json",
            "README.md",
        ];
        let read = |dialect| configuration_files(dialect, names.map(str::to_owned));
        assert_eq!(read(Dialect::Terraform), ["a.tf", "b.tf", "c.tf.json", "override.tf"]);
        // A JSON file is not a counterpart of an HCL file.
        let expected = ["a.tofu", "b.tf", "c.tf.json", "c.tofu", "z.tofu.json", "override.tofu"];
        assert_eq!(read(Dialect::OpenTofu), expected);
    }
}

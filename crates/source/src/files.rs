//! Which files of a folder are configuration, and which of them Terraform or OpenTofu reads.
//!
//! OpenTofu has names of its own, `x.tofu` and `x.tofu.json`. It reads them beside Terraform's, and instead of a file of
//! Terraform with the same name (`x.tf`, `x.tf.json`). Terraform passes over them.

use std::collections::BTreeSet;

/// Who reads a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Terraform, and OpenTofu before 1.8.
    Terraform,
    /// OpenTofu from 1.8 on.
    OpenTofu,
}

/// The name of a file of configuration, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceName<'n> {
    stem: &'n str,
    /// Only OpenTofu reads it.
    pub of_tofu: bool,
    /// JSON instead of HCL.
    pub is_json: bool,
}

impl<'n> SourceName<'n> {
    /// None when the name is of no configuration; hidden files and editors' leftovers are none.
    #[must_use]
    pub fn parse(name: &'n str) -> Option<Self> {
        let (rest, is_json) = name.strip_suffix(".json").map_or((name, false), |rest| (rest, true));
        let (stem, of_tofu) = match (rest.strip_suffix(".tf"), rest.strip_suffix(".tofu")) {
            (Some(stem), _) => (stem, false),
            (None, Some(stem)) => (stem, true),
            (None, None) => return None,
        };
        (!name.starts_with('.')).then_some(Self { stem, of_tofu, is_json })
    }

    /// Whether it changes what other files say instead of adding to it.
    #[must_use]
    pub fn is_override(&self) -> bool {
        self.stem == "override" || self.stem.ends_with("_override")
    }

    /// The file of the other program that stands for the same: `x.tf` of `x.tofu`, and the other way round.
    #[must_use]
    pub fn twin(&self) -> String {
        let extension = if self.of_tofu { "tf" } else { "tofu" };
        format!("{}.{extension}{}", self.stem, if self.is_json { ".json" } else { "" })
    }
}

/// Those of a folder's files that `reader` reads, in the order in which they count: overrides last.
pub fn read_by(reader: Reader, names: impl IntoIterator<Item = String>) -> Vec<String> {
    let names: BTreeSet<String> = names.into_iter().collect();
    let counts = |name: &&String| match (SourceName::parse(name), reader) {
        (None, _) => false,
        (Some(source), Reader::Terraform) => !source.of_tofu,
        (Some(source), Reader::OpenTofu) => source.of_tofu || !names.contains(&source.twin()),
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
        for (name, of_tofu, is_json, is_override) in [
            ("main.tf", false, false, false),
            ("main.tf.json", false, true, false),
            ("main.tofu", true, false, false),
            ("x_override.tofu.json", true, true, true),
            ("override.tf", false, false, true),
        ] {
            let source = SourceName::parse(name).unwrap();
            assert_eq!(
                (source.of_tofu, source.is_json, source.is_override()),
                (of_tofu, is_json, is_override),
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
    fn opentofu_reads_its_own_file_instead_of_its_twin() {
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
        let read = |reader| read_by(reader, names.map(str::to_owned));
        assert_eq!(read(Reader::Terraform), ["a.tf", "b.tf", "c.tf.json", "override.tf"]);
        // JSON is no twin of HCL.
        let wanted = ["a.tofu", "b.tf", "c.tf.json", "c.tofu", "z.tofu.json", "override.tofu"];
        assert_eq!(read(Reader::OpenTofu), wanted);
    }
}

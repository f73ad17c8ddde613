//! What `init` of a template might run besides Terraform itself. It scans the source text and errs on the side
//! of more: what it does not find is absent, however Terraform parses the file.

use std::io::Result;
use std::path::Path;

use coder_source::files::SourceName;

/// Longer files are not scanned.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// What the root directory of a template may contain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TemplateFeatures {
    /// Modules: Terraform fetches remote ones with git and other programs.
    pub(crate) modules: bool,
    /// A backend; some run programs that the template names to authenticate.
    pub(crate) backend: bool,
    /// OpenTofu's encryption, whose keys may come from a program.
    pub(crate) encryption: bool,
}

impl TemplateFeatures {
    const ALL: Self = Self { modules: true, backend: true, encryption: true };

    /// Scans all files that Terraform or OpenTofu could read. Blocks.
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let mut facts = Self::default();
        for entry in dir.read_dir()? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let name = name.trim_start_matches('.');
            if SourceName::parse(name).is_none() {
                continue;
            }
            let file = entry.metadata()?;
            if !file.is_file() || file.len() > MAX_FILE_BYTES {
                return Ok(Self::ALL);
            }
            facts.add(&std::fs::read(entry.path())?, name.ends_with(".json"));
        }
        Ok(facts)
    }

    fn add(&mut self, text: &[u8], is_json: bool) {
        let has = |word: &str, labelled| {
            if is_json { in_json(text, word.as_bytes()) } else { in_hcl(text, word.as_bytes(), labelled) }
        };
        self.modules |= has("module", true);
        self.backend |= has("backend", true) || has("state_store", true) || has("cloud", false);
        self.encryption |= has("encryption", false);
    }
}

/// A name may contain escapes.
fn in_json(text: &[u8], word: &[u8]) -> bool {
    let quoted = [b"\"", word, b"\""].concat();
    find(text, b"\\u").next().is_some() || find(text, &quoted).next().is_some()
}

/// A word where a block could start: `word "label" {`, or `word {` for one without labels.
fn in_hcl(text: &[u8], word: &[u8], labelled: bool) -> bool {
    find(text, word).any(|at| {
        let is_start = at == 0 || !is_part(text[at - 1]);
        let rest = &text[at + word.len()..];
        let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        is_start
            && match rest.get(blanks) {
                // A comment may follow.
                Some(b'{' | b'/') => true,
                Some(b'"') => labelled,
                Some(&byte) => labelled && blanks > 0 && is_part(byte),
                None => false,
            }
    })
}

/// Continues a name, or a reference to one as in `path.module`.
const fn is_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

fn find<'t>(text: &'t [u8], wanted: &'t [u8]) -> impl Iterator<Item = usize> + 't {
    text.windows(wanted.len()).enumerate().filter(move |(_, window)| *window == wanted).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(name: &str, text: &str) -> TemplateFeatures {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(name), text).unwrap();
        TemplateFeatures::read(dir.path()).unwrap()
    }

    #[test]
    fn blocks_that_make_init_run_programs_are_found() {
        let modules = TemplateFeatures { modules: true, ..TemplateFeatures::default() };
        let backend = TemplateFeatures { backend: true, ..TemplateFeatures::default() };
        let encryption = TemplateFeatures { encryption: true, ..TemplateFeatures::default() };
        for (name, text, wanted) in [
            ("main.tf", "module \"m\" {\n  source = \"git::x\"\n}\n", modules),
            ("main.tf", "\u{feff}module\t/* odd */ m {}", modules),
            ("main.tf", "locals {}\nmodule m{}", modules),
            ("main.tf.json", r#"{"module":{"m":{"source":"x"}}}"#, modules),
            ("main.tf", "terraform {\n  backend \"s3\" {}\n}", backend),
            ("a_override.tf", "terraform { \nbackend s3 {}\n}", backend),
            ("main.tf", "terraform {\n  cloud {}\n}", backend),
            ("main.tofu", "terraform {\n  encryption {}\n}", encryption),
            ("main.tofu.json", r#"{"terraform":{"encryption":{}}}"#, encryption),
            (".main.tf", "module \"m\" {}", modules),
            ("main.tf.json", r#"{"\u006dodule":{}}"#, TemplateFeatures::ALL),
        ] {
            assert_eq!(facts(name, text), wanted, "{name} {text}");
        }
    }

    #[test]
    fn attributes_and_labels_are_not_taken_for_blocks() {
        for (name, text) in [
            ("main.tf", "locals {\n  a = \"${path.module}/x\"\n  cloud = 1\n  b = module.x\n}"),
            ("main.tf", "resource \"x\" \"cloud\" {\n  user_data = \"cloud-init\"\n}"),
            ("main.tf", "resource \"x\" \"my_module\" {\n  modules = []\n}"),
            ("README.md", "module \"m\" {}"),
            ("main.tf.json", r#"{"resource":{"modules":{}}}"#),
        ] {
            assert_eq!(facts(name, text), TemplateFeatures::default(), "{name} {text}");
        }
    }

    #[test]
    fn links_count_as_having_every_feature() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/zero", dir.path().join("main.tf")).unwrap();
        assert_eq!(TemplateFeatures::read(dir.path()).unwrap(), TemplateFeatures::ALL);
    }
}

//! The module calls in a directory of configuration.

use std::collections::BTreeMap;
use std::path::Path;

use coder_source::files::{Dialect, SourceName, configuration_files};
use coder_source::syntax::{ParseBudget, Parsed};
use hcl_edit::structure::{Block, BlockLabel, Body};
use serde_json::Value;

use crate::terraform::template::literal;

/// Longer files are ignored.
const MAX_FILE_BYTES: u64 = 10 * 1024 * 1024;

/// Longer names are invalid.
const MAX_NAME_BYTES: usize = 128;

/// One call whose source, and version if given, are literal texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModuleCall {
    pub(crate) name: String,
    pub(crate) source: String,
    pub(crate) version: Option<String>,
}

/// The attributes of a call in one file: absent, not a literal, or a text.
#[derive(Debug, Default)]
pub(crate) struct CallAttributes {
    pub(crate) source: Option<Option<String>>,
    version: Option<Option<String>>,
}

/// The calls of one directory, by name. Invalid files are ignored: Terraform reports them. Blocks.
pub(crate) fn read(dir: &Path, dialect: Dialect) -> Vec<ModuleCall> {
    let names = dir.read_dir().into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let is_file = entry.metadata().is_ok_and(|file| file.is_file() && file.len() <= MAX_FILE_BYTES);
        is_file.then_some(name)
    });
    let mut calls: BTreeMap<String, CallAttributes> = BTreeMap::new();
    let mut budget = ParseBudget::default();
    for name in configuration_files(dialect, names) {
        let Ok(text) = std::fs::read_to_string(dir.join(&name)) else { continue };
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let found = if SourceName::parse(&name).is_some_and(|source| source.is_json) {
            serde_json::from_str(text).map_or_else(|_| Vec::new(), |root| in_json(&root))
        } else if text.contains("module") {
            let parsed = coder_source::syntax::parse(text, &mut budget);
            parsed.map_or_else(|_| Vec::new(), |Parsed { body, .. }| in_body(&body))
        } else {
            Vec::new()
        };
        for (name, said) in found {
            // Override files come last.
            let call = calls.entry(name).or_default();
            call.source = said.source.or(call.source.take());
            call.version = said.version.or(call.version.take());
        }
    }
    let plain = |(name, said): (String, CallAttributes)| {
        let version = match said.version {
            None => None,
            Some(version) => Some(version?),
        };
        is_name(&name).then_some(ModuleCall { name, source: said.source??, version })
    };
    calls.into_iter().filter_map(plain).collect()
}

/// Module names become directory names.
fn is_name(name: &str) -> bool {
    let is_part = |char: char| char.is_alphanumeric() || matches!(char, '_' | '-');
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.chars().all(is_part)
}

/// The calls of one file, by name.
pub(crate) fn in_body(body: &Body) -> Vec<(String, CallAttributes)> {
    let call = |block: &Block| {
        let name = match block.labels.first()? {
            BlockLabel::String(name) => name.value().clone(),
            BlockLabel::Ident(name) => name.to_string(),
        };
        let of = |name: &str| block.body.get_attribute(name).map(|attribute| literal::text(&attribute.value));
        Some((name, CallAttributes { source: of("source"), version: of("version") }))
    };
    body.get_blocks("module").filter_map(call).collect()
}

/// The same for a JSON file.
pub(crate) fn in_json(root: &Value) -> Vec<(String, CallAttributes)> {
    let blocks = one_or_many(Some(root)).into_iter().flat_map(|root| one_or_many(root.get("module")));
    let calls = blocks.filter_map(Value::as_object).flatten();
    let bodies =
        calls.flat_map(|(name, call)| one_or_many(Some(call)).into_iter().map(move |body| (name, body)));
    let said = |(name, body): (&String, &Value)| {
        let of = |name: &str| body.get(name).filter(|value| !value.is_null()).map(plain);
        (name.clone(), CallAttributes { source: of("source"), version: of("version") })
    };
    bodies.map(said).collect()
}

fn plain(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.contains("${") && !text.contains("%{")).map(str::to_owned)
}

/// JSON writes one block as an object, and several as a list.
pub(crate) fn one_or_many(value: Option<&Value>) -> Vec<&Value> {
    match value {
        None => Vec::new(),
        Some(Value::Array(items)) => items.iter().collect(),
        Some(other) => vec![other],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(dialect: Dialect, files: &[(&str, &str)]) -> Vec<(String, String, Option<String>)> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        read(dir.path(), dialect).into_iter().map(|call| (call.name, call.source, call.version)).collect()
    }

    fn owned(name: &str, source: &str, version: Option<&str>) -> (String, String, Option<String>) {
        (name.to_owned(), source.to_owned(), version.map(str::to_owned))
    }

    #[test]
    fn calls_of_every_file_with_their_overrides() {
        let files = [
            (
                "main.tf",
                "module \"a\" {\n  source = \"x/y/z\"\n  version = \"~> 1.0\"\n}\nmodule b { source = \"./b\" }\n",
            ),
            (
                "more.tf.json",
                r#"{"module":[{"c":{"source":"git::https://x/y","version":null}},{"d":[{"source":"s"}]}]}"#,
            ),
            ("a_override.tf", "module \"a\" {\n  version = \"2.0.0\"\n}\n"),
            ("main.tofu", "module \"e\" { source = \"./e\" }\n"),
        ];
        let mut wanted = vec![
            owned("a", "x/y/z", Some("2.0.0")),
            owned("b", "./b", None),
            owned("c", "git::https://x/y", None),
            owned("d", "s", None),
        ];
        assert_eq!(calls(Dialect::Terraform, &files), wanted);
        wanted.retain(|(name, ..)| matches!(&**name, "c" | "d"));
        wanted.push(owned("e", "./e", None));
        assert_eq!(calls(Dialect::OpenTofu, &files), wanted);
    }

    #[test]
    fn computed_or_broken_calls_are_left_to_terraform() {
        for (name, text) in [
            ("main.tf", "module \"a\" { source = var.x }"),
            ("main.tf", "module \"a\" {\n  source = \"x/y/z\"\n  version = local.v\n}"),
            ("main.tf", "module \"a\" { source = \"${path.root}/x\" }"),
            ("main.tf", "module {\n  source = \"x\"\n}"),
            ("main.tf", "module \"a\" {"),
            ("main.tf.json", r#"{"module":{"a":{"source":"${var.x}"}}}"#),
            ("main.tf.json", r#"{"module":{"a":"x"}"#),
            ("main.tf.json", r#"{"module":["a",{"b":1}]}"#),
            ("main.tf", "module \"../a\" { source = \"x/y/z\" }"),
            ("main.tf.json", r#"{"module":{"a.b":{"source":"x/y/z"}}}"#),
            (".main.tf", "module \"a\" { source = \"x\" }"),
        ] {
            assert_eq!(calls(Dialect::Terraform, &[(name, text)]), [], "{text}");
        }
    }
}

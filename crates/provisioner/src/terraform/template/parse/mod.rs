//! Parses a root module without running Terraform: its variables, and the source text of its workspace tags
//! (terraform 1.10).
//!
//! Terraform has accepted the configuration already. Tags written as `{ key = value }` are reported as source
//! text, which the server evaluates; other tags are evaluated here.

mod json;
mod tags;

use std::collections::BTreeMap;
use std::path::Path;

use coder_source::files::{Dialect, SourceName, configuration_files};
use coder_source::syntax::{ParseBudget, Parsed};
use coder_wire::messages::provisioner::TemplateVariable;
use hcl_edit::Span;
use hcl_edit::expr::Expression;
use hcl_edit::structure::Block;

use self::tags::Tags;
use super::literal;

/// The parsed root module.
#[derive(Debug, Default)]
pub(crate) struct RootModule {
    pub(crate) variables: Vec<TemplateVariable>,
    pub(crate) workspace_tags: BTreeMap<String, String>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ParseError {
    #[error("load module: cannot read {file}: {reason}")]
    Read { file: String, reason: String },
    #[error("load module: Error: {message} ({file}:{line})")]
    Syntax { file: String, line: usize, message: String },
    #[error("load module: Error: {file} is not valid JSON: {reason}")]
    Json { file: String, reason: String },
    #[error("can't load workspace tags: \"tags\" attribute is required by coder_workspace_tags ({0})")]
    TagsMissing(String),
    #[error("can't load workspace tags: \"tags\" has no value before Terraform runs: {reason} ({place})")]
    TagsUnknown { place: String, reason: String },
    #[error("can't load workspace tags: workspace tag {0:?} is defined multiple times")]
    DuplicateTag(String),
}

struct LocatedVariable {
    file: String,
    /// In JSON files the position among the file's variables.
    line: usize,
    variable: TemplateVariable,
}

impl LocatedVariable {
    /// Adds what an override file does not repeat.
    fn complete(&mut self, overridden: TemplateVariable) {
        let variable = &mut self.variable;
        for (text, before) in
            [(&mut variable.description, overridden.description), (&mut variable.r#type, overridden.r#type)]
        {
            if text.is_empty() {
                *text = before;
            }
        }
        if variable.required {
            variable.default_value = overridden.default_value;
            variable.required = overridden.required;
        }
        variable.sensitive |= overridden.sensitive;
    }
}

impl RootModule {
    /// Parses the files of a directory that `dialect` reads. Blocks: call it off the async threads.
    pub(crate) fn read(dir: &Path, dialect: Dialect) -> Result<Self, ParseError> {
        let mut variables: BTreeMap<String, LocatedVariable> = BTreeMap::new();
        let mut tags = Tags::default();
        let mut budget = ParseBudget::default();
        let mut files = Vec::new();
        for file in source_files(dir, dialect)? {
            let bytes = std::fs::read(dir.join(&file))
                .map_err(|error| ParseError::Read { file: file.clone(), reason: error.to_string() })?;
            files.push((file, bytes));
        }
        for (file, bytes) in &files {
            let text = std::str::from_utf8(bytes)
                .map_err(|_| ParseError::Read { file: file.clone(), reason: "not UTF-8 text".to_owned() })?;
            let text = text.strip_prefix('\u{feff}').unwrap_or(text);
            let found: Vec<LocatedVariable> = if file.ends_with(".json") {
                tags.must_evaluate_some |= text.contains("coder_workspace_tags");
                let variables = json::variables(text)
                    .map_err(|error| ParseError::Json { file: file.clone(), reason: error.to_string() })?;
                let found = |(line, variable)| LocatedVariable { file: file.clone(), line, variable };
                (0..).zip(variables).map(found).collect()
            } else {
                let Parsed { body, text } =
                    coder_source::syntax::parse(text, &mut budget).map_err(|error| ParseError::Syntax {
                        file: file.clone(),
                        line: error.line,
                        message: error.message,
                    })?;
                tags.read(file, &text, &body)?;
                body.get_blocks("variable").filter_map(|block| variable(file, &text, block)).collect()
            };
            for mut entry in found {
                if let Some(overridden) = variables.remove(&entry.variable.name) {
                    entry.complete(overridden.variable);
                }
                variables.insert(entry.variable.name.clone(), entry);
            }
        }
        let mut found: Vec<LocatedVariable> = variables.into_values().collect();
        found.sort_by(|a, b| (&a.file, a.line, &a.variable.name).cmp(&(&b.file, b.line, &b.variable.name)));
        Ok(Self {
            variables: found.into_iter().map(|entry| entry.variable).collect(),
            workspace_tags: tags.complete(files)?,
        })
    }
}

fn source_files(dir: &Path, dialect: Dialect) -> Result<Vec<String>, ParseError> {
    let fail = |error: std::io::Error| ParseError::Read { file: ".".to_owned(), reason: error.to_string() };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if SourceName::parse(&name).is_some() && entry.file_type().map_err(fail)?.is_file() {
            files.push(name);
        }
    }
    Ok(configuration_files(dialect, files))
}

fn line_of(text: &str, span: Option<std::ops::Range<usize>>) -> usize {
    let end = span.map_or(0, |span| span.start).min(text.len());
    text.as_bytes()[..end].iter().filter(|&&byte| byte == b'\n').count() + 1
}

fn source<'t>(text: &'t str, expression: &Expression) -> &'t str {
    expression.span().and_then(|span| text.get(span)).unwrap_or_default().trim()
}

fn variable(file: &str, text: &str, block: &Block) -> Option<LocatedVariable> {
    let name = block.labels.first()?.as_str().to_owned();
    let attribute = |key: &str| block.body.get_attribute(key).map(|attribute| &attribute.value);
    // Terraform has evaluated the default already; what only Terraform can evaluate is reported as source text.
    let default = attribute("default").and_then(|value| {
        coder_source::constant(value).unwrap_or_else(|_| Some(source(text, value).to_owned()))
    });
    Some(LocatedVariable {
        file: file.to_owned(),
        line: line_of(text, block.span()),
        variable: TemplateVariable {
            name,
            description: attribute("description").and_then(literal::text).unwrap_or_default(),
            r#type: attribute("type").map(|value| source(text, value).to_owned()).unwrap_or_default(),
            required: default.is_none(),
            default_value: default.unwrap_or_default(),
            sensitive: attribute("sensitive").and_then(Expression::as_bool).unwrap_or_default(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Result<RootModule, ParseError> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        RootModule::read(dir.path(), Dialect::Terraform)
    }

    #[test]
    fn variables_by_file_and_line() {
        let module = read(&[
            (
                "b.tf",
                "variable \"second\" {\n  type = list(object({\n    a = string\n  }))\n  default = [{ a = \"x\" }]\n}\n\
                 variable third {\n  type = number # how many\n  default = 3\n  sensitive = true\n}\n",
            ),
            ("a.tf", "variable \"first\" {\n  description = \"the first\"\n  type = string\n}\n"),
            ("c.tf.json", r#"{"variable":{"fourth":{"type":"bool","default":false}}}"#),
            (".hidden.tf", "not hcl {"),
            ("notes.txt", "not hcl {"),
        ])
        .unwrap();
        let seen: Vec<_> = module
            .variables
            .iter()
            .map(|v| (v.name.as_str(), v.r#type.as_str(), v.default_value.as_str(), v.required, v.sensitive))
            .collect();
        assert_eq!(
            seen,
            [
                ("first", "string", "", true, false),
                ("second", "list(object({\n    a = string\n  }))", r#"[{"a":"x"}]"#, false, false),
                ("third", "number", "3", false, true),
                ("fourth", "bool", "false", false, false),
            ]
        );
        assert_eq!(module.variables[0].description, "the first");
    }

    #[test]
    fn null_default_is_required_and_text_defaults_stay_plain() {
        let module = read(&[(
            "main.tf",
            "variable \"a\" {\n  default = null\n}\nvariable \"b\" {\n  default = \"say \\\"hi\\\"\"\n}\n\
             variable \"c\" {\n  default = <<-EOT\n    one\n      two\n  EOT\n}\n",
        )])
        .unwrap();
        assert!(module.variables[0].required);
        assert_eq!(module.variables[1].default_value, "say \"hi\"");
        assert_eq!(module.variables[2].default_value, "one\n  two\n");
    }

    #[test]
    fn defaults_are_evaluated() {
        let module = read(&[
            (
                "main.tf",
                "variable \"a\" {\n  type = number\n  default = 60 * 60\n}\n\
                 variable \"b\" {\n  default = \"x${1 + 1}\"\n}\n\
                 variable \"c\" {\n  default = { url = \"?a=1&b\", n = 1.0 }\n}\n\
                 variable \"d\" {\n  default = true ? null : null\n}\n",
            ),
            ("more.tf.json", r#"{"variable":{"e":{"default":[1.0,"&"]},"f":{"default":"${x}"}}}"#),
        ])
        .unwrap();
        let seen: Vec<_> = module.variables.iter().map(|v| (v.default_value.as_str(), v.required)).collect();
        let wanted = [
            ("3600", false),
            ("x2", false),
            (r#"{"n":1,"url":"?a=1\u0026b"}"#, false),
            ("", true),
            (r#"[1,"\u0026"]"#, false),
            ("${x}", false),
        ];
        assert_eq!(seen, wanted);
    }

    #[test]
    fn variables_in_json_come_as_they_are_written() {
        let text = r#"[{"variable":{"z":{"type":"number"},"a":[{"default":{"k":[true,null]}}]}},
            {"variable":[{"m":{"sensitive":true,"default":-2}},{"b":{"description":"d"}}]}]"#;
        let module = read(&[("main.tf.json", text)]).unwrap();
        let seen: Vec<_> = module
            .variables
            .iter()
            .map(|v| (v.name.as_str(), v.r#type.as_str(), v.default_value.as_str(), v.required, v.sensitive))
            .collect();
        let wanted = [
            ("z", "number", "", true, false),
            ("a", "", r#"{"k":[true,null]}"#, false, false),
            ("m", "", "-2", false, true),
            ("b", "", "", true, false),
        ];
        assert_eq!(seen, wanted);
    }

    #[test]
    fn override_files_change_what_they_repeat() {
        let module = read(&[
            ("a_override.tf", "variable \"l\" {\n  default = [\"x\"]\n}\n"),
            (
                "main.tf",
                "variable \"l\" {\n  type = list(string)\n  description = \"d\"\n  sensitive = true\n}\n",
            ),
        ])
        .unwrap();
        let l = &module.variables[0];
        assert_eq!((l.r#type.as_str(), l.description.as_str()), ("list(string)", "d"));
        assert_eq!((l.default_value.as_str(), l.required, l.sensitive), (r#"["x"]"#, false, true));
    }

    #[test]
    fn tags_keep_their_source_text() {
        let module = read(&[(
            "main.tf",
            "data \"coder_workspace_tags\" \"t\" {\n  tags = {\n    \"cluster\" = \"dev\"\n    region = var.region\n\
             \"a b\" = \"${var.x}-y\"\n  }\n}\n",
        )])
        .unwrap();
        let expected = [("a b", "\"${var.x}-y\""), ("cluster", "\"dev\""), ("region", "var.region")];
        let seen: Vec<_> = module.workspace_tags.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn tags_that_are_computed_or_in_json_are_evaluated() {
        let module = read(&[
            (
                "main.tf",
                "locals {\n  all = merge({ a = \"x\" }, { b = upper(var.y) })\n}\nvariable \"y\" {\n  default = \"$${y\\t\\u200b\"\n}\n\
                 data \"coder_workspace_tags\" \"t\" {\n  tags = local.all\n}\n\
                 data \"coder_workspace_tags\" \"u\" {\n  tags = { own = var.y }\n}\n",
            ),
            ("more.tf.json", r#"{"data":{"coder_workspace_tags":{"v":{"tags":{"json":"${1 + 1}%%{"}}}}}"#),
        ])
        .unwrap();
        let seen: Vec<_> = module.workspace_tags.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(
            seen,
            [("a", "\"x\""), ("b", "\"$${Y\\t\u{200b}\""), ("json", "\"2%%{\""), ("own", "var.y")]
        );
    }

    #[test]
    fn keys_that_terraform_takes_twice_are_taken_twice() {
        let module = read(&[("main.tf", "variable \"a\" {\n  default = { x = 1\n x = 2 }\n}\n")]).unwrap();
        assert_eq!(module.variables[0].default_value, r#"{"x":2}"#);
    }

    #[test]
    fn a_hostile_module_ends_in_time() {
        let mut keys = String::new();
        for n in 0..100_000 {
            keys.push_str(&format!("k{n} = 1\n"));
        }
        let start = std::time::Instant::now();
        let error = read(&[("main.tf", &format!("locals {{\n x = {{\n{keys}}}\n}}\n"))]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("main.tf:100003") && text.contains("too many keys"), "{text}");
        assert!(read(&[("main.tf", &format!("x = {}", "{a=".repeat(100_000)))]).is_err());
        assert!(start.elapsed() < std::time::Duration::from_secs(20));
    }

    #[test]
    fn broken_tags_and_files_are_named() {
        let block = |body: &str| format!("data \"coder_workspace_tags\" \"t\" {{\n{body}\n}}\n");
        for (text, wanted) in [
            (block(""), "attribute is required"),
            (block("tags = var.tags"), "var.tags is not declared"),
            (block("tags = { a = 1\n a = 2 }"), "\"a\" is defined multiple times"),
            (format!("{}variable \"t\" {{}}\n", block("tags = var.t")), "neither a value nor a default"),
            (
                format!(
                    "{}{}",
                    block("tags = { a = 1 }"),
                    block("tags = { a = 2 }").replace("\"t\"", "\"u\"")
                ),
                "multiple times",
            ),
            ("variable {\n".to_owned(), "main.tf:"),
        ] {
            let error = read(&[("main.tf", &text)]).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}

//! Variable values for Terraform: in a private file, never on the command line.
//!
//! Arguments are visible in the process list, so values go into a file that only the daemon's user can read.
//! Each value is written so that Terraform reads it exactly as `-var NAME=VALUE`: as text for variables of a
//! simple or unknown type, as an expression for lists, maps and objects.

use std::collections::HashMap;
use std::fmt::Write as _;

use coder_wire::messages::provisioner::{TemplateVariable, VariableValue};
use hcl_edit::expr::Expression;

use crate::files::job_file::JobFile;

use crate::terraform::template::literal::quote;

#[derive(Debug, thiserror::Error)]
pub(crate) enum VariableError {
    #[error(
        "value of template variable {name:?} is not a valid expression for its type; write lists as [\"a\", \"b\"] and maps as {{ key = \"value\" }}"
    )]
    Expression { name: String },
    #[error("{0:?} is not a valid variable name")]
    Name(String),
    #[error("write variable values: {0}")]
    Io(#[from] std::io::Error),
}

/// Writes the values into a new file.
pub(crate) fn write_file(
    file: &JobFile,
    values: &[VariableValue],
    declared: &[TemplateVariable],
) -> Result<(), VariableError> {
    let text = render(values, declared)?;
    file.write(text.as_bytes())?;
    Ok(())
}

fn render(values: &[VariableValue], declared: &[TemplateVariable]) -> Result<String, VariableError> {
    let declared: HashMap<&str, &TemplateVariable> =
        declared.iter().map(|variable| (variable.name.as_str(), variable)).collect();
    let mut text = String::new();
    let mut written = std::collections::HashSet::new();
    // The last value of a name counts, as on the command line.
    for value in values.iter().rev() {
        if !is_name(&value.name) {
            return Err(VariableError::Name(value.name.clone()));
        }
        if !written.insert(value.name.as_str()) {
            continue;
        }
        let variable = declared.get(value.name.as_str());
        let rendered = if is_text(variable.map_or("", |variable| &variable.r#type)) {
            quote(&value.value)
        } else if variable.is_some_and(|variable| !variable.required && variable.default_value == value.value)
        {
            // The default comes back as JSON, in which `${` is plain text. Terraform has it already.
            continue;
        } else {
            // Parsed first, so that an invalid value is an error of this variable and cannot change the rest of
            // the file.
            value
                .value
                .trim()
                .parse::<Expression>()
                .map_err(|_| VariableError::Expression { name: value.name.clone() })?;
            format!("(\n{}\n)", value.value.trim())
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} = {rendered}", value.name);
    }
    Ok(text)
}

fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && chars.all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
}

/// Whether Terraform takes the value of such a variable literally.
fn is_text(type_source: &str) -> bool {
    matches!(type_source.trim().trim_matches('"'), "" | "string" | "number" | "bool")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn value(name: &str, value: &str) -> VariableValue {
        VariableValue { name: name.to_owned(), value: value.to_owned(), sensitive: true }
    }

    fn typed(name: &str, kind: &str) -> TemplateVariable {
        TemplateVariable { name: name.to_owned(), r#type: kind.to_owned(), ..TemplateVariable::default() }
    }

    #[test]
    fn text_is_quoted_and_expressions_are_kept() {
        let text = render(
            &[value("a", "x\"${y}\\\n%{z} $1"), value("l", "[\"a\",\n 1]"), value("n", "5")],
            &[typed("l", "list(string)"), typed("n", "number")],
        )
        .unwrap();
        assert_eq!(text, "n = \"5\"\nl = (\n[\"a\",\n 1]\n)\na = \"x\\\"$${y}\\\\\\n%%{z} $1\"\n");
    }

    #[test]
    fn defaults_that_come_back_are_left_to_terraform() {
        let list = |default: &str| TemplateVariable {
            required: default.is_empty(),
            default_value: default.to_owned(),
            ..typed("l", "list(string)")
        };
        let default = r#"["${x}","%{if}"]"#;
        assert_eq!(render(&[value("l", default)], &[list(default)]).unwrap(), "");
        assert_eq!(render(&[value("l", "[1]")], &[list(default)]).unwrap(), "l = (\n[1]\n)\n");
        assert!(render(&[value("l", "")], &[list("")]).is_err(), "there is no default");
        // Without a type the default becomes text, as on the command line.
        let untyped = TemplateVariable { r#type: String::new(), ..list("[1]") };
        assert_eq!(render(&[value("l", "[1]")], &[untyped]).unwrap(), "l = \"[1]\"\n");
    }

    #[test]
    fn a_value_cannot_add_other_variables() {
        let injected = render(&[value("l", "1)\nother = (2")], &[typed("l", "list(string)")]);
        assert!(matches!(injected, Err(VariableError::Expression { .. })));
        assert!(matches!(render(&[value("a b", "")], &[]), Err(VariableError::Name(_))));
    }

    #[test]
    fn the_error_does_not_show_the_value() {
        let error = render(&[value("l", "hunter2 =")], &[typed("l", "any")]).unwrap_err();
        assert!(!error.to_string().contains("hunter2"));
    }

    #[test]
    fn the_file_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let file = JobFile::new(dir.path(), "v.tfvars");
        write_file(&file, &[value("a", "b")], &[]).unwrap();
        assert_eq!(std::fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
        let open = std::fs::File::open(file.path()).unwrap();
        write_file(&file, &[], &[]).unwrap();
        assert!(open.metadata().unwrap().len() > 0, "an existing file is never written to");
    }
}

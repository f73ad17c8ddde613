//! The tags of a build's job: those of the import, and over them the template's workspace tags evaluated with the
//! build's values (scheduling-and-auth TAG-17 to TAG-20).

use std::collections::BTreeMap;

use coder_domain::ids::{TemplateVersionId, UserId};
use coder_domain::tags::{self, TagSet};
use coder_store::Tx;
use coder_store::version_details as details;

use crate::http::{Error, Result};

/// Computes the tags of a build.
pub async fn resolve(
    tx: &mut Tx,
    version: TemplateVersionId,
    owner: UserId,
    import: &TagSet,
    parameters: &BTreeMap<String, String>,
) -> Result<TagSet> {
    let base = TagSet::canonical(owner, [import.as_map()]);
    let expressions = details::list_workspace_tags(tx, version).await?;
    if expressions.is_empty() {
        return Ok(base);
    }
    let variables = details::list_variables(tx, version).await?;
    let variables: BTreeMap<_, _> = variables
        .into_iter()
        .map(|row| (row.name, effective(row.value.expose(), row.default_value.expose())))
        .collect();
    let values = Values { parameters, variables: &variables };
    let mut all = base.as_map().clone();
    let mut error = None;
    for (key, expression) in &expressions {
        match values.evaluate(key).and_then(|key| Ok((key, values.evaluate(expression)?))) {
            // Written as they are, without canonical form: the template has the last word (TAG-18).
            Ok((key, value)) => {
                all.insert(key, value);
            }
            Err(detail) => {
                let wrong =
                    error.take().unwrap_or_else(|| Error::bad_request("Unable to parse workspace tags."));
                error = Some(Error::field(wrong, key, detail));
            }
        }
    }
    if let Some(error) = error {
        return Err(error);
    }
    tags::validate(&all).map_err(|e| Error::invalid("tags", e))?;
    Ok(TagSet::from_stored(all))
}

fn effective(value: &str, default: &str) -> String {
    if value.is_empty() { default.to_owned() } else { value.to_owned() }
}

/// What an expression may refer to.
struct Values<'a> {
    parameters: &'a BTreeMap<String, String>,
    variables: &'a BTreeMap<String, String>,
}

impl Values<'_> {
    /// Evaluates a literal, a reference, or a quoted text with references inside. Anything else is an error with words
    /// for the template's author.
    fn evaluate(&self, expression: &str) -> std::result::Result<String, String> {
        let expression = expression.trim();
        if let Some(quoted) = expression.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            return self.template(quoted);
        }
        if matches!(expression, "true" | "false") || expression.parse::<f64>().is_ok() {
            return Ok(expression.to_owned());
        }
        if expression.contains('.') {
            return self.reference(expression);
        }
        // A bare word is a key written without quotes.
        let word = !expression.is_empty()
            && expression.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
        if word && expression != "null" { Ok(expression.to_owned()) } else { Err(unsupported(expression)) }
    }

    fn reference(&self, expression: &str) -> std::result::Result<String, String> {
        let parts: Vec<_> = expression.split('.').map(str::trim).collect();
        let (kind, name) = match parts.as_slice() {
            ["var", name] => ("variable", *name),
            ["data", "coder_parameter", name, "value"] => ("parameter", *name),
            _ => return Err(unsupported(expression)),
        };
        let found = if kind == "variable" { self.variables.get(name) } else { self.parameters.get(name) };
        found.cloned().ok_or_else(|| format!("the {kind} {name:?} has no value"))
    }

    fn template(&self, text: &str) -> std::result::Result<String, String> {
        let mut value = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(['\\', '$', '%']) {
            value.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(inner) = rest.strip_prefix("${") {
                let (expression, after) = inner.split_once('}').ok_or_else(|| unsupported(text))?;
                value.push_str(&self.evaluate(expression)?);
                rest = after;
            } else if let Some(after) = rest.strip_prefix("$${") {
                value.push_str("${");
                rest = after;
            } else if rest.starts_with("%{") {
                return Err(unsupported(text));
            } else if let Some(escaped) = rest.strip_prefix('\\') {
                let mut chars = escaped.chars();
                match chars.next() {
                    Some(c @ ('"' | '\\')) => value.push(c),
                    Some('n') => value.push('\n'),
                    Some('t') => value.push('\t'),
                    _ => return Err(unsupported(text)),
                }
                rest = chars.as_str();
            } else {
                value.push_str(&rest[..1]);
                rest = &rest[1..];
            }
        }
        value.push_str(rest);
        Ok(value)
    }
}

fn unsupported(expression: &str) -> String {
    format!(
        "the expression {expression:?} cannot be evaluated here: use a text, var.NAME or data.coder_parameter.NAME.value"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_15_expressions() {
        let parameters = BTreeMap::from([("zone".to_owned(), "eu".to_owned())]);
        let variables = BTreeMap::from([("env".to_owned(), "prod".to_owned())]);
        let values = Values { parameters: &parameters, variables: &variables };
        let check = |expression: &str, want: Option<&str>| {
            assert_eq!(values.evaluate(expression).ok().as_deref(), want, "{expression}");
        };
        check("\"kubernetes\"", Some("kubernetes"));
        check("\"\"", Some(""));
        check(" environment ", Some("environment"));
        check("var.env", Some("prod"));
        check("data.coder_parameter.zone.value", Some("eu"));
        check("\"${var.env}-${data.coder_parameter.zone.value}\"", Some("prod-eu"));
        check("\"a$b 5% \\\"q\\\" $${x}\"", Some("a$b 5% \"q\" ${x}"));
        check("true", Some("true"));
        check("1.5", Some("1.5"));
        for wrong in
            ["var.missing", "local.x", "null", "", "upper(\"x\")", "\"${upper(var.env)}\"", "\"%{if true}\""]
        {
            check(wrong, None);
        }
    }
}

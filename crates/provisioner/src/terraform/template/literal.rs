//! Literal values of HCL expressions.

use std::fmt::Write as _;

use hcl_edit::expr::Expression;
use hcl_edit::template::Element;

/// The text of a string, template or heredoc without interpolations.
pub(crate) fn text(expression: &Expression) -> Option<String> {
    match expression {
        Expression::String(plain) => Some(plain.value().clone()),
        Expression::StringTemplate(template) => join(template.iter()),
        Expression::HeredocTemplate(heredoc) => {
            let mut heredoc = heredoc.clone();
            if heredoc.indent().is_some() {
                heredoc.dedent();
            }
            join(heredoc.template.iter())
        }
        Expression::Parenthesis(inner) => text(inner.inner()),
        _ => None,
    }
}

fn join<'a>(elements: impl Iterator<Item = &'a Element>) -> Option<String> {
    elements.map(|element| element.as_literal().map(|text| text.value().as_str())).collect()
}

/// Quotes a text as an HCL string without interpolations or directives.
pub(crate) fn quote(value: &str) -> String {
    let mut quoted = String::with_capacity(value.len() + 2);
    quoted.push('"');
    let mut chars = value.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '$' | '%' if chars.peek() == Some(&'{') => {
                quoted.push(char);
                quoted.push(char);
            }
            control if control.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

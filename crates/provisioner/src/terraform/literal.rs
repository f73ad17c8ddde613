//! Values of HCL expressions that need no evaluation.

use hcl_edit::expr::Expression;
use hcl_edit::template::Element;

/// The text of a string, template or heredoc without interpolations.
pub(super) fn text(expression: &Expression) -> Option<String> {
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

//! Values of HCL expressions that need no evaluation.

use hcl_edit::expr::{Expression, ObjectKey, UnaryOperator};
use hcl_edit::template::Element;
use serde_json::{Map, Value};

/// The value of an expression made of literals only.
pub(super) fn value(expression: &Expression) -> Option<Value> {
    Some(match expression {
        Expression::Null(_) => Value::Null,
        Expression::Bool(value) => Value::Bool(*value.value()),
        Expression::Number(number) => number_value(&number.value().to_string())?,
        Expression::String(_) | Expression::StringTemplate(_) | Expression::HeredocTemplate(_) => {
            Value::String(text(expression)?)
        }
        Expression::Array(items) => Value::Array(items.iter().map(value).collect::<Option<_>>()?),
        Expression::Object(object) => {
            let mut map = Map::new();
            for (key, item) in object {
                let key = match key {
                    ObjectKey::Ident(ident) => ident.as_str().to_owned(),
                    ObjectKey::Expression(expression) => text(expression)?,
                };
                map.insert(key, value(item.expr())?);
            }
            Value::Object(map)
        }
        Expression::Parenthesis(inner) => value(inner.inner())?,
        Expression::UnaryOp(operation) => match (*operation.operator.value(), value(&operation.expr)?) {
            (UnaryOperator::Neg, Value::Number(number)) => number_value(&format!("-{number}"))?,
            (UnaryOperator::Not, Value::Bool(value)) => Value::Bool(!value),
            _ => return None,
        },
        _ => return None,
    })
}

fn number_value(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().filter(Value::is_number)
}

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

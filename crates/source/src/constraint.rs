//! Type constraints of variables, and converting values to them.

use std::collections::BTreeMap;

use hcl_edit::expr::{Expression, ObjectKey, TraversalOperator};

use crate::budget::{Budget, NODE, Result, failed};
use crate::value::Value;

/// What a variable may hold.
#[derive(Clone, Debug)]
pub(crate) enum Constraint {
    Any,
    Text,
    Number,
    Bool,
    List(Box<Constraint>),
    Set(Box<Constraint>),
    Map(Box<Constraint>),
    Tuple(Vec<Constraint>),
    /// Attributes: the type, whether it may be left out, and what then stands for it.
    Object(BTreeMap<String, (Constraint, bool, Option<Expression>)>),
}

impl Constraint {
    /// Reads a type expression; what is not understood allows anything (Terraform itself will say so).
    pub(crate) fn parse(expression: &Expression) -> Self {
        match expression {
            Expression::Variable(name) => Self::named(name.as_str()),
            // The oldest syntax: type = "string".
            Expression::String(name) => Self::named(name.as_str()),
            Expression::Parenthesis(inner) => Self::parse(inner.inner()),
            Expression::FuncCall(call) => {
                let first = call.args.get(0);
                let inner = || Box::new(first.map_or(Self::Any, Self::parse));
                match call.name.name.as_str() {
                    "list" => Self::List(inner()),
                    "set" => Self::Set(inner()),
                    "map" => Self::Map(inner()),
                    "tuple" => match first {
                        Some(Expression::Array(items)) => {
                            Self::Tuple(items.iter().map(Self::parse).collect())
                        }
                        _ => Self::Any,
                    },
                    "object" => match first {
                        Some(Expression::Object(items)) => Self::object(items),
                        _ => Self::Any,
                    },
                    _ => Self::Any,
                }
            }
            _ => Self::Any,
        }
    }

    fn named(name: &str) -> Self {
        match name {
            "string" => Self::Text,
            "number" => Self::Number,
            "bool" => Self::Bool,
            "list" => Self::List(Box::new(Self::Any)),
            "map" => Self::Map(Box::new(Self::Any)),
            "set" => Self::Set(Box::new(Self::Any)),
            _ => Self::Any,
        }
    }

    fn object(items: &hcl_edit::expr::Object) -> Self {
        let mut fields = BTreeMap::new();
        for (key, value) in items {
            let Some(name) = key_text(key) else { continue };
            let field = match value.expr() {
                Expression::FuncCall(call) if call.name.name.as_str() == "optional" => {
                    let inner = call.args.get(0).map_or(Self::Any, Self::parse);
                    (inner, true, call.args.get(1).cloned())
                }
                other => (Self::parse(other), false, None),
            };
            fields.insert(name.to_owned(), field);
        }
        Self::Object(fields)
    }

    /// Whether a value given as text is taken literally instead of being read as an expression.
    pub(crate) const fn is_literal(&self) -> bool {
        matches!(self, Self::Text | Self::Number | Self::Bool)
    }

    /// Converts a value. `default` evaluates the defaults of optional attributes.
    pub(crate) fn convert(
        &self,
        value: Value,
        budget: &Budget,
        default: &dyn Fn(&Expression) -> Result<Value>,
    ) -> Result<Value> {
        budget.spend(NODE)?;
        if matches!(value, Value::Null | Value::Unknown(_)) {
            return Ok(value);
        }
        let each = |inner: &Self, items: Vec<Value>| -> Result<Vec<Value>> {
            items.into_iter().map(|item| inner.convert(item, budget, default)).collect()
        };
        match self {
            Self::Any => Ok(value),
            Self::Text => Ok(Value::Text(value.to_text(budget)?)),
            Self::Number => Ok(Value::Number(value.to_number()?)),
            Self::Bool => Ok(Value::Bool(value.to_bool()?)),
            Self::List(inner) => Ok(Value::list(each(inner, list_items(&value)?)?)),
            Self::Set(inner) => Value::set(each(inner, list_items(&value)?)?, budget),
            Self::Tuple(inner) => {
                let items = list_items(&value)?;
                if items.len() != inner.len() {
                    return failed(format!("a list of {} elements is required", inner.len()));
                }
                let pairs = inner.iter().zip(items);
                let items: Result<_> =
                    pairs.map(|(inner, item)| inner.convert(item, budget, default)).collect();
                Ok(Value::list(items?))
            }
            Self::Map(inner) => {
                let items: Result<_> = value
                    .to_map()?
                    .iter()
                    .map(|(key, item)| Ok((key.clone(), inner.convert(item.clone(), budget, default)?)))
                    .collect();
                Ok(Value::map(items?))
            }
            Self::Object(fields) => {
                let given = value.to_map()?;
                let mut items = BTreeMap::new();
                for (name, (inner, optional, fallback)) in fields {
                    let item = match (given.get(name), fallback) {
                        (Some(item), None) => item.clone(),
                        (Some(item), Some(_)) if !item.is_null() => item.clone(),
                        (_, Some(fallback)) => default(fallback)?,
                        (None, None) if *optional => Value::Null,
                        (None, None) => return failed(format!("the attribute {name:?} is required")),
                    };
                    items.insert(name.clone(), inner.convert(item, budget, default)?);
                }
                Ok(Value::map(items))
            }
        }
    }
}

fn list_items(value: &Value) -> Result<Vec<Value>> {
    match value {
        Value::Map(_) => failed("a list is required, not an object"),
        other => other.to_items(),
    }
}

/// The name of an object key written as a word or a plain text.
pub(crate) fn key_text(key: &ObjectKey) -> Option<&str> {
    match key {
        ObjectKey::Ident(name) => Some(name.as_str()),
        ObjectKey::Expression(Expression::String(text)) => Some(text.as_str()),
        ObjectKey::Expression(Expression::Variable(name)) => Some(name.as_str()),
        ObjectKey::Expression(_) => None,
    }
}

/// The name that a traversal step leads to, when that is plain.
pub(crate) fn step_name(operator: &TraversalOperator) -> Option<&str> {
    match operator {
        TraversalOperator::GetAttr(name) => Some(name.as_str()),
        TraversalOperator::Index(Expression::String(text)) => Some(text.as_str()),
        _ => None,
    }
}

//! Type constraints of variables, and the conversion of values to them.

use std::collections::BTreeMap;
use std::rc::Rc;

use hcl_edit::expr::{Expression, ObjectKey, TraversalOperator};

use crate::budget::{Budget, NODE_COST, Result};
use crate::value::Value;
use crate::value_type::{Attribute, Type};

/// The type of a variable, with the defaults of optional attributes.
#[derive(Clone, Debug)]
pub(crate) struct Constraint {
    ty: Type,
    defaults: Defaults,
}

/// The defaults of `optional(…, DEFAULT)` in a type.
#[derive(Clone, Debug, Default)]
struct Defaults {
    /// Defaults of attributes of an object.
    attributes: BTreeMap<String, Expression>,
    /// Defaults inside attributes of an object, or inside elements of a tuple by their number.
    inner: BTreeMap<String, Defaults>,
    /// Defaults inside every element of a list, set or map.
    elements: Option<Box<Defaults>>,
}

impl Defaults {
    fn is_empty(&self) -> bool {
        self.attributes.is_empty() && self.inner.is_empty() && self.elements.is_none()
    }

    fn of(&self, name: &str) -> Option<&Self> {
        self.inner.get(name).or(self.elements.as_deref())
    }
}

impl Constraint {
    /// The constraint of a variable without a type.
    pub(crate) fn any() -> Self {
        Self::plain(Type::Any)
    }

    fn plain(ty: Type) -> Self {
        Self { ty, defaults: Defaults::default() }
    }

    /// Parses a type expression. An invalid one allows any value: Terraform itself reports it.
    pub(crate) fn parse(expression: &Expression) -> Self {
        match expression {
            Expression::Variable(name) => Self::named(name.as_str()),
            // The oldest syntax: type = "string".
            Expression::String(name) => Self::named(name.as_str()),
            Expression::Parenthesis(inner) => Self::parse(inner.inner()),
            Expression::FuncCall(call) => {
                let first = call.args.get(0);
                let collection = |make: fn(Rc<Type>) -> Type| {
                    let inner = first.map_or_else(Self::any, Self::parse);
                    let elements = (!inner.defaults.is_empty()).then(|| Box::new(inner.defaults));
                    Self {
                        ty: make(Rc::new(inner.ty)),
                        defaults: Defaults { elements, ..Defaults::default() },
                    }
                };
                match (call.name.name.as_str(), first) {
                    ("list", _) => collection(Type::List),
                    ("set", _) => collection(Type::Set),
                    ("map", _) => collection(Type::Map),
                    ("tuple", Some(Expression::Array(items))) => Self::tuple(items.iter().map(Self::parse)),
                    ("object", Some(Expression::Object(items))) => Self::object(items),
                    _ => Self::any(),
                }
            }
            _ => Self::any(),
        }
    }

    fn named(name: &str) -> Self {
        Self::plain(match name {
            "string" => Type::Text,
            "number" => Type::Number,
            "bool" => Type::Bool,
            "list" => Type::List(Rc::new(Type::Any)),
            "map" => Type::Map(Rc::new(Type::Any)),
            "set" => Type::Set(Rc::new(Type::Any)),
            _ => Type::Any,
        })
    }

    fn tuple(items: impl Iterator<Item = Self>) -> Self {
        let (mut types, mut defaults) = (Vec::new(), Defaults::default());
        for (at, item) in items.enumerate() {
            types.push(item.ty);
            defaults.inner.insert(at.to_string(), item.defaults);
        }
        defaults.inner.retain(|_, inner| !inner.is_empty());
        Self { ty: Type::Tuple(Rc::new(types)), defaults }
    }

    fn object(items: &hcl_edit::expr::Object) -> Self {
        let (mut types, mut defaults) = (BTreeMap::new(), Defaults::default());
        for (key, value) in items {
            let Some(name) = key_text(key) else { continue };
            let (inner, optional) = match value.expr() {
                Expression::FuncCall(call) if call.name.name.as_str() == "optional" => {
                    if let Some(default) = call.args.get(1) {
                        defaults.attributes.insert(name.to_owned(), default.clone());
                    }
                    (call.args.get(0).map_or_else(Self::any, Self::parse), true)
                }
                other => (Self::parse(other), false),
            };
            types.insert(name.to_owned(), Attribute { ty: inner.ty, optional });
            defaults.inner.insert(name.to_owned(), inner.defaults);
        }
        defaults.inner.retain(|_, inner| !inner.is_empty());
        Self { ty: Type::Object(Rc::new(types)), defaults }
    }

    /// Whether an input is a literal string instead of an expression.
    pub(crate) const fn is_literal(&self) -> bool {
        matches!(self.ty, Type::Text | Type::Number | Type::Bool)
    }

    /// Converts a value. `default` evaluates the defaults of optional attributes.
    pub(crate) fn convert(
        &self,
        value: &Value,
        budget: &Budget,
        default: &dyn Fn(&Expression) -> Result<Value>,
    ) -> Result<Value> {
        self.ty.convert(&complete(value, &self.defaults, budget, default)?, budget)
    }
}

/// The value with defaults where attributes are missing or null.
fn complete(
    value: &Value,
    defaults: &Defaults,
    budget: &Budget,
    default: &dyn Fn(&Expression) -> Result<Value>,
) -> Result<Value> {
    budget.spend(NODE_COST)?;
    if defaults.is_empty() {
        return Ok(value.clone());
    }
    match value {
        Value::Map(map) => {
            let mut items = BTreeMap::new();
            for (name, item) in &map.items {
                budget.spend(NODE_COST + name.len())?;
                let item = match defaults.attributes.get(name).filter(|_| item.is_null()) {
                    Some(expression) => default(expression)?,
                    None => item.clone(),
                };
                items.insert(name.clone(), item);
            }
            for (name, expression) in &defaults.attributes {
                if !items.contains_key(name) {
                    items.insert(name.clone(), default(expression)?);
                }
            }
            for (name, item) in &mut items {
                if let Some(inner) = defaults.of(name) {
                    *item = complete(item, inner, budget, default)?;
                }
            }
            // Elements of a map may have different types until the conversion below.
            Ok(Value::object(items))
        }
        Value::List(list) => {
            let each = |(at, item): (usize, &Value)| match defaults.of(&at.to_string()) {
                Some(inner) => complete(item, inner, budget, default),
                None => Ok(item.clone()),
            };
            Ok(Value::tuple(list.items.iter().enumerate().map(each).collect::<Result<_>>()?))
        }
        other => Ok(other.clone()),
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

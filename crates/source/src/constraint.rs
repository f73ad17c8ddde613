//! Type constraints of variables, and converting values to them.

use std::collections::BTreeMap;
use std::rc::Rc;

use hcl_edit::expr::{Expression, ObjectKey, TraversalOperator};

use crate::budget::{Budget, NODE, Result};
use crate::kind::{Attribute, Kind};
use crate::value::Value;

/// What a variable may hold, and what stands for attributes that are left out.
#[derive(Clone, Debug)]
pub(crate) struct Constraint {
    kind: Kind,
    defaults: Defaults,
}

/// Where a type says `optional(…, DEFAULT)`.
#[derive(Clone, Debug, Default)]
struct Defaults {
    /// Of attributes of an object.
    attributes: BTreeMap<String, Expression>,
    /// In attributes of an object, or in elements of a tuple by their number.
    inner: BTreeMap<String, Defaults>,
    /// In every element of a list, set or map.
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
    /// What is said by no type.
    pub(crate) fn any() -> Self {
        Self::plain(Kind::Any)
    }

    fn plain(kind: Kind) -> Self {
        Self { kind, defaults: Defaults::default() }
    }

    /// Reads a type expression; what is not understood allows anything (Terraform itself will say so).
    pub(crate) fn parse(expression: &Expression) -> Self {
        match expression {
            Expression::Variable(name) => Self::named(name.as_str()),
            // The oldest syntax: type = "string".
            Expression::String(name) => Self::named(name.as_str()),
            Expression::Parenthesis(inner) => Self::parse(inner.inner()),
            Expression::FuncCall(call) => {
                let first = call.args.get(0);
                let collection = |make: fn(Rc<Kind>) -> Kind| {
                    let inner = first.map_or_else(Self::any, Self::parse);
                    let elements = (!inner.defaults.is_empty()).then(|| Box::new(inner.defaults));
                    Self {
                        kind: make(Rc::new(inner.kind)),
                        defaults: Defaults { elements, ..Defaults::default() },
                    }
                };
                match (call.name.name.as_str(), first) {
                    ("list", _) => collection(Kind::List),
                    ("set", _) => collection(Kind::Set),
                    ("map", _) => collection(Kind::Map),
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
            "string" => Kind::Text,
            "number" => Kind::Number,
            "bool" => Kind::Bool,
            "list" => Kind::List(Rc::new(Kind::Any)),
            "map" => Kind::Map(Rc::new(Kind::Any)),
            "set" => Kind::Set(Rc::new(Kind::Any)),
            _ => Kind::Any,
        })
    }

    fn tuple(items: impl Iterator<Item = Self>) -> Self {
        let (mut kinds, mut defaults) = (Vec::new(), Defaults::default());
        for (at, item) in items.enumerate() {
            kinds.push(item.kind);
            defaults.inner.insert(at.to_string(), item.defaults);
        }
        defaults.inner.retain(|_, inner| !inner.is_empty());
        Self { kind: Kind::Tuple(Rc::new(kinds)), defaults }
    }

    fn object(items: &hcl_edit::expr::Object) -> Self {
        let (mut kinds, mut defaults) = (BTreeMap::new(), Defaults::default());
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
            kinds.insert(name.to_owned(), Attribute { kind: inner.kind, optional });
            defaults.inner.insert(name.to_owned(), inner.defaults);
        }
        defaults.inner.retain(|_, inner| !inner.is_empty());
        Self { kind: Kind::Object(Rc::new(kinds)), defaults }
    }

    /// Whether a value given as text is taken literally instead of being read as an expression.
    pub(crate) const fn is_literal(&self) -> bool {
        matches!(self.kind, Kind::Text | Kind::Number | Kind::Bool)
    }

    /// Converts a value. `default` evaluates the defaults of optional attributes.
    pub(crate) fn convert(
        &self,
        value: &Value,
        budget: &Budget,
        default: &dyn Fn(&Expression) -> Result<Value>,
    ) -> Result<Value> {
        self.kind.convert(&complete(value, &self.defaults, budget, default)?, budget)
    }
}

/// The value with defaults where attributes are missing or null.
fn complete(
    value: &Value,
    defaults: &Defaults,
    budget: &Budget,
    default: &dyn Fn(&Expression) -> Result<Value>,
) -> Result<Value> {
    budget.spend(NODE)?;
    if defaults.is_empty() {
        return Ok(value.clone());
    }
    match value {
        Value::Map(map) => {
            let mut items = BTreeMap::new();
            for (name, item) in &map.items {
                budget.spend(NODE + name.len())?;
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
            // Elements of a map may differ now, until the conversion makes them alike again.
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

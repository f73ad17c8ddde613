//! Values of the configuration language. As in Terraform, a sequence is a list, a set or a tuple, and a mapping is a map or
//! an object.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use crate::budget::{Budget, EvalError, NODE_COST, Result, failed};
use crate::number::Number;
use crate::value_type::Type;

/// Deepest nesting of values; deeper ones count as unknown, because all functions on values recurse.
const MAX_DEPTH: u32 = 50;

/// A value. Clones share their content.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// Null of some type; a plain `null` is of any.
    Null(Type),
    Bool(bool),
    Number(Number),
    Text(Rc<str>),
    List(Rc<Sequence>),
    Map(Rc<Mapping>),
    /// A value that only Terraform can know, with the reason.
    Unknown(Rc<str>),
}

/// A list, a set or a tuple.
#[derive(Debug)]
pub(crate) struct Sequence {
    depth: u32,
    pub(crate) kind: SequenceKind,
    pub(crate) items: Vec<Value>,
}

#[derive(Clone, Debug)]
pub(crate) enum SequenceKind {
    /// Every element has its own type.
    Tuple,
    /// All elements have this type.
    List(Type),
    /// All elements have this type; they are sorted and unique.
    Set(Type),
}

/// A map or an object.
#[derive(Debug)]
pub(crate) struct Mapping {
    depth: u32,
    /// The type of all elements of a map; none for an object.
    pub(crate) of: Option<Type>,
    pub(crate) items: BTreeMap<String, Value>,
}

/// The text in Unicode normal form C, as Terraform stores strings.
pub(crate) fn normalized(text: &str) -> String {
    if text.is_ascii() || is_nfc_quick(text.chars()) == IsNormalized::Yes {
        return text.to_owned();
    }
    text.nfc().collect()
}

impl Value {
    /// A plain `null`.
    pub(crate) const NULL: Self = Self::Null(Type::Any);

    pub(crate) fn text(text: impl AsRef<str>) -> Self {
        let text = text.as_ref();
        match text.is_ascii() {
            true => Self::Text(text.into()),
            false => Self::Text(normalized(text).into()),
        }
    }

    pub(crate) fn unknown(reason: impl AsRef<str>) -> Self {
        Self::Unknown(reason.as_ref().into())
    }

    fn sequence(kind: SequenceKind, items: Vec<Self>) -> Self {
        match deeper(items.iter()) {
            Some(depth) => Self::List(Rc::new(Sequence { depth, kind, items })),
            None => Self::unknown("the value is nested too deep"),
        }
    }

    fn mapping(of: Option<Type>, items: BTreeMap<String, Self>) -> Self {
        match deeper(items.values()) {
            Some(depth) => Self::Map(Rc::new(Mapping { depth, of, items })),
            None => Self::unknown("the value is nested too deep"),
        }
    }

    pub(crate) fn tuple(items: Vec<Self>) -> Self {
        Self::sequence(SequenceKind::Tuple, items)
    }

    /// A list whose elements all have the type `of`.
    pub(crate) fn list(of: Type, items: Vec<Self>) -> Self {
        Self::sequence(SequenceKind::List(of), items)
    }

    /// A set: `items` are sorted and made unique.
    pub(crate) fn set(of: Type, mut items: Vec<Self>, budget: &Budget) -> Result<Self> {
        budget.spend(NODE_COST * items.len())?;
        if items.iter().any(|item| matches!(item, Self::List(_) | Self::Map(_))) {
            items = Self::by_keys(items, budget)?;
        } else {
            let mut failure = None;
            items.sort_by(|a, b| {
                if failure.is_some() {
                    return Ordering::Equal;
                }
                a.order(b, budget).unwrap_or_else(|error| {
                    failure = Some(error);
                    Ordering::Equal
                })
            });
            if let Some(error) = failure {
                return Err(error);
            }
        }
        let mut unique: Vec<Self> = Vec::with_capacity(items.len());
        for item in items {
            let again = match unique.last() {
                Some(last) => last.equals(&item, budget)?,
                None => false,
            };
            if !again {
                unique.push(item);
            }
        }
        Ok(Self::sequence(SequenceKind::Set(of), unique))
    }

    pub(crate) fn object(items: BTreeMap<String, Self>) -> Self {
        Self::mapping(None, items)
    }

    /// A map whose elements all have the type `of`.
    pub(crate) fn map(of: Type, items: BTreeMap<String, Self>) -> Self {
        Self::mapping(Some(of), items)
    }

    /// A list of texts.
    pub(crate) fn texts<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> Self {
        Self::list(Type::Text, items.into_iter().map(Self::text).collect())
    }

    fn depth(&self) -> u32 {
        match self {
            Self::List(list) => list.depth,
            Self::Map(map) => map.depth,
            _ => 0,
        }
    }

    /// The description of the value in messages.
    pub(crate) fn described(&self) -> &'static str {
        match self {
            Self::Null(_) => "null",
            Self::Bool(_) => "a bool",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(list) => match list.kind {
                SequenceKind::Set(_) => "a set",
                SequenceKind::Tuple | SequenceKind::List(_) => "a list",
            },
            Self::Map(map) => {
                if map.of.is_some() {
                    "a map"
                } else {
                    "an object"
                }
            }
            Self::Unknown(_) => "an unknown value",
        }
    }

    pub(crate) const fn is_null(&self) -> bool {
        matches!(self, Self::Null(_))
    }

    /// Converts to a string as Terraform does.
    pub(crate) fn to_text(&self, budget: &Budget) -> Result<Rc<str>> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Bool(value) => Ok(if *value { "true" } else { "false" }.into()),
            Self::Number(number) => {
                let text = number.text(budget)?;
                budget.spend(text.len())?;
                Ok(text.into())
            }
            other => other.mismatch("a string"),
        }
    }

    /// Converts to a number; a string of digits converts, too.
    pub(crate) fn to_number(&self, budget: &Budget) -> Result<Number> {
        match self {
            Self::Number(number) => Ok(number.clone()),
            Self::Text(text) => Number::parse(text, budget),
            other => other.mismatch("a number"),
        }
    }

    /// Converts to a bool; the strings `true`, `false`, `1` and `0` convert, too.
    pub(crate) fn to_bool(&self) -> Result<bool> {
        match self {
            Self::Bool(value) => Ok(*value),
            Self::Text(text) => match &**text {
                "true" | "1" => Ok(true),
                "false" | "0" => Ok(false),
                _ => failed("a bool is required: \"true\" or \"false\""),
            },
            other => other.mismatch("a bool"),
        }
    }

    /// The elements of a list, set or tuple.
    pub(crate) fn to_sequence(&self) -> Result<&Sequence> {
        match self {
            Self::List(list) => Ok(list),
            other => other.mismatch("a list"),
        }
    }

    /// The elements of a map or object.
    pub(crate) fn to_map(&self) -> Result<&Mapping> {
        match self {
            Self::Map(map) => Ok(map),
            other => other.mismatch("a map"),
        }
    }

    pub(crate) fn mismatch<T>(&self, expected: &str) -> Result<T> {
        match self {
            Self::Unknown(reason) => Err(EvalError::Unknown(reason.clone())),
            other => failed(format!("{expected} is required, not {}", other.described())),
        }
    }

    /// Whether two values are equal. Values of different types are not; the result is unknown when a part that decides it is
    /// unknown.
    pub(crate) fn equals(&self, other: &Self, budget: &Budget) -> Result<bool> {
        budget.spend(NODE_COST)?;
        match (self, other) {
            (Self::Unknown(reason), _) | (_, Self::Unknown(reason)) => {
                Err(EvalError::Unknown(reason.clone()))
            }
            (Self::Null(_), Self::Null(_)) => Ok(true),
            (Self::Bool(a), Self::Bool(b)) => Ok(a == b),
            (Self::Number(a), Self::Number(b)) => a.equals(b, budget),
            (Self::Text(a), Self::Text(b)) => {
                budget.spend(a.len().min(b.len()))?;
                Ok(a == b)
            }
            (Self::List(a), Self::List(b)) => {
                let same = match (&a.kind, &b.kind) {
                    (SequenceKind::Tuple, SequenceKind::Tuple) => true,
                    (SequenceKind::List(a), SequenceKind::List(b))
                    | (SequenceKind::Set(a), SequenceKind::Set(b)) => a.same(b, budget)?,
                    _ => false,
                };
                if !same || a.items.len() != b.items.len() {
                    return Ok(false);
                }
                for (a, b) in a.items.iter().zip(&b.items) {
                    if !a.equals(b, budget)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Self::Map(a), Self::Map(b)) => {
                let same = match (&a.of, &b.of) {
                    (None, None) => true,
                    (Some(a), Some(b)) => a.same(b, budget)?,
                    _ => false,
                };
                if !same || !a.items.keys().eq(b.items.keys()) {
                    return Ok(false);
                }
                for (a, b) in a.items.values().zip(b.items.values()) {
                    if !a.equals(b, budget)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Sorts elements without a natural order by the keys that Terraform uses for them; null comes last.
    fn by_keys(items: Vec<Self>, budget: &Budget) -> Result<Vec<Self>> {
        let mut keyed = Vec::with_capacity(items.len());
        for item in items {
            let mut key = String::new();
            item.write_key(&mut key, budget)?;
            budget.spend(key.len() * 8)?;
            keyed.push((item.is_null(), key, item));
        }
        keyed.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        Ok(keyed.into_iter().map(|(.., item)| item).collect())
    }

    /// The order of the elements of a set: null last, numbers by size, strings by bytes.
    fn order(&self, other: &Self, budget: &Budget) -> Result<Ordering> {
        budget.spend(NODE_COST)?;
        match (self, other) {
            (Self::Unknown(reason), _) | (_, Self::Unknown(reason)) => {
                Err(EvalError::Unknown(reason.clone()))
            }
            (Self::Null(_), Self::Null(_)) => Ok(Ordering::Equal),
            (Self::Null(_), _) => Ok(Ordering::Greater),
            (_, Self::Null(_)) => Ok(Ordering::Less),
            (Self::Bool(a), Self::Bool(b)) => Ok(a.cmp(b)),
            (Self::Number(a), Self::Number(b)) => Ok(a.compare(b)),
            (Self::Text(a), Self::Text(b)) => {
                budget.spend(a.len().min(b.len()))?;
                Ok(a.cmp(b))
            }
            _ => Ok(Ordering::Equal),
        }
    }

    /// Appends the sort key of an element without a natural order.
    fn write_key(&self, out: &mut String, budget: &Budget) -> Result<()> {
        budget.spend(NODE_COST)?;
        match self {
            Self::Unknown(reason) => return Err(EvalError::Unknown(reason.clone())),
            Self::Null(_) => out.push('~'),
            Self::Bool(value) => out.push(if *value { 'T' } else { 'F' }),
            Self::Number(number) => match number.decimal(false, budget)? {
                Some(decimal) => {
                    out.push_str(number.minus());
                    out.push_str(&decimal.general(Some(10), 'e'));
                }
                None => out.push_str(&number.text(budget)?),
            },
            Self::Text(text) => {
                budget.spend(text.len() * 2)?;
                out.push_str(&format!("{text:?}"));
            }
            Self::List(list) => {
                let (open, close) =
                    if matches!(list.kind, SequenceKind::Tuple) { ('<', '>') } else { ('[', ']') };
                out.push(open);
                for item in &list.items {
                    item.write_key(out, budget)?;
                    out.push(';');
                }
                out.push(close);
            }
            Self::Map(map) => {
                let is_map = map.of.is_some();
                out.push(if is_map { '{' } else { '<' });
                for (key, item) in &map.items {
                    if is_map {
                        budget.spend(key.len() * 2)?;
                        out.push_str(&format!("{key:?}:"));
                    }
                    item.write_key(out, budget)?;
                    out.push(';');
                }
                out.push(if is_map { '}' } else { '>' });
            }
        }
        Ok(())
    }
}

fn deeper<'a>(items: impl Iterator<Item = &'a Value>) -> Option<u32> {
    let depth = items.map(Value::depth).max().unwrap_or(0) + 1;
    (depth <= MAX_DEPTH).then_some(depth)
}

//! Values of the configuration language, with what Terraform calls their types: whether a list is a list, a set or a tuple,
//! and whether a map is a map or an object.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use crate::budget::{Budget, NODE, Result, Stop, failed};
use crate::kind::Kind;
use crate::number::Number;

/// Values may be nested this deep; deeper ones count as unknown. Everything that walks a value recurses.
const DEEPEST: u32 = 50;

/// A value. Clones share their content.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// Null of some kind; a plain `null` is of any.
    Null(Kind),
    Bool(bool),
    Number(Number),
    Text(Rc<str>),
    List(Rc<Sequence>),
    Map(Rc<Mapping>),
    /// Known only when Terraform runs, with the reason.
    Unknown(Rc<str>),
}

/// A list, a set or a tuple.
#[derive(Debug)]
pub(crate) struct Sequence {
    depth: u32,
    pub(crate) shape: Shape,
    pub(crate) items: Vec<Value>,
}

/// What holds for the elements.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// Each has a kind of its own.
    Tuple,
    /// All have this kind.
    List(Kind),
    /// All have this kind; they are sorted, and each is there once.
    Set(Kind),
}

/// A map or an object.
#[derive(Debug)]
pub(crate) struct Mapping {
    depth: u32,
    /// The kind of all elements of a map; an object has none.
    pub(crate) of: Option<Kind>,
    pub(crate) items: BTreeMap<String, Value>,
}

/// The text as Terraform keeps it: composed characters, so that the same text has the same bytes.
pub(crate) fn normalized(text: &str) -> String {
    if text.is_ascii() || is_nfc_quick(text.chars()) == IsNormalized::Yes {
        return text.to_owned();
    }
    text.nfc().collect()
}

impl Value {
    /// A plain `null`.
    pub(crate) const NULL: Self = Self::Null(Kind::Any);

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

    fn sequence(shape: Shape, items: Vec<Self>) -> Self {
        match deeper(items.iter()) {
            Some(depth) => Self::List(Rc::new(Sequence { depth, shape, items })),
            None => Self::unknown("the value is nested too deep"),
        }
    }

    fn mapping(of: Option<Kind>, items: BTreeMap<String, Self>) -> Self {
        match deeper(items.values()) {
            Some(depth) => Self::Map(Rc::new(Mapping { depth, of, items })),
            None => Self::unknown("the value is nested too deep"),
        }
    }

    pub(crate) fn tuple(items: Vec<Self>) -> Self {
        Self::sequence(Shape::Tuple, items)
    }

    /// A list whose elements all have the kind `of`.
    pub(crate) fn list(of: Kind, items: Vec<Self>) -> Self {
        Self::sequence(Shape::List(of), items)
    }

    /// A set: `items` are sorted, and each is taken once.
    pub(crate) fn set(of: Kind, mut items: Vec<Self>, budget: &Budget) -> Result<Self> {
        budget.spend(NODE * items.len())?;
        if items.iter().any(|item| matches!(item, Self::List(_) | Self::Map(_))) {
            items = Self::by_keys(items, budget)?;
        } else {
            let mut stopped = None;
            items.sort_by(|a, b| {
                if stopped.is_some() {
                    return Ordering::Equal;
                }
                a.order(b, budget).unwrap_or_else(|stop| {
                    stopped = Some(stop);
                    Ordering::Equal
                })
            });
            if let Some(stop) = stopped {
                return Err(stop);
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
        Ok(Self::sequence(Shape::Set(of), unique))
    }

    pub(crate) fn object(items: BTreeMap<String, Self>) -> Self {
        Self::mapping(None, items)
    }

    /// A map whose elements all have the kind `of`.
    pub(crate) fn map(of: Kind, items: BTreeMap<String, Self>) -> Self {
        Self::mapping(Some(of), items)
    }

    /// A list of texts.
    pub(crate) fn texts<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> Self {
        Self::list(Kind::Text, items.into_iter().map(Self::text).collect())
    }

    fn depth(&self) -> u32 {
        match self {
            Self::List(list) => list.depth,
            Self::Map(map) => map.depth,
            _ => 0,
        }
    }

    /// What this value is, for messages.
    pub(crate) fn described(&self) -> &'static str {
        match self {
            Self::Null(_) => "null",
            Self::Bool(_) => "a bool",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(list) => match list.shape {
                Shape::Set(_) => "a set",
                Shape::Tuple | Shape::List(_) => "a list",
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

    /// As a string, the way Terraform converts.
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

    /// As a number; a string of digits converts.
    pub(crate) fn to_number(&self, budget: &Budget) -> Result<Number> {
        match self {
            Self::Number(number) => Ok(number.clone()),
            Self::Text(text) => Number::parse(text, budget),
            other => other.mismatch("a number"),
        }
    }

    /// As a bool; the strings `true` and `false` (and `1` and `0`) convert.
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

    pub(crate) fn mismatch<T>(&self, wanted: &str) -> Result<T> {
        match self {
            Self::Unknown(reason) => Err(Stop::Unknown(reason.clone())),
            other => failed(format!("{wanted} is required, not {}", other.described())),
        }
    }

    /// Whether two values are equal, which only values of one kind are; unknown as soon as a part that matters is.
    pub(crate) fn equals(&self, other: &Self, budget: &Budget) -> Result<bool> {
        budget.spend(NODE)?;
        match (self, other) {
            (Self::Unknown(reason), _) | (_, Self::Unknown(reason)) => Err(Stop::Unknown(reason.clone())),
            (Self::Null(_), Self::Null(_)) => Ok(true),
            (Self::Bool(a), Self::Bool(b)) => Ok(a == b),
            (Self::Number(a), Self::Number(b)) => a.equals(b, budget),
            (Self::Text(a), Self::Text(b)) => {
                budget.spend(a.len().min(b.len()))?;
                Ok(a == b)
            }
            (Self::List(a), Self::List(b)) => {
                let same = match (&a.shape, &b.shape) {
                    (Shape::Tuple, Shape::Tuple) => true,
                    (Shape::List(a), Shape::List(b)) | (Shape::Set(a), Shape::Set(b)) => a.same(b, budget)?,
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

    /// Sorts elements that have no order of their own by what Terraform makes of them to tell them apart; null comes last.
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
        budget.spend(NODE)?;
        match (self, other) {
            (Self::Unknown(reason), _) | (_, Self::Unknown(reason)) => Err(Stop::Unknown(reason.clone())),
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

    /// Appends what elements of a set are ordered by when they have no order of their own.
    fn write_key(&self, out: &mut String, budget: &Budget) -> Result<()> {
        budget.spend(NODE)?;
        match self {
            Self::Unknown(reason) => return Err(Stop::Unknown(reason.clone())),
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
                let (open, close) = if matches!(list.shape, Shape::Tuple) { ('<', '>') } else { ('[', ']') };
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
    (depth <= DEEPEST).then_some(depth)
}

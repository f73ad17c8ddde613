//! The functions of Terraform, by name. `try` and `can` are in [`crate::eval`], since they look at errors of their
//! arguments.
//!
//! Each function says what it takes; arguments are counted, converted and refused for being null in one place, [`call`].

mod collections;
mod encoding;
mod files;
mod format;
mod hashes;
mod network;
mod numbers;
mod patterns;
mod sets;
mod strings;
mod time;
mod yaml;

use std::rc::Rc;

use crate::budget::{Budget, NODE, Result, Stop, failed, unavailable};
use crate::eval::Evaluator;
use crate::kind::Kind;
use crate::number::Number;
use crate::value::{Mapping, Sequence, Value};

/// What a function takes in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Param {
    /// Anything but null.
    Any,
    /// Anything.
    Nullable,
    Text,
    Number,
    /// A list of anything of one type.
    List,
    /// A set of anything of one type.
    Set,
    /// A list of texts.
    Texts,
    /// A list of bools.
    Bools,
    /// A map of lists of texts.
    TextLists,
}

impl Param {
    fn kind(self) -> Kind {
        let list = |of: Kind| Kind::List(Rc::new(of));
        match self {
            Self::Any | Self::Nullable => Kind::Any,
            Self::Text => Kind::Text,
            Self::Number => Kind::Number,
            Self::List => list(Kind::Any),
            Self::Set => Kind::Set(Rc::new(Kind::Any)),
            Self::Texts => list(Kind::Text),
            Self::Bools => list(Kind::Bool),
            Self::TextLists => Kind::Map(Rc::new(list(Kind::Text))),
        }
    }
}

/// A function: its name, what it takes, what any further arguments are, and what it does. None of them has effects.
struct Function {
    name: &'static str,
    params: &'static [Param],
    rest: Option<Param>,
    run: fn(&Args<'_>) -> Result<Value>,
}

const fn function(
    name: &'static str,
    params: &'static [Param],
    run: fn(&Args<'_>) -> Result<Value>,
) -> Function {
    Function { name, params, rest: None, run }
}

const fn variadic(
    name: &'static str,
    params: &'static [Param],
    rest: Param,
    run: fn(&Args<'_>) -> Result<Value>,
) -> Function {
    Function { name, params, rest: Some(rest), run }
}

/// All functions.
const FUNCTIONS: [&[Function]; 12] = [
    strings::FUNCTIONS,
    format::FUNCTIONS,
    numbers::FUNCTIONS,
    collections::FUNCTIONS,
    sets::FUNCTIONS,
    patterns::FUNCTIONS,
    encoding::FUNCTIONS,
    hashes::FUNCTIONS,
    network::FUNCTIONS,
    time::FUNCTIONS,
    files::FUNCTIONS,
    &[
        // What is secret does not matter before Terraform runs: tags are no secret.
        function("sensitive", &[Param::Nullable], |args| Ok(args.values[0].clone())),
        function("nonsensitive", &[Param::Nullable], |args| Ok(args.values[0].clone())),
        function("ephemeralasnull", &[Param::Nullable], |args| Ok(args.values[0].clone())),
    ],
];

/// Calls a function.
pub(crate) fn call(name: &str, mut values: Vec<Value>, evaluator: &Evaluator<'_>) -> Result<Value> {
    let budget = &evaluator.budget;
    budget.spend(NODE * (1 + values.len()))?;
    let Some(function) = FUNCTIONS.into_iter().flatten().find(|function| function.name == name) else {
        if matches!(name, "list" | "map") {
            return failed("this function is no more: write [...] or { ... }");
        }
        return unavailable(match name {
            "abspath" | "pathexpand" => "this function is not available here: where a job runs is not known",
            "bcrypt" | "uuid" | "rsadecrypt" => {
                "this function is not available here: no daemon could have the tag that it gives"
            }
            "base64gzip" => "this function is not available here: the result depends on who compresses",
            "plantimestamp" => "this function is not available here: when a job runs is not known",
            "issensitive" => "this function is not available here: what is sensitive is not known",
            _ => "this function is not available here",
        });
    };
    let (least, more) = (function.params.len(), function.rest.is_some());
    if values.len() < least || (values.len() > least && !more) {
        let wanted = if more { format!("{least} or more") } else { least.to_string() };
        return failed(format!("{wanted} arguments are required, not {}", values.len()));
    }
    let params = function.params.iter().copied().chain(std::iter::repeat(function.rest).flatten());
    for (at, (value, param)) in values.iter_mut().zip(params).enumerate() {
        let converted = param.kind().convert(value, budget).map_err(|stop| match stop {
            Stop::Failed(why) => Stop::Failed(format!("argument {}: {why}", at + 1)),
            stop => stop,
        })?;
        if converted.is_null() && param != Param::Nullable {
            return failed(format!("argument {} must not be null", at + 1));
        }
        *value = converted;
    }
    (function.run)(&Args { values: &values, budget, evaluator })
}

/// Arguments of a call, as many as the function takes and of the kinds it takes.
struct Args<'a> {
    values: &'a [Value],
    budget: &'a Budget,
    evaluator: &'a Evaluator<'a>,
}

impl Args<'_> {
    fn value(&self, at: usize) -> Result<&Value> {
        match self.values.get(at) {
            Some(Value::Unknown(reason)) => Err(Stop::Unknown(reason.clone())),
            Some(value) => Ok(value),
            None => failed(format!("argument {} is missing", at + 1)),
        }
    }

    /// A text; its length is paid for, since most functions walk over it.
    fn text(&self, at: usize) -> Result<Rc<str>> {
        let text = self.value(at)?.to_text(self.budget)?;
        self.budget.spend(text.len())?;
        Ok(text)
    }

    fn number(&self, at: usize) -> Result<Number> {
        self.value(at)?.to_number(self.budget)
    }

    fn whole(&self, at: usize) -> Result<i64> {
        match self.number(at)?.as_whole() {
            Some(whole) => Ok(whole),
            None => failed(format!("argument {} must be a whole number", at + 1)),
        }
    }

    /// A list, set or tuple.
    fn sequence(&self, at: usize) -> Result<&Sequence> {
        let sequence = self.value(at)?.to_sequence()?;
        self.budget.spend(sequence.items.len() * NODE)?;
        Ok(sequence)
    }

    fn items(&self, at: usize) -> Result<&[Value]> {
        self.sequence(at).map(|sequence| &*sequence.items)
    }

    /// The texts of a list.
    fn texts(&self, at: usize) -> Result<Vec<Rc<str>>> {
        let text = |item: &Value| {
            let text = item.to_text(self.budget)?;
            self.budget.spend(text.len())?;
            Ok(text)
        };
        self.items(at)?.iter().map(text).collect()
    }

    /// A map or an object.
    fn map(&self, at: usize) -> Result<&Mapping> {
        let map = self.value(at)?.to_map()?;
        self.budget.spend(map.items.keys().map(|key| NODE + key.len()).sum())?;
        Ok(map)
    }

    /// The kind that values have in common.
    fn common(&self, kinds: &[Kind]) -> Result<Kind> {
        match Kind::common(kinds, self.budget)? {
            Some(kind) => Ok(kind),
            None => failed("the arguments have no type in common"),
        }
    }

    fn kind(&self, value: &Value) -> Result<Kind> {
        Kind::of(value, self.budget)
    }

    /// A text as the result, paid for.
    fn made(&self, text: impl AsRef<str>) -> Result<Value> {
        self.budget.spend(text.as_ref().len())?;
        Ok(Value::text(text))
    }

    /// Whether a list holds a value.
    fn holds(&self, items: &[Value], wanted: &Value) -> Result<bool> {
        for item in items {
            if item.equals(wanted, self.budget)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn size(count: usize) -> Value {
    Value::Number(Number::from(i64::try_from(count).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod differential;
#[cfg(test)]
mod signatures;

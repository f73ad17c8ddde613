//! The functions of Terraform, by name. `try` and `can` are in [`crate::eval`], because they handle errors of their
//! arguments.
//!
//! Each function declares its parameters; [`call`] alone counts and converts arguments and refuses null.

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

use crate::budget::{Budget, EvalError, NODE_COST, Result, failed, unavailable};
use crate::eval::Evaluator;
use crate::number::Number;
use crate::value::{Mapping, Sequence, Value};
use crate::value_type::Type;

/// The type of a parameter.
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
    fn ty(self) -> Type {
        let list = |of: Type| Type::List(Rc::new(of));
        match self {
            Self::Any | Self::Nullable => Type::Any,
            Self::Text => Type::Text,
            Self::Number => Type::Number,
            Self::List => list(Type::Any),
            Self::Set => Type::Set(Rc::new(Type::Any)),
            Self::Texts => list(Type::Text),
            Self::Bools => list(Type::Bool),
            Self::TextLists => Type::Map(Rc::new(list(Type::Text))),
        }
    }
}

/// A function: its name, its parameters, the type of further arguments, and its implementation. No function has side
/// effects.
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
        // Sensitivity has no meaning before Terraform runs: tags are not secret.
        function("sensitive", &[Param::Nullable], |args| Ok(args.values[0].clone())),
        function("nonsensitive", &[Param::Nullable], |args| Ok(args.values[0].clone())),
        function("ephemeralasnull", &[Param::Nullable], |args| Ok(args.values[0].clone())),
    ],
];

pub(crate) fn call(name: &str, mut values: Vec<Value>, evaluator: &Evaluator<'_>) -> Result<Value> {
    let budget = &evaluator.budget;
    budget.spend(NODE_COST * (1 + values.len()))?;
    let Some(function) = FUNCTIONS.into_iter().flatten().find(|function| function.name == name) else {
        if matches!(name, "list" | "map") {
            return failed("this function was removed from Terraform: write [...] or { ... }");
        }
        return unavailable(match name {
            "abspath" | "pathexpand" => {
                "this function is not available here: the directory of the job is not known"
            }
            "bcrypt" | "uuid" | "rsadecrypt" => {
                "this function is not available here: its result is random, so no daemon could have such a tag"
            }
            "base64gzip" => {
                "this function is not available here: the result depends on the compression library"
            }
            "plantimestamp" => "this function is not available here: the time of the job is not known",
            "issensitive" => {
                "this function is not available here: it is not known which values are sensitive"
            }
            _ => "this function is not available here",
        });
    };
    let (least, more) = (function.params.len(), function.rest.is_some());
    if values.len() < least || (values.len() > least && !more) {
        let expected = if more { format!("{least} or more") } else { least.to_string() };
        return failed(format!("{expected} arguments are required, not {}", values.len()));
    }
    let params = function.params.iter().copied().chain(std::iter::repeat(function.rest).flatten());
    for (at, (value, param)) in values.iter_mut().zip(params).enumerate() {
        let converted = param.ty().convert(value, budget).map_err(|error| match error {
            EvalError::Failed(why) => EvalError::Failed(format!("argument {}: {why}", at + 1)),
            error => error,
        })?;
        if converted.is_null() && param != Param::Nullable {
            return failed(format!("argument {} must not be null", at + 1));
        }
        *value = converted;
    }
    (function.run)(&Args { values: &values, budget, evaluator })
}

/// The checked arguments of a call.
struct Args<'a> {
    values: &'a [Value],
    budget: &'a Budget,
    evaluator: &'a Evaluator<'a>,
}

impl Args<'_> {
    fn value(&self, at: usize) -> Result<&Value> {
        match self.values.get(at) {
            Some(Value::Unknown(reason)) => Err(EvalError::Unknown(reason.clone())),
            Some(value) => Ok(value),
            None => failed(format!("argument {} is missing", at + 1)),
        }
    }

    /// A string. Its length is spent from the budget, because most functions read it all.
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
        self.budget.spend(sequence.items.len() * NODE_COST)?;
        Ok(sequence)
    }

    fn items(&self, at: usize) -> Result<&[Value]> {
        self.sequence(at).map(|sequence| &*sequence.items)
    }

    /// The strings of a list.
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
        self.budget.spend(map.items.keys().map(|key| NODE_COST + key.len()).sum())?;
        Ok(map)
    }

    /// The type that values have in common.
    fn common(&self, types: &[Type]) -> Result<Type> {
        match Type::common(types, self.budget)? {
            Some(ty) => Ok(ty),
            None => failed("the arguments have no type in common"),
        }
    }

    fn type_of(&self, value: &Value) -> Result<Type> {
        Type::of(value, self.budget)
    }

    /// A string as the result, spent from the budget.
    fn text_result(&self, text: impl AsRef<str>) -> Result<Value> {
        self.budget.spend(text.as_ref().len())?;
        Ok(Value::text(text))
    }

    /// Whether a list contains a value.
    fn contains_value(&self, items: &[Value], expected: &Value) -> Result<bool> {
        for item in items {
            if item.equals(expected, self.budget)? {
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

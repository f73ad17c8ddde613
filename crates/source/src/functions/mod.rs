//! The functions that workspace tags may call (terraform 1.10), by name. `try` and `can` are in [`crate::eval`], since
//! they look at errors of their arguments.

mod collections;
mod encoding;
pub(crate) mod files;
mod format;
mod hashes;
mod network;
mod numbers;
mod patterns;
mod sets;
mod strings;
mod time;
mod yaml;

use std::collections::BTreeMap;
use std::rc::Rc;

use coder_domain::Timestamp;

use crate::budget::{Budget, NODE, Result, failed};
use crate::number::Number;
use crate::value::Value;

/// Calls a function. None of them has effects.
pub(crate) fn call(name: &str, values: &[Value], budget: &Budget, now: Timestamp) -> Result<Value> {
    budget.spend(NODE * (1 + values.len()))?;
    let args = Args { values, budget };
    let found = strings::call(name, &args)
        .or_else(|| numbers::call(name, &args))
        .or_else(|| collections::call(name, &args))
        .or_else(|| sets::call(name, &args))
        .or_else(|| patterns::call(name, &args))
        .or_else(|| encoding::call(name, &args))
        .or_else(|| hashes::call(name, &args))
        .or_else(|| network::call(name, &args))
        .or_else(|| time::call(name, &args, now));
    match (found, name) {
        (Some(result), _) => result,
        // What is secret does not matter before Terraform runs: tags are no secret.
        (None, "sensitive" | "nonsensitive" | "ephemeralasnull") => {
            args.count(1, 1).and_then(|()| args.value(0).cloned())
        }
        (None, "abspath" | "pathexpand") => {
            failed("this function may not be used here: where a job runs is not known")
        }
        (None, "bcrypt" | "uuid" | "rsadecrypt") => {
            failed("this function may not be used here: no daemon could have the tag it gives")
        }
        (None, _) => failed("there is no such function"),
    }
}

/// Arguments of a call.
struct Args<'a> {
    values: &'a [Value],
    budget: &'a Budget,
}

impl Args<'_> {
    fn count(&self, least: usize, most: usize) -> Result<()> {
        if (least..=most).contains(&self.values.len()) {
            return Ok(());
        }
        let wanted = if least == most { least.to_string() } else { format!("{least} or more") };
        failed(format!("{wanted} arguments are required, not {}", self.values.len()))
    }

    fn value(&self, at: usize) -> Result<&Value> {
        match self.values.get(at) {
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
        self.value(at)?.to_number()
    }

    fn whole(&self, at: usize) -> Result<i64> {
        match self.number(at)?.as_whole() {
            Some(whole) => Ok(whole),
            None => failed(format!("argument {} must be a whole number", at + 1)),
        }
    }

    fn items(&self, at: usize) -> Result<Vec<Value>> {
        let items = self.value(at)?.to_items()?;
        self.budget.spend(items.len() * NODE)?;
        Ok(items)
    }

    /// The texts of a list.
    fn texts(&self, at: usize) -> Result<Vec<Rc<str>>> {
        self.items(at)?
            .iter()
            .map(|item| {
                let text = item.to_text(self.budget)?;
                self.budget.spend(text.len())?;
                Ok(text)
            })
            .collect()
    }

    fn map(&self, at: usize) -> Result<&BTreeMap<String, Value>> {
        let map = self.value(at)?.to_map()?;
        self.budget.spend(map.len() * NODE)?;
        Ok(map)
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

fn number(value: Option<Number>) -> Result<Value> {
    match value {
        Some(number) => Ok(Value::Number(number)),
        None => failed("the result is not a number in range"),
    }
}

fn size(count: usize) -> Value {
    Value::Number(Number::from(i64::try_from(count).unwrap_or(i64::MAX)))
}

//! Workspace tags: evaluates each key and value, and reports why one has no value (scheduling-and-auth TAG-13 to TAG-15).

use std::collections::{BTreeMap, BTreeSet};

use hcl_edit::expr::{Expression, ObjectKey};

use crate::budget::{EvalError, Result};
use crate::eval::{AllowedReferences, Evaluator, Scope};
use crate::inputs::{Flow, Inputs};
use crate::module::{Module, TagBlock};
use crate::value::Value;

/// Longest source text shown in a message, in characters.
const MAX_SHOWN: usize = 120;

/// A tag without a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct TagError {
    /// The tag's key; the source text of the key when the key has no value; `tags` for an error of the whole block.
    pub tag: String,
    /// File and line of the block.
    pub place: String,
    /// What is wrong.
    pub reason: Reason,
}

/// Why a tag has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Only Terraform can know the value, or an input is missing.
    #[error(
        "the tag is unknown before Terraform runs: {0}; give variables a value or a default, or set the tag in the request"
    )]
    Unknown(String),
    /// Null, a list or an object.
    #[error("a tag must be a non-null string, this one is {0}")]
    NotText(&'static str),
    /// The same key occurs twice, in one block or in several.
    #[error("the tag is defined more than once")]
    Duplicate,
    /// A NUL byte in key or value (TAG-4).
    #[error("tags must not contain the NUL character")]
    Nul,
    /// The expression is wrong.
    #[error("the expression cannot be evaluated: {0}")]
    Failed(String),
    /// The expression needs something that only Terraform does.
    #[error(
        "the expression cannot be evaluated before Terraform runs: {0}; write it without, or set the tag in the request"
    )]
    Unavailable(String),
    /// The block has no `tags`.
    #[error("the attribute \"tags\" is required by coder_workspace_tags")]
    Missing,
    /// `tags` is not a map of tags.
    #[error("\"tags\" must be a map, written as {{ key = value }}, this is {0}")]
    NotMap(&'static str),
    /// The bounds of an evaluation are exceeded.
    #[error("the expression takes too long to evaluate or is nested too deep: simplify it")]
    Exhausted,
}

pub(crate) fn evaluate(
    module: &Module,
    inputs: &Inputs,
) -> std::result::Result<BTreeMap<String, String>, Vec<TagError>> {
    let evaluator = Evaluator::new(module, inputs);
    let mut found = TagResults { inputs, tags: BTreeMap::new(), seen: BTreeSet::new(), errors: Vec::new() };
    for block in module.tags.values() {
        found.block(&evaluator, block);
    }
    if found.errors.is_empty() { Ok(found.tags) } else { Err(found.errors) }
}

struct TagResults<'i> {
    inputs: &'i Inputs,
    tags: BTreeMap<String, String>,
    seen: BTreeSet<String>,
    errors: Vec<TagError>,
}

impl TagResults<'_> {
    fn block(&mut self, evaluator: &Evaluator<'_>, block: &TagBlock) {
        let result =
            evaluator.instances(&block.attributes, Scope::new(AllowedReferences::All), &mut |_, scope| {
                match block.attributes.get("tags") {
                    Some(expression) => self.all(evaluator, block, expression, scope),
                    None => self.error(block, "tags", Reason::Missing),
                }
                Ok(())
            });
        if let Err(error) = result {
            self.error(block, "tags", error.into());
        }
    }

    fn all(
        &mut self,
        evaluator: &Evaluator<'_>,
        block: &TagBlock,
        expression: &Expression,
        scope: Scope<'_>,
    ) {
        if let Expression::Object(object) = expression {
            for (key, value) in object {
                let name = match key_of(evaluator, key, scope) {
                    Ok(name) => name,
                    Err(reason) => {
                        self.error(block, &source(key), reason);
                        continue;
                    }
                };
                self.one(block, name, || evaluator.evaluate(value.expr(), scope), evaluator);
            }
            return;
        }
        if self.inputs.flow == Flow::Classic {
            return self.error(block, "tags", Reason::NotMap("an expression"));
        }
        match evaluator.evaluate(expression, scope) {
            Ok(Value::Map(map)) => {
                for (key, value) in &map.items {
                    self.one(block, key.clone(), || Ok(value.clone()), evaluator);
                }
            }
            Ok(Value::Null(_)) => {}
            Ok(Value::Unknown(why)) => self.error(block, "tags", Reason::Unknown(why.to_string())),
            Ok(other) => self.error(block, "tags", Reason::NotMap(other.described())),
            Err(error) => self.error(block, "tags", error.into()),
        }
    }

    fn one(
        &mut self,
        block: &TagBlock,
        key: String,
        value: impl FnOnce() -> Result<Value>,
        evaluator: &Evaluator<'_>,
    ) {
        if self.inputs.overridden.contains(&key) {
            return;
        }
        if !self.seen.insert(key.clone()) {
            return self.error(block, &key, Reason::Duplicate);
        }
        match value().map_err(Reason::from).and_then(|value| plain(&value, evaluator)) {
            Ok(_) if key.contains('\0') => self.error(block, &key, Reason::Nul),
            Ok(value) => drop(self.tags.insert(key, value)),
            Err(reason) => self.error(block, &key, reason),
        }
    }

    fn error(&mut self, block: &TagBlock, tag: &str, reason: Reason) {
        let error = TagError { tag: tag.to_owned(), place: block.place.clone(), reason };
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }
}

fn key_of(
    evaluator: &Evaluator<'_>,
    key: &ObjectKey,
    scope: Scope<'_>,
) -> std::result::Result<String, Reason> {
    let value = evaluator.object_key(key, scope).map_err(Reason::from)?;
    plain(&value, evaluator)
}

/// A tag's value: numbers and bools become strings as in Terraform.
fn plain(value: &Value, evaluator: &Evaluator<'_>) -> std::result::Result<String, Reason> {
    match value {
        Value::Unknown(why) => Err(Reason::Unknown(why.to_string())),
        Value::Null(_) | Value::List(_) | Value::Map(_) => Err(Reason::NotText(value.described())),
        other => {
            let text = other.to_text(&evaluator.budget)?;
            if text.contains('\0') { Err(Reason::Nul) } else { Ok(text.to_string()) }
        }
    }
}

fn source(key: &ObjectKey) -> String {
    match key {
        ObjectKey::Ident(name) => name.as_str().to_owned(),
        ObjectKey::Expression(expression) => expression.to_string().trim().chars().take(MAX_SHOWN).collect(),
    }
}

impl From<EvalError> for Reason {
    fn from(error: EvalError) -> Self {
        match error {
            EvalError::Unknown(why) => Self::Unknown(why.to_string()),
            EvalError::Failed(why) => Self::Failed(why),
            EvalError::Unavailable(why) => Self::Unavailable(why),
            EvalError::Exhausted => Self::Exhausted,
        }
    }
}

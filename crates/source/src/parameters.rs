//! The parameters of a template for given values. The existence of a parameter, its default and its options may depend on
//! the values of others, which the import does not know.

use std::collections::BTreeMap;

use coder_domain::parameter::Definition;
use hcl_edit::expr::Expression;

use crate::budget::{EvalError, Result, failed, unavailable};
use crate::eval::{Binding, Evaluator, Scope};
use crate::inputs::Inputs;
use crate::module::{Attributes, Module, Nested};
use crate::reference::OWNER;
use crate::value::Value;

/// Part of every reference to a parameter.
const REFERENCE: &str = "coder_parameter";
/// Part of every reference that may depend on a parameter indirectly.
const INDIRECT: &str = "local.";

/// A parameter of the root module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub name: String,
    /// The definition; none when only Terraform can know a part of it.
    pub definition: Option<Definition>,
}

/// Whether any expression that is evaluated before Terraform runs contains a word.
pub(crate) fn mention(module: &Module, word: &str) -> bool {
    let tags = module.tags.values().flat_map(|block| block.attributes.values());
    let mut own = module.locals.values().chain(tags).map(ToString::to_string);
    own.any(|text| text.contains(word)) || of_parameters(module).any(|text| text.contains(word))
}

fn of_parameters(module: &Module) -> impl Iterator<Item = String> {
    let own = module.parameters.values().flat_map(BTreeMap::values);
    let nested = module.nested.values().flatten();
    let nested = nested.flat_map(|block| block.each.iter().chain(block.attributes.values()));
    own.chain(nested).map(ToString::to_string)
}

/// Whether any parameter may depend on another one or on the workspace's owner. The answer may be a false positive.
pub(crate) fn depend(module: &Module) -> bool {
    follow_values(module, || of_parameters(module)) || modules_depend(module)
}

/// The same for module calls, because modules may contain parameters.
pub(crate) fn modules_depend(module: &Module) -> bool {
    follow_values(module, || module.modules.values().flat_map(BTreeMap::values).map(ToString::to_string))
}

fn follow_values<I: Iterator<Item = String>>(module: &Module, texts: impl Fn() -> I) -> bool {
    let has = |text: &str| text.contains(REFERENCE) || text.contains(OWNER);
    texts().any(|text| has(&text))
        || (texts().any(|text| text.contains(INDIRECT))
            && module.locals.values().any(|local| has(&local.to_string())))
}

/// All parameters of the root module; none when only Terraform can know which there are.
pub(crate) fn evaluate(module: &Module, inputs: &Inputs) -> Option<Vec<Parameter>> {
    let evaluator = Evaluator::new(module, inputs);
    let mut found = Vec::new();
    for (label, attributes) in &module.parameters {
        let nested = module.nested.get(label).map(Vec::as_slice).unwrap_or_default();
        let all = evaluator.instances(attributes, Scope::ROOT, &mut |_, scope| {
            let one = Instance { evaluator: &evaluator, attributes, nested, scope };
            let name = one.text("name")?.unwrap_or_default();
            let definition = one.definition(&name).map(Some).or_else(|error| match error {
                EvalError::Exhausted => Err(error),
                EvalError::Unknown(_) | EvalError::Failed(_) | EvalError::Unavailable(_) => Ok(None),
            })?;
            found.push(Parameter { name, definition });
            Ok(())
        });
        all.ok()?;
    }
    Some(found)
}

/// Instance instance of a block.
struct Instance<'o, 'm> {
    evaluator: &'o Evaluator<'m>,
    attributes: &'o Attributes,
    nested: &'o [Nested],
    scope: Scope<'o>,
}

impl Instance<'_, '_> {
    fn value(&self, of: &Attributes, name: &str, scope: Scope<'_>) -> Result<Value> {
        match of.get(name).map(|expression| self.evaluator.evaluate(expression, scope)).transpose()? {
            Some(Value::Unknown(why)) => Err(EvalError::Unknown(why)),
            Some(value) => Ok(value),
            None => Ok(Value::NULL),
        }
    }

    fn text(&self, name: &str) -> Result<Option<String>> {
        self.plain(&self.value(self.attributes, name, self.scope)?)
    }

    fn plain(&self, value: &Value) -> Result<Option<String>> {
        match value {
            Value::Null(_) => Ok(None),
            value => Ok(Some(value.to_text(&self.evaluator.budget)?.to_string())),
        }
    }

    fn is_set(&self, name: &str) -> Result<bool> {
        match self.value(self.attributes, name, self.scope)? {
            Value::Null(_) => Ok(false),
            value => value.to_bool(),
        }
    }

    fn definition(&self, name: &str) -> Result<Definition> {
        let default = self.text("default")?;
        let mut definition = Definition {
            name: name.to_owned(),
            kind: self.text("type")?.unwrap_or_else(|| "string".to_owned()),
            mutable: self.is_set("mutable")?,
            ephemeral: self.is_set("ephemeral")?,
            required: !self.attributes.get("default").is_some_and(is_written),
            default_value: default.unwrap_or_default(),
            ..Definition::default()
        };
        for option in self.blocks("option", &["value"])? {
            definition.options.push(self.plain(&option["value"])?.unwrap_or_default());
        }
        let fields = ["regex", "error", "monotonic", "min", "max"];
        if let [validation] = self.blocks("validation", &fields)?.as_slice() {
            let text = |name: &str| self.plain(&validation[name]).map(Option::unwrap_or_default);
            let bound = |name: &str| match &validation[name] {
                Value::Null(_) => Ok(None),
                value => match value
                    .to_number(&self.evaluator.budget)?
                    .as_whole()
                    .and_then(|whole| whole.try_into().ok())
                {
                    Some(whole) => Ok(Some(whole)),
                    None => failed(format!("{name} must be a whole number")),
                },
            };
            definition.validation_regex = text("regex")?;
            definition.validation_error = text("error")?;
            definition.validation_monotonic = text("monotonic")?;
            (definition.validation_min, definition.validation_max) = (bound("min")?, bound("max")?);
        }
        Ok(definition)
    }

    /// The nested blocks of one kind, each with the values of `fields`.
    fn blocks(&self, block_type: &str, fields: &[&str]) -> Result<Vec<BTreeMap<String, Value>>> {
        let mut found = Vec::new();
        // In JSON nested blocks look like attributes.
        match self.value(self.attributes, block_type, self.scope)? {
            Value::Null(_) => {}
            list @ Value::List(_) => {
                for item in &list.to_sequence()?.items {
                    found.push(only(&item.to_map()?.items, fields));
                }
            }
            one => found.push(only(&one.to_map()?.items, fields)),
        }
        if self.attributes.contains_key("dynamic") {
            return unavailable("dynamic blocks in JSON are left to Terraform");
        }
        for block in self.nested.iter().filter(|block| block.block_type == block_type) {
            let mut add = |scope: Scope<'_>| {
                let mut values = BTreeMap::new();
                for field in fields {
                    values.insert((*field).to_owned(), self.value(&block.attributes, field, scope)?);
                }
                found.push(values);
                Ok(())
            };
            match &block.each {
                None => add(self.scope)?,
                Some(each) => self.each(each, &block.iterator, &mut add)?,
            }
        }
        Ok(found)
    }

    fn each(
        &self,
        each: &Expression,
        iterator: &str,
        run: &mut dyn FnMut(Scope<'_>) -> Result<()>,
    ) -> Result<()> {
        let collection = self.evaluator.evaluate(each, self.scope)?;
        self.evaluator.each(&collection, Some("key"), "value", Scope::ROOT, &mut |scope| {
            let field = |name: &str| (name.to_owned(), scope.find(name).unwrap_or(Value::NULL));
            let value = Value::object([field("key"), field("value")].into());
            run(self.scope.with(&Binding { name: iterator, value, outer: self.scope.bindings }))
        })
    }
}

/// Whether a default is written. Instance that turns out to be null leaves the parameter unset; only a literal null means that
/// there is none.
const fn is_written(default: &Expression) -> bool {
    !matches!(default, Expression::Null(_))
}

fn only(map: &BTreeMap<String, Value>, fields: &[&str]) -> BTreeMap<String, Value> {
    let value = |field: &&str| ((*field).to_owned(), map.get(*field).cloned().unwrap_or(Value::NULL));
    fields.iter().map(value).collect()
}

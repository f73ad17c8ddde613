//! Resolves references to variables, locals and parameters. Each is evaluated once, when it is needed first.

use std::cell::RefCell;
use std::collections::BTreeMap;

use coder_domain::Timestamp;
use hcl_edit::expr::{Expression, TraversalOperator};

use crate::archive::Contents;
use crate::budget::{Budget, EvalError, NODE_COST, Result, failed, unavailable};
use crate::constraint::{Constraint, step_name};
use crate::eval::{AllowedReferences, Binding, Evaluator, Scope};
use crate::inputs::{Flow, Inputs, Owner};
use crate::json;
use crate::module::{Attributes, Module};
use crate::number::Number;
use crate::value::Value;
use crate::value_type::Type;

/// Most instances of a block with `count` or `for_each`.
const MAX_INSTANCES: usize = 1000;
/// Attributes of a parameter that are evaluated without a conversion.
const PLAIN: [&str; 9] = [
    "default",
    "display_name",
    "description",
    "ephemeral",
    "form_type",
    "icon",
    "mutable",
    "order",
    "styling",
];

/// The data source of the workspace's owner.
pub(crate) const OWNER: &str = "coder_workspace_owner";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Symbol {
    Variable,
    Local,
    Parameter,
}

/// The result of an evaluation; none while it runs.
type Done = Option<Result<Value>>;

/// The definitions of the module and the inputs, with the results so far.
pub(crate) struct References<'m> {
    module: &'m Module,
    inputs: &'m Inputs,
    done: RefCell<BTreeMap<(Symbol, String), Done>>,
}

impl References<'_> {
    pub(crate) const fn now(&self) -> Timestamp {
        self.inputs.now
    }
}

impl<'m> Evaluator<'m> {
    pub(crate) fn new(module: &'m Module, inputs: &'m Inputs) -> Self {
        let references = References { module, inputs, done: RefCell::default() };
        Self { budget: Budget::new(), references }
    }

    fn classic(&self) -> bool {
        self.references.inputs.flow == Flow::Classic
    }

    /// The template's files, where functions may read them.
    pub(crate) fn contents(&self) -> Option<&'m Contents> {
        (!self.classic()).then_some(&self.references.module.contents)
    }

    /// The value of a root name, and the number of steps after it that belong to the reference.
    pub(crate) fn lookup(
        &self,
        root: &str,
        steps: &[&TraversalOperator],
        scope: Scope<'_>,
    ) -> Result<(Value, usize)> {
        let step = |at: usize| steps.get(at).and_then(|step| step_name(step));
        let forbidden =
            || failed(format!("{} cannot be used here: a constant is required", shown(root, steps)));
        if scope.allowed == AllowedReferences::None {
            return forbidden();
        }
        match (root, step(0), step(1)) {
            ("var", Some(name), _) => Ok((self.variable(name)?, 1)),
            ("local", Some(_), _) if self.classic() => not_in_classic(&shown(root, steps)),
            ("local", Some(name), _) => Ok((self.local(name)?, 1)),
            ("data", Some("coder_parameter"), Some(_)) if scope.allowed == AllowedReferences::Variables => {
                forbidden()
            }
            ("data", Some("coder_parameter"), Some(label)) => Ok((self.parameter(label)?, 2)),
            ("data", Some(OWNER), Some(label))
                if scope.allowed == AllowedReferences::All && !self.classic() =>
            {
                match &self.references.inputs.owner {
                    Some(owner) => Ok((owner_object(owner, label), 2)),
                    None => Ok((Value::unknown(format!("it refers to {}", shown(root, steps))), steps.len())),
                }
            }
            ("path", Some("module" | "root"), _) if !self.classic() => Ok((Value::text("."), 1)),
            ("terraform", Some("workspace"), _) if !self.classic() => Ok((Value::text("default"), 1)),
            ("count" | "each" | "self", _, _) => {
                failed(format!("{} has no meaning here", shown(root, steps)))
            }
            (_, None, _) => failed(format!("{root} is not a reference: a text is written between quotes")),
            _ if self.classic() => not_in_classic(&shown(root, steps)),
            _ => Ok((Value::unknown(format!("it refers to {}", shown(root, steps))), steps.len())),
        }
    }

    /// Evaluates a definition once. A reference to itself is an error.
    fn once(&self, symbol: Symbol, name: &str, compute: impl FnOnce() -> Result<Value>) -> Result<Value> {
        let key = (symbol, name.to_owned());
        match self.references.done.borrow().get(&key) {
            Some(Some(result)) => return result.clone(),
            Some(None) => return failed(format!("{name:?} is defined by itself")),
            None => {}
        }
        self.references.done.borrow_mut().insert(key.clone(), None);
        let result = self.budget.deeper(compute);
        let mut done = self.references.done.borrow_mut();
        // Another path may reach it at a lower depth.
        match &result {
            Err(EvalError::Exhausted) => done.remove(&key),
            result => done.insert(key, Some(result.clone())),
        };
        result
    }

    fn local(&self, name: &str) -> Result<Value> {
        let Some(expression) = self.references.module.locals.get(name) else {
            return failed(format!("local.{name} is not defined"));
        };
        self.once(Symbol::Local, name, || self.evaluate(expression, Scope::new(AllowedReferences::All)))
    }

    fn variable(&self, name: &str) -> Result<Value> {
        let module = self.references.module;
        let Some(declared) = module.variables.get(name) else {
            return failed(format!("var.{name} is not declared"));
        };
        self.once(Symbol::Variable, name, || {
            let constant =
                |expression: &Expression| self.evaluate(expression, Scope::new(AllowedReferences::None));
            let ty = declared.get("type");
            let constraint = ty.map_or_else(Constraint::any, Constraint::parse);
            let value = if let Some(given) = self.references.inputs.variables.get(name) {
                self.budget.spend(given.len())?;
                if self.classic() {
                    return Ok(Value::text(given));
                }
                if ty.is_none() || constraint.is_literal() {
                    Value::text(given)
                } else {
                    let parsed: std::result::Result<Expression, _> = given.trim().parse();
                    match parsed {
                        Ok(expression) => constant(&expression)?,
                        Err(_) => {
                            return failed(format!(
                                "the value given for var.{name} is not an expression of its type"
                            ));
                        }
                    }
                }
            } else if let Some(expression) = module.values.get(name).filter(|_| !self.classic()) {
                constant(expression)?
            } else if let Some(expression) = declared.get("default") {
                constant(expression)?
            } else if self.classic() {
                Value::NULL
            } else {
                let why = format!("it refers to var.{name}, which has neither a value nor a default");
                return Ok(Value::unknown(why));
            };
            let value = constraint.convert(&value, &self.budget, &constant).map_err(|error| match error {
                EvalError::Failed(why) => EvalError::Failed(format!("the value of var.{name}: {why}")),
                error => error,
            })?;
            if self.classic() { self.classic_text(&value) } else { Ok(value) }
        })
    }

    /// In the classic flow each variable is a string: null is empty, lists and maps are JSON (terraform 1.10).
    fn classic_text(&self, value: &Value) -> Result<Value> {
        match value {
            Value::Null(_) => Ok(Value::text("")),
            Value::List(_) | Value::Map(_) => json::encode(value, &self.budget).map(Value::text),
            other => other.to_text(&self.budget).map(Value::Text),
        }
    }

    fn parameter(&self, label: &str) -> Result<Value> {
        let Some(attributes) = self.references.module.parameters.get(label) else {
            return failed(format!("data.coder_parameter.{label} is not declared"));
        };
        self.once(Symbol::Parameter, label, || {
            let allowed = if self.classic() { AllowedReferences::Variables } else { AllowedReferences::All };
            let mut list = Vec::new();
            let mut map = BTreeMap::new();
            let mut single = None;
            self.instances(attributes, Scope::new(allowed), &mut |key, scope| {
                let value = self.parameter_instance(label, attributes, scope)?;
                match key {
                    None => single = Some(value),
                    Some(Value::Text(key)) => drop(map.insert(key.to_string(), value)),
                    Some(_) => list.push(value),
                }
                Ok(())
            })?;
            Ok(match single {
                Some(value) => value,
                None if attributes.contains_key("count") => Value::tuple(list),
                None => Value::object(map),
            })
        })
    }

    fn parameter_instance(&self, label: &str, attributes: &Attributes, scope: Scope<'_>) -> Result<Value> {
        // An attribute without a value fails only the expressions that refer to it.
        let soft = |result: Result<Value>| match result {
            Err(EvalError::Exhausted) => Err(EvalError::Exhausted),
            Err(EvalError::Failed(why) | EvalError::Unavailable(why)) => {
                Ok(Value::unknown(format!("data.coder_parameter.{label}: {why}")))
            }
            Err(EvalError::Unknown(why)) => Ok(Value::Unknown(why)),
            Ok(value) => Ok(value),
        };
        let attribute = |name: &str| match attributes.get(name) {
            Some(expression) => soft(self.evaluate(expression, scope)),
            None => Ok(Value::NULL),
        };
        let mut object = BTreeMap::new();
        for name in PLAIN {
            object.insert(name.to_owned(), attribute(name)?);
        }
        let name = attribute("name")?;
        let text = |value: &Value| soft(value.to_text(&self.budget).map(Value::Text));
        let given = match &name {
            Value::Text(name) => self.references.inputs.parameters.get(&**name),
            _ => None,
        };
        let default = object["default"].clone();
        let value = match (given, default) {
            (Some(given), _) => {
                self.budget.spend(given.len())?;
                Value::text(given)
            }
            (None, _) if matches!(name, Value::Unknown(_)) => name.clone(),
            (None, Value::Null(_)) if self.classic() => Value::text(""),
            (None, Value::Null(_)) => Value::unknown(format!(
                "it refers to data.coder_parameter.{label}, which has neither a value nor a default"
            )),
            (None, default) => text(&default)?,
        };
        object.insert("optional".to_owned(), Value::Bool(!object["default"].is_null()));
        if !object["default"].is_null() {
            let default = text(&object["default"])?;
            object.insert("default".to_owned(), default);
        }
        let ty = match attribute("type")? {
            Value::Null(_) => Value::text("string"),
            ty => ty,
        };
        object.insert("type".to_owned(), ty);
        object.insert("name".to_owned(), name);
        object.insert("value".to_owned(), value);
        for unknown in ["id", "option", "validation"] {
            let why = format!("it refers to data.coder_parameter.{label}.{unknown}");
            object.insert(unknown.to_owned(), Value::unknown(why));
        }
        Ok(Value::object(object))
    }

    /// Calls `run` for each instance of a block with its key: none without `count` and `for_each`, an index, or a string.
    pub(crate) fn instances(
        &self,
        attributes: &Attributes,
        scope: Scope<'_>,
        run: &mut dyn FnMut(Option<Value>, Scope<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut bound = |name: &'static str, fields: [(&str, Value); 2], key: Value| {
            self.budget.spend(NODE_COST)?;
            let fields = fields.into_iter().filter(|(name, _)| !name.is_empty());
            let value = Value::object(fields.map(|(name, value)| (name.to_owned(), value)).collect());
            let binding = Binding { name, value, outer: scope.bindings };
            run(Some(key), scope.with(&binding))
        };
        if let Some(count) = attributes.get("count") {
            let count = self.evaluate(count, scope)?.to_number(&self.budget)?.as_whole();
            let Some(count) = count.and_then(|count| usize::try_from(count).ok()) else {
                return failed("count must be a whole number");
            };
            if count > MAX_INSTANCES {
                return too_many_instances();
            }
            for index in (0i64..).take(count) {
                let index = Value::Number(Number::from(index));
                bound("count", [("index", index.clone()), ("", Value::NULL)], index)?;
            }
            return Ok(());
        }
        let Some(each) = attributes.get("for_each") else { return run(None, scope) };
        let pairs: Vec<(String, Value)> = match &self.evaluate(each, scope)? {
            Value::Map(map) => map.items.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
            other => {
                let pair = |item: &Value| Ok((item.to_text(&self.budget)?.to_string(), item.clone()));
                other.to_sequence()?.items.iter().map(pair).collect::<Result<_>>()?
            }
        };
        if pairs.len() > MAX_INSTANCES {
            return too_many_instances();
        }
        for (key, value) in pairs {
            let key = Value::text(key);
            bound("each", [("key", key.clone()), ("value", value)], key)?;
        }
        Ok(())
    }
}

fn too_many_instances() -> Result<()> {
    unavailable(format!("a block has more than {MAX_INSTANCES} instances"))
}

fn rbac_roles(owner: &Owner) -> Value {
    let fields = ["name".to_owned(), "org_id".to_owned()];
    let role = |(name, organization): &(String, String)| {
        let texts = [name, organization].map(Value::text);
        Value::object(fields.clone().into_iter().zip(texts).collect())
    };
    let of = Type::object(fields.iter().map(|field| (field, Type::Text)));
    Value::list(of, owner.rbac_roles.iter().map(role).collect())
}

/// The attributes of the workspace's owner. Keys and tokens are left out: only Terraform gets them.
fn owner_object(owner: &Owner, label: &str) -> Value {
    let text = |name: &str, value: &str| (name.to_owned(), Value::text(value));
    let mut object = BTreeMap::from([
        text("id", &owner.id),
        text("name", &owner.name),
        text("full_name", &owner.full_name),
        text("email", &owner.email),
        text("login_type", &owner.login_type),
        ("groups".to_owned(), Value::texts(&owner.groups)),
        ("rbac_roles".to_owned(), rbac_roles(owner)),
    ]);
    for unknown in ["ssh_public_key", "ssh_private_key", "session_token", "oidc_access_token"] {
        let why = format!("it refers to data.{OWNER}.{label}.{unknown}");
        object.insert(unknown.to_owned(), Value::unknown(why));
    }
    Value::object(object)
}

/// The source text of a reference, up to the third step.
fn shown(root: &str, steps: &[&TraversalOperator]) -> String {
    let mut text = root.to_owned();
    for step in steps.iter().take(3).map_while(|step| step_name(step)) {
        text.push('.');
        text.push_str(step);
    }
    text
}

/// Fails for a reference that does not exist in the classic flow.
fn not_in_classic<T>(what: &str) -> Result<T> {
    failed(format!("{what} cannot be used here: only variables and parameters (data.coder_parameter) can"))
}

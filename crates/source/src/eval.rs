//! Evaluating expressions: a walk over the parsed syntax with unknown values and bounded work. The parser's sister crate
//! evaluates too, but knows neither unknown values nor an end to nested loops.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use hcl_edit::expr::{
    BinaryOperator, Conditional, Expression, ForExpr, FuncCall, Object, ObjectKey, TraversalOperator,
    UnaryOperator,
};
use hcl_edit::template::Template;

use crate::budget::{Budget, NODE, Result, Stop, failed};
use crate::functions::{self, files};
use crate::number::Number;
use crate::reference::References;
use crate::value::Value;

/// What names mean at some place: the variables of loops around it, and which references are allowed.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'s> {
    pub(crate) bindings: Option<&'s Binding<'s>>,
    pub(crate) allowed: Allowed,
}

/// Which references are allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Allowed {
    All,
    /// Variables only (the default of a parameter in the classic flow).
    Variables,
    /// None: defaults of variables and values files.
    Nothing,
}

/// A name that a loop or a `count` defines.
pub(crate) struct Binding<'s> {
    pub(crate) name: &'s str,
    pub(crate) value: Value,
    pub(crate) outer: Option<&'s Binding<'s>>,
}

impl<'s> Scope<'s> {
    /// Where attributes of the module's blocks stand.
    pub(crate) const ROOT: Self = Self::new(Allowed::All);

    pub(crate) const fn new(allowed: Allowed) -> Self {
        Self { bindings: None, allowed }
    }

    pub(crate) fn find(&self, name: &str) -> Option<Value> {
        let mut at = self.bindings;
        while let Some(binding) = at {
            if binding.name == name {
                return Some(binding.value.clone());
            }
            at = binding.outer;
        }
        None
    }

    pub(crate) const fn with(self, bindings: &'s Binding<'s>) -> Self {
        Self { bindings: Some(bindings), allowed: self.allowed }
    }
}

/// Evaluates expressions of one module.
pub(crate) struct Evaluator<'m> {
    pub(crate) budget: Budget,
    pub(crate) references: References<'m>,
}

impl Evaluator<'_> {
    /// The value of an expression; what Terraform only learns when it runs is [`Value::Unknown`].
    pub(crate) fn evaluate(&self, expression: &Expression, scope: Scope<'_>) -> Result<Value> {
        self.budget.spend(NODE)?;
        match self.budget.deeper(|| self.step(expression, scope)) {
            Err(Stop::Unknown(reason)) => Ok(Value::Unknown(reason)),
            result => result,
        }
    }

    fn step(&self, expression: &Expression, scope: Scope<'_>) -> Result<Value> {
        match expression {
            Expression::Null(_) => Ok(Value::Null),
            Expression::Bool(value) => Ok(Value::Bool(*value.value())),
            Expression::Number(number) => self.number(&number.value().to_string()),
            Expression::String(text) => {
                self.budget.spend(text.value().len())?;
                Ok(Value::text(text.value()))
            }
            Expression::Array(items) => {
                let items: Result<_> = items.iter().map(|item| self.evaluate(item, scope)).collect();
                Ok(Value::list(items?))
            }
            Expression::Object(object) => self.object(object, scope),
            Expression::StringTemplate(template) => self.template(template, scope),
            Expression::HeredocTemplate(heredoc) => {
                if heredoc.indent().is_some() {
                    let mut heredoc = heredoc.clone();
                    heredoc.dedent();
                    return self.template(&heredoc.template, scope);
                }
                self.template(&heredoc.template, scope)
            }
            Expression::Parenthesis(inner) => self.evaluate(inner.inner(), scope),
            Expression::Variable(name) => match scope.find(name.as_str()) {
                Some(value) => Ok(value),
                None => self.lookup(name.as_str(), &[], scope).map(|(value, _)| value),
            },
            Expression::Traversal(traversal) => {
                let operators: Vec<_> = traversal.operators.iter().map(|operator| operator.value()).collect();
                let (value, used) = match &traversal.expr {
                    Expression::Variable(name) => match scope.find(name.as_str()) {
                        Some(value) => (value, 0),
                        None => self.lookup(name.as_str(), &operators, scope)?,
                    },
                    other => (self.evaluate(other, scope)?, 0),
                };
                self.traverse(value, &operators[used..], scope)
            }
            Expression::Conditional(conditional) => self.conditional(conditional, scope),
            Expression::UnaryOp(operation) => {
                let value = self.evaluate(&operation.expr, scope)?;
                match operation.operator.value() {
                    UnaryOperator::Not => Ok(Value::Bool(!value.to_bool()?)),
                    UnaryOperator::Neg => {
                        value.to_number()?.negate().map(Value::Number).ok_or_else(out_of_range)
                    }
                }
            }
            Expression::BinaryOp(operation) => {
                let left = self.evaluate(&operation.lhs_expr, scope)?;
                self.binary(left, *operation.operator.value(), &operation.rhs_expr, scope)
            }
            Expression::FuncCall(call) => self.call(call, scope),
            Expression::ForExpr(expression) => self.for_expression(expression, scope),
        }
    }

    fn number(&self, text: &str) -> Result<Value> {
        self.budget.spend(text.len())?;
        Number::parse(text).map(Value::Number).ok_or_else(out_of_range)
    }

    fn object(&self, object: &Object, scope: Scope<'_>) -> Result<Value> {
        let mut items = BTreeMap::new();
        for (key, value) in object {
            let key = self.object_key(key, scope)?.to_text(&self.budget)?;
            items.insert(key.to_string(), self.evaluate(value.expr(), scope)?);
        }
        Ok(Value::map(items))
    }

    /// The value of a key; a bare word is its own name.
    pub(crate) fn object_key(&self, key: &ObjectKey, scope: Scope<'_>) -> Result<Value> {
        match key {
            ObjectKey::Ident(name) => Ok(Value::text(name.as_str())),
            ObjectKey::Expression(expression) => self.evaluate(expression, scope),
        }
    }

    fn conditional(&self, conditional: &Conditional, scope: Scope<'_>) -> Result<Value> {
        let chosen = self.evaluate(&conditional.cond_expr, scope)?.to_bool()?;
        let (wanted, other) = match chosen {
            true => (&conditional.true_expr, &conditional.false_expr),
            false => (&conditional.false_expr, &conditional.true_expr),
        };
        let wanted = self.evaluate(wanted, scope)?;
        // Errors of the branch that is not taken do not count, but its type does.
        match self.evaluate(other, scope) {
            Ok(other) => wanted.unified_with(&other, &self.budget),
            Err(Stop::Exhausted) => Err(Stop::Exhausted),
            Err(_) => Ok(wanted),
        }
    }

    fn binary(
        &self,
        left: Value,
        operator: BinaryOperator,
        right: &Expression,
        scope: Scope<'_>,
    ) -> Result<Value> {
        let right_value = || self.evaluate(right, scope);
        let numbers = || Ok((left.to_number()?, right_value()?.to_number()?));
        let compare = |test: fn(std::cmp::Ordering) -> bool| {
            numbers().map(|(a, b): (Number, Number)| Value::Bool(test(a.compare(b))))
        };
        let compute = |operation: fn(Number, Number) -> Option<Number>| {
            let (a, b) = numbers()?;
            operation(a, b).map(Value::Number).ok_or_else(out_of_range)
        };
        match operator {
            BinaryOperator::And | BinaryOperator::Or => {
                let decisive = matches!(operator, BinaryOperator::Or);
                if let Value::Unknown(_) = left {
                    return match right_value()?.to_bool()? == decisive {
                        true => Ok(Value::Bool(decisive)),
                        false => Ok(left),
                    };
                }
                if left.to_bool()? == decisive {
                    return Ok(Value::Bool(decisive));
                }
                Ok(Value::Bool(right_value()?.to_bool()?))
            }
            BinaryOperator::Eq => Ok(Value::Bool(left.equals(&right_value()?, &self.budget)?)),
            BinaryOperator::NotEq => Ok(Value::Bool(!left.equals(&right_value()?, &self.budget)?)),
            BinaryOperator::Less => compare(std::cmp::Ordering::is_lt),
            BinaryOperator::LessEq => compare(std::cmp::Ordering::is_le),
            BinaryOperator::Greater => compare(std::cmp::Ordering::is_gt),
            BinaryOperator::GreaterEq => compare(std::cmp::Ordering::is_ge),
            BinaryOperator::Plus => compute(Number::add),
            BinaryOperator::Minus => compute(Number::subtract),
            BinaryOperator::Mul => compute(Number::multiply),
            BinaryOperator::Div => compute(Number::divide),
            BinaryOperator::Mod => compute(Number::remainder),
        }
    }

    fn call(&self, call: &FuncCall, scope: Scope<'_>) -> Result<Value> {
        let name = call.name.name.as_str();
        let core = call.name.namespace.iter().all(|part| part.as_str() == "core");
        if !core {
            return failed(format!("the function of a provider ({name:?}) cannot be called here"));
        }
        match name {
            "try" => {
                let mut last = Stop::Failed("try needs at least one argument".to_owned());
                for argument in call.args.iter() {
                    match self.evaluate(argument, scope) {
                        Err(stop @ Stop::Failed(_)) => last = stop,
                        result => return result,
                    }
                }
                return Err(last);
            }
            "can" => {
                let [argument] = call.args.iter().collect::<Vec<_>>()[..] else {
                    return failed("can needs one argument");
                };
                return match self.evaluate(argument, scope) {
                    Ok(unknown @ Value::Unknown(_)) => Ok(unknown),
                    Ok(_) => Ok(Value::Bool(true)),
                    Err(Stop::Failed(_)) => Ok(Value::Bool(false)),
                    Err(stop) => Err(stop),
                };
            }
            _ => {}
        }
        let mut arguments: Vec<_> =
            call.args.iter().map(|argument| self.evaluate(argument, scope)).collect::<Result<_>>()?;
        if call.args.expand_final()
            && let Some(last) = arguments.pop()
        {
            let items = last.to_items()?;
            self.budget.spend(items.len() * NODE)?;
            arguments.extend(items);
        }
        let result = match name {
            "templatefile" => self.template_file(&arguments),
            name if files::NAMES.contains(&name) => match self.contents() {
                Some(contents) => files::call(name, &arguments, contents, &self.budget),
                None => no_files(),
            },
            name => functions::call(name, &arguments, &self.budget, self.references.now()),
        };
        result.map_err(|stop| match stop {
            Stop::Failed(reason) => Stop::Failed(format!("{name}: {reason}")),
            stop => stop,
        })
    }

    /// A file as a template, which knows nothing but the names it is given.
    fn template_file(&self, arguments: &[Value]) -> Result<Value> {
        let [path, values] = arguments else {
            return failed(format!("2 arguments are required, not {}", arguments.len()));
        };
        let Some(contents) = self.contents() else { return no_files() };
        let text = files::read_text(&path.to_text(&self.budget)?, contents, &self.budget)?;
        let Ok(template) = text.parse::<Template>() else {
            return failed("the file is no template");
        };
        let values: Vec<_> = values.to_map()?.iter().collect();
        if values.len() > MOST_TEMPLATE_NAMES {
            return failed(format!("a template may be given {MOST_TEMPLATE_NAMES} names"));
        }
        self.with_names(&values, Scope::new(Allowed::Nothing), &template)
    }

    fn with_names(
        &self,
        values: &[(&String, &Value)],
        scope: Scope<'_>,
        template: &Template,
    ) -> Result<Value> {
        let Some(((name, value), rest)) = values.split_first() else {
            return self.template(template, scope);
        };
        let binding = Binding { name: name.as_str(), value: (*value).clone(), outer: scope.bindings };
        self.with_names(rest, scope.with(&binding), template)
    }

    fn for_expression(&self, expression: &ForExpr, scope: Scope<'_>) -> Result<Value> {
        let collection = self.evaluate(&expression.intro.collection_expr, scope)?;
        let key_name = expression.intro.key_var.as_ref().map(|name| name.as_str());
        let value_name = expression.intro.value_var.as_str();
        let mut list = Vec::new();
        let mut map = BTreeMap::new();
        let mut groups: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        self.each(&collection, key_name, value_name, scope, &mut |scope| {
            if let Some(condition) = &expression.cond
                && !self.evaluate(&condition.expr, scope)?.to_bool()?
            {
                return Ok(());
            }
            let Some(key) = &expression.key_expr else {
                list.push(self.evaluate(&expression.value_expr, scope)?);
                return Ok(());
            };
            let key = self.evaluate(key, scope)?.to_text(&self.budget)?.to_string();
            let value = self.evaluate(&expression.value_expr, scope)?;
            if expression.grouping {
                groups.entry(key).or_default().push(value);
                return Ok(());
            }
            match map.entry(key) {
                Entry::Vacant(entry) => drop(entry.insert(value)),
                Entry::Occupied(entry) => {
                    return failed(format!("two items of the for expression have the key {:?}", entry.key()));
                }
            }
            Ok(())
        })?;
        Ok(match (&expression.key_expr, expression.grouping) {
            (None, _) => Value::list(list),
            (Some(_), false) => Value::map(map),
            (Some(_), true) => {
                Value::map(groups.into_iter().map(|(key, items)| (key, Value::list(items))).collect())
            }
        })
    }

    /// Runs something for each element of a collection, with the loop's names bound.
    pub(crate) fn each(
        &self,
        collection: &Value,
        key_name: Option<&str>,
        value_name: &str,
        scope: Scope<'_>,
        run: &mut dyn FnMut(Scope<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut one = |key: Value, value: Value| {
            self.budget.spend(NODE)?;
            let outer = Binding { name: key_name.unwrap_or(""), value: key, outer: scope.bindings };
            let binding = Binding { name: value_name, value, outer: Some(&outer) };
            run(scope.with(&binding))
        };
        match collection {
            Value::List(list) => {
                for (index, item) in (0i64..).zip(&list.items) {
                    one(Value::Number(index.into()), item.clone())?;
                }
                Ok(())
            }
            Value::Map(map) => {
                for (key, item) in &map.items {
                    one(Value::text(key), item.clone())?;
                }
                Ok(())
            }
            other => other.to_items().map(drop),
        }
    }

    /// Follows attribute and index steps.
    fn traverse(&self, mut value: Value, steps: &[&TraversalOperator], scope: Scope<'_>) -> Result<Value> {
        for (at, step) in steps.iter().enumerate() {
            self.budget.spend(NODE)?;
            value = match step {
                TraversalOperator::GetAttr(name) => attribute(&value, name.as_str())?,
                TraversalOperator::LegacyIndex(index) => element(&value, &Value::text(index.to_string()))?,
                TraversalOperator::Index(expression) => element(&value, &self.evaluate(expression, scope)?)?,
                TraversalOperator::AttrSplat(_) | TraversalOperator::FullSplat(_) => {
                    let full = matches!(step, TraversalOperator::FullSplat(_));
                    let rest = &steps[at + 1..];
                    let inner = match full {
                        true => rest.len(),
                        false => {
                            rest.iter().take_while(|s| matches!(s, TraversalOperator::GetAttr(_))).count()
                        }
                    };
                    let items = match &value {
                        Value::Unknown(_) => return Ok(value),
                        Value::Null => Vec::new(),
                        Value::List(list) => list.items.clone(),
                        other => vec![other.clone()],
                    };
                    let items: Result<_> = items
                        .into_iter()
                        .map(|item| self.budget.deeper(|| self.traverse(item, &rest[..inner], scope)))
                        .collect();
                    return self.budget.deeper(|| self.traverse(Value::list(items?), &rest[inner..], scope));
                }
            };
        }
        Ok(value)
    }
}

/// Names that a template in a file may be given.
const MOST_TEMPLATE_NAMES: usize = 200;

fn no_files() -> Result<Value> {
    failed("functions that read files may not be used here")
}

fn out_of_range() -> Stop {
    Stop::Failed("the result is not a number in range".to_owned())
}

fn attribute(value: &Value, name: &str) -> Result<Value> {
    match value {
        Value::Map(map) => match map.items.get(name) {
            Some(value) => Ok(value.clone()),
            None => failed(format!("there is no attribute {name:?}")),
        },
        Value::Unknown(reason) => Err(Stop::Unknown(reason.clone())),
        other => failed(format!("{} has no attribute {name:?}", other.kind())),
    }
}

/// An element of a list or a map.
pub(crate) fn element(value: &Value, key: &Value) -> Result<Value> {
    match (value, key) {
        (Value::Unknown(reason), _) | (_, Value::Unknown(reason)) => Err(Stop::Unknown(reason.clone())),
        (Value::List(list), key) => {
            let index = key.to_number()?.as_whole().and_then(|index| usize::try_from(index).ok());
            match index.and_then(|index| list.items.get(index)) {
                Some(value) => Ok(value.clone()),
                None => failed("the index is outside of the list"),
            }
        }
        (Value::Map(_), Value::Text(key)) => attribute(value, key),
        (Value::Map(_), Value::Number(key)) => attribute(value, &key.to_string()),
        (other, _) => failed(format!("{} has no elements", other.kind())),
    }
}

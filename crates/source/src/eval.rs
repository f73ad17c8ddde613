//! Evaluates expressions over the parsed syntax, with unknown values and bounded work. The evaluator of `hcl-rs` has
//! neither.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::Rc;

use hcl_edit::expr::{
    BinaryOperator, Conditional, Expression, ForExpr, FuncCall, Object, ObjectKey, TraversalOperator,
    UnaryOperator,
};
use hcl_edit::template::Template;

use crate::budget::{Budget, EvalError, NODE_COST, Result, failed, unavailable};
use crate::functions;
use crate::number::Number;
use crate::reference::References;
use crate::value::{SequenceKind, Value, normalized};
use crate::value_type::Type;

/// The names at one place of an expression: the variables of the loops around it, and the allowed references.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'s> {
    pub(crate) bindings: Option<&'s Binding<'s>>,
    pub(crate) allowed: AllowedReferences,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AllowedReferences {
    All,
    /// Variables only (the default of a parameter in the classic flow).
    Variables,
    /// None: defaults of variables and values files.
    None,
}

/// A name that a loop or a `count` defines.
pub(crate) struct Binding<'s> {
    pub(crate) name: &'s str,
    pub(crate) value: Value,
    pub(crate) outer: Option<&'s Binding<'s>>,
}

impl<'s> Scope<'s> {
    /// The scope of the attributes of the module's blocks.
    pub(crate) const ROOT: Self = Self::new(AllowedReferences::All);

    pub(crate) const fn new(allowed: AllowedReferences) -> Self {
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
    /// The value of an expression; [`Value::Unknown`] when only Terraform can know it.
    pub(crate) fn evaluate(&self, expression: &Expression, scope: Scope<'_>) -> Result<Value> {
        self.budget.spend(NODE_COST)?;
        match self.budget.deeper(|| self.step(expression, scope)) {
            Err(EvalError::Unknown(reason)) => Ok(Value::Unknown(reason)),
            result => result,
        }
    }

    fn step(&self, expression: &Expression, scope: Scope<'_>) -> Result<Value> {
        match expression {
            Expression::Null(_) => Ok(Value::NULL),
            Expression::Bool(value) => Ok(Value::Bool(*value.value())),
            Expression::Number(number) => Number::parse(&written(number), &self.budget).map(Value::Number),
            Expression::String(text) => {
                self.budget.spend(text.value().len())?;
                Ok(Value::text(text.value()))
            }
            Expression::Array(items) => {
                let items: Result<_> = items.iter().map(|item| self.evaluate(item, scope)).collect();
                Ok(Value::tuple(items?))
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
                    UnaryOperator::Neg => Ok(Value::Number(value.to_number(&self.budget)?.negate())),
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

    fn object(&self, object: &Object, scope: Scope<'_>) -> Result<Value> {
        let mut items = BTreeMap::new();
        for (key, value) in object {
            let key = self.object_key(key, scope)?.to_text(&self.budget)?;
            items.insert(key.to_string(), self.evaluate(value.expr(), scope)?);
        }
        Ok(Value::object(items))
    }

    /// The value of a key; a bare word is a string.
    pub(crate) fn object_key(&self, key: &ObjectKey, scope: Scope<'_>) -> Result<Value> {
        match key {
            ObjectKey::Ident(name) => Ok(Value::text(name.as_str())),
            ObjectKey::Expression(expression) => self.evaluate(expression, scope),
        }
    }

    fn conditional(&self, conditional: &Conditional, scope: Scope<'_>) -> Result<Value> {
        let chosen = self.evaluate(&conditional.cond_expr, scope)?.to_bool()?;
        let (expected, other) = match chosen {
            true => (&conditional.true_expr, &conditional.false_expr),
            false => (&conditional.false_expr, &conditional.true_expr),
        };
        let expected = self.evaluate(expected, scope)?;
        // Errors of the other branch are ignored, but its type counts.
        match self.evaluate(other, scope) {
            Ok(other) => self.in_common(expected, &other),
            Err(EvalError::Exhausted) => Err(EvalError::Exhausted),
            Err(_) => Ok(expected),
        }
    }

    /// Converts a branch of a condition to the common type of both branches.
    fn in_common(&self, expected: Value, other: &Value) -> Result<Value> {
        let known = |result: Result<Type>| match result {
            Ok(ty) => Ok(Some(ty)),
            Err(EvalError::Unknown(_)) => Ok(None),
            Err(error) => Err(error),
        };
        let types = (known(Type::of(&expected, &self.budget))?, known(Type::of(other, &self.budget))?);
        match types {
            (Some(_), Some(Type::Any)) | (None, _) | (_, None) => Ok(expected),
            (Some(Type::Any), Some(other)) => other.convert(&expected, &self.budget),
            (Some(ty), Some(other)) => match Type::common(&[ty.clone(), other.clone()], &self.budget)? {
                // A collection among the branches requires elements of one type already.
                Some(common)
                    if common.is_open()
                        && (ty.is_collection() || other.is_collection())
                        && !self.has_one_type(&expected)? =>
                {
                    failed("the elements of a result have no type in common")
                }
                Some(common) => common.convert(&expected, &self.budget),
                None => failed("the two results of a condition have no type in common"),
            },
        }
    }

    /// Whether all elements of a value have one type.
    fn has_one_type(&self, value: &Value) -> Result<bool> {
        let items: Vec<_> = match value {
            Value::List(list) => list.items.iter().collect(),
            Value::Map(map) => map.items.values().collect(),
            _ => Vec::new(),
        };
        let mut types: Vec<_> =
            items.into_iter().map(|item| Type::of(item, &self.budget)).collect::<Result<_>>()?;
        if matches!(value, Value::Map(_)) {
            // In a map a null fits every type.
            types.retain(|ty| !matches!(ty, Type::Any));
        }
        for pair in types.windows(2) {
            if !pair[0].same(&pair[1], &self.budget)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn binary(
        &self,
        left: Value,
        operator: BinaryOperator,
        right: &Expression,
        scope: Scope<'_>,
    ) -> Result<Value> {
        let right_value = || self.evaluate(right, scope);
        let budget = &self.budget;
        let numbers = || Ok((left.to_number(budget)?, right_value()?.to_number(budget)?));
        let compare = |test: fn(std::cmp::Ordering) -> bool| {
            numbers().map(|(a, b): (Number, Number)| Value::Bool(test(a.compare(&b))))
        };
        let compute = |operation: fn(&Number, &Number, &Budget) -> Result<Number>| {
            let (a, b) = numbers()?;
            operation(&a, &b, budget).map(Value::Number)
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
            return unavailable(format!("functions of a provider, such as {name:?}, are not available here"));
        }
        match name {
            "try" => {
                let mut last = EvalError::Failed("try needs at least one argument".to_owned());
                for argument in call.args.iter() {
                    match self.evaluate(argument, scope) {
                        Err(error @ EvalError::Failed(_)) => last = error,
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
                    Err(EvalError::Failed(_)) => Ok(Value::Bool(false)),
                    Err(error) => Err(error),
                };
            }
            _ => {}
        }
        let mut arguments: Vec<_> =
            call.args.iter().map(|argument| self.evaluate(argument, scope)).collect::<Result<_>>()?;
        if call.args.expand_final()
            && let Some(last) = arguments.pop()
        {
            let items = &last.to_sequence()?.items;
            self.budget.spend(items.len() * NODE_COST)?;
            arguments.extend(items.iter().cloned());
        }
        functions::call(name, arguments, self).map_err(|error| match error {
            EvalError::Failed(reason) => EvalError::Failed(format!("{name}: {reason}")),
            EvalError::Unavailable(reason) => EvalError::Unavailable(format!("{name}: {reason}")),
            error => error,
        })
    }

    /// Renders a template that may refer to the given names only.
    pub(crate) fn rendered(&self, text: &str, values: &BTreeMap<String, Value>) -> Result<Value> {
        self.budget.spend(text.len() * 8)?;
        let Ok(template) = text.parse::<Template>() else { return failed("the text is not a template") };
        let is_name = |name: &str| {
            name.starts_with(|char: char| char.is_alphabetic() || char == '_')
                && name.chars().all(|char| char.is_alphanumeric() || matches!(char, '_' | '-'))
        };
        if !values.keys().all(|name| is_name(name)) {
            return failed("a name that is given to a template must be a word");
        }
        if values.len() > MAX_TEMPLATE_NAMES {
            return unavailable(format!("a template is given more than {MAX_TEMPLATE_NAMES} names"));
        }
        let values: Vec<_> = values.iter().collect();
        self.budget.deeper(|| self.with_names(&values, Scope::new(AllowedReferences::None), &template))
    }

    fn with_names(
        &self,
        values: &[(&String, &Value)],
        scope: Scope<'_>,
        template: &Template,
    ) -> Result<Value> {
        let Some(((name, value), rest)) = values.split_first() else { return self.template(template, scope) };
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
            (None, _) => Value::tuple(list),
            (Some(_), false) => Value::object(map),
            (Some(_), true) => {
                Value::object(groups.into_iter().map(|(key, items)| (key, Value::tuple(items))).collect())
            }
        })
    }

    /// Calls `run` for each element of a collection, with the loop's names bound.
    pub(crate) fn each(
        &self,
        collection: &Value,
        key_name: Option<&str>,
        value_name: &str,
        scope: Scope<'_>,
        run: &mut dyn FnMut(Scope<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut one = |key: Value, value: Value| {
            self.budget.spend(NODE_COST)?;
            let outer = Binding { name: key_name.unwrap_or(""), value: key, outer: scope.bindings };
            let binding = Binding { name: value_name, value, outer: Some(&outer) };
            run(scope.with(&binding))
        };
        match collection {
            Value::List(list) => {
                for (index, item) in (0i64..).zip(&list.items) {
                    let key = match list.kind {
                        SequenceKind::Set(_) => item.clone(),
                        SequenceKind::Tuple | SequenceKind::List(_) => Value::Number(index.into()),
                    };
                    one(key, item.clone())?;
                }
                Ok(())
            }
            Value::Map(map) => {
                for (key, item) in &map.items {
                    one(Value::text(key), item.clone())?;
                }
                Ok(())
            }
            other => other.to_sequence().map(drop),
        }
    }

    /// Follows attribute and index steps.
    fn traverse(&self, mut value: Value, steps: &[&TraversalOperator], scope: Scope<'_>) -> Result<Value> {
        for (at, step) in steps.iter().enumerate() {
            self.budget.spend(NODE_COST)?;
            value = match step {
                TraversalOperator::GetAttr(name) => attribute(&value, name.as_str())?,
                TraversalOperator::LegacyIndex(index) => {
                    element(&value, &Value::text(index.to_string()), &self.budget)?
                }
                TraversalOperator::Index(expression) => {
                    element(&value, &self.evaluate(expression, scope)?, &self.budget)?
                }
                TraversalOperator::AttrSplat(_) | TraversalOperator::FullSplat(_) => {
                    let full = matches!(step, TraversalOperator::FullSplat(_));
                    let rest = &steps[at + 1..];
                    let inner = match full {
                        true => rest.len(),
                        false => {
                            rest.iter().take_while(|s| matches!(s, TraversalOperator::GetAttr(_))).count()
                        }
                    };
                    let one = [value.clone()];
                    let (items, is_tuple) = match &value {
                        Value::Unknown(_) => return Ok(value),
                        Value::Null(Type::List(_) | Type::Set(_) | Type::Tuple(_)) => {
                            return failed("a null list has no elements");
                        }
                        Value::Null(_) => (&[][..], true),
                        Value::List(list) => (&list.items[..], matches!(list.kind, SequenceKind::Tuple)),
                        _ => (&one[..], true),
                    };
                    let items: Result<_> = items
                        .iter()
                        .map(|item| self.budget.deeper(|| self.traverse(item.clone(), &rest[..inner], scope)))
                        .collect();
                    let mut found = Value::tuple(items?);
                    if !is_tuple {
                        // The elements of a list have one type, and so has the result.
                        found = Type::List(Rc::new(Type::Any)).convert(&found, &self.budget)?;
                    }
                    return self.budget.deeper(|| self.traverse(found, &rest[inner..], scope));
                }
            };
        }
        Ok(value)
    }
}

/// Most names that a template in a file may be given.
const MAX_TEMPLATE_NAMES: usize = 200;

/// The source text of a number; the parser keeps fewer digits.
fn written(number: &hcl_edit::Formatted<hcl_edit::Number>) -> String {
    match number.as_repr() {
        Some(repr) if !repr.is_empty() => repr.to_string(),
        _ => number.value().to_string(),
    }
}

fn attribute(value: &Value, name: &str) -> Result<Value> {
    match value {
        Value::Map(map) => match map.items.get(&normalized(name)) {
            Some(value) => Ok(value.clone()),
            None => failed(format!("the value has no attribute {name:?}")),
        },
        Value::Unknown(reason) => Err(EvalError::Unknown(reason.clone())),
        other => failed(format!("{} has no attribute {name:?}", other.described())),
    }
}

/// An element of a list or a map.
pub(crate) fn element(value: &Value, key: &Value, budget: &Budget) -> Result<Value> {
    match (value, key) {
        (Value::Unknown(reason), _) | (_, Value::Unknown(reason)) => Err(EvalError::Unknown(reason.clone())),
        (Value::List(list), _) if matches!(list.kind, SequenceKind::Set(_)) => {
            failed("the elements of a set have no index")
        }
        (Value::List(list), key) => {
            let index = key.to_number(budget)?.as_whole().and_then(|index| usize::try_from(index).ok());
            match index.and_then(|index| list.items.get(index)) {
                Some(value) => Ok(value.clone()),
                None => failed("the index is outside of the list"),
            }
        }
        (Value::Map(_), Value::Text(key)) => attribute(value, key),
        (Value::Map(_), key) => attribute(value, &key.to_text(budget)?),
        (other, _) => failed(format!("{} has no elements", other.described())),
    }
}

//! From configuration to plan to state: defaults, unknown values, replacement, null and zero values.
//!
//! The rules are those of terraform 3.1. No managed resource of this provider can be changed in place, so a plan creates
//! the resource, keeps it, or requests a replacement, which Terraform then plans as a creation.

use std::collections::BTreeMap;

use crate::diagnostics::Path;
use crate::schema::{Attribute, Block, Nested, Nesting, Type};
use crate::value::Value;

/// The plan for a resource that does not exist yet.
pub(crate) fn create(block: &Block, config: &Value) -> Value {
    build(
        block,
        |attribute| match config.field(attribute.name) {
            Value::Null if attribute.is_computed() => Value::Unknown,
            value => or_default(attribute, value),
        },
        |nested| match config.field(nested.name) {
            Value::List(items) if items.is_empty() && nested.computed => Value::Unknown,
            Value::List(items) => Value::List(items.iter().map(|item| create(&nested.block, item)).collect()),
            Value::Null => Value::List(Vec::new()),
            value => value.clone(),
        },
    )
}

/// The plan for a resource that exists, and the paths of the values that force a replacement.
///
/// A difference between null and the zero value of a type alone changes nothing; together with another difference such
/// paths are listed, too.
pub(crate) fn update(block: &Block, prior: &Value, config: &Value) -> (Value, Vec<Path>) {
    let mut changes = Changes::default();
    let planned = change(block, prior, config, &Path::default(), &mut changes);
    if changes.count { (planned, changes.replace) } else { (prior.clone(), Vec::new()) }
}

/// The differences between a state and a configuration.
#[derive(Default)]
struct Changes {
    replace: Vec<Path>,
    /// Whether any of them is more than null against a zero value.
    count: bool,
}

impl Changes {
    fn add(&mut self, path: Path) {
        self.replace.push(path);
        self.count = true;
    }
}

fn change(block: &Block, prior: &Value, config: &Value, path: &Path, changes: &mut Changes) -> Value {
    let mut attributes = BTreeMap::new();
    for attribute in &block.attributes {
        let (old, new) = (prior.field(attribute.name), config.field(attribute.name));
        let desired = or_default(attribute, new);
        let keeps = !attribute.is_configurable() || (new.is_null() && attribute.is_computed());
        let planned = if keeps || !differs(old, &desired) {
            old.clone()
        } else {
            changes.replace.push(path.attribute(attribute.name));
            changes.count |= !(old.is_zero() && desired.is_zero());
            desired
        };
        attributes.insert(attribute.name.to_owned(), planned);
    }
    for nested in &block.blocks {
        let (old, new) = (prior.field(nested.name), config.field(nested.name));
        let path = path.attribute(nested.name);
        let planned = match new {
            Value::Unknown if nested.computed => old.clone(),
            Value::Unknown => {
                changes.add(path);
                Value::Unknown
            }
            _ if nested.computed && new.items().is_empty() => old.clone(),
            _ if nested.nesting == Nesting::Set => change_set(nested, old, new, path, changes),
            _ => change_list(nested, old.items(), new.items(), &path, changes),
        };
        attributes.insert(nested.name.to_owned(), planned);
    }
    Value::Object(attributes)
}

/// Whether a configured value is another one than that of the state. A number or flag that is written out where the
/// state has none is, even 0 and false; nothing written where the state has one of these is not.
fn differs(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Null, Value::Int(_) | Value::Float(_) | Value::Bool(_)) => true,
        _ => !same(old, new),
    }
}

/// A list changes element by element; a different number of elements also names the list itself.
fn change_list(nested: &Nested, old: &[Value], new: &[Value], path: &Path, changes: &mut Changes) -> Value {
    // As long as nothing else changes in the list, a number or flag that is not known yet counts as one that is not set.
    if old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_kept(&nested.block, old, new)) {
        return Value::List(old.to_vec());
    }
    if old.len() != new.len() {
        changes.add(path.clone());
    }
    for (index, gone) in old.iter().enumerate().skip(new.len()) {
        changes.replace.extend(removed(&nested.block, gone, &path.index(index)));
    }
    let mut planned = Vec::new();
    for (index, item) in new.iter().enumerate() {
        let path = path.index(index);
        planned.push(match old.get(index) {
            Some(old) => change(&nested.block, old, item, &path, changes),
            None => {
                changes.replace.extend(added(&nested.block, item, &path));
                create(&nested.block, item)
            }
        });
    }
    Value::List(planned)
}

fn is_kept(block: &Block, old: &Value, new: &Value) -> bool {
    block.attributes.iter().filter(|attribute| attribute.is_configurable()).all(|attribute| {
        let (old, new) = (old.field(attribute.name), new.field(attribute.name));
        let counts = attribute.kind == Type::Text || !new.is_unknown();
        if counts { same(old, &or_default(attribute, new)) } else { old.is_zero() }
    })
}

/// A set is compared as a whole, whatever its order.
fn change_set(nested: &Nested, old: &Value, new: &Value, path: Path, changes: &mut Changes) -> Value {
    let planned: Vec<_> = new.items().iter().map(|item| create(&nested.block, item)).collect();
    let mut unmatched: Vec<_> = old.items().iter().collect();
    let all_found = planned.iter().all(|item| {
        let found = unmatched.iter().position(|old| same(old, item));
        found.map(|index| unmatched.swap_remove(index)).is_some()
    });
    if all_found && unmatched.is_empty() {
        return old.clone();
    }
    changes.add(path);
    Value::List(planned)
}

/// The content of a removed element.
fn removed(block: &Block, item: &Value, path: &Path) -> Vec<Path> {
    paths(block, path, |attribute| !item.field(attribute.name).is_zero())
}

/// The content of a new element: every number and flag counts, and every text that is not empty.
fn added(block: &Block, item: &Value, path: &Path) -> Vec<Path> {
    paths(block, path, |attribute| match or_default(attribute, item.field(attribute.name)) {
        Value::Null => false,
        Value::Text(text) => !text.is_empty(),
        _ => true,
    })
}

fn paths(block: &Block, path: &Path, holds: impl Fn(&Attribute) -> bool) -> Vec<Path> {
    let attributes =
        block.attributes.iter().filter(|attribute| attribute.is_configurable() && holds(attribute));
    attributes.map(|attribute| path.attribute(attribute.name)).collect()
}

/// Whether two values mean the same: null and what a type starts with do, and the order of sets is free.
fn same(left: &Value, right: &Value) -> bool {
    if left.is_zero() && right.is_zero() {
        return true;
    }
    match (left, right) {
        (Value::Unknown, _) | (_, Value::Unknown) => false,
        (Value::Object(old), Value::Object(new)) => {
            let mut names = old.keys().chain(new.keys());
            names.all(|name| same(left.field(name), right.field(name)))
        }
        (Value::List(old), Value::List(new)) => {
            old.len() == new.len() && old.iter().all(|item| new.iter().any(|other| same(item, other)))
        }
        _ => left == right,
    }
}

/// The state of a resource after apply: without unknown values, and without null scalars inside blocks.
pub(crate) fn settle(block: &Block, value: &Value) -> Value {
    settle_block(block, value, false)
}

fn settle_block(block: &Block, value: &Value, inside: bool) -> Value {
    build(
        block,
        |attribute| match value.field(attribute.name) {
            Value::Null | Value::Unknown if inside => zero(attribute.kind),
            Value::Unknown => Value::Null,
            value => value.clone(),
        },
        |nested| {
            let items = value.field(nested.name).items();
            Value::List(items.iter().map(|item| settle_block(&nested.block, item, true)).collect())
        },
    )
}

/// The initial value of a data source: its configuration with defaults. Blocks that are not given are null, and so is
/// empty text outside of blocks.
pub(crate) fn data(block: &Block, config: &Value) -> Value {
    data_block(block, config, false)
}

fn data_block(block: &Block, config: &Value, inside: bool) -> Value {
    build(
        block,
        |attribute| match or_default(attribute, config.field(attribute.name)) {
            Value::Null if inside => zero(attribute.kind),
            Value::Text(text) if text.is_empty() && !inside => Value::Null,
            value => value,
        },
        |nested| match config.field(nested.name).items() {
            [] if !inside => Value::Null,
            items => Value::List(items.iter().map(|item| data_block(&nested.block, item, true)).collect()),
        },
    )
}

fn build(block: &Block, attribute: impl Fn(&Attribute) -> Value, nested: impl Fn(&Nested) -> Value) -> Value {
    let attributes = block.attributes.iter().map(|each| (each.name, attribute(each)));
    let blocks = block.blocks.iter().map(|each| (each.name, nested(each)));
    Value::object(attributes.chain(blocks))
}

/// The value of the configuration, or the default.
fn or_default(attribute: &Attribute, value: &Value) -> Value {
    match (value, &attribute.default) {
        (Value::Null, Some(default)) => default.clone(),
        (Value::Object(entries), _) if attribute.kind == Type::TextMap => normal_map(entries),
        _ => value.clone(),
    }
}

/// A map without its null entries; it is wholly unknown when an entry is, and null when nothing is left.
fn normal_map(entries: &BTreeMap<String, Value>) -> Value {
    if entries.values().any(Value::is_unknown) {
        return Value::Unknown;
    }
    let filled: BTreeMap<_, _> = entries
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if filled.is_empty() { Value::Null } else { Value::Object(filled) }
}

fn zero(kind: Type) -> Value {
    match kind {
        Type::Text => Value::text(""),
        Type::Number => Value::Int(0),
        Type::Bool => Value::Bool(false),
        Type::TextMap | Type::TextList | Type::ObjectList(_) => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::Step;

    fn block() -> Block {
        let part = Block::new(vec![
            Attribute::required("key", Type::Text, ""),
            Attribute::optional("size", Type::Number, ""),
            Attribute::computed("made", Type::Bool, ""),
        ]);
        let bag = Block::new(vec![Attribute::optional("on", Type::Bool, "").default(Value::Bool(true))]);
        Block::new(vec![
            Attribute::id(),
            Attribute::optional("name", Type::Text, ""),
            Attribute::optional("mode", Type::Text, "").default(Value::text("auto")),
            Attribute::optional("env", Type::TextMap, ""),
        ])
        .with(Nested::list("part", "", part))
        .with(Nested::set("bag", "", bag).computed())
    }

    fn part(key: &str) -> Value {
        Value::object([("key", Value::text(key)), ("size", Value::Null), ("made", Value::Null)])
    }

    fn config(name: Value, parts: &[&str]) -> Value {
        Value::object([
            ("name", name),
            ("part", Value::List(parts.iter().map(|key| part(key)).collect())),
            ("bag", Value::List(Vec::new())),
        ])
    }

    #[test]
    fn creation_has_defaults_unknowns_and_nulls() {
        let planned = create(&block(), &config(Value::Null, &["a"]));
        assert!(planned.field("id").is_unknown() && planned.field("name").is_null());
        assert!(planned.field("mode").as_text() == Some("auto") && planned.field("env").is_null());
        let first = &planned.field("part").items()[0];
        assert!(first.field("made").is_unknown() && first.field("size").is_null());
        assert!(planned.field("bag").is_unknown(), "a computed block is unknown until it is made");
    }

    #[test]
    fn state_has_zero_values_inside_blocks_only() {
        let state = settle(&block(), &create(&block(), &config(Value::Null, &["a"])));
        assert!(state.field("name").is_null() && state.field("id").is_null());
        let first = &state.field("part").items()[0];
        assert!(*first.field("size") == Value::Int(0) && *first.field("made") == Value::Bool(false));
        assert!(*state.field("bag") == Value::List(Vec::new()));
    }

    #[test]
    fn the_same_configuration_changes_nothing() {
        let config = config(Value::Null, &["a", "b"]);
        let mut state = settle(&block(), &create(&block(), &config));
        state.set("id", Value::text("1"));
        let (planned, replace) = update(&block(), &state, &config);
        assert!(planned == state && replace.is_empty());
    }

    fn replaced(old: &Value, new: &Value) -> Vec<Vec<Step>> {
        let state = settle(&block(), &create(&block(), old));
        update(&block(), &state, new).1.into_iter().map(|path| path.steps).collect()
    }

    #[test]
    fn replacement_names_what_differs() {
        let named = |name: &str| config(Value::text(name), &[]);
        assert_eq!(replaced(&named("a"), &named("b")), [[Step::Attribute("name")]]);
        assert_eq!(replaced(&named(""), &config(Value::Null, &[])), Vec::<Vec<Step>>::new());
        assert_eq!(replaced(&named("a"), &config(Value::Unknown, &[])), [[Step::Attribute("name")]]);
        let key = |index| vec![Step::Attribute("part"), Step::Index(index), Step::Attribute("key")];
        let (one, two) = (config(Value::Null, &["a"]), config(Value::Null, &["a", "b"]));
        assert_eq!(replaced(&one, &config(Value::Null, &["b"])), [key(0)]);
        assert_eq!(replaced(&one, &two), [vec![Step::Attribute("part")], key(1)]);
        assert_eq!(replaced(&two, &one), [vec![Step::Attribute("part")], key(1)]);
    }

    #[test]
    fn sets_are_replaced_whole_and_kept_when_computed() {
        let mut some = config(Value::Null, &[]);
        some.set("bag", Value::List(vec![Value::object([("on", Value::Bool(false))])]));
        let mut other = some.clone();
        other.set("bag", Value::List(vec![Value::object([("on", Value::Null)])]));
        assert_eq!(replaced(&some, &other), [[Step::Attribute("bag")]]);
        assert_eq!(replaced(&some, &some), Vec::<Vec<Step>>::new());
        assert_eq!(replaced(&some, &config(Value::Null, &[])), Vec::<Vec<Step>>::new());
    }

    #[test]
    fn data_sources_have_null_for_blocks_that_are_not_given() {
        let state = data(&block(), &config(Value::Null, &[]));
        assert!(state.field("part").is_null() && state.field("name").is_null());
        let state = data(&block(), &config(Value::Null, &["a"]));
        assert!(*state.field("part").items()[0].field("size") == Value::Int(0));
    }
}

//! Schemas of resource types, data sources and the provider.

use crate::check::Check;
use crate::value::Value;

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Text,
    Number,
    Bool,
    /// Map of strings.
    TextMap,
    /// List of strings.
    TextList,
    /// List of objects with string fields.
    ObjectList(&'static [&'static str]),
}

/// Where the value of an attribute comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Required,
    Optional,
    Computed,
    /// The configuration, or the provider when the configuration has no value.
    OptionalComputed,
}

/// One attribute of a block.
pub(crate) struct Attribute {
    pub(crate) name: &'static str,
    pub(crate) kind: Type,
    pub(crate) mode: Mode,
    pub(crate) description: &'static str,
    pub(crate) sensitive: bool,
    pub(crate) default: Option<Value>,
    /// Checks of a value that is known and not null.
    pub(crate) checks: Vec<Check>,
    /// Attributes and blocks of the same block that must not be set together with this one.
    pub(crate) conflicts: &'static [&'static str],
    /// The `id` that Terraform requires: it can be read but not configured.
    pub(crate) reserved: bool,
}

impl Attribute {
    fn new(name: &'static str, kind: Type, mode: Mode, description: &'static str) -> Self {
        Self {
            name,
            kind,
            mode,
            description,
            sensitive: false,
            default: None,
            checks: Vec::new(),
            conflicts: &[],
            reserved: false,
        }
    }

    pub(crate) fn required(name: &'static str, kind: Type, description: &'static str) -> Self {
        Self::new(name, kind, Mode::Required, description)
    }

    pub(crate) fn optional(name: &'static str, kind: Type, description: &'static str) -> Self {
        Self::new(name, kind, Mode::Optional, description)
    }

    pub(crate) fn computed(name: &'static str, kind: Type, description: &'static str) -> Self {
        Self::new(name, kind, Mode::Computed, description)
    }

    pub(crate) fn optional_computed(name: &'static str, kind: Type, description: &'static str) -> Self {
        Self::new(name, kind, Mode::OptionalComputed, description)
    }

    /// The `id` of a type that declares none.
    pub(crate) fn id() -> Self {
        Self { reserved: true, ..Self::optional_computed("id", Type::Text, "Random identifier.") }
    }

    pub(crate) fn sensitive(mut self) -> Self {
        self.sensitive = true;
        self
    }

    pub(crate) fn default(mut self, default: Value) -> Self {
        self.default = Some(default);
        self
    }

    pub(crate) fn check(mut self, check: Check) -> Self {
        self.checks.push(check);
        self
    }

    pub(crate) fn conflicts(mut self, conflicts: &'static [&'static str]) -> Self {
        self.conflicts = conflicts;
        self
    }

    /// Whether the configuration may set the attribute.
    pub(crate) fn is_configurable(&self) -> bool {
        self.mode != Mode::Computed
    }

    /// Whether the provider sets the attribute when the configuration does not.
    pub(crate) fn is_computed(&self) -> bool {
        matches!(self.mode, Mode::Computed | Mode::OptionalComputed)
    }
}

/// Whether the order of blocks matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nesting {
    List,
    Set,
}

/// A block inside a block.
pub(crate) struct Nested {
    pub(crate) name: &'static str,
    pub(crate) nesting: Nesting,
    /// Fewest and most blocks; a maximum of 0 means any number.
    pub(crate) min: usize,
    pub(crate) max: usize,
    /// Whether the provider adds blocks when the configuration has none.
    pub(crate) computed: bool,
    /// The deprecation message.
    pub(crate) deprecated: Option<&'static str>,
    pub(crate) conflicts: &'static [&'static str],
    pub(crate) description: &'static str,
    pub(crate) block: Block,
}

impl Nested {
    fn new(name: &'static str, nesting: Nesting, description: &'static str, block: Block) -> Self {
        Self {
            name,
            nesting,
            min: 0,
            max: 0,
            computed: false,
            deprecated: None,
            conflicts: &[],
            description,
            block,
        }
    }

    pub(crate) fn list(name: &'static str, description: &'static str, block: Block) -> Self {
        Self::new(name, Nesting::List, description, block)
    }

    pub(crate) fn set(name: &'static str, description: &'static str, block: Block) -> Self {
        Self::new(name, Nesting::Set, description, block)
    }

    pub(crate) fn min(mut self, min: usize) -> Self {
        self.min = min;
        self
    }

    pub(crate) fn max(mut self, max: usize) -> Self {
        self.max = max;
        self
    }

    pub(crate) fn computed(mut self) -> Self {
        self.computed = true;
        self
    }

    pub(crate) fn deprecated(mut self, reason: &'static str) -> Self {
        self.deprecated = Some(reason);
        self
    }

    pub(crate) fn conflicts(mut self, conflicts: &'static [&'static str]) -> Self {
        self.conflicts = conflicts;
        self
    }
}

/// The attributes and blocks of a type or of a block.
#[derive(Default)]
pub(crate) struct Block {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) blocks: Vec<Nested>,
}

impl Block {
    pub(crate) fn new(attributes: Vec<Attribute>) -> Self {
        Self { attributes, blocks: Vec::new() }
    }

    pub(crate) fn with(mut self, nested: Nested) -> Self {
        self.blocks.push(nested);
        self
    }
}

/// A block with the version of the state format it describes.
pub(crate) struct Schema {
    pub(crate) version: i64,
    pub(crate) block: Block,
}

//! Lookup of resources by address and by the label the graph uses for all instances of one block.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use super::address;
use crate::terraform::resources::state::{Module, Resource};

pub(super) struct ResourceIndex<'a> {
    /// Sorted by address, so that the result does not depend on Terraform's order.
    by_address: BTreeMap<&'a str, &'a Resource>,
    owner_labels: HashSet<Cow<'a, str>>,
    /// Parameters, presets and AI tasks in their original order; duplicates are kept (terraform 4.2).
    in_order: Vec<&'a Resource>,
    labels: LabelRule,
}

/// How an address becomes a graph label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LabelRule {
    /// Everything from the first instance key on is cut off (terraform 4.2), so that nothing in a module with
    /// `count` or `for_each` has its own label.
    CutAtKey,
    /// All keys are removed. The reference implementation fails on templates with agents in such modules, so no
    /// compatibility is lost.
    WithoutKeys,
}

impl<'a> ResourceIndex<'a> {
    pub(super) fn new(modules: &'a [Module]) -> Self {
        let mut index = Self {
            by_address: BTreeMap::new(),
            owner_labels: HashSet::new(),
            in_order: Vec::new(),
            labels: LabelRule::CutAtKey,
        };
        for module in modules {
            module.walk(&mut |resource| {
                if matches!(
                    resource.kind.as_str(),
                    "coder_parameter" | "coder_workspace_preset" | "coder_ai_task"
                ) {
                    index.in_order.push(resource);
                }
                index.by_address.insert(&resource.address, resource);
            });
        }
        if index.managed("coder_agent").any(|agent| address::is_in_keyed_module(&agent.address)) {
            index.labels = LabelRule::WithoutKeys;
        }
        index.owner_labels = index
            .by_address
            .values()
            .filter(|resource| resource.is_managed() && can_own(&resource.kind))
            .map(|resource| index.label(&resource.address))
            .collect();
        index
    }

    /// The label of the block of an address.
    pub(super) fn label<'t>(&self, address: &'t str) -> Cow<'t, str> {
        match self.labels {
            LabelRule::CutAtKey => address.split_once('[').map_or(address, |(label, _)| label).into(),
            LabelRule::WithoutKeys => address::without_keys(address),
        }
    }

    pub(super) fn by_address(&self) -> impl Iterator<Item = &'a Resource> {
        self.by_address.values().copied()
    }

    pub(super) fn managed(&self, kind: &str) -> impl Iterator<Item = &'a Resource> {
        self.by_address().filter(move |resource| resource.is_managed() && resource.kind == kind)
    }

    pub(super) fn in_order(&self, kind: &str) -> impl Iterator<Item = &'a Resource> {
        self.in_order.iter().copied().filter(move |resource| resource.kind == kind)
    }

    /// Whether the label is that of a resource that may own agents and metadata (terraform 4.3).
    pub(super) fn is_owner(&self, label: &str) -> bool {
        self.owner_labels.contains(label)
    }
}

fn can_own(kind: &str) -> bool {
    !kind.starts_with("coder_") || kind == "coder_external_agent"
}

//! Lookup of resources by address and by the label the graph uses for all instances of one block.

use std::collections::{BTreeMap, HashSet};

use crate::terraform::state::{Module, Resource};

pub(super) struct Index<'a> {
    /// Address order makes every result independent of the order Terraform printed things in.
    by_address: BTreeMap<&'a str, &'a Resource>,
    owner_labels: HashSet<&'a str>,
    /// Parameters, presets and AI tasks in the order they were met; duplicates stay (terraform 4.2).
    in_order: Vec<&'a Resource>,
}

/// The address without anything from the first instance key on (terraform 4.2).
pub(super) fn label(address: &str) -> &str {
    address.split_once('[').map_or(address, |(label, _)| label)
}

impl<'a> Index<'a> {
    pub(super) fn new(modules: &'a [Module]) -> Self {
        let mut index =
            Self { by_address: BTreeMap::new(), owner_labels: HashSet::new(), in_order: Vec::new() };
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
        index.owner_labels = index
            .by_address
            .values()
            .filter(|resource| resource.is_managed() && can_own(&resource.kind))
            .map(|resource| label(&resource.address))
            .collect();
        index
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

    /// Whether the label stands for a resource that may own agents and metadata (terraform 4.3).
    pub(super) fn is_owner(&self, label: &str) -> bool {
        self.owner_labels.contains(label)
    }
}

fn can_own(kind: &str) -> bool {
    !kind.starts_with("coder_") || kind == "coder_external_agent"
}

/// The leading `module.…` parts of an address with their instance keys (terraform 4.7).
pub(super) fn module_path(address: &str) -> String {
    let mut end = 0;
    let mut rest = address;
    while let Some(after) = rest.strip_prefix("module.") {
        let Some(length) = step_length(after) else { return INVALID.to_owned() };
        end = address.len() - after.len() + length;
        match after[length..].strip_prefix('.') {
            Some(next) => rest = next,
            None => return INVALID.to_owned(),
        }
    }
    address[..end].to_owned()
}

const INVALID: &str = "invalid terraform address";

/// Length of a module name with its optional instance key.
fn step_length(text: &str) -> Option<usize> {
    let name = text.find(['.', '[']).filter(|&at| at > 0)?;
    if !text[name..].starts_with('[') {
        return Some(name);
    }
    let key = &text[name + 1..];
    let mut quoted = false;
    let mut escaped = false;
    for (at, char) in key.char_indices() {
        match char {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ']' if !quoted => return Some(name + 1 + at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_end_at_the_first_key() {
        assert_eq!(label("null_resource.a[0]"), "null_resource.a");
        assert_eq!(label(r#"module.m["x"].coder_agent.a"#), "module.m");
        assert_eq!(label("a.b"), "a.b");
    }

    #[test]
    fn module_paths_keep_instance_keys() {
        assert_eq!(module_path("a.b"), "");
        assert_eq!(module_path("module.m.a.b[1]"), "module.m");
        assert_eq!(module_path(r#"module.m["x.]\"y"].module.n[0].a.b"#), r#"module.m["x.]\"y"].module.n[0]"#);
        assert_eq!(module_path("module.m"), INVALID);
        assert_eq!(module_path("module.m[0.a.b"), INVALID);
    }
}

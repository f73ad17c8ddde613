//! `coder_metadata`: which resource it describes and what it sets there (terraform 4.6).

use std::collections::HashMap;

use coder_wire::messages::provisioner as pb;

use super::ConvertError;
use super::attributes::Attributes;
use super::index::{Index, label};
use crate::terraform::graph::{Direction, Graph};

struct Described {
    items: Vec<pb::resource::Metadata>,
    hide: bool,
    icon: String,
    daily_cost: i32,
}

pub(super) struct Metadata(HashMap<String, Described>);

impl Metadata {
    /// Applies to every instance of the label.
    pub(super) fn apply(&mut self, label: &str, resource: &mut pb::Resource) {
        if let Some(described) = self.0.get(label) {
            resource.metadata = described.items.clone();
            resource.hide = described.hide;
            resource.icon = described.icon.clone();
            resource.daily_cost = described.daily_cost;
        }
    }
}

pub(super) fn collect(index: &Index<'_>, graph: &Graph) -> Result<Metadata, ConvertError> {
    let mut targets = HashMap::new();
    let mut seen = std::collections::HashSet::new();
    for resource in index.managed("coder_metadata") {
        let own = label(&resource.address);
        let Some(node) = graph.find(own) else { continue };
        let Some(target) = graph.nearest(node, Direction::Down, |label| index.is_owner(label)) else {
            continue;
        };
        if !seen.insert(target.to_owned()) {
            return Err(ConvertError::DuplicateMetadata(target.to_owned()));
        }
        let from = Attributes::of(resource);
        let mut items = Vec::new();
        for item in from.blocks("item")? {
            items.push(pb::resource::Metadata {
                key: item.string("key")?,
                value: item.string("value")?,
                sensitive: item.boolean("sensitive")?,
                is_null: item.boolean("is_null")?,
            });
        }
        let described = Described {
            items,
            hide: from.boolean("hide")?,
            icon: from.string("icon")?,
            daily_cost: from.small_integer("daily_cost")?,
        };
        targets.insert(target.to_owned(), described);
    }
    Ok(Metadata(targets))
}

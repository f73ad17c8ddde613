//! `coder_metadata`: which resource it describes, and its content (terraform 4.6).

use coder_wire::messages::provisioner as pb;

use super::attributes::Attributes;
use super::index::ResourceIndex;
use super::{ConvertError, address};
use crate::terraform::resources::graph::{Direction, Graph};

struct DescribedResource {
    target: String,
    /// The address of the metadata, which identifies its module instances.
    address: String,
    items: Vec<pb::resource::Metadata>,
    hide: bool,
    icon: String,
    daily_cost: i32,
}

pub(super) struct MetadataIndex(Vec<DescribedResource>);

impl MetadataIndex {
    /// Applies to every instance of the label.
    pub(super) fn apply(&self, label: &str, instance: &str, resource: &mut pb::Resource) {
        let mut all = self.0.iter();
        let found = all.find(|one| one.target == label && address::agree(&one.address, instance));
        if let Some(described) = found {
            resource.metadata = described.items.clone();
            resource.hide = described.hide;
            resource.icon = described.icon.clone();
            resource.daily_cost = described.daily_cost;
        }
    }
}

pub(super) fn collect(index: &ResourceIndex<'_>, graph: &Graph) -> Result<MetadataIndex, ConvertError> {
    let mut described: Vec<DescribedResource> = Vec::new();
    for resource in index.managed("coder_metadata") {
        let own = index.label(&resource.address);
        let Some(node) = graph.find(&own) else { continue };
        let Some(target) = graph.nearest(node, Direction::Down, |label| index.is_owner(label)) else {
            continue;
        };
        let is_taken = described
            .iter()
            .any(|one| one.target == target && address::agree(&one.address, &resource.address));
        if is_taken {
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
        described.push(DescribedResource {
            target: target.to_owned(),
            address: resource.address.clone(),
            items,
            hide: from.boolean("hide")?,
            icon: from.string("icon")?,
            daily_cost: from.small_integer("daily_cost")?,
        });
    }
    Ok(MetadataIndex(described))
}

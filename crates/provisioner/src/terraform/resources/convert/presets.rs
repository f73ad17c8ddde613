//! `coder_workspace_preset` data sources (terraform 4.9).

use coder_wire::messages::provisioner as pb;

use super::ConvertError;
use super::attributes::Attributes;
use super::index::ResourceIndex;

pub(super) fn convert(index: &ResourceIndex<'_>) -> Result<Vec<pb::Preset>, ConvertError> {
    let mut presets = Vec::new();
    for resource in index.in_order("coder_workspace_preset") {
        let from = Attributes::of(resource);
        let mut parameters: Vec<pb::PresetParameter> = from
            .string_map("parameters")?
            .into_iter()
            .map(|(name, value)| pb::PresetParameter { name, value })
            .collect();
        parameters.sort_by(|a, b| a.name.cmp(&b.name));
        presets.push(pb::Preset {
            name: from.string("name")?,
            description: from.string("description")?,
            icon: from.string("icon")?,
            default: from.boolean("default")?,
            parameters,
            prebuild: Some(prebuild(from)?),
        });
    }
    let defaults = presets.iter().filter(|preset| preset.default).count();
    if defaults > 1 {
        return Err(ConvertError::DefaultPresets(defaults));
    }
    Ok(presets)
}

fn prebuild(from: Attributes<'_>) -> Result<pb::Prebuild, ConvertError> {
    let mut prebuild = pb::Prebuild::default();
    let blocks = from.blocks("prebuilds")?;
    let Some(block) = blocks.first() else { return Ok(prebuild) };
    prebuild.instances = block.small_integer("instances")?;
    if let Some(policy) = block.blocks("expiration_policy")?.first() {
        prebuild.expiration_policy = Some(pb::ExpirationPolicy { ttl: policy.small_integer("ttl")? });
    }
    if let Some(scheduling) = block.blocks("scheduling")?.first() {
        let mut schedule = Vec::new();
        for entry in scheduling.blocks("schedule")? {
            schedule.push(pb::Schedule {
                cron: entry.string("cron")?,
                instances: entry.small_integer("instances")?,
            });
        }
        prebuild.scheduling = Some(pb::Scheduling { timezone: scheduling.string("timezone")?, schedule });
    }
    Ok(prebuild)
}

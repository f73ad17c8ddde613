//! `coder_devcontainer`: a dev container the agent starts.

use super::Resource;
use crate::check::Check;
use crate::context::random_id;
use crate::schema::Type::Text;
use crate::schema::{Attribute, Block, Schema};

pub(super) fn resource() -> Resource {
    let block = Block::new(vec![
        Attribute::id(),
        Attribute::required("agent_id", Text, "Id of the agent."),
        Attribute::required("workspace_folder", Text, "Folder of the project.").check(Check::NotEmpty),
        Attribute::optional("config_path", Text, "File that describes the container, if not the usual one."),
        Attribute::computed("subagent_id", Text, "Id of the agent inside the container."),
    ]);
    Resource {
        create: |state, _, _| {
            state.set("id", random_id());
            state.set("subagent_id", random_id());
        },
        ..Resource::plain("coder_devcontainer", Schema { version: 1, block })
    }
}

//! `coder_agent_instance`: the cloud instance an agent runs on, for authentication by instance identity.

use super::Resource;
use crate::schema::Type::Text;
use crate::schema::{Attribute, Block, Schema};

pub(super) fn resource() -> Resource {
    let block = Block::new(vec![
        Attribute::id(),
        Attribute::required("agent_id", Text, "Id of the agent."),
        Attribute::required("instance_id", Text, "Identifier the cloud gives the instance."),
    ]);
    Resource::plain("coder_agent_instance", Schema { version: 0, block })
}

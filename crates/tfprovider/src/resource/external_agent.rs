//! `coder_external_agent`: an agent that is started outside of the template.

use super::Resource;
use crate::schema::Type::Text;
use crate::schema::{Attribute, Block, Schema};

pub(super) fn resource() -> Resource {
    let block = Block::new(vec![Attribute::id(), Attribute::required("agent_id", Text, "Id of the agent.")]);
    Resource::plain("coder_external_agent", Schema { version: 1, block })
}

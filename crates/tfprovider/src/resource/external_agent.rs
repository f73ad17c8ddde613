//! `coder_external_agent`: an agent that somebody starts outside of the template.

use super::Resource;
use crate::schema::Type::Text;
use crate::schema::{Attribute, Block, Schema};

pub(super) fn resource() -> Resource {
    let block = Block::new(vec![Attribute::id(), Attribute::required("agent_id", Text, "Id of the agent.")]);
    Resource::plain("coder_external_agent", Schema { version: 1, block })
}

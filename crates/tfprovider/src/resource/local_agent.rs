//! `coder_local_agent`: an agent that runs as a process of the daemon's machine, for `coder quickstart`. It is not a type of the
//! official provider, so only a provider that can start agents offers it.

use super::Resource;
use crate::schema::Type::Text;
use crate::schema::{Attribute, Block, Schema};

pub(crate) const NAME: &str = "coder_local_agent";
pub(crate) const TOKEN: &str = "token";

pub(crate) fn resource() -> Resource {
    let block = Block::new(vec![
        Attribute::id(),
        Attribute::required(TOKEN, Text, "Token of the agent: coder_agent.NAME.token.").sensitive(),
    ]);
    Resource::plain(NAME, Schema { version: 0, block })
}

//! `coder_workspace_tags`: tags of the daemons that may build the workspace; read by the import, not from here.

use super::DataSource;
use crate::context::random_id;
use crate::schema::Type::TextMap;
use crate::schema::{Attribute, Block, Schema};

pub(super) fn data_source() -> DataSource {
    let block =
        Block::new(vec![Attribute::id(), Attribute::optional("tags", TextMap, "Tags and their values.")]);
    DataSource {
        name: "coder_workspace_tags",
        schema: Schema { version: 1, block },
        read: |state, _, _, _| state.set("id", random_id()),
    }
}

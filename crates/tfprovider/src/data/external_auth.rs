//! `coder_external_auth`: the owner's token at another service.

use super::DataSource;
use crate::diagnostics::Path;
use crate::schema::Type::{Bool, Text};
use crate::schema::{Attribute, Block, Schema};
use crate::value::Value;

pub(super) fn data_source() -> DataSource {
    let block = Block::new(vec![
        Attribute::required("id", Text, "Name of the service in the deployment's configuration."),
        Attribute::optional("optional", Bool, "Whether a workspace can be made without it."),
        Attribute::computed("access_token", Text, "Token of the workspace's owner; may be empty.")
            .sensitive(),
    ]);
    DataSource {
        name: "coder_external_auth",
        schema: Schema { version: 1, block },
        read: |state, _, context, diagnostics| {
            let id = state.field("id").text_or_empty();
            // Only when it is read: a block with `count = 0` may leave it empty.
            if id.is_empty() {
                return diagnostics.error(Path::of("id"), "id is required", "");
            }
            let token = context.environment.get(&format!("CODER_EXTERNAL_AUTH_ACCESS_TOKEN_{id}")).to_owned();
            state.set("access_token", Value::text(token));
        },
    }
}

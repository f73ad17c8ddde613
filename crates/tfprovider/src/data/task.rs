//! `coder_task`: the task a workspace was made for, if any.

use uuid::Uuid;

use super::DataSource;
use crate::context::{Context, random_id};
use crate::diagnostics::{Diagnostics, Path};
use crate::schema::Type::{Bool, Text};
use crate::schema::{Attribute, Block, Schema};
use crate::value::Value;

pub(super) fn data_source() -> DataSource {
    let block = Block::new(vec![
        Attribute::computed("id", Text, "Id of the task, or a random one."),
        Attribute::computed("prompt", Text, "What the task is about; empty without a task."),
        Attribute::computed("enabled", Bool, "Whether the workspace was made for a task."),
    ]);
    DataSource { name: "coder_task", schema: Schema { version: 0, block }, read }
}

fn read(state: &mut Value, _: &Value, context: &Context<'_>, diagnostics: &mut Diagnostics) {
    let given = context.environment.get("CODER_TASK_ID");
    let task = match Uuid::try_parse(given) {
        _ if given.is_empty() => None,
        Ok(id) => Some(id).filter(|id| !id.is_nil()),
        Err(_) => {
            diagnostics.error(
                Path::default(),
                format!("invalid task id {given:?}: CODER_TASK_ID must be a UUID"),
                "",
            );
            return;
        }
    };
    state.set("id", task.map_or_else(random_id, |id| Value::text(id.to_string())));
    state.set("enabled", Value::Bool(task.is_some()));
    state.set("prompt", Value::text(context.environment.get("CODER_TASK_PROMPT")));
}

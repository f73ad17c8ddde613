//! `coder_ai_task`: marks a workspace as the place of a task and names the app to watch it in.

use uuid::Uuid;

use super::Resource;
use crate::check::{Check, CheckResult};
use crate::context::{Context, random_id};
use crate::diagnostics::{Diagnostics, Path};
use crate::schema::Type::{Bool, Text};
use crate::schema::{Attribute, Block, Nested, Schema};
use crate::value::Value;

pub(super) fn resource() -> Resource {
    let sidebar =
        Block::new(vec![Attribute::required("id", Text, "Id of the app.").check(Check::Text(uuid))]);
    let block = Block::new(vec![
        Attribute::computed("id", Text, "Id of the task."),
        Attribute::optional_computed("app_id", Text, "Id of the app that shows the task.")
            .check(Check::Text(uuid))
            .conflicts(&["sidebar_app"]),
        Attribute::computed("prompt", Text, "What the task is about."),
        Attribute::computed("enabled", Bool, "Whether the workspace was made for a task."),
    ])
    .with(
        Nested::set("sidebar_app", "The app that shows the task.", sidebar)
            .max(1)
            .deprecated("this block is deprecated: use app_id")
            .conflicts(&["app_id"]),
    );
    Resource { create, ..Resource::plain("coder_ai_task", Schema { version: 1, block }) }
}

fn uuid(text: &str) -> CheckResult {
    // The other spellings, without hyphens or with braces, have another length.
    match Uuid::try_parse(text) {
        Ok(_) if text.len() == 36 => CheckResult::Passed,
        _ => CheckResult::error(format!("expected a valid UUID, got {text:?}")),
    }
}

fn create(state: &mut Value, context: &Context<'_>, diagnostics: &mut Diagnostics) {
    let task = Uuid::try_parse(context.environment.get("CODER_TASK_ID")).ok().filter(|id| !id.is_nil());
    state.set("id", task.map_or_else(random_id, |id| Value::text(id.to_string())));
    state.set("enabled", Value::Bool(task.is_some()));
    let prompt = context.environment.get("CODER_TASK_PROMPT");
    state.set("prompt", if prompt.is_empty() { Value::Null } else { Value::text(prompt) });
    let sidebar = state.field("sidebar_app").items().first().map(|app| app.field("id").clone());
    match (state.field("app_id").as_text(), sidebar) {
        (Some(_), _) => {}
        (None, Some(app)) => state.set("app_id", app),
        (None, None) => diagnostics.error(Path::of("app_id"), "'app_id' must be set", ""),
    }
}

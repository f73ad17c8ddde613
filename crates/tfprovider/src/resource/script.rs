//! `coder_script`: a script that the agent runs at start, at stop or by the clock.

use super::Resource;
use crate::check::{Check, CheckResult};
use crate::context::{Context, random_id};
use crate::cron;
use crate::diagnostics::{Diagnostics, Path};
use crate::schema::Type::{Bool, Number, Text};
use crate::schema::{Attribute, Block, Schema};
use crate::value::Value;

pub(super) fn resource() -> Resource {
    let flag = |name, description| Attribute::optional(name, Bool, description).default(Value::Bool(false));
    let block = Block::new(vec![
        Attribute::id(),
        Attribute::required("agent_id", Text, "Id of the agent."),
        Attribute::required("display_name", Text, "Title in the logs."),
        Attribute::required("script", Text, "The script itself."),
        Attribute::optional("icon", Text, "Address of an image."),
        Attribute::optional("log_path", Text, "File the output is also written to."),
        Attribute::optional(
            "cron",
            Text,
            "When to run: six fields, seconds first, or a word such as @daily.",
        )
        .check(Check::Text(looks_like_unix))
        .check(Check::Text(schedule)),
        flag("start_blocks_login", "Whether log-ins wait for it at start."),
        flag("run_on_start", "Whether it runs when the workspace starts."),
        flag("run_on_stop", "Whether it runs when the workspace stops."),
        Attribute::optional("timeout", Number, "Seconds it may take; none means no limit.")
            .default(Value::Int(0))
            .check(Check::AtLeast(1)),
    ]);
    Resource { create, ..Resource::plain("coder_script", Schema { version: 1, block }) }
}

fn schedule(text: &str) -> CheckResult {
    match cron::with_seconds(text) {
        Ok(()) => CheckResult::Passed,
        Err(error) => CheckResult::error(format!("{text:?} is not a valid cron expression: {error}")),
    }
}

/// Five fields are valid, but mean something else than Unix cron means by them.
fn looks_like_unix(text: &str) -> CheckResult {
    if text.split_whitespace().count() != 5 || cron::five_fields(text).is_err() {
        return CheckResult::Passed;
    }
    CheckResult::Warning {
        summary: format!("The cron expression {text:?} appears to be in Unix 5-field format"),
        detail: format!(
            "Six fields are expected, seconds first; with five the first one still means seconds. To mean what Unix \
             cron means, write {:?}.",
            format!("0 {text}")
        ),
    }
}

/// These rules hold at apply, not at plan, as they always did.
fn create(state: &mut Value, _: &Context<'_>, diagnostics: &mut Diagnostics) {
    state.set("id", random_id());
    let is_set = |name: &str| !state.field(name).is_zero();
    if !is_set("run_on_start") && !is_set("run_on_stop") && !is_set("cron") {
        let summary = r#"at least one of "run_on_start", "run_on_stop", or "cron" must be set"#;
        diagnostics.error(Path::default(), summary, "without it the script never runs");
    }
    if is_set("start_blocks_login") && !is_set("run_on_start") {
        let summary = r#""start_blocks_login" can only be set if "run_on_start" is "true""#;
        diagnostics.error(Path::of("start_blocks_login"), summary, "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_fields_are_taken_with_a_warning() {
        let is_fine = |verdict| matches!(verdict, CheckResult::Passed);
        let warns = |text| matches!(looks_like_unix(text), CheckResult::Warning { .. });
        assert!(is_fine(schedule("0 0 22 * * *")) && !warns("0 0 22 * * *"));
        assert!(is_fine(schedule("@daily")) && !warns("@daily"));
        assert!(is_fine(schedule("0 22 * * *")) && warns("0 22 * * *"));
        assert!(!is_fine(schedule("0 22 31 * *")) && warns("0 22 31 * *"));
        assert!(!is_fine(schedule("nonsense")) && !is_fine(schedule("0 0 22 * * * *")));
    }
}

//! `coder_app`: something an agent offers in the dashboard.

use super::Resource;
use crate::check::{Check, CheckResult};
use crate::context::{Context, random_id};
use crate::diagnostics::{Diagnostics, Path};
use crate::schema::Type::{Bool, Number, Text};
use crate::schema::{Attribute, Block, Nested, Schema};
use crate::value::Value;

pub(super) fn resource() -> Resource {
    Resource { create, ..Resource::plain("coder_app", Schema { version: 1, block: block() }) }
}

fn block() -> Block {
    let healthcheck = Block::new(vec![
        Attribute::required("url", Text, "Address that answers when the app is well."),
        Attribute::required("interval", Number, "Seconds between two questions."),
        Attribute::required("threshold", Number, "How many failures make it unhealthy."),
    ]);
    Block::new(vec![
        Attribute::id(),
        Attribute::required("agent_id", Text, "Id of the agent."),
        Attribute::required(
            "slug",
            Text,
            "Name in addresses: lower-case letters, digits and single hyphens.",
        )
        .check(Check::Text(slug)),
        Attribute::optional("display_name", Text, "Title.").check(Check::MaxBytes(64)),
        Attribute::optional("icon", Text, "Address of an image.").check(Check::Url),
        Attribute::optional("command", Text, "Command that is run in a terminal.").conflicts(&["url"]),
        Attribute::optional("url", Text, "Address of the app, seen from the agent.").conflicts(&["command"]),
        Attribute::optional("external", Bool, "Whether the address is opened unchanged.")
            .default(Value::Bool(false))
            .conflicts(&["healthcheck", "command", "subdomain", "share"]),
        Attribute::optional("subdomain", Bool, "Whether the app gets a host name of its own."),
        Attribute::optional("share", Text, "Who may use it: owner, authenticated or public.")
            .default(Value::text("owner"))
            .check(Check::OneOf(&["owner", "authenticated", "public"])),
        Attribute::optional("group", Text, "Group it is shown in.").check(Check::MaxBytes(64)),
        Attribute::optional("order", Number, "Position in the dashboard; lower comes first."),
        Attribute::optional("hidden", Bool, "Whether it is left out of the dashboard.")
            .default(Value::Bool(false)),
        Attribute::optional("open_in", Text, "Where it opens: tab or slim-window.")
            .default(Value::text("slim-window"))
            .check(Check::OneOf(&["tab", "slim-window"])),
        Attribute::optional("tooltip", Text, "Text, in Markdown, that explains it.")
            .check(Check::MaxBytes(2048)),
    ])
    .with(
        Nested::set("healthcheck", "How to find out whether it is well.", healthcheck)
            .max(1)
            .conflicts(&["command"]),
    )
}

fn slug(slug: &str) -> CheckResult {
    let part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    if slug.split('-').all(part) {
        CheckResult::Passed
    } else {
        CheckResult::error(format!("invalid coder_app slug {slug:?}: it must match ^[a-z0-9](-?[a-z0-9])*$"))
    }
}

fn create(state: &mut Value, _: &Context<'_>, diagnostics: &mut Diagnostics) {
    state.set("id", random_id());
    if state.field("hidden").is_true() {
        for name in ["display_name", "icon", "order"] {
            if !state.field(name).is_zero() {
                let detail = "a hidden app is not shown in the dashboard";
                diagnostics.warning(
                    Path::of(name),
                    format!("`{name}` has no effect when `hidden` is set"),
                    detail,
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs() {
        let fits = |text| matches!(slug(text), CheckResult::Passed);
        assert!(["a", "code-server", "a1-2b"].into_iter().all(fits));
        assert!(!["", "-a", "a-", "a--b", "A", "a_b", "$$"].into_iter().any(fits));
    }
}

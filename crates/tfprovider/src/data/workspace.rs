//! `coder_workspace`: the workspace that is being built (terraform 3.5).

use super::DataSource;
use crate::context::{Context, random_id};
use crate::diagnostics::{Diagnostics, Path};
use crate::schema::Type::{Bool, Number, Text};
use crate::schema::{Attribute, Block, Schema};
use crate::url_reference::UrlReference;
use crate::value::Value;

pub(super) fn data_source() -> DataSource {
    let block = Block::new(vec![
        Attribute::computed("id", Text, "Id of the workspace."),
        Attribute::computed("name", Text, "Name of the workspace."),
        Attribute::computed("transition", Text, "What the build does: start, stop or destroy."),
        Attribute::computed(
            "start_count",
            Number,
            "1 when the build starts the workspace, else 0; for `count`.",
        ),
        Attribute::computed("is_prebuild", Bool, "Whether the workspace is prebuilt and unclaimed."),
        Attribute::computed("prebuild_count", Number, "1 when prebuilt and unclaimed, else 0; for `count`."),
        Attribute::computed(
            "is_prebuild_claim",
            Bool,
            "Whether this build hands a prebuilt workspace to its owner.",
        ),
        Attribute::computed("template_id", Text, "Id of the template."),
        Attribute::computed("template_name", Text, "Name of the template."),
        Attribute::computed("template_version", Text, "Name of the template version."),
        Attribute::computed("access_url", Text, "Address of the deployment."),
        Attribute::computed("access_port", Number, "Port of the deployment's address."),
    ]);
    DataSource { name: "coder_workspace", schema: Schema { version: 1, block }, read }
}

fn read(state: &mut Value, _: &Value, context: &Context<'_>, diagnostics: &mut Diagnostics) {
    let environment = context.environment;
    let transition = environment.get_or("CODER_WORKSPACE_TRANSITION", "start");
    let is_claim = environment.get("CODER_WORKSPACE_IS_PREBUILD_CLAIM").eq_ignore_ascii_case("true");
    let is_prebuild =
        !is_claim && environment.get("CODER_WORKSPACE_IS_PREBUILD").eq_ignore_ascii_case("true");
    let id = environment.get("CODER_WORKSPACE_ID");
    state.set("id", if id.is_empty() { random_id() } else { Value::text(id) });
    state.set("name", Value::text(environment.get_or("CODER_WORKSPACE_NAME", "default")));
    state.set("transition", Value::text(transition));
    state.set("start_count", Value::Int(i64::from(transition == "start")));
    state.set("is_prebuild", Value::Bool(is_prebuild));
    state.set("prebuild_count", Value::Int(i64::from(is_prebuild)));
    state.set("is_prebuild_claim", Value::Bool(is_claim));
    let in_build = !environment.get("CODER_WORKSPACE_BUILD_ID").is_empty();
    for (name, word, variable) in [
        ("template_id", "ID", "CODER_WORKSPACE_TEMPLATE_ID"),
        ("template_name", "name", "CODER_WORKSPACE_TEMPLATE_NAME"),
        ("template_version", "version", "CODER_WORKSPACE_TEMPLATE_VERSION"),
    ] {
        let value = environment.get(variable);
        if in_build && value.is_empty() {
            diagnostics.error(
                Path::default(),
                format!("template {word} is missing: {variable} is required"),
                "",
            );
            return;
        }
        state.set(name, Value::text(value));
    }
    let port = UrlReference::parse(context.url)
        .map(|url| url.port().unwrap_or(if url.scheme.eq_ignore_ascii_case("https") { 443 } else { 80 }));
    state.set("access_url", Value::text(context.url));
    state.set("access_port", Value::Int(i64::from(port.unwrap_or(80))));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;

    fn state(variables: &[(&str, &str)], url: &str) -> (Value, Diagnostics) {
        let environment: Environment = variables.iter().copied().collect();
        let (mut state, mut diagnostics) = (Value::object([]), Diagnostics::default());
        read(&mut state, &Value::Null, &Context { environment: &environment, url }, &mut diagnostics);
        (state, diagnostics)
    }

    #[test]
    fn without_variables_there_are_defaults() {
        let (state, diagnostics) = state(&[], "https://coder.example");
        assert!(!diagnostics.has_errors());
        assert_eq!(state.field("name").as_text(), Some("default"));
        assert_eq!(
            (state.field("start_count").as_int(), state.field("access_port").as_int()),
            (Some(1), Some(443))
        );
    }

    #[test]
    fn stop_and_ports() {
        let (state, _) = state(&[("CODER_WORKSPACE_TRANSITION", "stop")], "http://coder.example:3000");
        assert_eq!(
            (state.field("start_count").as_int(), state.field("access_port").as_int()),
            (Some(0), Some(3000))
        );
    }

    #[test]
    fn a_claim_is_no_prebuild() {
        let variables =
            [("CODER_WORKSPACE_IS_PREBUILD", "TRUE"), ("CODER_WORKSPACE_IS_PREBUILD_CLAIM", "true")];
        let flags = |variables: &[(&str, &str)]| {
            let (state, _) = state(variables, "http://x");
            ["is_prebuild", "is_prebuild_claim"].map(|name| state.field(name).is_true())
        };
        assert_eq!(flags(&variables), [false, true]);
        assert_eq!(flags(&variables[..1]), [true, false]);
        assert_eq!(flags(&[]), [false, false]);
    }

    #[test]
    fn a_build_knows_its_template() {
        let (_, diagnostics) =
            state(&[("CODER_WORKSPACE_BUILD_ID", "b"), ("CODER_WORKSPACE_TEMPLATE_ID", "t")], "http://x");
        let found: Vec<_> = diagnostics.items.iter().map(|diagnostic| diagnostic.summary.as_str()).collect();
        assert_eq!(found, ["template name is missing: CODER_WORKSPACE_TEMPLATE_NAME is required"]);
    }
}

//! `coder_agent`: the process in a workspace that connects to the deployment (terraform 3.3).

use std::collections::BTreeSet;

use super::Resource;
use crate::check::{Check, CheckResult};
use crate::context::{Context, random_id};
use crate::diagnostics::{Diagnostics, Path};
use crate::environment::sha256_hex;
use crate::schema::Type::{Bool, Number, Text, TextMap};
use crate::schema::{Attribute, Block, Nested, Schema};
use crate::url_reference::UrlReference;
use crate::value::Value;

/// The built-in applications of an agent, and whether each is shown by default.
const DISPLAY_APPS: [(&str, bool); 5] = [
    ("port_forwarding_helper", true),
    ("ssh_helper", true),
    ("vscode", true),
    ("vscode_insiders", false),
    ("web_terminal", true),
];

pub(super) fn resource() -> Resource {
    Resource {
        name: "coder_agent",
        schema: Schema { version: 1, block: block() },
        plan,
        create: |state, context, _| {
            state.set("id", random_id());
            read(state, context);
        },
        read,
    }
}

fn block() -> Block {
    Block::new(vec![
        Attribute::id(),
        Attribute::required("os", Text, "Operating system the agent runs on: linux, darwin or windows.")
            .check(Check::OneOf(&["linux", "darwin", "windows"])),
        Attribute::required("arch", Text, "Processor the agent runs on: amd64, armv7 or arm64.")
            .check(Check::OneOf(&["amd64", "armv7", "arm64"])),
        Attribute::optional(
            "auth",
            Text,
            "How the agent proves who it is: a token or the identity of its instance.",
        )
        .default(Value::text("token"))
        .check(Check::OneOf(&[
            "token",
            "google-instance-identity",
            "aws-instance-identity",
            "azure-instance-identity",
        ])),
        Attribute::optional("api_key_scope", Text, "What the agent's token may do: all, or no_user_data.")
            .default(Value::text("all"))
            .check(Check::OneOf(&["all", "no_user_data"])),
        Attribute::optional("dir", Text, "Folder in which sessions and scripts start."),
        Attribute::optional("env", TextMap, "Variables of every session and script."),
        Attribute::optional("startup_script", Text, "Script that runs when the agent starts."),
        Attribute::optional("shutdown_script", Text, "Script that runs before the agent stops."),
        Attribute::optional("startup_script_behavior", Text, "Whether log-ins wait for the start script.")
            .default(Value::text("non-blocking"))
            .check(Check::OneOf(&["blocking", "non-blocking"])),
        Attribute::optional(
            "connection_timeout",
            Number,
            "Seconds after which a silent agent counts as failed.",
        )
        .default(Value::Int(120))
        .check(Check::AtLeast(0)),
        Attribute::optional("troubleshooting_url", Text, "Page that helps when the agent does not connect."),
        Attribute::optional("motd_file", Text, "File whose text is shown at log-in."),
        Attribute::optional("order", Number, "Position in the dashboard; lower comes first."),
        Attribute::computed("token", Text, "Secret the agent authenticates with.").sensitive(),
        Attribute::computed("init_script", Text, "Script that downloads and starts the agent."),
    ])
    .with(Nested::list("metadata", "A value that is read again and again and shown.", metadata()))
    .with(
        Nested::set("display_apps", "Which built-in applications are shown.", display_apps())
            .max(1)
            .computed(),
    )
    .with(Nested::set("resources_monitoring", "Thresholds for warnings.", monitoring()).max(1))
}

fn metadata() -> Block {
    Block::new(vec![
        Attribute::required("key", Text, "Name, unique in the agent."),
        Attribute::required("script", Text, "Script that prints the value."),
        Attribute::required("interval", Number, "Seconds between two readings."),
        Attribute::optional("display_name", Text, "Title."),
        Attribute::optional("timeout", Number, "Seconds a reading may take."),
        Attribute::optional("order", Number, "Position in the dashboard; lower comes first."),
    ])
}

fn display_apps() -> Block {
    let app = |(name, shown)| {
        Attribute::optional(name, Bool, "Whether this application is shown.").default(Value::Bool(shown))
    };
    Block::new(DISPLAY_APPS.into_iter().map(app).collect())
}

fn monitoring() -> Block {
    let enabled = || Attribute::required("enabled", Bool, "Whether to watch it.");
    let threshold = || {
        Attribute::required("threshold", Number, "Percentage in use from which to warn.")
            .check(Check::Between(0, 100))
    };
    let path = Attribute::required("path", Text, "Absolute path of the volume.").check(Check::Text(absolute));
    Block::default()
        .with(
            Nested::set("memory", "Memory of the workspace.", Block::new(vec![enabled(), threshold()]))
                .max(1),
        )
        .with(Nested::set("volume", "A volume.", Block::new(vec![path, enabled(), threshold()])))
}

fn absolute(path: &str) -> CheckResult {
    if path.is_empty() {
        CheckResult::error("volume path must not be empty")
    } else if path.starts_with('/') {
        CheckResult::Passed
    } else {
        CheckResult::error(format!("volume path {path:?} must be an absolute path"))
    }
}

fn plan(planned: &Value, diagnostics: &mut Diagnostics) {
    let mut keys = BTreeSet::new();
    for (index, item) in planned.field("metadata").items().iter().enumerate() {
        if let Some(key) = item.field("key").as_text()
            && !keys.insert(key)
        {
            let path = Path::of("metadata").index(index).attribute("key");
            diagnostics.error(path, format!("duplicate agent metadata key {key:?}"), "");
        }
    }
    for monitoring in planned.field("resources_monitoring").items() {
        let (memory, volumes) = (monitoring.field("memory"), monitoring.field("volume"));
        let known = !memory.is_unknown() && !volumes.is_unknown();
        let path = Path::of("resources_monitoring");
        if known && memory.items().is_empty() && volumes.items().is_empty() {
            diagnostics.error(
                path.clone(),
                "resources_monitoring must define at least one monitor",
                "add a memory or volume block",
            );
        }
        let mut paths = BTreeSet::new();
        for volume in volumes.items().iter().filter_map(|volume| volume.field("path").as_text()) {
            if !paths.insert(volume) {
                diagnostics.error(path.clone(), format!("duplicate volume path {volume:?}"), "");
            }
        }
    }
}

/// Token and script are made anew at creation and at every refresh (terraform 3.3): the job says which token a running
/// agent keeps.
fn read(state: &mut Value, context: &Context<'_>) {
    let kept = format!("CODER_RUNNING_WORKSPACE_AGENT_TOKEN_{}", sha256_hex(""));
    let token = match context.environment.get(&kept) {
        "" => random_id(),
        token => Value::text(token),
    };
    state.set("token", token);
    state.set("init_script", Value::text(init_script(state, context)));
    if state.field("display_apps").items().is_empty() {
        let shown = Value::object(DISPLAY_APPS.map(|(name, shown)| (name, Value::Bool(shown))));
        state.set("display_apps", Value::List(vec![shown]));
    }
}

fn init_script(state: &Value, context: &Context<'_>) -> String {
    let [os, arch, auth] = ["os", "arch", "auth"].map(|name| state.field(name).text_or_empty());
    let url = UrlReference::parse(context.url).map(|url| url.with_path("/").to_string()).unwrap_or_default();
    let script = context.environment.get(&format!("CODER_AGENT_SCRIPT_{os}_{arch}"));
    script.replace("${ACCESS_URL}", &url).replace("${AUTH_TYPE}", auth)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(planned: &Value) -> Vec<String> {
        let mut diagnostics = Diagnostics::default();
        plan(planned, &mut diagnostics);
        diagnostics.items.into_iter().map(|diagnostic| diagnostic.summary).collect()
    }

    #[test]
    fn metadata_keys_and_volume_paths_are_unique() {
        let keys = |keys: &[&str]| {
            let items = keys.iter().map(|key| Value::object([("key", Value::text(*key))]));
            errors(&Value::object([("metadata", Value::List(items.collect()))]))
        };
        assert_eq!(keys(&["a", "b"]), Vec::<String>::new());
        assert_eq!(keys(&["a", "b", "a"]), ["duplicate agent metadata key \"a\""]);
        let volumes = |paths: &[&str]| {
            let items = paths.iter().map(|path| Value::object([("path", Value::text(*path))]));
            let monitor = Value::object([("volume", Value::List(items.collect()))]);
            errors(&Value::object([("resources_monitoring", Value::List(vec![monitor]))]))
        };
        assert_eq!(volumes(&["/a", "/b"]), Vec::<String>::new());
        assert_eq!(volumes(&["/a", "/a"]), ["duplicate volume path \"/a\""]);
        assert_eq!(volumes(&[]).len(), 1, "an empty block watches nothing");
    }

    #[test]
    fn token_and_script_come_from_the_job() {
        let kept = format!("CODER_RUNNING_WORKSPACE_AGENT_TOKEN_{}", sha256_hex(""));
        let script = "url=${ACCESS_URL} auth=${AUTH_TYPE}";
        let environment =
            [("CODER_AGENT_SCRIPT_linux_arm64", script), (kept.as_str(), "kept")].into_iter().collect();
        let context = Context { environment: &environment, url: "https://coder.example:3000/sub/path" };
        let text = |text: &str| Value::text(text);
        let mut state =
            Value::object([("os", text("linux")), ("arch", text("arm64")), ("auth", text("token"))]);
        read(&mut state, &context);
        assert_eq!(state.field("token").as_text(), Some("kept"));
        assert_eq!(state.field("init_script").as_text(), Some("url=https://coder.example:3000/ auth=token"));
        assert!(state.field("display_apps").items()[0].field("vscode").is_true());
        let environment = Default::default();
        let context = Context { environment: &environment, url: "https://coder.example" };
        read(&mut state, &context);
        assert_eq!(state.field("init_script").as_text(), Some(""));
        assert_ne!(state.field("token").as_text(), Some("kept"), "without a running agent the token is new");
    }
}

//! Plans, states and schemas are those of the official provider.
//!
//! Beside each template is the output of version 2.13.1 with Terraform 1.11.4: for each step (a plan with variables,
//! then apply) the changes, what drifted, and the state, with every random identifier replaced by `UUID`. A template
//! may be used again with other variables and steps, which are in a separate `.env` file. To record a template anew,
//! run its steps with that provider installed and keep the same parts of `show -json`.

use serde_json::{Value, json};

use crate::terraform::Job;

/// Attributes of later versions that the recorded one does not have.
const NEWER_ATTRIBUTES: [&str; 2] = ["merge_strategy", "subagent_id"];

/// Variables and steps are comments at the head of a template, or of a file beside it.
struct Script<'a> {
    environment: Vec<(&'a str, &'a str)>,
    steps: Vec<Vec<&'a str>>,
}

fn script(head: &str) -> Script<'_> {
    let lines = || head.lines().take_while(|line| line.starts_with('#'));
    let environment = lines().filter_map(|line| line.strip_prefix("# env ")?.split_once('=')).collect();
    let steps =
        lines().filter_map(|line| Some(line.strip_prefix("# step")?.split_whitespace().collect())).collect();
    Script { environment, steps }
}

async fn check(head: &str, template: &str, expected: &str) {
    let script = script(head);
    coder_requirements::require!(Terraform);
    let job = Job::new(template, &script.environment);
    let expected: Value = serde_json::from_str(expected).unwrap();
    for (index, variables) in script.steps.iter().enumerate() {
        let plan = job.plan(variables).await;
        let state = job.apply().await;
        let found = normal(json!({
            "changes": each(&plan["resource_changes"], change),
            "drift": each(&plan["resource_drift"], |resource| resource["address"].clone()),
            "state": each(&state["values"]["root_module"]["resources"], |resource| json!({
                "address": resource["address"],
                "schema_version": resource["schema_version"],
                "sensitive": resource["sensitive_values"],
                "values": resource["values"],
            })),
        }));
        let mut differences = Vec::new();
        compare(&expected[index], &found, String::new(), &mut differences);
        assert!(differences.is_empty(), "step {index} {variables:?}:\n{}", differences.join("\n"));
    }
    assert_eq!(expected.as_array().unwrap().len(), script.steps.len());
}

fn each(list: &Value, part: impl Fn(&Value) -> Value) -> Value {
    list.as_array().map(Vec::as_slice).unwrap_or_default().iter().map(part).collect()
}

fn change(resource: &Value) -> Value {
    let change = &resource["change"];
    let mut paths = change["replace_paths"].as_array().cloned().unwrap_or_default();
    paths.sort_by_key(Value::to_string);
    json!({
        "address": resource["address"],
        "actions": change["actions"],
        "after": change["after"],
        "after_unknown": change["after_unknown"],
        "replace_paths": paths,
    })
}

/// Without random identifiers and later attributes.
fn normal(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(name, _)| !NEWER_ATTRIBUTES.contains(&name.as_str()))
            .map(|(name, value)| (name, normal(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(normal).collect(),
        Value::String(text) if is_uuid(&text) => json!("UUID"),
        value => value,
    }
}

fn is_uuid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

fn compare(expected: &Value, found: &Value, path: String, differences: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(left), Value::Object(right)) => {
            let names: std::collections::BTreeSet<_> = left.keys().chain(right.keys()).collect();
            for name in names {
                match (left.get(name), right.get(name)) {
                    (Some(left), Some(right)) => compare(left, right, format!("{path}.{name}"), differences),
                    (left, right) => {
                        differences.push(format!("{path}.{name}: expected {left:?}, found {right:?}"))
                    }
                }
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                compare(left, right, format!("{path}[{index}]"), differences);
            }
        }
        _ if expected == found => {}
        _ => differences.push(format!("{path}: expected {expected}, found {found}")),
    }
}

macro_rules! recorded {
    ($($name:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $name() {
            let template = include_str!(concat!("templates/", stringify!($name), ".tf"));
            check(template, template, include_str!(concat!("templates/", stringify!($name), ".json"))).await;
        }
    )*};
}

macro_rules! recorded_again {
    ($($name:ident from $template:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $name() {
            let head = include_str!(concat!("templates/", stringify!($name), ".env"));
            let template = include_str!(concat!("templates/", stringify!($template), ".tf"));
            check(head, template, include_str!(concat!("templates/", stringify!($name), ".json"))).await;
        }
    )*};
}

recorded!(
    agents,
    zeros,
    zeros_written,
    unknowns,
    data,
    data_zeros,
    tasks,
    fleet,
    unknown_blocks,
    changed_blocks,
    lifecycle,
    alias,
    beside
);

recorded_again!(data_job from data, tasks_job from tasks);

#[tokio::test]
async fn schema() {
    coder_requirements::require!(Terraform);
    let job = Job::new(&crate::terraform::template(""), &[]);
    let found = described(job.schema().await);
    let mut later = Vec::new();
    compare(
        &serde_json::from_str(include_str!("templates/schema.json")).unwrap(),
        &found,
        String::new(),
        &mut later,
    );
    later.retain(|difference| !NEWER_ATTRIBUTES.iter().any(|name| difference.contains(name)));
    assert!(later.is_empty(), "{}", later.join("\n"));
}

/// Descriptions are our own, but each attribute has one.
fn described(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            if fields.get("type").is_some_and(|kind| !kind.is_object()) {
                assert!(fields["description"].as_str().is_some_and(|text| text.ends_with('.')), "{fields:?}");
            }
            let kept = |(name, value): &(String, Value)| {
                !(matches!(name.as_str(), "description" | "description_kind") && value.is_string())
            };
            fields.into_iter().filter(kept).map(|(name, value)| (name, described(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(described).collect(),
        value => value,
    }
}

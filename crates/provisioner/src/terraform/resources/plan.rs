//! What a build or an import reads from the JSON form of a plan.

use std::collections::{BTreeMap, HashSet};

use coder_wire::messages::provisioner::ResourceReplacement;
use serde::Deserialize;
use serde_json::Value;

use super::convert::address::without_keys;
use super::convert::attributes::{Attributes, DecodeError};
use super::state::{Module, Resource, ShowOutput, StateValues};

/// The parts of `terraform show -json PLAN` that are read.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Plan {
    #[serde(default)]
    planned_values: StateValues,
    #[serde(default)]
    prior_state: Option<ShowOutput>,
    #[serde(default)]
    resource_changes: Vec<ResourceChange>,
    #[serde(default)]
    configuration: Configuration,
}

/// The unevaluated configuration.
#[derive(Debug, Default, Deserialize)]
struct Configuration {
    #[serde(default)]
    root_module: ConfiguredModule,
}

#[derive(Debug, Default, Deserialize)]
struct ConfiguredModule {
    #[serde(default)]
    resources: Vec<ConfiguredResource>,
    #[serde(default)]
    module_calls: BTreeMap<String, ConfiguredCall>,
}

#[derive(Debug, Deserialize)]
struct ConfiguredCall {
    #[serde(default)]
    module: ConfiguredModule,
}

#[derive(Debug, Deserialize)]
struct ConfiguredResource {
    /// Relative to its module.
    address: String,
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    expressions: Expressions,
}

#[derive(Debug, Default, Deserialize)]
struct Expressions {
    #[serde(default)]
    default: Option<Value>,
}

impl ConfiguredModule {
    /// Collects the addresses, without instance keys, of parameters with a `default`, whatever its value is. A
    /// literal null is not a default. Terraform writes it as a constant without a value.
    fn find_defaults(&self, prefix: &str, found: &mut HashSet<String>) {
        for resource in self.resources.iter().filter(|resource| resource.kind == "coder_parameter") {
            let is_written = |value: &Value| {
                let fields = value.as_object().into_iter().flatten();
                fields.into_iter().any(|(name, value)| name != "constant_value" || !value.is_null())
            };
            if resource.expressions.default.as_ref().is_some_and(is_written) {
                found.insert(format!("{prefix}{}", resource.address));
            }
        }
        for (name, call) in &self.module_calls {
            call.module.find_defaults(&format!("{prefix}module.{name}."), found);
        }
    }
}

#[derive(Debug, Deserialize)]
struct ResourceChange {
    address: String,
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    change: Option<ChangeActions>,
}

#[derive(Debug, Deserialize)]
struct ChangeActions {
    #[serde(default)]
    actions: Vec<String>,
    #[serde(default)]
    replace_paths: Option<Vec<Value>>,
}

/// Numbers of a plan that decide whether a build continues (terraform 1.6).
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct PlanSummary {
    pub(crate) daily_cost: i32,
    pub(crate) ai_task_count: i32,
    pub(crate) replacements: Vec<ResourceReplacement>,
}

impl Plan {
    /// The module trees to convert: data sources as they were read, then the planned resources (terraform 1.6).
    pub(crate) fn into_modules(self) -> Vec<Module> {
        let mut modules = Vec::with_capacity(2);
        if let Some(values) = self.prior_state.and_then(|state| state.values) {
            modules.push(values.root_module.only_data());
        }
        modules.push(self.planned_values.root_module);
        let mut with_default = HashSet::new();
        self.configuration.root_module.find_defaults("", &mut with_default);
        // A `default` that evaluates to null, as in a module whose caller passes none, does not make the
        // parameter required (terraform 3.5 only says whether the value is null).
        for module in &mut modules {
            module.edit(&mut |resource| {
                if resource.kind == "coder_parameter"
                    && with_default.contains(&*without_keys(&resource.address))
                {
                    resource.set("optional", Value::Bool(true));
                }
            });
        }
        modules
    }

    pub(crate) fn summary(&self) -> Result<PlanSummary, DecodeError> {
        let mut cost: i64 = 0;
        let mut ai_tasks: i32 = 0;
        let mut failure = None;
        self.planned_values.root_module.walk(&mut |resource: &Resource| match resource.kind.as_str() {
            "coder_metadata" => match Attributes::of(resource).integer("daily_cost") {
                Ok(value) => cost = cost.saturating_add(value),
                Err(error) => failure = Some(error),
            },
            "coder_ai_task" => ai_tasks = ai_tasks.saturating_add(1),
            _ => {}
        });
        if let Some(error) = failure {
            return Err(error);
        }
        Ok(PlanSummary {
            daily_cost: i32::try_from(cost).unwrap_or(if cost < 0 { i32::MIN } else { i32::MAX }),
            ai_task_count: ai_tasks,
            replacements: self.replacements(),
        })
    }

    /// Resources that this plan replaces, without `coder_` ones, whose replacement has no meaning (terraform
    /// 1.6).
    fn replacements(&self) -> Vec<ResourceReplacement> {
        let mut found = Vec::new();
        for resource in &self.resource_changes {
            let Some(change) = &resource.change else { continue };
            let paths = change.replace_paths.as_deref().unwrap_or_default();
            let unchanged = change.actions.iter().all(|action| action == "no-op");
            if unchanged || paths.is_empty() || resource.kind.starts_with("coder_") {
                continue;
            }
            found.push(ResourceReplacement {
                resource: resource.address.clone(),
                paths: paths.iter().map(join_path).collect(),
            });
        }
        found
    }
}

fn join_path(path: &Value) -> String {
    let segment = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match path {
        Value::Array(segments) => segments.iter().map(segment).collect::<Vec<_>>().join("."),
        other => segment(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_tasks_and_replacements_are_summed() {
        let plan: Plan = serde_json::from_str(
            r#"{"planned_values":{"root_module":{"resources":[
                  {"address":"coder_metadata.a","mode":"managed","type":"coder_metadata","name":"a","values":{"daily_cost":3}}],
                "child_modules":[{"resources":[
                  {"address":"module.m.coder_metadata.b","mode":"managed","type":"coder_metadata","name":"b","values":{"daily_cost":4}},
                  {"address":"module.m.coder_ai_task.t","mode":"managed","type":"coder_ai_task","name":"t"}]}]}},
               "resource_changes":[
                  {"address":"vm.a","type":"vm","change":{"actions":["delete","create"],"replace_paths":[["disk",0,"size"],["image"]]}},
                  {"address":"vm.b","type":"vm","change":{"actions":["no-op"],"replace_paths":[["x"]]}},
                  {"address":"coder_agent.a","type":"coder_agent","change":{"actions":["delete","create"],"replace_paths":[["env"]]}}]}"#,
        )
        .unwrap();
        let summary = plan.summary().unwrap();
        assert_eq!((summary.daily_cost, summary.ai_task_count), (7, 1));
        assert_eq!(summary.replacements.len(), 1);
        assert_eq!(summary.replacements[0].resource, "vm.a");
        assert_eq!(summary.replacements[0].paths, ["disk.0.size", "image"]);
    }

    #[test]
    fn a_default_that_is_written_and_null_makes_nothing_required() {
        let parameter = |address: &str, optional: bool| {
            serde_json::json!({"address": address, "mode": "data", "type": "coder_parameter", "name": "p",
                "values": {"name": address, "optional": optional}})
        };
        let written = |default: Value| {
            serde_json::json!({"address": "data.coder_parameter.p", "type": "coder_parameter",
                "expressions": {"default": default, "option": [{"name": {"constant_value": "a"}}]}})
        };
        let none = serde_json::json!({"address": "data.coder_parameter.none", "type": "coder_parameter",
            "expressions": {"name": {"constant_value": "none"}}});
        let literal = serde_json::json!({"address": "data.coder_parameter.null", "type": "coder_parameter",
            "expressions": {"default": {"constant_value": null}}});
        let plan = serde_json::json!({
            "prior_state": {"values": {"root_module": {
                "resources": [parameter("data.coder_parameter.none", false), parameter("data.coder_parameter.null", false)],
                "child_modules": [{"resources": [parameter("module.r[\"a.b\"].data.coder_parameter.p[0]", false)]}]}}},
            "planned_values": {"root_module": {"resources": [parameter("data.coder_parameter.p", false)]}},
            "configuration": {"root_module": {
                "resources": [none, literal],
                "module_calls": {"r": {"module": {"resources": [written(serde_json::json!({"references": ["var.default"]}))]}}}}},
        });
        let plan: Plan = serde_json::from_value(plan).unwrap();
        let modules = plan.into_modules();
        let mut optional = Vec::new();
        modules.iter().for_each(|module| {
            module.walk(&mut |resource| {
                let is_set = resource.values().unwrap()["optional"] == true;
                optional.push((resource.address.clone(), is_set));
            });
        });
        let wanted = [
            ("module.r[\"a.b\"].data.coder_parameter.p[0]", true),
            ("data.coder_parameter.none", false),
            ("data.coder_parameter.null", false),
            ("data.coder_parameter.p", false),
        ];
        assert_eq!(optional, wanted.map(|(address, is_set)| (address.to_owned(), is_set)));
    }

    #[test]
    fn only_data_sources_of_the_prior_state_are_converted() {
        let plan: Plan = serde_json::from_str(
            r#"{"prior_state":{"values":{"root_module":{"resources":[
                 {"address":"vm.old","mode":"managed","type":"vm","name":"old"},
                 {"address":"data.p.q","mode":"data","type":"p","name":"q"}]}}},
                "planned_values":{"root_module":{}}}"#,
        )
        .unwrap();
        let modules = plan.into_modules();
        let mut seen = Vec::new();
        modules.iter().for_each(|m| m.walk(&mut |r| seen.push(r.address.clone())));
        assert_eq!(seen, ["data.p.q"]);
    }
}

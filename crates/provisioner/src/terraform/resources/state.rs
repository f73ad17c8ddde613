//! The module trees that Terraform prints for plans and states, and the parser of state files.
//!
//! A state file contains everything that `terraform show -json` prints, so a build parses the file instead of
//! starting another process.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

/// One module with its resources and child modules.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Module {
    #[serde(default)]
    pub(crate) resources: Vec<Resource>,
    #[serde(default)]
    pub(crate) child_modules: Vec<Module>,
}

/// One instance of a resource or data source.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Resource {
    pub(crate) address: String,
    #[serde(default)]
    pub(crate) mode: ResourceMode,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) name: String,
    #[serde(default)]
    values: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResourceMode {
    #[default]
    Managed,
    Data,
    #[serde(other)]
    Other,
}

impl Resource {
    pub(crate) fn values(&self) -> Option<&Map<String, Value>> {
        self.values.as_ref()
    }

    /// Sets an attribute of a resource that has attributes.
    pub(crate) fn set(&mut self, name: &str, value: Value) {
        if let Some(values) = &mut self.values {
            values.insert(name.to_owned(), value);
        }
    }

    pub(crate) fn is_managed(&self) -> bool {
        self.mode == ResourceMode::Managed
    }
}

impl Module {
    /// Calls `visit` for every resource: child modules first, then the module's own (terraform 4.2).
    pub(crate) fn walk<'a>(&'a self, visit: &mut impl FnMut(&'a Resource)) {
        for child in &self.child_modules {
            child.walk(visit);
        }
        for resource in &self.resources {
            visit(resource);
        }
    }

    /// Calls `edit` for every resource.
    pub(crate) fn edit(&mut self, edit: &mut impl FnMut(&mut Resource)) {
        self.child_modules.iter_mut().for_each(|child| child.edit(edit));
        self.resources.iter_mut().for_each(edit);
    }

    /// A copy with data sources only, for the prior state of a plan (terraform 1.6).
    pub(crate) fn only_data(self) -> Module {
        Module {
            resources: self.resources.into_iter().filter(|r| r.mode == ResourceMode::Data).collect(),
            child_modules: self.child_modules.into_iter().map(Module::only_data).collect(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct StateValues {
    #[serde(default)]
    pub(crate) root_module: Module,
}

/// The output of `terraform show -json` for a state; without `values` it is empty.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ShowOutput {
    pub(crate) values: Option<StateValues>,
}

/// The parts of a state file of format 4 that the conversion reads.
#[derive(Debug, Deserialize)]
struct StateFile {
    version: u64,
    #[serde(default)]
    resources: Vec<StateResource>,
}

#[derive(Debug, Deserialize)]
struct StateResource {
    #[serde(default)]
    module: Option<String>,
    mode: ResourceMode,
    #[serde(rename = "type")]
    kind: String,
    name: String,
    #[serde(default)]
    instances: Vec<StateInstance>,
}

#[derive(Debug, Deserialize)]
struct StateInstance {
    #[serde(default)]
    index_key: Option<Value>,
    #[serde(default)]
    deposed: Option<String>,
    #[serde(default)]
    attributes: Option<Map<String, Value>>,
}

/// A state that Terraform could not parse. Terraform itself would report a misleading error about a lock.
#[derive(Debug, thiserror::Error)]
#[error(
    "the workspace's state is not a Terraform state ({0}): replace it with `coder state push`, or forget the workspace's resources with `coder delete --orphan`"
)]
pub(crate) struct InvalidState(serde_json::Error);

/// Checks that this can be a state: a JSON object of any format.
pub(crate) fn check(state: &[u8]) -> Result<(), InvalidState> {
    type Object = BTreeMap<String, IgnoredAny>;
    serde_json::from_slice::<Object>(state).map(drop).map_err(InvalidState)
}

/// Parses a state file into a flat root module. `None` for an unknown format; the caller then asks Terraform.
pub(crate) fn from_state_file(bytes: &[u8]) -> Option<Module> {
    let file: StateFile = serde_json::from_slice(bytes).ok()?;
    if file.version != 4 {
        return None;
    }
    let mut root = Module::default();
    for resource in file.resources {
        let mut base = String::new();
        if let Some(module) = resource.module.as_deref().filter(|m| !m.is_empty()) {
            base.push_str(module);
            base.push('.');
        }
        if resource.mode == ResourceMode::Data {
            base.push_str("data.");
        }
        base.push_str(&resource.kind);
        base.push('.');
        base.push_str(&resource.name);
        // Deposed objects remain of a failed replacement and are not part of the workspace.
        for instance in resource.instances.into_iter().filter(|i| i.deposed.is_none()) {
            let address = match &instance.index_key {
                None | Some(Value::Null) => base.clone(),
                Some(key) => format!("{base}[{key}]"),
            };
            root.resources.push(Resource {
                address,
                mode: resource.mode,
                kind: resource.kind.clone(),
                name: resource.name.clone(),
                values: Some(instance.attributes.unwrap_or_default()),
            });
        }
    }
    Some(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_file_instances_become_addressed_resources() {
        let text = br#"{"version":4,"resources":[
            {"mode":"managed","type":"a","name":"x","instances":[
                {"index_key":0,"attributes":{"id":"1"}},
                {"index_key":"k\"q","attributes":{"id":"2"}},
                {"index_key":0,"deposed":"00aa","attributes":{"id":"old"}}]},
            {"module":"module.m[\"z\"]","mode":"data","type":"b","name":"y","instances":[{}]}]}"#;
        let module = from_state_file(text).unwrap();
        let addresses: Vec<_> = module.resources.iter().map(|r| r.address.as_str()).collect();
        assert_eq!(addresses, [r#"a.x[0]"#, r#"a.x["k\"q"]"#, r#"module.m["z"].data.b.y"#]);
        assert_eq!(module.resources[0].values().unwrap()["id"], "1");
    }

    #[test]
    fn unknown_state_formats_are_left_to_terraform() {
        assert!(from_state_file(br#"{"version":5}"#).is_none());
        assert!(from_state_file(b"encrypted").is_none());
    }

    #[test]
    fn only_json_objects_are_states() {
        for fine in ["{}", r#"{"version":5,"x":[{}]}"#, r#" {"encrypted_data":"AA"} "#] {
            assert!(check(fine.as_bytes()).is_ok(), "{fine}");
        }
        for damaged in ["garbage", "[]", "1", r#"{"version":4,"#, "{}{}"] {
            let error = check(damaged.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("`coder state push`"), "{error}");
        }
    }

    #[test]
    fn only_data_filters_recursively() {
        let module: Module = serde_json::from_str(
            r#"{"resources":[{"address":"a.b","mode":"managed","type":"a","name":"b"}],
                "child_modules":[{"resources":[{"address":"module.m.data.c.d","mode":"data","type":"c","name":"d"}]}]}"#,
        )
        .unwrap();
        let mut seen = Vec::new();
        let data = module.only_data();
        data.walk(&mut |r| seen.push(r.address.clone()));
        assert_eq!(seen, ["module.m.data.c.d"]);
    }
}

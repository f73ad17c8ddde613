//! Applies a user's changes to a pod template.

use serde_json::{Map, Value};

/// The lists whose elements are merged, and what identifies an element.
const KEYED: &[(&str, &str)] = &[
    ("containers", "name"),
    ("initContainers", "name"),
    ("volumes", "name"),
    ("env", "name"),
    ("volumeMounts", "mountPath"),
    ("imagePullSecrets", "name"),
    ("ports", "name"),
];

/// Puts `overlay` on top of `base`: maps are merged, `null` removes a field, lists of [`KEYED`] are merged by element, and
/// everything else is replaced.
pub fn apply(base: &mut Map<String, Value>, overlay: &Map<String, Value>) {
    for (key, over) in overlay {
        match (base.get_mut(key), over) {
            (_, Value::Null) => drop(base.remove(key)),
            (Some(Value::Object(base)), Value::Object(over)) => apply(base, over),
            (Some(Value::Array(base)), Value::Array(over)) => {
                match KEYED.iter().find(|(list, _)| list == key) {
                    Some((_, identity)) => merge(base, over, identity),
                    None => over.clone_into(base),
                }
            }
            _ => drop(base.insert(key.clone(), over.clone())),
        }
    }
}

fn merge(base: &mut Vec<Value>, over: &[Value], identity: &str) {
    for element in over {
        let same = base
            .iter_mut()
            .find(|known| known.get(identity).is_some() && known.get(identity) == element.get(identity));
        match (same, element) {
            (Some(Value::Object(known)), Value::Object(element))
                if identity == "name" && is_variable(element) =>
            {
                // A variable's value and its source exclude each other.
                known.clone_from(element);
            }
            (Some(Value::Object(known)), Value::Object(element)) => apply(known, element),
            (Some(known), element) => known.clone_from(element),
            (None, element) => base.push(element.clone()),
        }
    }
}

fn is_variable(element: &Map<String, Value>) -> bool {
    element.contains_key("value") || element.contains_key("valueFrom")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn overlaid(base: Value, overlay: Value) -> Value {
        let (Value::Object(mut base), Value::Object(overlay)) = (base, overlay) else { panic!("objects") };
        apply(&mut base, &overlay);
        Value::Object(base)
    }

    #[test]
    fn containers_and_variables_are_merged_by_name() {
        let base = json!({"containers": [{"name": "provisioner", "image": "a", "env": [{"name": "A", "value": "1"}]}]});
        let over = json!({"containers": [
            {"name": "provisioner", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, {"name": "B", "value": "2"}]},
            {"name": "sidecar", "image": "b"},
        ]});
        assert_eq!(
            overlaid(base, over),
            json!({"containers": [
                {"name": "provisioner", "image": "a", "env": [
                    {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                    {"name": "B", "value": "2"},
                ]},
                {"name": "sidecar", "image": "b"},
            ]})
        );
    }

    #[test]
    fn other_lists_are_replaced_and_null_removes() {
        assert_eq!(
            overlaid(
                json!({"tolerations": [{"key": "a"}], "securityContext": {"runAsUser": 1000, "fsGroup": 1}}),
                json!({"tolerations": [{"key": "b"}], "securityContext": {"runAsUser": null}})
            ),
            json!({"tolerations": [{"key": "b"}], "securityContext": {"fsGroup": 1}})
        );
    }

    #[test]
    fn mounts_are_merged_by_path() {
        assert_eq!(
            overlaid(
                json!({"volumeMounts": [{"name": "cache", "mountPath": "/var/cache/coder"}]}),
                json!({"volumeMounts": [{"name": "disk", "mountPath": "/var/cache/coder"}]})
            ),
            json!({"volumeMounts": [{"name": "disk", "mountPath": "/var/cache/coder"}]})
        );
    }
}

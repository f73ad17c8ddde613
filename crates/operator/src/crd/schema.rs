//! Schemas of Kubernetes' own types where the custom resources hold them.
//!
//! They are written out because the generated ones describe a whole pod in about 400 KB. What is left open here is
//! validated by the API server when the object that holds it is written.

use schemars::{JsonSchema as _, Schema, SchemaGenerator, json_schema};

use super::rbac::Rbac;

/// A reference to one entry of a Secret or ConfigMap, as containers use it.
fn entry() -> serde_json::Value {
    serde_json::json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": ""},
            "key": {"type": "string"},
            "optional": {"type": "boolean"},
        },
        "required": ["key"],
        "x-kubernetes-map-type": "atomic",
    })
}

/// `EnvVar` of a container.
pub(super) fn environment(_: &mut SchemaGenerator) -> Schema {
    let field = serde_json::json!({
        "type": "object",
        "properties": {"apiVersion": {"type": "string"}, "fieldPath": {"type": "string"}},
        "required": ["fieldPath"],
        "x-kubernetes-map-type": "atomic",
    });
    let resource = serde_json::json!({
        "type": "object",
        "properties": {
            "containerName": {"type": "string"},
            "resource": {"type": "string"},
            "divisor": {"x-kubernetes-int-or-string": true},
        },
        "required": ["resource"],
        "x-kubernetes-map-type": "atomic",
    });
    let file = serde_json::json!({
        "type": "object",
        "properties": {
            "volumeName": {"type": "string"},
            "path": {"type": "string"},
            "key": {"type": "string"},
            "optional": {"type": "boolean"},
        },
        "required": ["key", "path", "volumeName"],
        "x-kubernetes-map-type": "atomic",
    });
    json_schema!({
        "type": "array",
        "maxItems": 512,
        "items": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 1, "maxLength": 1024},
                "value": {"type": "string"},
                "valueFrom": {
                    "type": "object",
                    "properties": {
                        "configMapKeyRef": entry(),
                        "secretKeyRef": entry(),
                        "fieldRef": field,
                        "resourceFieldRef": resource,
                        "fileKeyRef": file,
                    },
                },
            },
            "required": ["name"],
        },
    })
}

/// `ResourceRequirements` of a container.
pub(super) fn resources(_: &mut SchemaGenerator) -> Schema {
    let quantities = serde_json::json!({
        "type": "object",
        "additionalProperties": {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
            "x-kubernetes-int-or-string": true,
        },
    });
    json_schema!({
        "type": "object",
        "properties": {
            "limits": quantities,
            "requests": quantities,
            "claims": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "request": {"type": "string"}},
                    "required": ["name"],
                },
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
        },
    })
}

/// `PolicyRule` of a Role.
pub(super) fn rules(_: &mut SchemaGenerator) -> Schema {
    let texts = serde_json::json!({"type": "array", "items": {"type": "string"}});
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": {
            "type": "object",
            "properties": {
                "apiGroups": texts,
                "resources": texts,
                "resourceNames": texts,
                "nonResourceURLs": texts,
                "verbs": texts,
            },
            "required": ["verbs"],
        },
    })
}

/// `Rbac` whose workspace namespaces may also be names alone, as the official operator has them.
pub(super) fn names_or_fields(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = Rbac::json_schema(generator);
    if let Some(items) = schema.pointer_mut("/properties/workspaceNamespaces/items") {
        *items = serde_json::json!({"x-kubernetes-preserve-unknown-fields": true});
    }
    schema
}

/// A part of an object that is passed on as it is.
pub(super) fn open_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A list whose elements are passed on as they are.
pub(super) fn open_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    })
}

/// The conditions of a status.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "type": {"type": "string", "maxLength": 316},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": {"type": "string", "maxLength": 1024},
                "message": {"type": "string", "maxLength": 32768},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
            },
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

/// An instant.
pub(super) fn instant(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

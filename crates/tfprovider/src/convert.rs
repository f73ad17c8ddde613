//! Conversion between our types and the messages of the plugin protocol.

use std::collections::HashMap;

use crate::data::DataSource;
use crate::diagnostics::{Diagnostic, Diagnostics, Path, Severity, Step};
use crate::generated::tfplugin5 as proto;
use crate::msgpack;
use crate::resource::Resource;
use crate::schema::{Attribute, Block, Mode, Nested, Nesting, Schema, Type};
use crate::value::Value;

/// The value in a message; a missing one is null.
pub(crate) fn decode(value: Option<&proto::DynamicValue>) -> Result<Value, msgpack::Error> {
    match value {
        Some(value) if !value.msgpack.is_empty() => msgpack::decode(&value.msgpack),
        _ => Ok(Value::Null),
    }
}

pub(crate) fn encode(value: &Value) -> proto::DynamicValue {
    proto::DynamicValue { msgpack: msgpack::encode(value), json: Vec::new() }
}

pub(crate) fn convert_diagnostics(diagnostics: Diagnostics) -> Vec<proto::Diagnostic> {
    diagnostics.items.into_iter().map(convert_diagnostic).collect()
}

fn convert_diagnostic(diagnostic: Diagnostic) -> proto::Diagnostic {
    let severity = match diagnostic.severity {
        Severity::Error => proto::Severity::Error,
        Severity::Warning => proto::Severity::Warning,
    };
    let path = Some(&diagnostic.path).filter(|path| !path.steps.is_empty());
    proto::Diagnostic {
        severity: severity.into(),
        summary: diagnostic.summary,
        detail: diagnostic.detail,
        attribute: path.map(attribute_path),
    }
}

pub(crate) fn attribute_path(path: &Path) -> proto::AttributePath {
    use proto::attribute_path::step::Selector;
    let step = |step: &Step| proto::attribute_path::Step {
        selector: Some(match step {
            Step::Attribute(name) => Selector::AttributeName((*name).to_owned()),
            Step::Index(index) => Selector::ElementKeyInt(i64::try_from(*index).unwrap_or(i64::MAX)),
        }),
    };
    proto::AttributePath { steps: path.steps.iter().map(step).collect() }
}

/// The schemas of the provider, its resources and its data sources.
pub(crate) fn describe(
    provider: &Schema,
    resources: &[Resource],
    data: &[DataSource],
) -> proto::SchemaResponse {
    let resources = resources.iter().map(|each| (each.name.to_owned(), schema(&each.schema)));
    let data = data.iter().map(|each| (each.name.to_owned(), schema(&each.schema)));
    proto::SchemaResponse {
        provider: Some(schema(provider)),
        resource_schemas: resources.collect::<HashMap<_, _>>(),
        data_source_schemas: data.collect::<HashMap<_, _>>(),
        diagnostics: Vec::new(),
        provider_meta: None,
        server_capabilities: Some(proto::ServerCapabilities {
            plan_destroy: false,
            get_provider_schema_optional: true,
        }),
    }
}

fn schema(schema: &Schema) -> proto::Schema {
    proto::Schema { version: schema.version, block: Some(block(&schema.block, false)) }
}

fn block(from: &Block, deprecated: bool) -> proto::schema::Block {
    proto::schema::Block {
        attributes: from.attributes.iter().map(attribute).collect(),
        block_types: from.blocks.iter().map(nested).collect(),
        deprecated,
        ..Default::default()
    }
}

fn attribute(from: &Attribute) -> proto::schema::Attribute {
    proto::schema::Attribute {
        name: from.name.to_owned(),
        r#type: type_json(from.kind).into_bytes(),
        description: from.description.to_owned(),
        required: from.mode == Mode::Required,
        optional: matches!(from.mode, Mode::Optional | Mode::OptionalComputed),
        computed: from.is_computed(),
        sensitive: from.sensitive,
        ..Default::default()
    }
}

fn type_json(kind: Type) -> String {
    match kind {
        Type::Text => r#""string""#.to_owned(),
        Type::Number => r#""number""#.to_owned(),
        Type::Bool => r#""bool""#.to_owned(),
        Type::TextMap => r#"["map","string"]"#.to_owned(),
        Type::TextList => r#"["list","string"]"#.to_owned(),
        Type::ObjectList(names) => {
            let fields: Vec<_> = names.iter().map(|name| format!("{name:?}:\"string\"")).collect();
            format!(r#"["list",["object",{{{}}}]]"#, fields.join(","))
        }
    }
}

fn nested(from: &Nested) -> proto::schema::NestedBlock {
    let nesting = match from.nesting {
        Nesting::List => proto::schema::Nesting::List,
        Nesting::Set => proto::schema::Nesting::Set,
    };
    let mut block = block(&from.block, from.deprecated.is_some());
    block.description = from.description.to_owned();
    let count = |count: usize| i64::try_from(count).expect("limits of blocks are small");
    proto::schema::NestedBlock {
        type_name: from.name.to_owned(),
        block: Some(block),
        nesting: nesting.into(),
        min_items: count(from.min),
        max_items: count(from.max),
    }
}

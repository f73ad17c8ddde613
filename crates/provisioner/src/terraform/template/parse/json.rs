//! Variables of a JSON file, in their original order.

use std::fmt;

use coder_wire::messages::provisioner::TemplateVariable;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// JSON that keeps the order of its fields.
enum OrderedJson {
    Fields(Vec<(String, OrderedJson)>),
    Items(Vec<OrderedJson>),
    Plain(Value),
}

/// The variables of a file.
pub(super) fn variables(text: &str) -> Result<Vec<TemplateVariable>, serde_json::Error> {
    let root: OrderedJson = serde_json::from_str(text)?;
    let mut found = Vec::new();
    // Every level of a JSON body may be an object or a list of objects.
    for root in root.one_or_many() {
        for blocks in root.field("variable").into_iter().flat_map(OrderedJson::one_or_many) {
            for (name, bodies) in blocks.fields() {
                found.extend(bodies.one_or_many().iter().map(|body| variable(name, body)));
            }
        }
    }
    Ok(found)
}

fn variable(name: &str, body: &OrderedJson) -> TemplateVariable {
    let value = |key: &str| body.field(key).map_or(Value::Null, OrderedJson::value);
    let default = value("default");
    let default = coder_source::json_constant(&default).unwrap_or_else(|_| Some(default.to_string()));
    let text = |key: &str| value(key).as_str().unwrap_or_default().to_owned();
    TemplateVariable {
        name: name.to_owned(),
        description: text("description"),
        r#type: text("type"),
        required: default.is_none(),
        default_value: default.unwrap_or_default(),
        sensitive: value("sensitive").as_bool().unwrap_or_default(),
    }
}

impl OrderedJson {
    fn fields(&self) -> &[(String, Self)] {
        if let Self::Fields(fields) = self { fields } else { &[] }
    }

    /// The last field of that name.
    fn field(&self, name: &str) -> Option<&Self> {
        self.fields().iter().rev().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    fn one_or_many(&self) -> &[Self] {
        if let Self::Items(items) = self { items } else { std::slice::from_ref(self) }
    }

    fn value(&self) -> Value {
        match self {
            Self::Fields(fields) => fields.iter().map(|(key, value)| (key.clone(), value.value())).collect(),
            Self::Items(items) => items.iter().map(Self::value).collect(),
            Self::Plain(value) => value.clone(),
        }
    }
}

impl<'de> Deserialize<'de> for OrderedJson {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = OrderedJson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OrderedJson, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(OrderedJson::Fields(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OrderedJson, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(OrderedJson::Items(items))
    }

    fn visit_bool<E>(self, value: bool) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Plain(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Plain(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Plain(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Plain(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Plain(value.into()))
    }

    fn visit_unit<E>(self) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Plain(Value::Null))
    }
}

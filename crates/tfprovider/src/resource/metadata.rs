//! `coder_metadata`: what the dashboard shows about another resource.

use std::collections::BTreeSet;

use super::Resource;
use crate::check::Check;
use crate::context::{Context, random_id};
use crate::diagnostics::{Diagnostics, Path};
use crate::schema::Type::{Bool, Number, Text};
use crate::schema::{Attribute, Block, Nested, Schema};
use crate::value::Value;

pub(super) fn resource() -> Resource {
    let item = Block::new(vec![
        Attribute::required("key", Text, "Name, unique in the resource."),
        Attribute::optional("value", Text, "Value; none is shown as absent."),
        Attribute::optional("sensitive", Bool, "Whether the value is hidden at first.")
            .default(Value::Bool(false)),
        Attribute::computed("is_null", Bool, "Whether the value is absent."),
    ]);
    let block = Block::new(vec![
        Attribute::id(),
        Attribute::required("resource_id", Text, "Id of the resource this is about."),
        Attribute::optional("hide", Bool, "Whether the resource is left out."),
        Attribute::optional("icon", Text, "Address of an image.").check(Check::Url),
        Attribute::optional("daily_cost", Number, "What the resource costs a day, in units of the quota."),
    ])
    .with(Nested::list("item", "One fact about the resource.", item));
    Resource { plan, create, ..Resource::plain("coder_metadata", Schema { version: 1, block }) }
}

fn plan(planned: &Value, diagnostics: &mut Diagnostics) {
    let mut keys = BTreeSet::new();
    for (index, item) in planned.field("item").items().iter().enumerate() {
        if let Some(key) = item.field("key").as_text()
            && !keys.insert(key)
        {
            let path = Path::of("item").index(index).attribute("key");
            diagnostics.error(path, format!("duplicate resource metadata key {key:?}"), "");
        }
    }
}

/// State has no null inside blocks, so each item also records whether its value was null.
fn create(state: &mut Value, _: &Context<'_>, _: &mut Diagnostics) {
    state.set("id", random_id());
    if let Some(Value::List(items)) = state.field_mut("item") {
        for item in items {
            let is_null = item.field("value").is_null();
            item.set("is_null", Value::Bool(is_null));
        }
    }
}

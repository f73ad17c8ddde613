//! The parts of a root module that workspace tags and parameters can depend on, as syntax.

use std::collections::BTreeMap;

use hcl_edit::Span as _;
use hcl_edit::expr::Expression;
use hcl_edit::structure::{Block, Body};
use hcl_edit::template::{StringTemplate, Template};
use serde_json::Value as Json;

use crate::archive::{self, Contents};
use crate::files::{Dialect, configuration_files};
use crate::syntax::{self, ParseBudget, Parsed};

/// A block in a parameter, or the blocks of a `dynamic` block.
pub(crate) struct Nested {
    /// `option` or `validation`.
    pub(crate) block_type: String,
    /// The collection of a `dynamic` block, and the name of its element.
    pub(crate) each: Option<Expression>,
    pub(crate) iterator: String,
    pub(crate) attributes: Attributes,
}

/// The attributes of a block by name; nested blocks are left out.
pub(crate) type Attributes = BTreeMap<String, Expression>;

/// A root module. Without `Debug`: values files may hold secrets.
#[derive(Default)]
pub(crate) struct Module {
    pub(crate) variables: BTreeMap<String, Attributes>,
    pub(crate) locals: BTreeMap<String, Expression>,
    pub(crate) parameters: BTreeMap<String, Attributes>,
    /// The blocks in parameters, by the parameter's label.
    pub(crate) nested: BTreeMap<String, Vec<Nested>>,
    /// Calls of modules by label.
    pub(crate) modules: BTreeMap<String, Attributes>,
    /// `coder_workspace_tags` blocks by label.
    pub(crate) tags: BTreeMap<String, TagBlock>,
    /// The values in values files, by precedence.
    pub(crate) values: Attributes,
    /// Files with invalid configuration, each with the reason.
    pub(crate) invalid_files: Vec<String>,
    /// All files, for the functions that read them.
    pub(crate) contents: Contents,
    budget: ParseBudget,
}

/// A block of workspace tags.
#[derive(Default)]
pub(crate) struct TagBlock {
    /// File and line.
    pub(crate) place: String,
    pub(crate) attributes: Attributes,
}

impl Module {
    pub(crate) fn parse(contents: Contents) -> Self {
        let mut module = Self::default();
        let files = &contents.files;
        let sources = configuration_files(Dialect::OpenTofu, files.keys().cloned());
        let sources = sources.iter().filter_map(|name| files.get_key_value(name));
        let mut values: Vec<_> = files.iter().filter(|(name, _)| archive::is_values(name)).collect();
        values.sort_by_key(|(name, _)| (strength(name), *name));
        for (name, bytes) in sources {
            let read = |text: &str| match name.ends_with(".json") {
                true => module.add_json(name, text),
                false => module.add(name, text),
            };
            if let Err(reason) = decoded(bytes).and_then(read) {
                module.invalid_files.push(format!("{name}: {reason}"));
            }
        }
        for (name, bytes) in values {
            let read = |text: &str| module.add_values(text, name.ends_with(".json"));
            if let Err(reason) = decoded(bytes).and_then(read) {
                module.invalid_files.push(format!("{name}: {reason}"));
            }
        }
        module.contents = contents;
        module
    }

    fn add(&mut self, file: &str, text: &str) -> Result<(), String> {
        let Parsed { body, text } = parse(text, &mut self.budget)?;
        for block in body.blocks() {
            let labels: Vec<_> = block.labels.iter().map(|label| label.as_str()).collect();
            self.merge(block.ident.as_str(), &labels, attributes(&block.body));
            match (block.ident.as_str(), labels.as_slice()) {
                ("data", ["coder_workspace_tags", label]) => {
                    let found = self.tags.entry((*label).to_owned()).or_default();
                    found.place = format!("{file}:{}", line_of(&text, block));
                }
                ("data", ["coder_parameter", label]) => {
                    let blocks: Vec<_> = block.body.blocks().filter_map(nested).collect();
                    let all = self.nested.entry((*label).to_owned()).or_default();
                    // Blocks of an override file replace all blocks of their type.
                    all.retain(|old| blocks.iter().all(|new| new.block_type != old.block_type));
                    all.extend(blocks);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn add_json(&mut self, file: &str, text: &str) -> Result<(), String> {
        let root: Json = serde_json::from_str(text).map_err(|error| error.to_string())?;
        for root in one_or_many(&root) {
            for (block_type, content) in fields(root) {
                let labels = match block_type.as_str() {
                    "variable" | "module" => 1,
                    "data" => 2,
                    "locals" => 0,
                    _ => continue,
                };
                walk_json(content, labels, &mut Vec::new(), &mut |labels, body| {
                    let attributes =
                        fields(body).map(|(name, value)| (name.clone(), json_expression(value))).collect();
                    self.merge(block_type, labels, attributes);
                    if let ("data", ["coder_workspace_tags", label]) = (block_type.as_str(), labels) {
                        let found = self.tags.entry((*label).to_owned()).or_default();
                        found.place = file.to_owned();
                    }
                });
            }
        }
        Ok(())
    }

    /// Adds a block; attributes of an override file replace those of the block.
    fn merge(&mut self, block_type: &str, labels: &[&str], attributes: Attributes) {
        match (block_type, labels) {
            ("locals", []) => self.locals.extend(attributes),
            ("variable", [name]) => {
                self.variables.entry((*name).to_owned()).or_default().extend(attributes);
            }
            ("module", [name]) => {
                self.modules.entry((*name).to_owned()).or_default().extend(attributes);
            }
            ("data", ["coder_parameter", label]) => {
                self.parameters.entry((*label).to_owned()).or_default().extend(attributes);
            }
            ("data", ["coder_workspace_tags", label]) => {
                self.tags.entry((*label).to_owned()).or_default().attributes.extend(attributes);
            }
            _ => {}
        }
    }

    fn add_values(&mut self, text: &str, json: bool) -> Result<(), String> {
        if json {
            let root: Json = serde_json::from_str(text).map_err(|error| error.to_string())?;
            // Strings in JSON values files are not templates.
            self.values.extend(fields(&root).map(|(name, value)| (name.clone(), json_literal(value))));
        } else {
            self.values.extend(attributes(&parse(text, &mut self.budget)?.body));
        }
        Ok(())
    }
}

fn decoded(bytes: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8 text".to_owned())?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

fn parse<'t>(text: &'t str, budget: &mut ParseBudget) -> Result<Parsed<'t>, String> {
    syntax::parse(text, budget).map_err(|error| error.to_string())
}

fn attributes(body: &Body) -> Attributes {
    body.attributes().map(|attribute| (attribute.key.as_str().to_owned(), attribute.value.clone())).collect()
}

fn nested(block: &Block) -> Option<Nested> {
    if block.ident.as_str() != "dynamic" {
        let attributes = attributes(&block.body);
        let block_type = block.ident.as_str().to_owned();
        return Some(Nested { iterator: String::new(), each: None, block_type, attributes });
    }
    let block_type = block.labels.first()?.as_str().to_owned();
    let outer = attributes(&block.body);
    let iterator = match outer.get("iterator") {
        Some(Expression::Variable(name)) => name.as_str().to_owned(),
        _ => block_type.clone(),
    };
    let content = block.body.blocks().find(|inner| inner.ident.as_str() == "content")?;
    Some(Nested {
        block_type,
        each: outer.get("for_each").cloned(),
        iterator,
        attributes: attributes(&content.body),
    })
}

fn line_of(text: &str, block: &Block) -> usize {
    syntax::line_at(text, block.span().map_or(0, |span| span.start))
}

/// The order in which Terraform reads values files; later ones take precedence.
fn strength(name: &str) -> u8 {
    match name {
        "terraform.tfvars" => 0,
        "terraform.tfvars.json" => 1,
        _ => 2,
    }
}

/// Every level of a JSON body may be an object or a list of objects.
fn one_or_many(value: &Json) -> impl Iterator<Item = &Json> {
    match value {
        Json::Array(items) => items.as_slice(),
        other => std::slice::from_ref(other),
    }
    .iter()
}

fn fields(value: &Json) -> impl Iterator<Item = (&String, &Json)> {
    value.as_object().into_iter().flatten().filter(|(name, _)| *name != "//")
}

fn walk_json<'j>(
    value: &'j Json,
    labels: usize,
    path: &mut Vec<&'j str>,
    found: &mut impl FnMut(&[&str], &'j Json),
) {
    for value in one_or_many(value) {
        if labels == 0 {
            found(path, value);
            continue;
        }
        for (label, content) in fields(value) {
            path.push(label);
            walk_json(content, labels - 1, path, found);
            path.pop();
        }
    }
}

/// A JSON value as an expression; its strings are templates.
fn json_expression(value: &Json) -> Expression {
    match value {
        Json::String(text) => match text.parse::<Template>() {
            Ok(template) => StringTemplate::from(template).into(),
            Err(_) => Expression::from(text.as_str()),
        },
        Json::Array(items) => items.iter().map(json_expression).collect::<Vec<_>>().into(),
        Json::Object(items) => items
            .iter()
            .map(|(name, value)| {
                (object_key(json_expression(&Json::from(name.as_str()))), json_expression(value))
            })
            .collect(),
        other => json_literal(other),
    }
}

fn object_key(expression: Expression) -> hcl_edit::expr::ObjectKey {
    hcl_edit::expr::ObjectKey::Expression(expression)
}

fn json_literal(value: &Json) -> Expression {
    match value {
        Json::Null => Expression::null(),
        Json::Bool(value) => Expression::from(*value),
        Json::Number(number) => number.to_string().parse().unwrap_or_else(|_| Expression::null()),
        Json::String(text) => Expression::from(text.as_str()),
        Json::Array(items) => items.iter().map(json_literal).collect::<Vec<_>>().into(),
        Json::Object(items) => items
            .iter()
            .map(|(name, value)| (object_key(Expression::from(name.as_str())), json_literal(value)))
            .collect(),
    }
}

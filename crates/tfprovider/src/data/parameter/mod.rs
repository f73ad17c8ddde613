//! `coder_parameter`: a value that the user chooses when a workspace is created (terraform 3.5).

mod form_type;
mod kind;
mod options;
mod validation;

use super::DataSource;
use crate::check::Check;
use crate::context::{Context, random_id};
use crate::diagnostics::{Diagnostics, Path};
use crate::schema::Type::{Bool, Number, Text};
use crate::schema::{Attribute, Block, Nested, Schema};
use crate::value::Value;

pub(super) fn data_source() -> DataSource {
    let option = Block::new(vec![
        Attribute::required("name", Text, "Title, unique among the options."),
        Attribute::required("value", Text, "Value, unique among the options."),
        Attribute::optional("description", Text, "What it means."),
        Attribute::optional("icon", Text, "Address of an image.").check(Check::Url),
    ]);
    let validation = Block::new(vec![
        Attribute::optional("min", Number, "Least number."),
        Attribute::optional("max", Number, "Largest number."),
        Attribute::optional("monotonic", Text, "Whether a number may only rise or only fall."),
        Attribute::optional("regex", Text, "Expression a text must match.").conflicts(&[
            "min",
            "max",
            "monotonic",
        ]),
        Attribute::optional("error", Text, "What to say; {min}, {max} and {value} are filled in."),
        Attribute::computed("min_disabled", Bool, "Whether the number has no minimum."),
        Attribute::computed("max_disabled", Bool, "Whether the number has no maximum."),
    ]);
    let block = Block::new(vec![
        Attribute::id(),
        Attribute::required("name", Text, "Name, unique in the template."),
        Attribute::optional("display_name", Text, "Title."),
        Attribute::optional("description", Text, "What it means, in Markdown."),
        Attribute::optional("type", Text, "string, number, bool or list(string).")
            .default(Value::text("string"))
            .check(Check::OneOf(kind::ALL)),
        Attribute::optional("form_type", Text, "Form control; none means the usual one for the type.")
            .default(Value::text(""))
            .check(Check::OneOf(form_type::ALL)),
        Attribute::optional("styling", Text, "JSON with hints on how to show it.").default(Value::text("{}")),
        Attribute::optional("mutable", Bool, "Whether it can change after the workspace is made.")
            .default(Value::Bool(false)),
        Attribute::optional("ephemeral", Bool, "Whether a value is good for one build only.")
            .default(Value::Bool(false)),
        Attribute::optional(
            "default",
            Text,
            "The default value. Without a default, the user must choose one.",
        ),
        Attribute::optional("icon", Text, "Address of an image.").check(Check::Url),
        Attribute::optional("order", Number, "Position in the form; lower comes first."),
        Attribute::computed("optional", Bool, "Whether there is a default."),
        Attribute::computed("value", Text, "The value to use."),
    ])
    .with(Nested::list("option", "A value to choose from.", option))
    .with(Nested::list("validation", "Rules for the value.", validation).max(1));
    DataSource { name: "coder_parameter", schema: Schema { version: 1, block }, read }
}

/// An invalid parameter: summary, detail and place.
struct ParameterError {
    summary: String,
    detail: String,
    at: Path,
}

impl ParameterError {
    /// An error of the parameter as a whole.
    fn new(summary: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { summary: summary.into(), detail: detail.into(), at: Path::default() }
    }

    fn at(self, at: Path) -> Self {
        Self { at, ..self }
    }
}

/// The inputs of the validation besides the configuration.
struct Candidate<'a> {
    value: Option<&'a str>,
    /// The value in the previous build.
    previous: Option<&'a str>,
    /// `Value`, or `Default value` without an input.
    title: &'static str,
}

fn read(state: &mut Value, config: &Value, context: &Context<'_>, diagnostics: &mut Diagnostics) {
    state.set("id", random_id());
    state.set("optional", Value::Bool(!config.field("default").is_null()));
    write_validation(state, config);
    if state.field("ephemeral").is_true() {
        if !state.field("mutable").is_true() {
            diagnostics.error(
                Path::of("ephemeral"),
                "parameter can't be immutable and ephemeral",
                "set mutable to true",
            );
            return;
        }
        if config.field("default").is_null() {
            diagnostics.error(Path::of("ephemeral"), "ephemeral parameter requires the default property", "");
            return;
        }
    }
    let name = state.field("name").text_or_empty();
    let input = context.environment.find_hashed("CODER_PARAMETER_", name);
    let previous = context.environment.find_hashed("CODER_PARAMETER_PREVIOUS_", name);
    let value = input.or_else(|| config.field("default").as_text());
    let title = if input.is_none() && value.is_some() { "Default value" } else { "Value" };
    let candidate = Candidate { value, previous, title };
    match resolve(state, config, &candidate) {
        Ok((form_type, value)) => {
            state.set("form_type", Value::text(form_type));
            state.set("value", Value::text(value));
        }
        Err(all) => all.into_iter().for_each(|each| diagnostics.error(each.at, each.summary, each.detail)),
    }
}

/// Writes the block, which tells which bounds were configured: a bound of 0 counts as one.
fn write_validation(state: &mut Value, config: &Value) {
    if state.field("validation").is_null() {
        state.set("validation", Value::List(Vec::new()));
    }
    if let Some(Value::List(items)) = state.field_mut("validation") {
        for (item, given) in items.iter_mut().zip(config.field("validation").items()) {
            item.set("min_disabled", Value::Bool(given.field("min").is_null()));
            item.set("max_disabled", Value::Bool(given.field("max").is_null()));
        }
    }
}

/// The form type and the value, or all errors.
fn resolve(
    state: &Value,
    config: &Value,
    candidate: &Candidate<'_>,
) -> Result<(String, String), Vec<ParameterError>> {
    let kind = state.field("type").text_or_empty();
    let options = options::read(config);
    let form_type = state.field("form_type").text_or_empty();
    let form_type = form_type::resolve(kind, !options.is_empty(), form_type).map_err(|detail| {
        vec![ParameterError::new("Invalid form_type for parameter", detail).at(Path::of("form_type"))]
    })?;
    options::check(&options, form_type::option_kind(kind, form_type))?;
    let rules = config.field("validation").items().first();
    let value = match (candidate.value, rules) {
        (None, None) => "",
        (value, rules) => {
            let value = value.unwrap_or_default();
            // An input is not in the configuration.
            let at = if candidate.title == "Value" { Path::default() } else { Path::of("default") };
            check_value(kind, form_type, &options, rules, value, candidate)
                .map_err(|refused| vec![refused.at(at)])?;
            value
        }
    };
    Ok((form_type.to_owned(), value.to_owned()))
}

fn check_value(
    kind: &str,
    form_type: &str,
    options: &[options::Choice<'_>],
    rules: Option<&Value>,
    value: &str,
    candidate: &Candidate<'_>,
) -> Result<(), ParameterError> {
    if !options.is_empty() {
        options::check_value(options, kind, form_type, value, candidate.title)?;
    }
    if let Some(rules) = rules {
        validation::check(rules, kind, value, candidate.previous).map_err(|detail| {
            let which = candidate.title.to_lowercase();
            ParameterError::new(format!("Invalid parameter {which} according to 'validation' block"), detail)
        })?;
    }
    if !kind::fits(kind, value) {
        let summary = format!("Parameter value is not of type {kind:?}");
        return Err(ParameterError::new(summary, kind::type_mismatch(kind, value)));
    }
    Ok(())
}

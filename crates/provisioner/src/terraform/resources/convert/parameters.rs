//! `coder_parameter` data sources as rich parameters (terraform 4.8).

use coder_wire::messages::provisioner as pb;
use pb::ParameterFormType as Form;

use super::ConvertError;
use super::attributes::Attributes;
use super::index::ResourceIndex;

pub(super) fn convert(index: &ResourceIndex<'_>) -> Result<Vec<pb::RichParameter>, ConvertError> {
    let mut parameters = Vec::new();
    for resource in index.in_order("coder_parameter") {
        parameters.push(parameter(Attributes::of(resource))?);
    }
    check_unique(&parameters)?;
    Ok(parameters)
}

fn parameter(from: Attributes<'_>) -> Result<pb::RichParameter, ConvertError> {
    let name = from.string("name")?;
    let form_type = from.string("form_type")?;
    let mut options = Vec::new();
    for option in from.blocks("option")? {
        options.push(pb::RichParameterOption {
            name: option.string("name")?,
            description: option.string("description")?,
            value: option.string("value")?,
            icon: option.string("icon")?,
        });
    }
    let mut parameter = pb::RichParameter {
        display_name: from.string("display_name")?,
        description: from.string("description")?,
        r#type: from.string("type")?,
        mutable: from.boolean("mutable")?,
        icon: from.string("icon")?,
        ephemeral: from.boolean("ephemeral")?,
        order: from.small_integer("order")?,
        default_value: from.string("default")?,
        required: !from.boolean("optional")?,
        form_type: form(&form_type)
            .ok_or_else(|| ConvertError::FormType { parameter: name.clone(), form_type: form_type.clone() })?
            .into(),
        name,
        options,
        ..pb::RichParameter::default()
    };
    if let [validation] = from.blocks("validation")?.as_slice() {
        validate(*validation, &mut parameter)?;
    }
    Ok(parameter)
}

fn validate(from: Attributes<'_>, parameter: &mut pb::RichParameter) -> Result<(), ConvertError> {
    parameter.validation_regex = from.string("regex")?;
    parameter.validation_error = from.string("error")?;
    parameter.validation_monotonic = from.string("monotonic")?;
    let (min, max) = (from.small_integer("min")?, from.small_integer("max")?);
    let (has_min, has_max) = if from.has("min_disabled") {
        (!from.boolean("min_disabled")?, !from.boolean("max_disabled")?)
    } else {
        // Providers before 0.8.2 do not say which bounds are set.
        let any = min != 0 || max != 0;
        (any, any)
    };
    parameter.validation_min = has_min.then_some(min);
    parameter.validation_max = has_max.then_some(max);
    Ok(())
}

fn form(text: &str) -> Option<Form> {
    Some(match text {
        "" => Form::Default,
        "error" => Form::FormError,
        "radio" => Form::Radio,
        "dropdown" => Form::Dropdown,
        "input" => Form::Input,
        "textarea" => Form::Textarea,
        "slider" => Form::Slider,
        "checkbox" => Form::Checkbox,
        "switch" => Form::Switch,
        "tag-select" => Form::Tagselect,
        "multi-select" => Form::Multiselect,
        _ => return None,
    })
}

fn check_unique(parameters: &[pb::RichParameter]) -> Result<(), ConvertError> {
    let mut seen = std::collections::HashSet::new();
    let mut duplicates: Vec<String> = Vec::new();
    for parameter in parameters {
        let quoted = format!("{:?}", parameter.name);
        if !seen.insert(parameter.name.as_str()) && !duplicates.contains(&quoted) {
            duplicates.push(quoted);
        }
    }
    let text = match duplicates.as_slice() {
        [] => return Ok(()),
        [one] => format!("{one} appears"),
        [first @ .., last] => format!("{} and {last} appear", first.join(", ")),
    };
    Err(ConvertError::DuplicateParameters(text))
}

//! Values for the parameters of a template version: from flags, a file, earlier builds, or by asking.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::bail;
use clap::Args;
use coder_api::json::NameValue;
use coder_api::versions::{TemplateVersionParameter, TemplateVersionParameterOption};
use coder_domain::parameter::{Definition, validate};

use crate::template::variables;
use crate::terminal::menu::{self, Choice};
use crate::terminal::output::{Printer, Style, strip_control};
use crate::terminal::prompt;
use crate::{env, suggest};

/// Flags of commands that build.
#[derive(Clone, Debug, Default, Args)]
#[group(skip)]
pub(crate) struct ParameterFlags {
    /// Parameter value as name=value; may be repeated.
    #[arg(long = "parameter", env = env::RICH_PARAMETER, value_name = "NAME=VALUE")]
    pub(crate) parameters: Vec<String>,
    /// YAML file with parameter values.
    #[arg(long, env = env::RICH_PARAMETER_FILE, value_name = "FILE")]
    pub(crate) rich_parameter_file: Option<PathBuf>,
    /// Default for the question as name=value; may be repeated.
    #[arg(long = "parameter-default", env = env::RICH_PARAMETER_DEFAULT, value_name = "NAME=VALUE")]
    pub(crate) defaults: Vec<String>,
    /// Value of an ephemeral parameter, for this build only, as name=value; may be repeated.
    #[arg(long = "ephemeral-parameter", env = env::EPHEMERAL_PARAMETER, value_name = "NAME=VALUE")]
    pub(crate) ephemeral: Vec<String>,
    /// Values of another workspace, which flags and file replace.
    #[arg(skip)]
    pub(crate) copied: Vec<NameValue>,
    /// Whether ephemeral parameters are asked for.
    #[arg(skip)]
    pub(crate) asks_for_ephemeral: bool,
    /// Whether a default is taken without asking.
    #[arg(skip)]
    pub(crate) takes_defaults: bool,
    /// Parameters whose given values are ignored.
    #[arg(skip)]
    without: BTreeSet<String>,
    /// The content of the file, which may be a pipe that can be read only once.
    #[arg(skip)]
    in_file: OnceLock<Vec<(String, String)>>,
}

impl ParameterFlags {
    /// Ignores the given values of these parameters. Returns those that had one.
    pub(crate) fn drop_all<'n>(
        &mut self,
        names: impl Iterator<Item = &'n str>,
    ) -> anyhow::Result<Vec<&'n str>> {
        let given = self.given()?;
        let dropped: Vec<_> = names.filter(|name| given.contains_key(*name)).collect();
        self.without.extend(dropped.iter().map(|name| (*name).to_owned()));
        Ok(dropped)
    }

    /// Parameters that were given as ephemeral and are not ephemeral.
    fn lasting(&self, parameters: &[TemplateVersionParameter]) -> anyhow::Result<Vec<String>> {
        let is_lasting = |name: &String| parameters.iter().any(|p| p.name == *name && !p.ephemeral);
        Ok(pairs(&self.ephemeral)?.into_iter().map(|(name, _)| name).filter(is_lasting).collect())
    }

    /// Given values: flags over file, file over another workspace.
    fn given(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let copied = self.copied.iter().map(|pair| (pair.name.clone(), pair.value.clone()));
        let mut given: BTreeMap<_, _> = copied.collect();
        if let Some(file) = &self.rich_parameter_file {
            let values = match self.in_file.get() {
                Some(values) => values,
                None => {
                    let values = variables::from_yaml(file)?;
                    self.in_file.get_or_init(|| values)
                }
            };
            given.extend(values.iter().cloned());
        }
        given.extend(pairs(&self.parameters)?);
        given.extend(pairs(&self.ephemeral)?);
        given.retain(|name, _| !self.without.contains(name));
        Ok(given)
    }
}

fn pairs(list: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    let fields = list.iter().flat_map(|text| fields(text));
    fields.map(|field| variables::pair(&field).map_err(anyhow::Error::msg)).collect()
}

/// The fields of a line of comma-separated values, as official clients read them: a field may be quoted, with doubled
/// quotes inside. A line in another format, such as a JSON list, is one field.
fn fields(line: &str) -> Vec<String> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let field = if let Some(mut quoted) = rest.strip_prefix('"') {
            let mut field = String::new();
            loop {
                let Some((text, behind)) = quoted.split_once('"') else { return vec![line.to_owned()] };
                field.push_str(text);
                let Some(more) = behind.strip_prefix('"') else {
                    rest = behind;
                    break;
                };
                field.push('"');
                quoted = more;
            }
            field
        } else {
            let (field, _) = rest.split_once(',').unwrap_or((rest, ""));
            if field.contains('"') {
                return vec![line.to_owned()];
            }
            rest = &rest[field.len()..];
            field.to_owned()
        };
        fields.push(field);
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None if rest.is_empty() => return fields,
            None => return vec![line.to_owned()],
        }
    }
}

/// Where values come from that were not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PromptMode {
    /// The first build: on a terminal each parameter is asked for, otherwise the default is used.
    New,
    /// A later build: only parameters without a value.
    Missing,
    /// A later build with `--always-prompt`.
    All,
}

/// The values to send. `earlier` are the last build's; unchanged ones need not be sent again.
pub(crate) fn resolve(
    printer: &Printer,
    flags: &ParameterFlags,
    parameters: &[TemplateVersionParameter],
    earlier: &[NameValue],
    mode: PromptMode,
    may_ask: bool,
) -> anyhow::Result<Vec<NameValue>> {
    let mut given = flags.given()?;
    if let Some(name) = given.keys().find(|name| parameters.iter().all(|parameter| parameter.name != **name))
    {
        let known: Vec<_> = parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        let near = suggest::did_you_mean(name, known.iter().copied());
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        bail!("the template has no parameter {name:?}: {near}it has: {known}");
    }
    for name in flags.lasting(parameters)? {
        printer.warn(&format!(
            "parameter {name:?} is not ephemeral: later builds keep the value, as with --parameter"
        ));
    }
    let offered: BTreeMap<_, _> = pairs(&flags.defaults)?.into_iter().collect();
    let mut values = Vec::new();
    for parameter in parameters {
        if let Some(value) = given.remove(&parameter.name) {
            values.push(NameValue::new(&parameter.name, value));
            continue;
        }
        let last = earlier.iter().find(|pair| pair.name == parameter.name);
        let known = last.is_some() && (mode == PromptMode::Missing || !parameter.mutable);
        let optional_later = mode == PromptMode::Missing && !parameter.required;
        if parameter.ephemeral {
            if flags.asks_for_ephemeral && may_ask {
                let default = offered.get(&parameter.name).unwrap_or(&parameter.default_value);
                let answer = ask(printer, parameter, Some(default.clone()), None)?;
                values.push(NameValue::new(&parameter.name, answer));
            }
            continue;
        }
        if known || optional_later {
            continue;
        }
        let default = offered.get(&parameter.name).cloned().or_else(|| last.map(|pair| pair.value.clone()));
        let may_stay_unset = definition(parameter).may_stay_unset();
        if default.is_none() && may_stay_unset && (flags.takes_defaults || !may_ask) {
            continue;
        }
        let default = default.or_else(|| (!parameter.required).then(|| parameter.default_value.clone()));
        match default {
            Some(value) if flags.takes_defaults || !may_ask => {
                values.push(NameValue::new(&parameter.name, value))
            }
            default if may_ask => {
                let last = last.map(|pair| pair.value.as_str());
                let answer = ask(printer, parameter, default, last)?;
                if !(answer.is_empty() && may_stay_unset) {
                    values.push(NameValue::new(&parameter.name, answer));
                }
            }
            _ => bail!(
                "the template needs a value for parameter {:?}: pass --parameter {}=VALUE",
                parameter.name,
                parameter.name
            ),
        }
    }
    Ok(values)
}

fn ask(
    printer: &Printer,
    parameter: &TemplateVersionParameter,
    default: Option<String>,
    last: Option<&str>,
) -> anyhow::Result<String> {
    let label = if parameter.display_name.is_empty() { &parameter.name } else { &parameter.display_name };
    if !parameter.description_plaintext.is_empty() {
        printer.note(&printer.paint(Style::Faint, &strip_control(&parameter.description_plaintext)));
    }
    // The server would refuse it too, but then all answers would be lost.
    let definition = definition(parameter);
    let check = |answer: &str| {
        if answer.is_empty() && parameter.required {
            return Err("needs a value".to_owned());
        }
        if answer.is_empty() && definition.may_stay_unset() {
            return Ok(());
        }
        validate(&definition, answer, last)
    };
    let instead = format!("pass --parameter {}=VALUE", parameter.name);
    let choice = |option: &TemplateVersionParameterOption| {
        let about = if option.description.is_empty() { &option.name } else { &option.description };
        Choice::new(&option.value, about)
    };
    let mut choices: Vec<_> = parameter.options.iter().map(choice).collect();
    // The value of a list is several options as JSON, which people type.
    if choices.is_empty() || parameter.kind.as_str() == "list(string)" {
        for choice in &choices {
            let about = printer.paint(Style::Faint, &choice.about);
            printer.note(&format!("  {} {about}", printer.paint(Style::Bold, &choice.shown())));
        }
        return prompt::text(printer, label, default.as_deref(), &instead, check);
    }
    if definition.may_stay_unset() {
        choices.insert(0, Choice::new("", "no value"));
    }
    menu::choose(printer, label, &choices, default.as_deref(), &instead)
}

/// The inputs of the value rules.
fn definition(parameter: &TemplateVersionParameter) -> Definition {
    let parameter = parameter.clone();
    Definition {
        name: parameter.name,
        kind: parameter.kind.as_str().to_owned(),
        mutable: parameter.mutable,
        default_value: parameter.default_value,
        required: parameter.required,
        ephemeral: parameter.ephemeral,
        options: parameter.options.into_iter().map(|option| option.value).collect(),
        validation_regex: parameter.validation_regex,
        validation_error: parameter.validation_error,
        validation_min: parameter.validation_min,
        validation_max: parameter.validation_max,
        validation_monotonic: parameter.validation_monotonic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(name: &str, default: Option<&str>) -> TemplateVersionParameter {
        TemplateVersionParameter {
            name: name.to_owned(),
            required: default.is_none(),
            default_value: default.unwrap_or_default().to_owned(),
            mutable: true,
            ..TemplateVersionParameter::default()
        }
    }

    fn run(flags: &[&str], earlier: &[(&str, &str)], mode: PromptMode) -> anyhow::Result<String> {
        let flags = ParameterFlags {
            parameters: flags.iter().map(|text| (*text).to_owned()).collect(),
            ..ParameterFlags::default()
        };
        let earlier: Vec<_> = earlier.iter().map(|(name, value)| NameValue::new(*name, *value)).collect();
        let parameters = [parameter("size", None), parameter("zone", Some("eu"))];
        let values = resolve(&Printer::plain(), &flags, &parameters, &earlier, mode, false)?;
        Ok(values.iter().map(|pair| format!("{}={} ", pair.name, pair.value)).collect())
    }

    #[test]
    fn a_first_build_sends_all_values() {
        assert_eq!(run(&["size=2"], &[], PromptMode::New).unwrap(), "size=2 zone=eu ");
        assert_eq!(run(&["size=2", "zone=us"], &[], PromptMode::New).unwrap(), "size=2 zone=us ");
        assert!(run(&[], &[], PromptMode::New).unwrap_err().to_string().contains("--parameter size=VALUE"));
        assert!(
            run(&["size=2", "x=1"], &[], PromptMode::New)
                .unwrap_err()
                .to_string()
                .contains("no parameter \"x\"")
        );
    }

    #[test]
    fn a_parameter_with_a_null_default_is_not_sent() {
        let option = |value: &str| TemplateVersionParameterOption {
            value: value.to_owned(),
            ..TemplateVersionParameterOption::default()
        };
        let mut region = parameter("region", Some(""));
        region.options = vec![option("eu"), option("us")];
        let many = TemplateVersionParameter { kind: "list(string)".into(), ..parameter("many", Some("")) };
        let text = parameter("text", Some(""));
        let all = [region, many, text];
        let run = |list: &[&str]| {
            let list = list.iter().map(|text| (*text).to_owned()).collect();
            let flags = ParameterFlags { parameters: list, ..ParameterFlags::default() };
            resolve(&Printer::plain(), &flags, &all, &[], PromptMode::New, false).unwrap()
        };
        assert_eq!(run(&[]), [NameValue::new("text", "")], "an empty default is a value");
        assert_eq!(run(&["region=eu"]), [NameValue::new("region", "eu"), NameValue::new("text", "")]);
    }

    #[test]
    fn values_are_read_as_comma_separated() {
        for (line, wanted) in [
            ("a=1", vec!["a=1"]),
            ("a=1,b=", vec!["a=1", "b="]),
            (r#""a=[""x"",""y""]",b=2"#, vec![r#"a=["x","y"]"#, "b=2"]),
            (r#""a=1,2""#, vec!["a=1,2"]),
            // These lines have another format.
            (r#"a=["x","y"]"#, vec![r#"a=["x","y"]"#]),
            (r#""a=1"b"#, vec![r#""a=1"b"#]),
            (r#""a"#, vec![r#""a"#]),
        ] {
            assert_eq!(fields(line), wanted, "{line}");
        }
        assert_eq!(run(&["size=2,zone=us"], &[], PromptMode::New).unwrap(), "size=2 zone=us ");
    }

    #[test]
    fn flags_for_parameters_of_the_preset_are_dropped() {
        let list = ["zone=us", "size=2"].map(str::to_owned).to_vec();
        let mut flags = ParameterFlags { parameters: list, ..ParameterFlags::default() };
        assert_eq!(flags.drop_all(["size", "other"].into_iter()).unwrap(), ["size"]);
        let open = [parameter("zone", None)];
        let values = resolve(&Printer::plain(), &flags, &open, &[], PromptMode::New, false).unwrap();
        assert_eq!(values, [NameValue::new("zone", "us")]);
    }

    #[test]
    fn a_file_is_read_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "size: 2\n").unwrap();
        let mut flags =
            ParameterFlags { rich_parameter_file: Some(file.path().to_owned()), ..ParameterFlags::default() };
        assert!(flags.drop_all(["zone"].into_iter()).unwrap().is_empty());
        // It was read like a pipe and is empty now.
        drop(file);
        let open = [parameter("size", None)];
        let values = resolve(&Printer::plain(), &flags, &open, &[], PromptMode::New, false).unwrap();
        assert_eq!(values, [NameValue::new("size", "2")]);
    }

    #[test]
    fn values_of_another_workspace_are_taken_where_none_is_given() {
        let flags = ParameterFlags {
            parameters: vec!["size=2".to_owned()],
            copied: vec![NameValue::new("size", "1"), NameValue::new("zone", "us")],
            ..ParameterFlags::default()
        };
        let parameters = [parameter("size", None), parameter("zone", Some("eu"))];
        let values = resolve(&Printer::plain(), &flags, &parameters, &[], PromptMode::New, false).unwrap();
        assert_eq!(values, [NameValue::new("size", "2"), NameValue::new("zone", "us")]);
    }

    #[test]
    fn defaults_can_be_taken_on_a_terminal_too() {
        let flags = ParameterFlags { takes_defaults: true, ..ParameterFlags::default() };
        let mut unset = parameter("unset", Some(""));
        unset.kind = "list(string)".into();
        let parameters = [parameter("zone", Some("eu")), unset];
        let values = resolve(&Printer::plain(), &flags, &parameters, &[], PromptMode::New, true).unwrap();
        assert_eq!(values, [NameValue::new("zone", "eu")]);
    }

    #[test]
    fn permanent_parameters_given_as_ephemeral_are_listed() {
        let once = TemplateVersionParameter { ephemeral: true, ..parameter("once", Some("")) };
        let parameters = [parameter("size", None), once];
        let list = ["size=1,once=2,unknown=3"].map(str::to_owned).to_vec();
        let flags = ParameterFlags { ephemeral: list, ..ParameterFlags::default() };
        assert_eq!(flags.lasting(&parameters).unwrap(), ["size"]);
    }

    #[test]
    fn a_later_build_sends_only_what_changes_or_is_missing() {
        assert_eq!(run(&[], &[("size", "1"), ("zone", "us")], PromptMode::Missing).unwrap(), "");
        assert_eq!(run(&["zone=eu"], &[("size", "1")], PromptMode::Missing).unwrap(), "zone=eu ");
        assert!(run(&[], &[], PromptMode::Missing).is_err());
    }
}

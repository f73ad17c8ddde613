//! Parameters in rows: the result of type, values, options and rules.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::parameter::hashed;
use crate::terraform::{Job, template, values};

/// One line of `parameter_rows.txt`.
struct Row<'a> {
    name: String,
    kind: &'a str,
    form_type: Option<&'a str>,
    previous: Option<&'a str>,
    input: Option<&'a str>,
    default: Option<&'a str>,
    options: Vec<&'a str>,
    rule: Option<&'a str>,
    /// The value, or the error.
    result: Result<&'a str, &'a str>,
}

impl<'a> Row<'a> {
    fn read(index: usize, line: &'a str) -> Self {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [kind, previous, input, default, options, rule, result] = cells[..] else { panic!("{line}") };
        let (kind, form_type) = match kind.split_once(' ') {
            Some((kind, form_type)) => (kind, Some(form_type)),
            None => (kind, None),
        };
        let given = |cell: &'a str| (cell != "-").then(|| cell.trim_matches('\''));
        Self {
            name: format!("row{index}"),
            kind,
            form_type,
            previous: given(previous),
            input: given(input),
            default: given(default),
            options: given(options).into_iter().flat_map(str::split_whitespace).collect(),
            rule: given(rule),
            result: match result.strip_prefix("= ") {
                Some(value) => Ok(value.trim_matches('\'')),
                None => Err(result.strip_prefix("! ").unwrap()),
            },
        }
    }

    /// The data source in Terraform's language.
    fn text(&self) -> String {
        let mut text = format!("data \"coder_parameter\" \"{0}\" {{\n  name = \"{0}\"\n", self.name);
        let mut set = |name: &str, value: &str| text.push_str(&format!("  {name} = {value:?}\n"));
        set("type", self.kind);
        self.form_type.into_iter().for_each(|form_type| set("form_type", form_type));
        self.default.into_iter().for_each(|default| set("default", default));
        for (index, option) in self.options.iter().enumerate() {
            text.push_str(&format!("  option {{\n    name = \"{index}\"\n    value = {option:?}\n  }}\n"));
        }
        if let Some(rule) = self.rule {
            text.push_str(&format!("  validation {{\n{}  }}\n", rules(rule)));
        }
        text + "}\n"
    }
}

/// `1..10`, `..10`, `1..`, `increasing`, `decreasing`, `any`, or an expression between slashes.
fn rules(rule: &str) -> String {
    if let Some(regex) = rule.strip_prefix('/') {
        return format!("    regex = {:?}\n    error = \"not that\"\n", regex.strip_suffix('/').unwrap());
    }
    let Some((min, max)) = rule.split_once("..") else {
        return if rule == "any" { String::new() } else { format!("    monotonic = \"{rule}\"\n") };
    };
    let bound = |name: &str, value: &str| match value {
        "" => String::new(),
        value => format!("    {name} = {value}\n"),
    };
    bound("min", min) + &bound("max", max) + "    error = \"{value} is not from {min} to {max}\"\n"
}

/// Terraform's diagnostics of each data source, by address.
async fn said(job: &Job) -> BTreeMap<String, String> {
    let found = job.diagnostics(&["plan", "-json", "-input=false", "-out=plan"]).await;
    found.into_iter().map(|each| (each.address, each.text)).collect()
}

#[tokio::test]
async fn values_follow_from_input_default_options_and_rules() {
    let lines = include_str!("templates/parameter_rows.txt").lines();
    let rows: Vec<_> = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).enumerate().collect();
    let rows: Vec<_> = rows.into_iter().map(|(index, line)| Row::read(index, line)).collect();
    let variables: Vec<_> = rows
        .iter()
        .flat_map(|row| {
            let input = row.input.map(|value| (hashed("CODER_PARAMETER_", &row.name), value));
            let previous = row.previous.map(|value| (hashed("CODER_PARAMETER_PREVIOUS_", &row.name), value));
            input.into_iter().chain(previous)
        })
        .collect();
    let variables: Vec<_> = variables.iter().map(|(name, value)| (name.as_str(), *value)).collect();

    let text = |rows: &mut dyn Iterator<Item = &Row<'_>>| template(&rows.map(Row::text).collect::<String>());
    coder_requirements::require!(Terraform);
    let job = Job::new(&text(&mut rows.iter()), &variables);
    let said = said(&job).await;
    let mut wrong = Vec::new();
    for row in &rows {
        let found = said.get(&format!("data.coder_parameter.{}", row.name)).map(String::as_str);
        let fits = match row.result {
            Ok(_) => found.is_none(),
            Err(text) => found.is_some_and(|found| found.contains(text)),
        };
        if !fits {
            wrong.push(format!("{}expected {:?}, found {found:?}", row.text(), row.result));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    coder_requirements::require!(Terraform);
    let job = Job::new(&text(&mut rows.iter().filter(|row| row.result.is_ok())), &variables);
    job.plan(&[]).await;
    let state = job.apply().await;
    for row in &rows {
        if let Ok(value) = row.result {
            let found = values(&state, &format!("data.coder_parameter.{}", row.name));
            assert_eq!(found["value"], value, "{}", row.text());
            assert_eq!(found["optional"], row.default.is_some(), "{}", row.text());
        }
    }
}

#[tokio::test]
async fn each_type_has_its_form_types() {
    const ALL: [&str; 10] = [
        "radio",
        "dropdown",
        "input",
        "textarea",
        "slider",
        "checkbox",
        "switch",
        "multi-select",
        "tag-select",
        "error",
    ];
    // Type, a value, the form types with options and those without; the first is the usual one.
    let types: [(&str, &str, &[&str], &[&str]); 4] = [
        ("string", "a", &["radio", "dropdown"], &["input", "textarea"]),
        ("number", "1", &["radio", "dropdown"], &["input", "slider"]),
        ("bool", "true", &["radio", "dropdown"], &["checkbox", "switch"]),
        ("list(string)", "[]", &["radio", "multi-select"], &["tag-select"]),
    ];
    let (mut text, mut usual, mut refused) = (String::new(), Vec::new(), Vec::new());
    for (kind, value, with, without) in types {
        for (options, allowed) in [(true, with), (false, without)] {
            let option = if options {
                format!("  option {{\n    name = \"o\"\n    value = {value:?}\n  }}\n")
            } else {
                String::new()
            };
            let mut add = |form_type: Option<&str>| {
                let name = format!("p{}", text.matches("data ").count());
                let form_type = form_type.map(|it| format!("  form_type = {it:?}\n")).unwrap_or_default();
                text.push_str(&format!(
                    "data \"coder_parameter\" \"{name}\" {{\n  name = \"{name}\"\n  type = {kind:?}\n{form_type}{option}}}\n"
                ));
                format!("data.coder_parameter.{name}")
            };
            usual.push((add(None), allowed[0]));
            for form_type in ALL {
                let address = add(Some(form_type));
                if !allowed.contains(&form_type) {
                    refused.push((address, format!("{form_type:?} is not supported for \"type\" {kind:?}")));
                }
            }
        }
    }
    coder_requirements::require!(Terraform);
    let job = Job::new(&template(&text), &[]);
    let said = said(&job).await;
    for (address, text) in &refused {
        assert!(said.get(address).is_some_and(|found| found.contains(text)), "{address} {text}: {said:?}");
    }
    assert_eq!((said.len(), refused.len()), (65, 65));
    let text: String = text
        .split_inclusive("}\n")
        .collect::<String>()
        .split("data ")
        .filter(|part| part.matches("form_type").count() == 0)
        .filter(|part| !part.is_empty())
        .map(|part| format!("data {part}"))
        .collect();
    coder_requirements::require!(Terraform);
    let job = Job::new(&template(&text), &[]);
    let plan = job.plan(&[]).await;
    let read = plan["prior_state"]["values"]["root_module"]["resources"].as_array().unwrap();
    for (address, form_type) in usual {
        let found = read.iter().find(|each| each["address"] == address).unwrap();
        assert_eq!(found["values"]["form_type"], Value::from(form_type), "{address}");
    }
}

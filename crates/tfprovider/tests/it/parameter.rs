//! Parameters use the chosen value, and report an invalid one.

use serde_json::Value;

use crate::terraform::{Job, template, values};

/// The variable that carries something about the parameter of this name.
pub(crate) fn hashed(prefix: &str, name: &str) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(name.as_bytes());
    digest.iter().fold(prefix.to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

const TEMPLATE: &str = r#"
data "coder_parameter" "cpu" {
  name    = "cpu"
  type    = "number"
  default = 2
  mutable = true
  validation {
    min       = 1
    max       = 8
    monotonic = "increasing"
    error     = "{value} is not from {min} to {max}"
  }
}

data "coder_parameter" "region" {
  name = "Where to run?"
  option {
    name  = "Europe"
    value = "eu"
  }
  option {
    name  = "America"
    value = "us"
  }
}

resource "terraform_data" "chosen" {
  input = "${data.coder_parameter.cpu.value} ${data.coder_parameter.region.value}"
}
"#;

/// The chosen value, or the error.
async fn chosen(choices: &[(&str, &str)], previous: &[(&str, &str)]) -> Result<String, String> {
    let variables: Vec<_> = choices
        .iter()
        .map(|(name, value)| (hashed("CODER_PARAMETER_", name), *value))
        .chain(previous.iter().map(|(name, value)| (hashed("CODER_PARAMETER_PREVIOUS_", name), *value)))
        .collect();
    let variables: Vec<_> = variables.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let job = Job::new(&template(TEMPLATE), &variables);
    let found = job.diagnostics(&["plan", "-json", "-input=false", "-out=plan"]).await;
    if let Some(first) = found.first() {
        return Err(format!("{}: {}", first.line, first.text));
    }
    let state = job.apply().await;
    Ok(values(&state, "terraform_data.chosen")["input"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_choice_wins_over_the_default() {
    coder_requirements::require!(Terraform);
    let found = chosen(&[("cpu", "4"), ("Where to run?", "us")], &[("cpu", "3")]).await;
    assert_eq!(found, Ok("4 us".to_owned()));
}

#[tokio::test]
async fn a_default_is_used_and_a_missing_value_is_empty() {
    coder_requirements::require!(Terraform);
    let found = chosen(&[], &[]).await;
    assert_eq!(found, Ok("2 ".to_owned()));
}

#[tokio::test]
async fn a_wrong_choice_names_the_parameter() {
    coder_requirements::require!(Terraform);
    let found = chosen(&[("cpu", "9")], &[]).await;
    let text = "9: Invalid parameter value according to 'validation' block 9 is not from 1 to 8";
    assert_eq!(found, Err(text.to_owned()));
}

#[tokio::test]
async fn a_default_that_falls_is_refused_on_its_line() {
    coder_requirements::require!(Terraform);
    let found = chosen(&[], &[("cpu", "3")]).await;
    let error = found.unwrap_err();
    assert!(error.starts_with("12: Invalid parameter default value"), "{error}");
    assert!(error.contains("must be equal or greater than previous value: 3"), "{error}");
}

#[tokio::test]
async fn a_choice_outside_of_the_options_is_refused() {
    coder_requirements::require!(Terraform);
    let found = chosen(&[("Where to run?", "mars")], &[]).await;
    let error = found.unwrap_err();
    assert!(error.contains("Value must be a valid option") && error.contains("eu, us"), "{error}");
}

#[tokio::test]
async fn a_thousand_options() {
    coder_requirements::require!(Terraform);
    let options: String = (0..1024)
        .map(|n| format!("  option {{\n    name  = \"Option {n}\"\n    value = \"{n}\"\n  }}\n"))
        .collect();
    let body = format!(
        "data \"coder_parameter\" \"many\" {{\n  name    = \"many\"\n  default = \"1023\"\n{options}}}\n"
    );
    let job = Job::new(&template(&body), &[]);
    let plan = job.plan(&[]).await;
    let resources = &plan["prior_state"]["values"]["root_module"]["resources"];
    assert_eq!(resources[0]["values"]["option"].as_array().map(Vec::len), Some(1024));
    assert_eq!(resources[0]["values"]["value"], Value::from("1023"));
}

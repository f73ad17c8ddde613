//! Templates that are refused. Each refused line has a comment, `# error: text` or `# warning: text`, and nothing else
//! is.

use crate::terraform::{Diagnostic, Job};

/// The comments of a template; several on one line are parted by `|`.
fn expected(template: &str) -> Vec<(u64, &str, &str)> {
    let mut expected = Vec::new();
    for (line, text) in (1..).zip(template.lines()) {
        let marks = text.split_once("# refused: ").map(|(_, marks)| marks).unwrap_or_default();
        for mark in marks.split(" | ").filter(|mark| !mark.is_empty()) {
            let (severity, text) = mark.split_once(": ").unwrap();
            expected.push((line, severity, text));
        }
    }
    expected
}

fn check(template: &str, mut found: Vec<Diagnostic>) {
    let expected = expected(template);
    assert!(!expected.is_empty());
    for (line, severity, text) in expected {
        let fits =
            |each: &Diagnostic| each.line == line && each.severity == severity && each.text.contains(text);
        let index = found.iter().position(fits);
        let index = index.unwrap_or_else(|| panic!("line {line}: no {severity} with {text:?} in {found:#?}"));
        found.remove(index);
    }
    assert_eq!(found, [], "more was refused than expected");
}

const PLAN: [&str; 4] = ["plan", "-json", "-input=false", "-out=plan"];

#[tokio::test]
async fn configurations_of_resources() {
    let template = include_str!("templates/refused_resources.tf");
    coder_requirements::require!(Terraform);
    let job = Job::new(template, &[]);
    check(template, job.diagnostics(&PLAN).await);
}

#[tokio::test]
async fn configurations_of_data_sources() {
    let template = include_str!("templates/refused_data.tf");
    coder_requirements::require!(Terraform);
    let job = Job::new(template, &[]);
    check(template, job.diagnostics(&PLAN).await);
}

#[tokio::test]
async fn shapes() {
    let template = include_str!("templates/refused_shapes.tf");
    coder_requirements::require!(Terraform);
    let job = Job::new(template, &[]);
    check(template, job.diagnostics(&PLAN).await);
}

/// The other side of every limit.
#[tokio::test]
async fn nothing_else() {
    coder_requirements::require!(Terraform);
    let job = Job::new(include_str!("templates/accepted.tf"), &[]);
    assert_eq!(job.diagnostics(&PLAN).await, []);
    assert_eq!(job.diagnostics(&["apply", "-json", "-input=false", "plan"]).await, []);
}

#[tokio::test]
async fn plans() {
    let template = include_str!("templates/refused_plans.tf");
    coder_requirements::require!(Terraform);
    let job = Job::new(template, &[]);
    check(template, job.diagnostics(&PLAN).await);
}

#[tokio::test]
async fn applies() {
    let template = include_str!("templates/refused_applies.tf");
    coder_requirements::require!(Terraform);
    let job = Job::new(template, &[]);
    assert_eq!(job.diagnostics(&PLAN).await, []);
    check(template, job.diagnostics(&["apply", "-json", "-input=false", "plan"]).await);
    let state: serde_json::Value = serde_json::from_slice(&job.run(&["show", "-json"]).await.stdout).unwrap();
    let resources = state["values"]["root_module"]["resources"].as_array().unwrap();
    let tainted: Vec<_> =
        resources.iter().filter(|each| each["tainted"] == true).map(|each| &each["address"]).collect();
    assert_eq!(tainted, ["coder_ai_task.none", "coder_script.blocks", "coder_script.never"]);
    assert_eq!(resources.len(), 5);
}

#[tokio::test]
async fn readings() {
    let template = include_str!("templates/refused_readings.tf");
    let hashed = crate::parameter::hashed;
    let given =
        [("r45", "4"), ("r46", "2")].map(|(name, value)| (hashed("CODER_PARAMETER_PREVIOUS_", name), value));
    let chosen = [("r47", ""), ("r48", "2"), ("r49", "[]")]
        .map(|(name, value)| (hashed("CODER_PARAMETER_", name), value));
    let variables: Vec<_> =
        given.iter().chain(&chosen).map(|(name, value)| (name.as_str(), *value)).collect();
    coder_requirements::require!(Terraform);
    let job = Job::new(template, &variables);
    check(template, job.diagnostics(&PLAN).await);
}

#[tokio::test]
async fn provider_addresses() {
    for (url, text) in [
        ("\"\"", "CODER_AGENT_URL must not be empty"),
        ("\"http://a b\"", "cannot be read"),
        ("terraform_data.later.output", "is known after apply only"),
    ] {
        let block = format!(
            "provider \"coder\" {{\n  url = {url}\n}}\ndata \"coder_workspace\" \"w\" {{}}\n\
             resource \"terraform_data\" \"later\" {{\n  input = \"x\"\n}}\n"
        );
        coder_requirements::require!(Terraform);
        let job = Job::new(&crate::terraform::template(&block), &[]);
        let found = job.diagnostics(&PLAN).await;
        assert!(found.len() == 1 && found[0].text.contains(text) && found[0].line == 9, "{found:?}");
    }
}

#[tokio::test]
async fn imports() {
    let template =
        crate::terraform::template("resource \"coder_env\" \"e\" {\n  agent_id = \"a\"\n  name = \"A\"\n}\n");
    coder_requirements::require!(Terraform);
    let job = Job::new(&template, &[]);
    let output = job.run(&["import", "-no-color", "coder_env.e", "x"]).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("can not be imported"), "{said}");
}

//! The results of expressions in the real Terraform.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Outcome;

/// The output of `terraform console` for one expression.
fn console(folder: &Path, expression: &str) -> String {
    use std::io::Write as _;
    let mut child = Command::new("terraform")
        .args(["console", "-no-color"])
        .current_dir(folder)
        .env("CHECKPOINT_DISABLE", "1")
        .env_remove("TF_CLI_CONFIG_FILE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(format!("{expression}\n").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The top-level elements of a tuple's type, without spaces.
fn elements(text: &str) -> Vec<String> {
    let text: String = text.split_whitespace().collect();
    let text = text.replace(",)", ")");
    let inner = text.strip_prefix("tuple([").and_then(|rest| rest.strip_suffix("])")).unwrap();
    let mut found = Vec::new();
    let (mut depth, mut one) = (0, String::new());
    for char in inner.chars() {
        match char {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                found.push(std::mem::take(&mut one));
                continue;
            }
            _ => {}
        }
        one.push(char);
    }
    found
}

/// The results of all expressions. Terraform evaluates them in one configuration, in two processes: one for values, one for
/// types.
pub(super) fn results(folder: &Path, expressions: &[&String]) -> Vec<Outcome> {
    let mut main = "locals {\n  texts = [\n".to_owned();
    for text in expressions {
        // One that has a value, but no JSON, is infinite.
        writeln!(main, "    try(base64encode(jsonencode({text})), can({text}) ? \"infinite\" : \"error\"),")
            .unwrap();
    }
    main.push_str("  ]\n  values = [\n");
    for text in expressions {
        writeln!(main, "    try({text}, null),").unwrap();
    }
    main.push_str("  ]\n}\n");
    std::fs::write(folder.join("main.tf"), main).unwrap();
    let texts = console(folder, "local.texts");
    let texts: Vec<_> = texts.lines().filter(|line| !matches!(*line, "[" | "]")).collect();
    let types = elements(&console(folder, "type(local.values)"));
    assert_eq!((texts.len(), types.len()), (expressions.len(), expressions.len()));
    let outcome = |(text, ty): (&str, String)| match text.trim().trim_end_matches(',').trim_matches('"') {
        "(known after apply)" => Outcome::Unknown,
        "error" => Outcome::Error,
        "infinite" => Outcome::Value { ty, json: None },
        encoded => {
            let json = String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap();
            Outcome::Value { ty, json: Some(json) }
        }
    };
    texts.into_iter().zip(types).map(outcome).collect()
}

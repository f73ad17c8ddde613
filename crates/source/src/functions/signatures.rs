//! Compares the table of functions with the signatures that Terraform reports.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value as Json, json};

use super::{FUNCTIONS, Param};
use crate::Inputs;
use crate::budget::EvalError;
use crate::eval::{Evaluator, Scope};
use crate::module::Module;

/// Functions outside of the tables: `try` and `can` are evaluated in `eval.rs`, the others are left to Terraform.
const NOT_IN_TABLE: [&str; 10] = [
    "try",
    "can",
    "abspath",
    "base64gzip",
    "bcrypt",
    "issensitive",
    "pathexpand",
    "plantimestamp",
    "rsadecrypt",
    "uuid",
];

fn written(param: Param) -> (Json, bool) {
    let ty = match param {
        Param::Any | Param::Nullable => json!("dynamic"),
        Param::Text => json!("string"),
        Param::Number => json!("number"),
        Param::List => json!(["list", "dynamic"]),
        Param::Set => json!(["set", "dynamic"]),
        Param::Texts => json!(["list", "string"]),
        Param::Bools => json!(["list", "bool"]),
        Param::TextLists => json!(["map", ["list", "string"]]),
    };
    (ty, param == Param::Nullable)
}

#[test]
fn functions_have_the_signatures_of_terraform() {
    coder_requirements::require!(Terraform);
    let output = Command::new("terraform").args(["metadata", "functions", "-json"]).output().unwrap();
    let found: Json = serde_json::from_slice(&output.stdout).unwrap();
    let theirs = found["function_signatures"].as_object().unwrap();
    let ours: BTreeMap<_, _> =
        FUNCTIONS.into_iter().flatten().map(|function| (function.name, function)).collect();
    let read = |param: &Json| (param["type"].clone(), param["is_nullable"].as_bool().unwrap_or(false));
    for (name, signature) in theirs.iter().filter(|(name, _)| !name.contains("::")) {
        let Some(function) = ours.get(name.as_str()) else {
            assert!(NOT_IN_TABLE.contains(&name.as_str()), "{name} is new");
            continue;
        };
        let params: Vec<_> = signature["parameters"].as_array().into_iter().flatten().map(read).collect();
        assert_eq!(function.params.iter().copied().map(written).collect::<Vec<_>>(), params, "{name}");
        let rest = signature.get("variadic_parameter").map(read);
        assert_eq!(function.rest.map(written), rest, "{name}");
    }
    for name in ours.keys() {
        assert!(theirs.contains_key(*name), "{name} is not a function of Terraform");
    }
}

/// A missing function must not look like a failing one: `try` would return another value than in Terraform.
#[test]
fn missing_functions_are_left_to_terraform() {
    let (module, inputs) = (Module::default(), Inputs::default());
    for name in NOT_IN_TABLE.into_iter().skip(2).chain(["nosuch", "provider::x::y"]) {
        for text in
            [format!("{name}(\"a\")"), format!("try({name}(\"a\"), \"b\")"), format!("can({name}(\"a\"))")]
        {
            let evaluator = Evaluator::new(&module, &inputs);
            let found = evaluator.evaluate(&text.parse().unwrap(), Scope::ROOT);
            let Err(EvalError::Unavailable(why)) = found else { panic!("{text}: {found:?}") };
            assert!(why.contains("not available here"), "{text}: {why}");
        }
    }
}

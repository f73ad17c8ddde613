//! Every function and operator against Terraform: the same value, of the same type, or an error on both sides.
//!
//! Expressions are generated from a fixed seed, with arguments that fit and arguments that do not. The real Terraform
//! evaluates them where there is one; what it gave once is recorded.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::budget::{Budget, EvalError};
use crate::eval::{Evaluator, Scope};
use crate::module::Module;
use crate::value::Value;
use crate::value_type::Type;
use crate::{Inputs, archive, json};

mod examples;
mod generator;
mod grids;
mod pools;
mod recorded;
mod terraform;

/// The seed of the recorded expressions.
const DEFAULT_SEED: u64 = 12;

/// Reasons for which an expression may be left to Terraform, by a part of the text. Every other expression must have a
/// value here.
const LEFT_TO_TERRAFORM: [&str; 11] = [
    "an index may be negative",
    "IPv4 addresses written as IPv6",
    "negative numbers of bits or parts",
    "times this far away",
    "numbers of this size",
    "a remainder of infinity",
    "only UTF-8, UTF-16LE",
    "outside of the template",
    "patterns with braces",
    "a field that is wider",
    "keys that are long",
];

fn may_be_left(why: &str) -> bool {
    LEFT_TO_TERRAFORM.iter().any(|part| why.contains(part))
}

/// What comes of an expression.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Error,
    /// A value that is known later.
    Unknown,
    /// A value, which infinity has no JSON for.
    Value {
        ty: String,
        json: Option<String>,
    },
    /// Nothing here, for this reason.
    Left(String),
}

fn our_result(module: &Module, text: &str) -> Outcome {
    let inputs = Inputs::default();
    let evaluator = Evaluator::new(module, &inputs);
    let expression = text.parse().unwrap();
    match evaluator.evaluate(&expression, Scope::ROOT) {
        Ok(Value::Unknown(_)) => Outcome::Unknown,
        Ok(value) => {
            let budget = Budget::new();
            let ty = Type::of(&value, &budget).unwrap();
            Outcome::Value { ty: written(&ty).replace(",)", ")"), json: json::encode(&value, &budget).ok() }
        }
        Err(EvalError::Failed(_)) => Outcome::Error,
        Err(EvalError::Unavailable(why)) => Outcome::Left(why),
        Err(error) => Outcome::Left(format!("{error:?}")),
    }
}

/// A type as Terraform's `type` writes it, without spaces.
fn written(ty: &Type) -> String {
    let within = |name: &str, of: &Type| format!("{name}({})", written(of));
    match ty {
        Type::Any => "dynamic".to_owned(),
        Type::Bool => "bool".to_owned(),
        Type::Number => "number".to_owned(),
        Type::Text => "string".to_owned(),
        Type::List(of) => within("list", of),
        Type::Set(of) => within("set", of),
        Type::Map(of) => within("map", of),
        Type::Tuple(items) if items.is_empty() => "tuple([])".to_owned(),
        Type::Tuple(items) => {
            format!("tuple([{},])", items.iter().map(written).collect::<Vec<_>>().join(","))
        }
        Type::Object(items) if items.is_empty() => "object({})".to_owned(),
        Type::Object(items) => {
            let mut text = String::new();
            for (name, attribute) in items.iter() {
                write!(text, "{name}:{},", written(&attribute.ty)).unwrap();
            }
            format!("object({{{}}})", text.split_whitespace().collect::<String>())
        }
    }
}

/// Files for functions that read files, in both evaluations.
const FILES: [(&str, &str); 5] = [
    ("a.txt", "hello ü\n"),
    ("t.tftpl", "<%{ for k, v in m }${k}=${v};%{ endfor }${upper(x)}>"),
    ("conf/b.yaml", "x: 1\n"),
    ("conf/deep/c.yaml", "y: 2\n"),
    ("conf/.hidden", ""),
];

/// A module with these files.
fn module() -> Module {
    let files = FILES.into_iter().map(|(name, content)| (name.to_owned(), content.as_bytes().to_vec()));
    Module::parse(archive::from_files(files).unwrap())
}

#[test]
fn expressions_have_the_values_and_types_that_terraform_gives_them() {
    coder_requirements::require!(Terraform);
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in FILES {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let module = module();
    let seed = std::env::var("CODER_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let tables = generator::generated(seed.unwrap_or(DEFAULT_SEED));
    let expressions: Vec<&String> = tables.values().flatten().collect();
    let theirs = terraform::results(dir.path(), &expressions);
    let ours: Vec<_> = expressions.iter().map(|text| our_result(&module, text)).collect();
    let mut wrong = Vec::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for ((text, ours), theirs) in expressions.iter().zip(&ours).zip(&theirs) {
        let (what, agrees) = match ours {
            Outcome::Left(why) => ("left", may_be_left(why)),
            Outcome::Unknown => ("unknown", ours == theirs),
            Outcome::Error => ("error", ours == theirs),
            Outcome::Value { .. } => ("value", ours == theirs),
        };
        *counts.entry(what).or_default() += 1;
        if !agrees {
            wrong.push(format!("{text}\n  here:      {ours:?}\n  Terraform: {theirs:?}"));
        }
    }
    if seed.is_none() && std::env::var_os("UPDATE_REFERENCE").is_some() {
        let mut rows = expressions.iter().zip(&ours).zip(&theirs);
        for (table, expressions) in &tables {
            let rows = rows.by_ref().take(expressions.len());
            let rows = rows.map(|((text, ours), theirs)| (*text, theirs, matches!(ours, Outcome::Left(_))));
            recorded::write(table, rows);
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        expressions.len(),
        wrong[..wrong.len().min(40)].join("\n")
    );
    // Most of what is generated must reach the functions, and little may be left to Terraform.
    assert!(counts["value"] * 3 > expressions.len(), "{counts:?}");
    assert!(counts.get("left").copied().unwrap_or(0) * 20 < expressions.len(), "{counts:?}");
}

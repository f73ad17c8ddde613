//! Every function and operator against the real Terraform: the same value, of the same type, or an error on both sides.
//!
//! Expressions are generated from a fixed seed, with arguments that fit and arguments that do not. Terraform evaluates all of
//! them in one configuration, in two processes: one for values, one for types.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{FUNCTIONS, Param};
use crate::budget::{Budget, EvalError};
use crate::eval::{Evaluator, Scope};
use crate::module::Module;
use crate::value::Value;
use crate::value_type::Type;
use crate::{Inputs, archive, json};

mod examples;
mod pools;

/// Functions that give nothing to compare: the time, what Terraform hides, and a template that must be a reference.
const NOT_COMPARABLE: [&str; 4] = ["timestamp", "sensitive", "nonsensitive", "templatestring"];

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

/// Random that is the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap()
    }

    fn one<'p>(&mut self, pool: &[&'p str]) -> &'p str {
        pool[self.below(pool.len())]
    }

    fn any(&mut self) -> &'static str {
        let pool = [pools::NUMBERS, pools::TEXTS, pools::LISTS, pools::MAPS, pools::OTHERS][self.below(5)];
        self.one(pool)
    }

    /// An argument for a place of a function; one of ten is anything.
    fn argument(&mut self, name: &str, at: usize, param: Param) -> &'static str {
        if self.below(10) == 0 {
            return self.any();
        }
        if let Some(pool) = pools::of(name, at) {
            return self.one(pool);
        }
        match param {
            Param::Any | Param::Nullable => self.any(),
            Param::Text => self.one(pools::TEXTS),
            Param::Number => self.one(pools::NUMBERS),
            Param::List | Param::Set | Param::Texts | Param::Bools => self.one(pools::LISTS),
            Param::TextLists => self.one(pools::MAPS),
        }
    }
}

fn generated() -> Vec<String> {
    let seed = std::env::var("CODER_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut random = Random(seed.unwrap_or(12));
    let mut all = Vec::new();
    for function in
        FUNCTIONS.into_iter().flatten().filter(|function| !NOT_COMPARABLE.contains(&function.name))
    {
        for round in 0..60 {
            let more = if function.rest.is_some() { random.below(4) } else { 0 };
            let mut params: Vec<_> = function.params.to_vec();
            params.extend(std::iter::repeat_n(function.rest.unwrap_or(Param::Any), more));
            // Now and then one too many or too few.
            match round % 20 {
                18 => params.push(Param::Any),
                19 => drop(params.pop()),
                _ => {}
            }
            let arguments: Vec<_> = params
                .iter()
                .enumerate()
                .map(|(at, param)| random.argument(function.name, at, *param))
                .collect();
            all.push(format!("{}({})", function.name, arguments.join(", ")));
        }
    }
    for _ in 0..500 {
        let operator = random.one(&["+", "-", "*", "/", "%", "<", "<=", ">", ">="]);
        let (a, b) = (random.one(pools::NUMBERS), random.one(pools::NUMBERS));
        all.push(format!("{a} {operator} {b}"));
        all.push(format!("({a} {operator} {b}) == ({b} {operator} {a})"));
    }
    for _ in 0..300 {
        let (a, b) = (random.any(), random.any());
        let operator = random.one(&["==", "!=", "+", "&&", "||", "<"]);
        all.push(match operator {
            // Whether the second operand is evaluated depends on Terraform's version.
            "&&" | "||" => format!("({a} == {b}) {operator} ({b} != {a})"),
            operator => format!("{a} {operator} {b}"),
        });
        let condition = random.one(&["true", "false", "\"true\"", "1 < 2", "\"x\"", "null", "1"]);
        all.push(format!("{condition} ? {a} : {b}"));
        all.push(format!("[{a}, {b}][{}]", random.any()));
        all.push(format!(
            "({a}){}",
            random.one(&["[*]", "[*].a", ".*.a", "[0]", "[\"a\"]", ".a", "[1.5]", "[-1]", ".0"])
        ));
        all.push(format!("[for v in {a} : v]"));
        all.push(format!("{{for k, v in {a} : k => v}}"));
        all.push(format!("{{for k, v in {a} : v => k...}}"));
        all.push(format!("\"<${{{a}}}>\""));
        all.push(format!("\"${{{a}}}\""));
        all.push(format!("concat({a}...)"));
        all.push(format!("{}{a}", random.one(&["-", "!"])));
        all.push(format!("tolist([{a}, {b}, {}])", random.any()));
        all.push(format!("tomap({{ a = {a}, b = {b} }})"));
    }
    for _ in 0..600 {
        let (a, b) = (random.one(pools::BRANCHES), random.one(pools::BRANCHES));
        all.push(format!("{} ? {a} : {b}", random.one(&["true", "false"])));
    }
    for tag in pools::YAML_TAGS {
        all.extend(pools::YAML_SCALARS.iter().map(|scalar| format!("yamldecode(\"{tag}{scalar}\")")));
    }
    all.extend(examples::EXAMPLES.iter().map(|&example| example.to_owned()));
    let valid = |text: &String| text.parse::<hcl_edit::expr::Expression>().is_ok();
    all.retain(valid);
    all.sort();
    all.dedup();
    all
}

/// Kind, value as JSON, and whether there is one at all.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Error,
    /// A value, which infinity has no JSON for.
    Value {
        ty: String,
        json: Option<String>,
    },
    Left(String),
}

fn our_result(module: &Module, text: &str) -> Outcome {
    let inputs = Inputs::default();
    let evaluator = Evaluator::new(module, &inputs);
    let expression = text.parse().unwrap();
    match evaluator.evaluate(&expression, Scope::ROOT) {
        Ok(Value::Unknown(why)) => Outcome::Left(why.to_string()),
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

/// The results of all expressions in Terraform.
fn terraform_results(folder: &Path, expressions: &[String]) -> Vec<Outcome> {
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
        "(known after apply)" => Outcome::Left(String::new()),
        "error" => Outcome::Error,
        "infinite" => Outcome::Value { ty, json: None },
        encoded => {
            let json = String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap();
            Outcome::Value { ty, json: Some(json) }
        }
    };
    texts.into_iter().zip(types).map(outcome).collect()
}

/// Files for functions that read files, in both evaluations.
const FILES: [(&str, &str); 5] = [
    ("a.txt", "hello ü\n"),
    ("t.tftpl", "<%{ for k, v in m }${k}=${v};%{ endfor }${upper(x)}>"),
    ("conf/b.yaml", "x: 1\n"),
    ("conf/deep/c.yaml", "y: 2\n"),
    ("conf/.hidden", ""),
];

#[test]
fn expressions_have_the_values_and_types_that_terraform_gives_them() {
    coder_requirements::require!(Terraform);
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in FILES {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let files = FILES.into_iter().map(|(name, content)| (name.to_owned(), content.as_bytes().to_vec()));
    let module = Module::parse(archive::from_files(files).unwrap());
    let expressions = generated();
    let mut wrong = Vec::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (text, theirs) in expressions.iter().zip(terraform_results(dir.path(), &expressions)) {
        let ours = our_result(&module, text);
        let (what, agrees) = match (&ours, &theirs) {
            (Outcome::Left(_), Outcome::Left(_)) => ("unknown", true),
            (Outcome::Left(why), _) => ("left", LEFT_TO_TERRAFORM.iter().any(|part| why.contains(part))),
            (Outcome::Error, _) => ("error", theirs == Outcome::Error),
            _ => ("value", ours == theirs),
        };
        *counts.entry(what).or_default() += 1;
        if !agrees {
            wrong.push(format!("{text}\n  here:      {ours:?}\n  Terraform: {theirs:?}"));
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

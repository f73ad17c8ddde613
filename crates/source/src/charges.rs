//! What evaluations are charged. The charge bounds the time and the memory that a hostile template takes, so a change must
//! be seen.
//!
//! A line of `testdata/charges.txt` is a charge, a tab, and an expression. `UPDATE_REFERENCE` writes the charges of all
//! expressions in the file. Those for long texts, long lists and large numbers show what a charge grows with.

use std::fmt::Write as _;

use crate::eval::{AllowedReferences, Evaluator, Scope};
use crate::module::Module;
use crate::{Inputs, archive};

/// Locals that the expressions refer to: their own evaluation is not part of the charge.
const MAIN: &str = r#"
locals {
  text   = "${join("", [for n in range(99) : "abcdé"])}"
  lines  = "${join("\n", [for n in range(19) : "a,b,c"])}"
  number = 123456789012345678901234567890123456789012345678901234567890.5
  third  = 1 / 3
  list   = [for n in range(37) : "x${n}"]
  nested = [for n in range(11) : [n, "a${n}"]]
  map    = { for n in range(23) : "key-${n}" => n }
  lists  = { for n in range(7) : "key-${n}" => ["a", "b${n}"] }
  json   = "${jsonencode([for n in range(17) : { a = n, b = "text" }])}"
}
variable "typed" {
  type    = map(object({ name = string, size = optional(number, 5) }))
  default = { a = { name = "x" }, bc = { name = "y", size = 1 } }
}
"#;

fn path() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/charges.txt")
}

fn charge(module: &Module, text: &str) -> u64 {
    let inputs = Inputs::default();
    let evaluator = Evaluator::new(module, &inputs);
    let evaluate =
        |text: &str| evaluator.evaluate(&text.parse().unwrap(), Scope::new(AllowedReferences::All));
    for local in module.locals.keys() {
        evaluate(&format!("local.{local}")).unwrap();
    }
    let before = evaluator.budget.spent();
    // A failing expression is charged, too.
    drop(evaluate(text));
    evaluator.budget.spent() - before
}

#[test]
fn every_expression_is_charged_as_recorded() {
    let files = [("main.tf", MAIN), ("conf/a.yaml", "k: 1\n"), ("t.tftpl", "${a}-${b}")];
    let files = files.map(|(name, content)| (name.to_owned(), content.as_bytes().to_vec()));
    let module = Module::parse(archive::from_files(files).unwrap());
    assert_eq!(module.invalid_files, [] as [String; 0]);
    let recorded = std::fs::read_to_string(path()).unwrap();
    let mut found = String::new();
    for line in recorded.lines() {
        let expression = line.split_once('\t').map_or(line, |(_, expression)| expression);
        writeln!(found, "{}\t{expression}", charge(&module, expression)).unwrap();
    }
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        return std::fs::write(path(), found).unwrap();
    }
    let differ: Vec<_> = recorded.lines().zip(found.lines()).filter(|(old, new)| old != new).collect();
    assert!(differ.is_empty(), "run this test with UPDATE_REFERENCE=1, and review the charges:\n{differ:#?}");
}

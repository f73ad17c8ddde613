//! The tables in `testdata/terraform`: what Terraform 1.11.4 gave for each expression of the default seed. They are compared
//! in every run, on machines without Terraform too.
//!
//! A line is an expression, a tab, and its outcome: `error`, `unknown`, or a type and the value as JSON. `left` at the end
//! marks what this crate leaves to Terraform. With `UPDATE_REFERENCE` the test with Terraform writes the tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use super::{DEFAULT_SEED, Outcome, generator, module, our_result};

fn path(table: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/terraform").join(format!("{table}.txt"))
}

/// A line feed in an expression, whose line has none.
const LINE_FEED: &str = "␊";

fn written(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Error => "error".to_owned(),
        Outcome::Unknown => "unknown".to_owned(),
        Outcome::Value { ty, json: None } => format!("{ty} infinite"),
        Outcome::Value { ty, json: Some(json) } => format!("{ty} {json}"),
        Outcome::Left(why) => panic!("Terraform leaves nothing to anybody: {why}"),
    }
}

/// Writes one table of expressions with Terraform's outcomes; `left` are those without a value here.
pub(super) fn write<'r>(table: &str, rows: impl Iterator<Item = (&'r String, &'r Outcome, bool)>) {
    let mut text = String::new();
    for (expression, outcome, left) in rows {
        let left = if left { "\tleft" } else { "" };
        writeln!(text, "{}\t{}{left}", expression.replace('\n', LINE_FEED), written(outcome)).unwrap();
    }
    std::fs::create_dir_all(path(table).parent().unwrap()).unwrap();
    std::fs::write(path(table), text).unwrap();
}

/// Evaluates the expressions of a table, and compares the results with the recorded ones.
fn compare(table: &str) {
    let text = std::fs::read_to_string(path(table)).unwrap();
    let module = module();
    let mut wrong = Vec::new();
    for line in text.lines() {
        let (expression, expected) = line.split_once('\t').unwrap();
        let ours = our_result(&module, &expression.replace(LINE_FEED, "\n"));
        let agrees = match (&ours, expected.strip_suffix("\tleft")) {
            (Outcome::Left(why), Some(_)) => super::may_be_left(why),
            (Outcome::Left(_), None) | (_, Some(_)) => false,
            (ours, None) => written(ours) == expected,
        };
        if !agrees {
            wrong.push(format!("{expression}\n  here:      {ours:?}\n  Terraform: {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong[..wrong.len().min(40)].join("\n"));
}

macro_rules! tables {
    ($($table:ident),* $(,)?) => {
        const TABLES: &[&str] = &[$(stringify!($table)),*];
        $(
            #[test]
            fn $table() {
                super::compare(stringify!($table));
            }
        )*
    };
}

mod values_are_those_of_terraform {
    tables!(
        collections,
        conditions,
        encoding,
        examples,
        files,
        format,
        grids,
        hashes,
        network,
        numbers,
        operators,
        patterns,
        sensitivity,
        sets,
        steps,
        strings,
        time,
        yaml,
    );

    #[test]
    fn every_expression_is_in_a_table() {
        let recorded = |table: &&'static str| {
            let text = std::fs::read_to_string(super::path(table)).unwrap();
            let expression = |line: &str| line.split('\t').next().unwrap().replace(super::LINE_FEED, "\n");
            (*table, text.lines().map(expression).collect::<Vec<_>>())
        };
        let recorded: super::BTreeMap<_, _> = TABLES.iter().map(recorded).collect();
        assert!(
            recorded == super::generator::generated(super::DEFAULT_SEED),
            "run the tests of this module with Terraform and UPDATE_REFERENCE=1, and review the tables"
        );
    }
}

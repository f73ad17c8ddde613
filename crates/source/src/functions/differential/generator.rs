//! Generates the expressions, by the table in which their values are recorded.

use std::collections::BTreeMap;

use super::super::{FUNCTIONS, Function, Param};
use super::{examples, grids, pools};
use crate::random::Random;

/// Functions that give nothing to compare: the time, what Terraform hides, and a template that must be a reference.
const NOT_COMPARABLE: [&str; 4] = ["timestamp", "sensitive", "nonsensitive", "templatestring"];

/// The tables of functions, in the order of [`FUNCTIONS`].
const FUNCTION_TABLES: [&str; 12] = [
    "strings",
    "format",
    "numbers",
    "collections",
    "sets",
    "patterns",
    "encoding",
    "hashes",
    "network",
    "time",
    "files",
    "sensitivity",
];

/// Each function and each kind of expression has a sequence of its own, so that new arguments of one leave the others alone.
fn sequence(name: &str, seed: u64) -> Random {
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    Random::from_seed(name.bytes().fold(0xcbf2_9ce4_8422_2325, hash) ^ seed)
}

fn any(random: &mut Random) -> &'static str {
    let pool = [pools::NUMBERS, pools::TEXTS, pools::LISTS, pools::MAPS, pools::OTHERS][random.below(5)];
    random.one(pool)
}

/// An argument for a place of a function; one of ten is anything.
fn argument(random: &mut Random, name: &str, at: usize, param: Param) -> &'static str {
    if random.below(10) == 0 {
        return any(random);
    }
    if let Some(pool) = pools::of(name, at) {
        return random.one(pool);
    }
    match param {
        Param::Any | Param::Nullable => any(random),
        Param::Text => random.one(pools::TEXTS),
        Param::Number => random.one(pools::NUMBERS),
        Param::List | Param::Set | Param::Texts | Param::Bools => random.one(pools::LISTS),
        Param::TextLists => random.one(pools::MAPS),
    }
}

/// All expressions of a seed, sorted, by their table.
pub(super) fn generated(seed: u64) -> BTreeMap<&'static str, Vec<String>> {
    let mut tables: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for (table, functions) in FUNCTION_TABLES.into_iter().zip(FUNCTIONS) {
        let all = tables.entry(table).or_default();
        for function in functions.iter().filter(|function| !NOT_COMPARABLE.contains(&function.name)) {
            calls(function, seed, all);
        }
    }
    tables.insert("operators", operators(seed));
    tables.insert("steps", steps(seed));
    tables.insert("conditions", conditions(seed));
    tables.insert("yaml", yaml_scalars());
    tables.insert("grids", grids::expressions());
    tables.insert("examples", examples::EXAMPLES.iter().map(|&example| example.to_owned()).collect());
    for all in tables.values_mut() {
        all.retain(|text| text.parse::<hcl_edit::expr::Expression>().is_ok());
        all.sort();
        all.dedup();
    }
    tables
}

fn calls(function: &Function, seed: u64, all: &mut Vec<String>) {
    let mut random = sequence(function.name, seed);
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
            .map(|(at, param)| argument(&mut random, function.name, at, *param))
            .collect();
        all.push(format!("{}({})", function.name, arguments.join(", ")));
    }
}

fn operators(seed: u64) -> Vec<String> {
    let mut random = sequence("operators", seed);
    let mut all = Vec::new();
    for _ in 0..500 {
        let operator = random.one(&["+", "-", "*", "/", "%", "<", "<=", ">", ">="]);
        let (a, b) = (random.one(pools::NUMBERS), random.one(pools::NUMBERS));
        all.push(format!("{a} {operator} {b}"));
        all.push(format!("({a} {operator} {b}) == ({b} {operator} {a})"));
    }
    for _ in 0..300 {
        let (a, b) = (any(&mut random), any(&mut random));
        let operator = random.one(&["==", "!=", "+", "&&", "||", "<"]);
        all.push(match operator {
            // Whether the second operand is evaluated depends on Terraform's version.
            "&&" | "||" => format!("({a} == {b}) {operator} ({b} != {a})"),
            operator => format!("{a} {operator} {b}"),
        });
        all.push(format!("{}{a}", random.one(&["-", "!"])));
    }
    all
}

/// Indexes, attributes, loops, templates, and conversions of several values to one type.
fn steps(seed: u64) -> Vec<String> {
    let mut random = sequence("steps", seed);
    let mut all = Vec::new();
    for _ in 0..300 {
        let (a, b) = (any(&mut random), any(&mut random));
        all.push(format!("[{a}, {b}][{}]", any(&mut random)));
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
        all.push(format!("tolist([{a}, {b}, {}])", any(&mut random)));
        all.push(format!("tomap({{ a = {a}, b = {b} }})"));
    }
    all
}

fn conditions(seed: u64) -> Vec<String> {
    let mut random = sequence("conditions", seed);
    let mut all = Vec::new();
    for _ in 0..300 {
        let condition = random.one(&["true", "false", "\"true\"", "1 < 2", "\"x\"", "null", "1"]);
        all.push(format!("{condition} ? {} : {}", any(&mut random), any(&mut random)));
    }
    for _ in 0..600 {
        let (a, b) = (random.one(pools::BRANCHES), random.one(pools::BRANCHES));
        all.push(format!("{} ? {a} : {b}", random.one(&["true", "false"])));
    }
    all
}

fn yaml_scalars() -> Vec<String> {
    let of_tag = |tag: &&str| {
        pools::YAML_SCALARS.iter().map(|scalar| format!("yamldecode(\"{tag}{scalar}\")")).collect::<Vec<_>>()
    };
    pools::YAML_TAGS.iter().flat_map(of_tag).collect()
}

//! The pools of arguments. Functions for which arbitrary texts or numbers are seldom valid have their own pools, with
//! texts and numbers that are valid, nearly so, or where implementations differ.

mod dates;
mod documents;
mod patterns;
mod values;

use self::dates::{DATES, DURATIONS, TIMES};
use self::documents::{BASE64, CHARSETS, CSV, JSON, YAML};
pub(super) use self::documents::{YAML_SCALARS, YAML_TAGS};
use self::patterns::{FORMATS, GLOBS, PATTERNS, REPLACED, REPLACEMENTS};
use self::values::STRUCTURES;
pub(super) use self::values::{BRANCHES, LISTS, MAPS, NUMBERS, OTHERS, TEXTS};

const RANGES: &[&str] = &[
    "\"10.0.0.0/8\"",
    "\"10.1.2.0/24\"",
    "\"192.168.1.77/28\"",
    "\"fd00::/48\"",
    "\"2001:db8::1/64\"",
    "\"0.0.0.0/0\"",
    "\"::/0\"",
    "\"10.0.0.0/33\"",
    "\"10.0.0/8\"",
    "\"10.0.0.1/32\"",
    "\"::1/128\"",
    "\"x\"",
    "\"10.0.0.0\"",
    "\"010.0.0.0/8\"",
    "\"::ffff:1.2.3.0/120\"",
    "\"10.0.0.0/-1\"",
    "\"10.0.0.0/08\"",
    "\"10.0.0.0/+8\"",
];

const SMALL: &[&str] =
    &["0", "1", "2", "3", "4", "8", "-1", "-2", "15", "16", "32", "64", "100", "1.5", "\"3\""];

const BASES: &[&str] = &["2", "8", "10", "16", "36", "62", "1", "63", "37", "10.5", "\"16\""];

const INTEGERS: &[&str] = &[
    "\"101\"",
    "\"ff\"",
    "\"FF\"",
    "\"-7f\"",
    "\"+12\"",
    "\"\"",
    "\"zZ\"",
    "\"1_0\"",
    "\"0x10\"",
    "\" 1\"",
    "\"99999999999999999999999999\"",
    "\"-\"",
    "12",
    "\"08\"",
    "\"9.5\"",
    "\"-0\"",
];

const NAMESPACES: &[&str] = &[
    "\"dns\"",
    "\"url\"",
    "\"oid\"",
    "\"x500\"",
    "\"6ba7b810-9dad-11d1-80b4-00c04fd430c8\"",
    "\"DNS\"",
    "\"x\"",
    "\"6ba7b8109dad11d180b400c04fd430c8\"",
    "\"urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8\"",
    "\"{6ba7b810-9dad-11d1-80b4-00c04fd430c8}\"",
    "\"6BA7B810-9DAD-11D1-80B4-00C04FD430C8\"",
];

const PATHS: &[&str] = &[
    "\"a.txt\"",
    "\"./a.txt\"",
    "\"conf/../a.txt\"",
    "\"nope\"",
    "\"conf/b.yaml\"",
    "\"conf\"",
    "\"\"",
    "\"t.tftpl\"",
    "\"conf/.hidden\"",
];

const FOLDERS: &[&str] = &["\"conf/..//conf\"", "\"conf\"", "\"conf/\"", "\"nope\"", "\"./conf/deep\""];

const NAMES: &[&str] = &[
    "{ m = { k = 1 }, x = \"é\" }",
    "{ m = {}, x = \"y\" }",
    "{}",
    "{ m = [\"a\", \"b\"], x = 1 }",
    "{ m = {}, x = null }",
    "{ \"x y\" = 1 }",
    "{ m = null, x = \"\" }",
    "tomap({ m = \"1\", x = \"2\" })",
];

const INDEXES: &[&str] = &["0", "1", "2", "3", "-1", "-2", "5", "100", "0.5", "\"1\"", "-7"];

const EXPONENTS: &[&str] =
    &["0", "1", "2", "0.5", "-0.5", "-1", "-2", "3", "10", "64", "1000", "-1000", "63", "1e21", "-3", "2000"];

const STEPS: &[&str] =
    &["0", "1", "-1", "2", "0.5", "3", "10", "-3", "1000", "1e30", "\"4\"", "(1 / 3)", "1024", "1025"];

/// The pool for an argument of a function, where any text or number would seldom fit.
pub(super) fn of(name: &str, at: usize) -> Option<&'static [&'static str]> {
    Some(match (name, at) {
        ("format" | "formatlist", 0) => FORMATS,
        ("formatdate", 0) => DATES,
        ("formatdate", 1) | ("timeadd", 0) | ("timecmp", _) => TIMES,
        ("timeadd", 1) => DURATIONS,
        ("regex" | "regexall", 0) => PATTERNS,
        ("replace", 1) => REPLACED,
        ("replace", 2) => REPLACEMENTS,
        ("cidrhost" | "cidrnetmask" | "cidrsubnet" | "cidrsubnets", 0) => RANGES,
        ("cidrhost" | "cidrsubnet" | "cidrsubnets", _) => SMALL,
        ("jsondecode", 0) => JSON,
        ("yamldecode", 0) => YAML,
        ("yamlencode" | "jsonencode", 0) => STRUCTURES,
        ("csvdecode", 0) => CSV,
        ("base64decode" | "textdecodebase64", 0) => BASE64,
        ("textencodebase64" | "textdecodebase64", 1) => CHARSETS,
        ("parseint", 0) => INTEGERS,
        ("parseint", 1) => BASES,
        ("uuidv5", 0) => NAMESPACES,
        ("templatefile", 0) => &["\"t.tftpl\"", "\"a.txt\"", "\"nope\""],
        ("templatefile", 1) => NAMES,
        ("fileset", 0) => FOLDERS,
        ("fileset", 1) => GLOBS,
        ("pow", 1) => EXPONENTS,
        ("range", _) => STEPS,
        ("element" | "slice" | "substr" | "chunklist", 1..) => INDEXES,
        ("indent", 0) => &["0", "1", "2", "4", "-1", "1.5"],
        ("lookup", 0) | ("merge", _) | ("keys" | "values" | "tomap" | "transpose", 0) => MAPS,
        ("lookup", 1) => &["\"a\"", "\"b\"", "\"x y\"", "\"z\"", "1"],
        ("concat" | "setproduct" | "coalescelist" | "setunion" | "setintersection" | "setsubtract", _) => {
            LISTS
        }
        (
            "flatten" | "reverse" | "element" | "slice" | "index" | "contains" | "sum" | "one" | "toset"
            | "tolist",
            0,
        ) => LISTS,
        ("zipmap", 1) => LISTS,
        ("alltrue" | "anytrue", 0) => &[
            "[]",
            "[true]",
            "[false]",
            "[true, false]",
            "[null]",
            "[true, null]",
            "[\"true\", true]",
            "[\"x\"]",
            "tolist([])",
            "[false, null, true]",
            "[1]",
            "toset([true])",
            "[true, true]",
            "[false, false]",
        ],
        (name, 0) if name.starts_with("file") => PATHS,
        _ => return None,
    })
}

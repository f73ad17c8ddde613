//! Functions that read files: those of the template, from its archive. The classic flow has none (TAG-15).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::Digest as _;

use super::Param::{Any, Text};
use super::{Args, Function, function};
use crate::archive::Contents;
use crate::budget::{NODE_COST, Result, failed, unavailable};
use crate::value::Value;
use crate::value_type::Type;

pub(super) const FUNCTIONS: &[Function] = &[
    function("file", &[Text], |args| args.text_result(text(read(args)?)?)),
    function("filebase64", &[Text], |args| args.text_result(STANDARD.encode(read(args)?))),
    function("filebase64sha256", &[Text], |args| {
        args.text_result(STANDARD.encode(sha2::Sha256::digest(read(args)?)))
    }),
    function("filebase64sha512", &[Text], |args| {
        args.text_result(STANDARD.encode(sha2::Sha512::digest(read(args)?)))
    }),
    function("filemd5", &[Text], |args| args.text_result(hex::encode(md5::Md5::digest(read(args)?)))),
    function("filesha1", &[Text], |args| args.text_result(hex::encode(sha1::Sha1::digest(read(args)?)))),
    function("filesha256", &[Text], |args| args.text_result(hex::encode(sha2::Sha256::digest(read(args)?)))),
    function("filesha512", &[Text], |args| args.text_result(hex::encode(sha2::Sha512::digest(read(args)?)))),
    function("fileexists", &[Text], exists),
    function("fileset", &[Text, Text], set),
    function("templatefile", &[Text, Any], |args| {
        args.evaluator.rendered(text(read(args)?)?, &args.map(1)?.items)
    }),
];

fn contents<'a>(args: &'a Args<'_>) -> Result<&'a Contents> {
    match args.evaluator.contents() {
        Some(contents) => Ok(contents),
        None => unavailable("functions that read files are not available here"),
    }
}

/// The file that the first argument names.
fn read<'a>(args: &'a Args<'_>) -> Result<&'a [u8]> {
    let (path, contents) = (args.text(0)?, contents(args)?);
    let local = local(&path)?;
    let bytes: &[u8] = match (contents.files.get(&local), contents.others.get(&local)) {
        (Some(bytes), _) | (None, Some(Some(bytes))) => bytes,
        (None, Some(None)) => {
            return unavailable(format!("{path:?} is too large to be read before Terraform runs"));
        }
        (None, None) => return failed(format!("the template has no file {path:?}")),
    };
    args.budget.spend(NODE_COST + bytes.len() * 8)?;
    Ok(bytes)
}

fn exists(args: &Args<'_>) -> Result<Value> {
    let (path, contents) = (local(&args.text(0)?)?, contents(args)?);
    let is_folder =
        |name: &String| path.is_empty() || name.strip_prefix(&path).is_some_and(|rest| rest.starts_with('/'));
    if contents.files.keys().chain(contents.others.keys()).any(is_folder) {
        return failed(format!("{path:?} is a folder"));
    }
    Ok(Value::Bool(contents.files.contains_key(&path) || contents.others.contains_key(&path)))
}

fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).or_else(|_| failed("the file is not UTF-8 text"))
}

/// A path as the archive has it: below the template's folder, without `.` and `..`.
fn local(path: &str) -> Result<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => return outside(path),
            ".." => {}
            part => parts.push(part),
        }
    }
    if path.starts_with(['/', '~']) {
        return outside(path);
    }
    Ok(parts.join("/"))
}

fn outside(path: &str) -> Result<String> {
    unavailable(format!("{path:?} is outside of the template"))
}

/// The files below a folder that a pattern fits, as a set.
fn set(args: &Args<'_>) -> Result<Value> {
    let contents = contents(args)?;
    let (folder, pattern) = (local(&args.text(0)?)?, args.text(1)?);
    if pattern.contains(['{', '[', '\\']) {
        return unavailable("patterns with braces, brackets or backslashes are left to Terraform");
    }
    let length = pattern.len();
    let mut pattern: Vec<&str> = pattern.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if pattern.contains(&"..") {
        return unavailable("patterns that lead out of their folder are left to Terraform");
    }
    // At the end it stands for a file, not only for folders.
    if pattern.last() == Some(&"**") {
        pattern.push("*");
    }
    let mut found = Vec::new();
    for path in contents.files.keys().chain(contents.others.keys()) {
        args.budget.spend(NODE_COST + path.len() * length)?;
        let below = match folder.as_str() {
            "" => Some(path.as_str()),
            folder => path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')),
        };
        if let Some(below) = below
            && fits_path(&pattern, &below.split('/').collect::<Vec<_>>())
        {
            found.push(Value::text(below));
        }
    }
    Value::set(Type::Text, found, args.budget)
}

/// `**` matches any number of folders.
fn fits_path(pattern: &[&str], path: &[&str]) -> bool {
    fits(
        pattern,
        path,
        |part| *part == "**",
        |part, name| {
            fits(
                part.as_bytes(),
                name.as_bytes(),
                |byte| *byte == b'*',
                |byte, of| *byte == b'?' || byte == of,
            )
        },
    )
}

/// Matches with wildcards for any number of elements. It backtracks only to the last wildcard, which is sufficient, so that
/// the time is bounded.
fn fits<T>(pattern: &[T], text: &[T], is_wild: impl Fn(&T) -> bool, is_one: impl Fn(&T, &T) -> bool) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut wild = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(part) if is_wild(part) => {
                wild = Some((p, t));
                p += 1;
            }
            Some(part) if is_one(part, &text[t]) => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, from)) = wild else { return false };
                (p, t) = (at + 1, from + 1);
                wild = Some((at, from + 1));
            }
        }
    }
    pattern[p..].iter().all(is_wild)
}

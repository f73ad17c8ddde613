//! Functions that read files: those of the template, from its archive. The classic flow has none (TAG-15).

use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::Digest as _;

use super::Args;
use crate::archive::Contents;
use crate::budget::{Budget, NODE, Result, failed};
use crate::value::Value;

/// All of them; `templatefile` is evaluated in [`crate::eval`].
pub(crate) const NAMES: [&str; 10] = [
    "file",
    "filebase64",
    "filebase64sha256",
    "filebase64sha512",
    "fileexists",
    "filemd5",
    "fileset",
    "filesha1",
    "filesha256",
    "filesha512",
];

/// Calls one of [`NAMES`].
pub(crate) fn call(name: &str, values: &[Value], contents: &Contents, budget: &Budget) -> Result<Value> {
    let args = Args { values, budget };
    budget.spend(NODE)?;
    let counted = |count| args.count(count, count);
    match name {
        "fileexists" => {
            counted(1)?;
            let path = local(&args.text(0)?)?;
            Ok(Value::Bool(contents.files.contains_key(&path) || contents.others.contains_key(&path)))
        }
        "fileset" => {
            counted(2)?;
            set(&args, contents)
        }
        _ => {
            counted(1)?;
            let bytes = read(&args.text(0)?, contents)?;
            budget.spend(bytes.len() * 8)?;
            args.made(match name {
                "file" => return text(bytes).and_then(|text| args.made(text)),
                "filebase64" => STANDARD.encode(bytes),
                "filebase64sha256" => STANDARD.encode(sha2::Sha256::digest(bytes)),
                "filebase64sha512" => STANDARD.encode(sha2::Sha512::digest(bytes)),
                "filemd5" => hex::encode(md5::Md5::digest(bytes)),
                "filesha1" => hex::encode(sha1::Sha1::digest(bytes)),
                "filesha256" => hex::encode(sha2::Sha256::digest(bytes)),
                _ => hex::encode(sha2::Sha512::digest(bytes)),
            })
        }
    }
}

/// The text of a file.
pub(crate) fn read_text(path: &Rc<str>, contents: &Contents, budget: &Budget) -> Result<String> {
    let bytes = read(path, contents)?;
    budget.spend(bytes.len() * 8)?;
    text(bytes).map(str::to_owned)
}

fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).or_else(|_| failed("the file is not UTF-8 text"))
}

fn read<'c>(path: &str, contents: &'c Contents) -> Result<&'c [u8]> {
    let local = local(path)?;
    match (contents.files.get(&local), contents.others.get(&local)) {
        (Some(bytes), _) | (None, Some(Some(bytes))) => Ok(bytes),
        (None, Some(None)) => failed(format!("{path:?} is too large to be read before Terraform runs")),
        (None, None) => failed(format!("there is no file {path:?} in the template")),
    }
}

/// A path as the archive has it: below the template's folder, without `.` and `..`.
fn local(path: &str) -> Result<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => return failed(format!("{path:?} is outside of the template")),
            ".." => {}
            part => parts.push(part),
        }
    }
    if path.starts_with(['/', '~']) {
        return failed(format!("{path:?} is outside of the template"));
    }
    Ok(parts.join("/"))
}

/// The files below a folder that a pattern fits, as a set.
fn set(args: &Args<'_>, contents: &Contents) -> Result<Value> {
    let (folder, pattern) = (local(&args.text(0)?)?, args.text(1)?);
    if pattern.contains(['{', '[', '\\']) {
        return failed("patterns with braces, brackets or backslashes are left to Terraform");
    }
    let length = pattern.len();
    let pattern: Vec<&str> = pattern.split('/').collect();
    let mut found = Vec::new();
    for path in contents.files.keys().chain(contents.others.keys()) {
        args.budget.spend(NODE + path.len() * length)?;
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
    Value::set(found, args.budget)
}

/// `**` stands for any number of folders.
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

/// Matches with wildcards that stand for any number of elements. Looks back only to the last one, which is enough, so
/// that no pattern takes for ever.
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

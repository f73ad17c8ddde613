//! Encodings: base64, JSON, YAML, CSV and URLs.

use std::collections::BTreeMap;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Args, yaml};
use crate::budget::{NODE, Result, failed};
use crate::json;
use crate::value::Value;

pub(super) fn call(name: &str, args: &Args<'_>) -> Option<Result<Value>> {
    let counted = || args.count(1, 1);
    Some(match name {
        "base64encode" => counted().and_then(|()| args.made(STANDARD.encode(&*args.text(0)?))),
        "base64decode" => counted().and_then(|()| base64_decode(args)),
        "base64gzip" => counted().and_then(|()| base64_gzip(args)),
        "jsonencode" => counted().and_then(|()| args.made(json::encode(args.value(0)?, args.budget)?)),
        "jsondecode" => counted().and_then(|()| json::decode(&args.text(0)?, args.budget)),
        "yamlencode" => counted().and_then(|()| args.made(yaml::encode(args.value(0)?, args.budget)?)),
        "yamldecode" => counted().and_then(|()| yaml::decode(&args.text(0)?, args.budget)),
        "csvdecode" => counted().and_then(|()| csv_decode(args)),
        "urlencode" => counted().and_then(|()| args.made(url_encode(&args.text(0)?))),
        _ => return None,
    })
}

fn base64_decode(args: &Args<'_>) -> Result<Value> {
    let bytes = STANDARD.decode(&*args.text(0)?).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    match bytes {
        Some(text) => args.made(text),
        None => failed("the text is not base64 of UTF-8 text"),
    }
}

fn base64_gzip(args: &Args<'_>) -> Result<Value> {
    let text = args.text(0)?;
    args.budget.spend(text.len() * 32)?;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    match gzip.write_all(text.as_bytes()).and_then(|()| gzip.finish()) {
        Ok(bytes) => args.made(STANDARD.encode(bytes)),
        Err(error) => failed(error.to_string()),
    }
}

fn url_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' ' => out.push('+'),
            b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            other if other.is_ascii_alphanumeric() => out.push(char::from(other)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// Rows as maps; the first line names the columns.
fn csv_decode(args: &Args<'_>) -> Result<Value> {
    let text = args.text(0)?;
    let mut rows = Vec::new();
    let mut row = Vec::new();
    let mut field = String::new();
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        args.budget.spend(4)?;
        match (char, quoted) {
            ('"', true) if chars.next_if_eq(&'"').is_some() => field.push('"'),
            ('"', true) => quoted = false,
            ('"', false) if field.is_empty() => quoted = true,
            (',', false) => row.push(std::mem::take(&mut field)),
            ('\r', false) if chars.peek() == Some(&'\n') => {}
            ('\n', false) => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            (other, _) => field.push(other),
        }
    }
    if quoted {
        return failed("a quoted field does not end");
    }
    if !field.is_empty() || !row.is_empty() {
        row.push(field);
        rows.push(row);
    }
    // Empty lines do not count.
    rows.retain(|row| row.len() > 1 || row.iter().any(|field| !field.is_empty()));
    let mut rows = rows.into_iter();
    let Some(names) = rows.next() else { return failed("the first line, with the names, is missing") };
    let mut out = Vec::new();
    for row in rows {
        if row.len() != names.len() {
            return failed("a line has not as many fields as the first one");
        }
        args.budget.spend(NODE * names.len() + names.iter().map(String::len).sum::<usize>())?;
        let pairs = names.iter().cloned().zip(row.iter().map(Value::text));
        out.push(Value::map(pairs.collect::<BTreeMap<_, _>>()));
    }
    Ok(Value::list(out))
}

//! Encodings: base64, JSON, YAML, CSV and URLs.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};

use super::Param::{Nullable, Text};
use super::{Args, Function, function, yaml};
use crate::budget::{NODE_COST, Result, failed, unavailable};
use crate::json;
use crate::value::{Value, normalized};
use crate::value_type::Type;

pub(super) const FUNCTIONS: &[Function] = &[
    function("base64encode", &[Text], |args| args.text_result(STANDARD.encode(&*args.text(0)?))),
    function("base64decode", &[Text], |args| match String::from_utf8(decoded(&args.text(0)?)?) {
        Ok(text) => args.text_result(text),
        Err(_) => failed("the text is not base64 of UTF-8 text"),
    }),
    function("textencodebase64", &[Text, Text], text_encode),
    function("textdecodebase64", &[Text, Text], text_decode),
    function("jsonencode", &[Nullable], |args| args.text_result(json::encode(args.value(0)?, args.budget)?)),
    function("jsondecode", &[Text], |args| json::decode(&args.text(0)?, args.budget)),
    function("yamlencode", &[Nullable], |args| args.text_result(yaml::encode(args.value(0)?, args.budget)?)),
    function("yamldecode", &[Text], |args| yaml::decode(&args.text(0)?, args.budget)),
    function("csvdecode", &[Text], csv_decode),
    function("urlencode", &[Text], |args| args.text_result(url_encode(&args.text(0)?))),
];

/// The bytes of a base64 text, which may be broken into lines. As Terraform, it does not look at the last bits.
fn decoded(text: &str) -> Result<Vec<u8>> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
    );
    let text: String = text.chars().filter(|char| !matches!(char, '\r' | '\n')).collect();
    LENIENT.decode(text).or_else(|_| failed("the text is not base64"))
}

/// How a text is written as bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Charset {
    Utf8,
    Utf16Le,
    Utf16Be,
    Latin1,
}

impl Charset {
    fn named(name: &str) -> Result<Self> {
        match name.to_ascii_uppercase().as_str() {
            "UTF-8" | "CSUTF8" => Ok(Self::Utf8),
            "UTF-16LE" | "CSUTF16LE" => Ok(Self::Utf16Le),
            "UTF-16BE" | "CSUTF16BE" => Ok(Self::Utf16Be),
            "ISO-8859-1" | "ISO_8859-1" | "ISO_8859-1:1987" | "LATIN1" | "L1" | "IBM819" | "CP819"
            | "ISO-IR-100" | "CSISOLATIN1" => Ok(Self::Latin1),
            _ => unavailable("only UTF-8, UTF-16LE, UTF-16BE and ISO-8859-1 are available here"),
        }
    }
}

fn text_encode(args: &Args<'_>) -> Result<Value> {
    let (text, charset) = (args.text(0)?, Charset::named(&args.text(1)?)?);
    args.budget.spend(text.len() * 4)?;
    let bytes: Vec<u8> = match charset {
        Charset::Utf8 => text.as_bytes().to_vec(),
        Charset::Utf16Le => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        Charset::Utf16Be => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        Charset::Latin1 => match text.chars().map(|char| u8::try_from(u32::from(char))).collect() {
            Ok(bytes) => bytes,
            Err(_) => return failed("the text has characters that the encoding has not"),
        },
    };
    args.text_result(STANDARD.encode(bytes))
}

fn text_decode(args: &Args<'_>) -> Result<Value> {
    let (source, charset) = (args.text(0)?, Charset::named(&args.text(1)?)?);
    args.budget.spend(source.len() * 4)?;
    let bytes = decoded(&source)?;
    let units = |read: fn([u8; 2]) -> u16| {
        let (pairs, rest) = bytes.as_chunks::<2>();
        let text: Option<String> =
            char::decode_utf16(pairs.iter().map(|pair| read(*pair))).map(std::result::Result::ok).collect();
        text.filter(|_| rest.is_empty())
    };
    let text = match charset {
        Charset::Utf8 => String::from_utf8(bytes.clone()).ok(),
        Charset::Utf16Le => units(u16::from_le_bytes),
        Charset::Utf16Be => units(u16::from_be_bytes),
        Charset::Latin1 => Some(bytes.iter().copied().map(char::from).collect()),
    };
    match text {
        Some(text) => args.text_result(text),
        None => failed("the bytes are not text in this encoding"),
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

/// The fields of each line of a CSV text; lines without anything do not count.
fn csv_rows(text: &str, args: &Args<'_>) -> Result<Vec<Vec<String>>> {
    let text = text.replace("\r\n", "\n");
    let text = text.strip_suffix('\r').unwrap_or(&text);
    args.budget.spend(text.len() * 16)?;
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(next) = rest.strip_prefix('\n') {
            rest = next;
            continue;
        }
        let mut row = Vec::new();
        loop {
            args.budget.spend(NODE_COST)?;
            let field;
            (field, rest) = csv_field(rest)?;
            row.push(field);
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None => break,
            }
        }
        rest = rest.strip_prefix('\n').unwrap_or(rest);
        rows.push(row);
    }
    Ok(rows)
}

/// One field, and what follows it: a comma, the end of the line or the end.
fn csv_field(text: &str) -> Result<(String, &str)> {
    let Some(mut rest) = text.strip_prefix('"') else {
        let end = text.find([',', '\n']).unwrap_or(text.len());
        let (field, rest) = text.split_at(end);
        if field.contains('"') {
            return failed("a field has a quote within, but is not quoted");
        }
        return Ok((field.to_owned(), rest));
    };
    let mut field = String::new();
    loop {
        let Some((part, behind)) = rest.split_once('"') else { return failed("a quoted field does not end") };
        field.push_str(part);
        match behind.strip_prefix('"') {
            Some(next) => {
                field.push('"');
                rest = next;
            }
            None if behind.is_empty() || behind.starts_with([',', '\n']) => {
                return Ok((field, behind));
            }
            None => return failed("something follows a quoted field"),
        }
    }
}

/// Rows as objects; the first line names the columns.
fn csv_decode(args: &Args<'_>) -> Result<Value> {
    let mut rows = csv_rows(&args.text(0)?, args)?.into_iter();
    let Some(names) = rows.next() else { return failed("the first line, with the names, is missing") };
    let names: Vec<String> = names.iter().map(|name| normalized(name)).collect();
    let mut known = BTreeSet::new();
    if !names.iter().all(|name| known.insert(name)) {
        return failed("two columns have the same name");
    }
    let mut out = Vec::new();
    for row in rows {
        if row.len() != names.len() {
            return failed("a line has not as many fields as the first one");
        }
        args.budget.spend(NODE_COST * names.len() + names.iter().map(String::len).sum::<usize>())?;
        let pairs = names.iter().cloned().zip(row.iter().map(Value::text));
        out.push(Value::object(pairs.collect::<BTreeMap<_, _>>()));
    }
    Ok(Value::list(Type::object(names.iter().map(|name| (name, Type::Text))), out))
}

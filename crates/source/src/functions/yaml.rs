//! YAML encoding and decoding of values. Decoding uses the parser's events: the value of an alias is shared, so that anchors
//! cannot turn a small text into a large value.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput};

use crate::budget::{Budget, EvalError, NODE_COST, Result, failed, unavailable};
use crate::number::Number;
use crate::value::Value;
use crate::value_type::Type;

/// Texts nested deeper than this are left to Terraform.
const MAX_DEPTH: usize = 40;
/// Where YAML's own tags are.
const STANDARD_TAGS: &str = "tag:yaml.org,2002:";
const BYTE_ORDER_MARK: char = '\u{feff}';
/// The merge key: the entries of its value become entries of the map.
const MERGE: &str = "<<";

pub(super) fn decode(text: &str, budget: &Budget) -> Result<Value> {
    budget.spend(text.len() * 32)?;
    let open_end = (!text.ends_with('\n')).then(|| text.chars().count());
    let mut reader =
        Reader { parser: Parser::new_from_str(text), open_end, budget, anchors: BTreeMap::new(), depth: 0 };
    loop {
        match reader.next()? {
            Event::StreamStart | Event::DocumentStart(_) => {}
            Event::StreamEnd => return failed("the text holds no document"),
            event => {
                let value = reader.value(event)?;
                loop {
                    match reader.next()? {
                        Event::StreamEnd => break,
                        Event::DocumentStart(_) => {
                            return failed("the text holds more than one document");
                        }
                        _ => {}
                    }
                }
                return Ok(value);
            }
        }
    }
}

fn invalid<T>() -> Result<T> {
    failed("the text is not valid YAML")
}

struct Reader<'t> {
    parser: Parser<'t, StrInput<'t>>,
    /// The characters of a text whose last line has no break.
    open_end: Option<usize>,
    budget: &'t Budget,
    /// Values by the number of their anchor; none while it is read.
    anchors: BTreeMap<usize, Option<Value>>,
    depth: usize,
}

/// The type of a scalar by its tag.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    None,
    Text,
    Binary,
    Bool,
    Number,
    Null,
    Time,
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<Event<'t>> {
        self.budget.spend(NODE_COST)?;
        match self.parser.next() {
            Some(Ok((event, span))) => Ok(self.without_added_break(event, span)),
            Some(Err(_)) => invalid(),
            None => Ok(Event::StreamEnd),
        }
    }

    /// The event without the line break that the parser adds to a block scalar in the last line of the text. Terraform adds
    /// none. It ignores a last line of fewer spaces than the indentation.
    fn without_added_break(&self, event: Event<'t>, span: Span) -> Event<'t> {
        let is_last = self.open_end == Some(span.end.index()) && span.end.col() >= span.start.col();
        match event {
            Event::Scalar(text, style @ (ScalarStyle::Literal | ScalarStyle::Folded), anchor, tag)
                if is_last =>
            {
                let text = text.strip_suffix('\n').map(|text| Cow::Owned(text.to_owned())).unwrap_or(text);
                Event::Scalar(text, style, anchor, tag)
            }
            event => event,
        }
    }

    /// The value that begins with an event.
    fn value(&mut self, event: Event<'t>) -> Result<Value> {
        let anchor = match &event {
            Event::Scalar(_, _, anchor, _)
            | Event::SequenceStart(anchor, _)
            | Event::MappingStart(anchor, _) => *anchor,
            _ => 0,
        };
        if anchor != 0 {
            self.anchors.insert(anchor, None);
        }
        let value = match event {
            Event::Scalar(text, style, _, tag) => {
                let tag = scalar_tag(tag.as_ref().map(|tag| (tag.handle.as_str(), tag.suffix.as_str())))?;
                scalar(&text, style, tag, self.budget)?
            }
            Event::SequenceStart(_, tag) => {
                self.only(tag.as_ref().map(|tag| (tag.handle.as_str(), tag.suffix.as_str())), "seq")?;
                self.deeper(Self::sequence)?
            }
            Event::MappingStart(_, tag) => {
                self.only(tag.as_ref().map(|tag| (tag.handle.as_str(), tag.suffix.as_str())), "map")?;
                self.deeper(Self::mapping)?
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(Some(value)) => return Ok(value.clone()),
                _ => {
                    return failed("an alias in the YAML refers to nothing, or to what it is part of");
                }
            },
            _ => return invalid(),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, Some(value.clone()));
        }
        Ok(value)
    }

    /// Refuses a tag of another type.
    fn only(&self, tag: Option<(&str, &str)>, expected: &str) -> Result<()> {
        match tag {
            None => Ok(()),
            Some((STANDARD_TAGS, name)) if name == expected => Ok(()),
            Some((_, name)) => failed(format!("the YAML has the tag {name:?}, which means nothing there")),
        }
    }

    fn deeper(&mut self, run: impl FnOnce(&mut Self) -> Result<Value>) -> Result<Value> {
        if self.depth == MAX_DEPTH {
            return unavailable(format!("YAML nested deeper than {MAX_DEPTH} is not read here"));
        }
        self.depth += 1;
        let value = run(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn sequence(&mut self) -> Result<Value> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(Value::tuple(items)),
                event => items.push(self.value(event)?),
            }
        }
    }

    fn mapping(&mut self) -> Result<Value> {
        let mut items = BTreeMap::new();
        loop {
            let (text, style, tag) = match self.next()? {
                Event::MappingEnd => return Ok(Value::object(items)),
                Event::Scalar(text, style, _, tag) => (text, style, tag),
                _ => return failed("keys in the YAML must be texts"),
            };
            let tag = scalar_tag(tag.as_ref().map(|tag| (tag.handle.as_str(), tag.suffix.as_str())))?;
            let merges = text == MERGE && style == ScalarStyle::Plain && tag == Tag::None;
            let key = scalar(&text, style, tag, self.budget)?;
            let event = self.next()?;
            let value = self.value(event)?;
            if merges {
                let map = value.to_map()?;
                for (key, value) in &map.items {
                    self.budget.spend(NODE_COST + key.len())?;
                    items.insert(key.clone(), value.clone());
                }
                continue;
            }
            items.insert(key.to_text(self.budget)?.to_string(), value);
        }
    }
}

fn scalar_tag(tag: Option<(&str, &str)>) -> Result<Tag> {
    let Some((handle, name)) = tag else { return Ok(Tag::None) };
    match (handle, name) {
        (STANDARD_TAGS, "str") => Ok(Tag::Text),
        (STANDARD_TAGS, "binary") => Ok(Tag::Binary),
        (STANDARD_TAGS, "bool") => Ok(Tag::Bool),
        (STANDARD_TAGS, "int" | "float") => Ok(Tag::Number),
        (STANDARD_TAGS, "null") => Ok(Tag::Null),
        (STANDARD_TAGS, "timestamp") => Ok(Tag::Time),
        (_, name) => failed(format!("the YAML has the tag {name:?}, which means nothing")),
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Tag, budget: &Budget) -> Result<Value> {
    let value = typed_scalar(text, style, tag, budget)?;
    // Terraform gives a block the type string, but reads its content as without a style: `|-` with `0x1F` is "31".
    let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
    match value {
        value if !is_block || tag != Tag::None => Ok(value),
        Value::Null(_) => Ok(Value::Null(Type::Text)),
        value => Ok(Value::text(value.to_text(budget)?)),
    }
}

fn typed_scalar(text: &str, style: ScalarStyle, tag: Tag, budget: &Budget) -> Result<Value> {
    let quoted = matches!(style, ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted);
    let wrong = || failed(format!("{text:?} in the YAML does not match its tag"));
    match tag {
        Tag::Text => return Ok(Value::text(text)),
        Tag::Binary => {
            return if STANDARD.decode(text).is_ok() { Ok(Value::text(text)) } else { wrong() };
        }
        _ => {}
    }
    let first = text.chars().next();
    let may_be_special = first.is_none_or(|char| char.is_ascii_digit() || "+-.yYnNtTfFoO~".contains(char));
    if may_be_special {
        if quoted {
            return Ok(Value::text(text));
        }
        if let Some(word) = word(text) {
            return Ok(word);
        }
    }
    match tag {
        Tag::None => {}
        // For Terraform a number is one whatever these tags say.
        Tag::Bool | Tag::Null | Tag::Time if is_integer(text) || is_float(text) => {
            return number(text, budget)?.map_or_else(wrong, Ok);
        }
        Tag::Bool => return wrong(),
        Tag::Null => return Ok(Value::NULL),
        Tag::Time => return time(text).map_or_else(wrong, |time| Ok(Value::text(time))),
        _ => return number(text, budget)?.map_or_else(wrong, Ok),
    }
    if !may_be_special || !matches!(first, Some('0'..='9' | '+' | '-' | '.')) {
        return Ok(Value::text(text));
    }
    if matches!(text, ".nan" | ".NaN" | ".NAN") {
        return failed("NaN is not a number");
    }
    if let Some(time) = time(text) {
        return Ok(Value::text(time));
    }
    let looks_numeric = is_integer(text) || is_float(text);
    if looks_numeric || text.starts_with('.') && !text.contains('_') {
        return match number(text, budget)? {
            Some(number) => Ok(number),
            None if looks_numeric => failed(format!("{text:?} in the YAML is not a number")),
            None => Ok(Value::text(text)),
        };
    }
    Ok(Value::text(text))
}

/// Words that are not texts.
fn word(text: &str) -> Option<Value> {
    let infinity = |negative: bool| {
        let value = if negative { f64::NEG_INFINITY } else { f64::INFINITY };
        Number::from_f64(value).ok().map(Value::Number)
    };
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Some(Value::Bool(true))
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Some(Value::Bool(false))
        }
        "" | "~" | "null" | "Null" | "NULL" => Some(Value::NULL),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => infinity(false),
        "-.inf" | "-.Inf" | "-.INF" => infinity(true),
        _ => None,
    }
}

fn is_integer(text: &str) -> bool {
    let all =
        |digits: &str, test: fn(&u8) -> bool| !digits.is_empty() && digits.bytes().all(|byte| test(&byte));
    all(text.strip_prefix(['-', '+']).unwrap_or(text), u8::is_ascii_digit)
        || text.strip_prefix("0o").is_some_and(|digits| all(digits, |byte| matches!(byte, b'0'..=b'7')))
        || text.strip_prefix("0x").is_some_and(|digits| all(digits, u8::is_ascii_hexdigit))
}

fn is_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (digits, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    all(whole)
        && all(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && all(exponent)
        && !exponent.is_empty()
}

/// A number in decimal, or a whole one in hexadecimal, octal or binary notation; underscores do not count.
fn number(text: &str, budget: &Budget) -> Result<Option<Value>> {
    let plain = text.replace('_', "");
    match Number::parse(&plain, budget) {
        Ok(number) => return Ok(Some(Value::Number(number))),
        Err(EvalError::Failed(_)) => {}
        Err(error) => return Err(error),
    }
    let (sign, unsigned) = match plain.strip_prefix(['-', '+']) {
        Some(rest) => (&plain[..1], rest),
        None => ("", plain.as_str()),
    };
    let (base, digits) = match unsigned.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("0x") => (16, &unsigned[2..]),
        Some("0o") => (8, &unsigned[2..]),
        Some("0b") => (2, &unsigned[2..]),
        _ => return Ok(None),
    };
    let whole = i64::from_str_radix(&format!("{sign}{digits}"), base).map(i128::from);
    let whole = whole.or_else(|_| u64::from_str_radix(digits, base).map(i128::from));
    match whole {
        Ok(whole) => Number::parse(&whole.to_string(), budget).map(|number| Some(Value::Number(number))),
        Err(_) => Ok(None),
    }
}

/// A date, or a time, as Terraform writes it.
fn time(text: &str) -> Option<String> {
    let (date, rest) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], Some(&text[at..])),
        None => (text, None),
    };
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let digits = |text: &str, most: usize| {
        (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if parts.next().is_some() || year.len() != 4 || !digits(year, 4) || !digits(month, 2) || !digits(day, 2) {
        return None;
    }
    let date = jiff::civil::Date::new(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?).ok()?;
    let Some(rest) = rest else { return Some(format!("{date}T00:00:00Z")) };
    let (rest, zone) = match rest.strip_prefix(' ') {
        Some(rest) => (rest, "Z"),
        None => {
            let rest = &rest[1..];
            let at = rest.find(['Z', '+', '-'])?;
            rest.split_at(at)
        }
    };
    let (clock, fraction) = rest.split_once('.').unwrap_or((rest, "0"));
    let mut parts = clock.split(':');
    let (hour, minute, second) = (parts.next()?, parts.next()?, parts.next()?);
    let clock_fits = [hour, minute, second].iter().all(|part| digits(part, 2)) && parts.next().is_none();
    if !clock_fits || !digits(fraction, 9) {
        return None;
    }
    let clock =
        jiff::civil::Time::new(hour.parse().ok()?, minute.parse().ok()?, second.parse().ok()?, 0).ok()?;
    let zone = match zone {
        "Z" | "+00:00" | "-00:00" => "Z",
        zone => {
            let (hours, minutes) = zone[1..].split_once(':')?;
            let fits = hours.len() == 2 && minutes.len() == 2 && digits(hours, 2) && digits(minutes, 2);
            if !fits || hours.parse::<u8>().ok()? > 24 || minutes.parse::<u8>().ok()? >= 60 {
                return None;
            }
            zone
        }
    };
    Some(format!("{date}T{clock}{zone}"))
}

/// Writes block style: texts quoted, those of several lines as blocks, as Terraform does.
pub(super) fn encode(value: &Value, budget: &Budget) -> Result<String> {
    let mut out = String::new();
    write(value, 0, false, &mut out, budget)?;
    if matches!(value, Value::Null(_) | Value::Bool(_) | Value::Number(_)) {
        // A plain scalar needs the end of the document.
        out.push_str("...\n");
    }
    Ok(out)
}

/// `inline`: the line has already begun with a dash.
fn write(value: &Value, depth: usize, inline: bool, out: &mut String, budget: &Budget) -> Result<()> {
    budget.spend(NODE_COST + depth * 2)?;
    let indent = "  ".repeat(depth);
    match value {
        Value::List(list) if !list.items.is_empty() => {
            for (index, item) in list.items.iter().enumerate() {
                if index > 0 || !inline {
                    out.push_str(&indent);
                }
                out.push_str("- ");
                write(item, depth + 1, true, out, budget)?;
            }
        }
        Value::Map(map) if !map.items.is_empty() => {
            for (index, (key, item)) in map.items.iter().enumerate() {
                if index > 0 || !inline {
                    out.push_str(&indent);
                }
                let is_long = key.len() > 128 || key.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']);
                if is_long {
                    return unavailable(
                        "YAML with keys that are long or have several lines is not written here",
                    );
                }
                quote(key, out, budget)?;
                out.push(':');
                match item {
                    Value::Map(inner) if !inner.items.is_empty() => {
                        out.push('\n');
                        write(item, depth + 1, false, out, budget)?;
                    }
                    Value::List(inner) if !inner.items.is_empty() => {
                        out.push('\n');
                        write(item, depth, false, out, budget)?;
                    }
                    item => {
                        out.push(' ');
                        write(item, depth + 1, true, out, budget)?;
                    }
                }
            }
        }
        Value::List(_) => out.push_str("[]\n"),
        Value::Map(_) => out.push_str("{}\n"),
        Value::Text(text) if text.contains('\n') && text.contains(['\u{2028}', '\u{2029}']) => {
            return unavailable("YAML with line separators in texts of several lines is not written here");
        }
        Value::Text(text) if may_be_block(text) => write_block(text, depth.max(1), out, budget)?,
        Value::Text(text) => {
            quote(text, out, budget)?;
            out.push('\n');
        }
        Value::Null(_) => out.push_str("null\n"),
        other => {
            out.push_str(&other.to_text(budget)?);
            out.push('\n');
        }
    }
    Ok(())
}

/// Whether a character needs no escape in a text.
fn is_printable(char: char) -> bool {
    matches!(char, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

fn is_break(char: char) -> bool {
    matches!(char, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Whether a text is written as a block: it has several lines, and nothing that a block would lose.
fn may_be_block(text: &str) -> bool {
    let space_before_break = text.chars().zip(text.chars().skip(1)).any(|(a, b)| a == ' ' && is_break(b));
    text.contains('\n') && !text.ends_with(' ') && !space_before_break && text.chars().all(is_printable)
}

/// A block scalar, whose header depends on its first and last characters.
fn write_block(text: &str, depth: usize, out: &mut String, budget: &Budget) -> Result<()> {
    let lines = text.matches('\n').count() + 1;
    budget.spend(text.len() + lines * depth * 2)?;
    out.push('|');
    if text.starts_with(|char: char| char == ' ' || is_break(char)) {
        out.push('2');
    }
    match text.strip_suffix('\n') {
        None => out.push('-'),
        Some(before) if before.is_empty() || before.ends_with('\n') => out.push('+'),
        Some(_) => {}
    }
    out.push('\n');
    let indent = "  ".repeat(depth);
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        if !line.is_empty() {
            out.push_str(&indent);
            out.push_str(line);
        }
        out.push('\n');
    }
    Ok(())
}

/// A text in double quotes.
fn quote(text: &str, out: &mut String, budget: &Budget) -> Result<()> {
    budget.spend(text.len() * 2)?;
    // After a byte order mark everything is escaped.
    let plain = |char: char| {
        is_printable(char) && !is_break(char) && (char.is_ascii() || !text.starts_with(BYTE_ORDER_MARK))
    };
    out.push('"');
    for char in text.chars() {
        let short = match char {
            '\0' => '0',
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\u{b}' => 'v',
            '\u{c}' => 'f',
            '\r' => 'r',
            '\u{1b}' => 'e',
            '"' => '"',
            '\\' => '\\',
            '\u{85}' => 'N',
            '\u{a0}' if !plain(char) => '_',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            other if plain(other) => {
                out.push(other);
                continue;
            }
            other => {
                match u32::from(other) {
                    code @ ..=0xff => out.push_str(&format!("\\x{code:02X}")),
                    code @ ..=0xffff => out.push_str(&format!("\\u{code:04X}")),
                    code => out.push_str(&format!("\\U{code:08X}")),
                }
                continue;
            }
        };
        out.extend(['\\', short]);
    }
    out.push('"');
    Ok(())
}

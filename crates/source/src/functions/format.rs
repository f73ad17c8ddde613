//! `format` and `formatlist`: the verbs `%v %#v %s %q %d %f %e %g %b %o %x %X %t %%` with flags, width and precision.

use super::Args;
use crate::budget::{NODE, Result, failed};
use crate::json;
use crate::number::Number;
use crate::value::Value;

/// Widest field.
const WIDEST: usize = 10_000;

pub(super) fn format(args: &Args<'_>) -> Result<Value> {
    args.count(1, usize::MAX)?;
    let pattern = args.text(0)?;
    let text = apply(args, &pattern, &args.values[1..])?;
    args.made(text)
}

/// Lists among the arguments give their elements one after the other; other arguments are repeated.
pub(super) fn format_list(args: &Args<'_>) -> Result<Value> {
    args.count(1, usize::MAX)?;
    let pattern = args.text(0)?;
    let mut length = None;
    for value in &args.values[1..] {
        if let Value::List(list) = value {
            if length.is_some_and(|length| length != list.items.len()) {
                return failed("the lists have different lengths");
            }
            length = Some(list.items.len());
        }
    }
    let mut out = Vec::new();
    for at in 0..length.unwrap_or(1) {
        args.budget.spend(NODE * args.values.len())?;
        let row: Vec<_> = args.values[1..]
            .iter()
            .map(|value| match value {
                Value::List(list) => list.items[at].clone(),
                other => other.clone(),
            })
            .collect();
        out.push(args.made(apply(args, &pattern, &row)?)?);
    }
    Ok(Value::list(out))
}

#[derive(Default)]
struct Verb {
    plus: bool,
    minus: bool,
    zero: bool,
    sharp: bool,
    space: bool,
    width: usize,
    precision: Option<usize>,
}

fn apply(args: &Args<'_>, pattern: &str, values: &[Value]) -> Result<String> {
    let mut out = String::new();
    let mut chars = pattern.chars().peekable();
    let mut next = 0usize;
    let mut highest = 0usize;
    while let Some(char) = chars.next() {
        args.budget.spend(4)?;
        if char != '%' {
            out.push(char);
            continue;
        }
        let mut verb = Verb::default();
        while let Some(flag) = chars.peek().copied() {
            match flag {
                '+' => verb.plus = true,
                '-' => verb.minus = true,
                '0' => verb.zero = true,
                '#' => verb.sharp = true,
                ' ' => verb.space = true,
                _ => break,
            }
            chars.next();
        }
        let digits = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>| -> Result<Option<usize>> {
            let mut found = None;
            while let Some(digit) = chars.peek().and_then(|char| char.to_digit(10)) {
                let value = found.unwrap_or(0usize) * 10 + digit as usize;
                if value > WIDEST {
                    return failed(format!("a field may be {WIDEST} wide"));
                }
                found = Some(value);
                chars.next();
            }
            Ok(found)
        };
        verb.width = digits(&mut chars)?.unwrap_or(0);
        if chars.next_if_eq(&'.').is_some() {
            verb.precision = Some(digits(&mut chars)?.unwrap_or(0));
        }
        if chars.next_if_eq(&'[').is_some() {
            let Some(index @ 1..) = digits(&mut chars)? else {
                return failed("an argument index is written [1], [2] and so on");
            };
            if chars.next() != Some(']') {
                return failed("an argument index ends with ]");
            }
            next = index - 1;
        }
        let Some(kind) = chars.next() else {
            return failed("the text ends within a verb: write %% for a percent sign");
        };
        if kind == '%' {
            out.push('%');
            continue;
        }
        let Some(value) = values.get(next) else {
            return failed(format!("there is no value for the verb %{kind}"));
        };
        next += 1;
        highest = highest.max(next);
        let text = verb.render(kind, value, args)?;
        let padded = verb.pad(&text);
        args.budget.spend(padded.len())?;
        out.push_str(&padded);
    }
    if highest < values.len() && !pattern.contains("%[") {
        return failed(format!("{} values are given, but the text uses {highest}", values.len()));
    }
    Ok(out)
}

impl Verb {
    fn render(&self, kind: char, value: &Value, args: &Args<'_>) -> Result<String> {
        let budget = args.budget;
        Ok(match kind {
            'v' if self.sharp => json::encode(value, budget)?,
            'v' => match value {
                Value::Text(text) => self.cut(text),
                Value::Number(number) => self.signed(*number, number.to_string()),
                Value::Null => "null".to_owned(),
                other => json::encode(other, budget)?,
            },
            's' => self.cut(&value.to_text(budget)?),
            'q' => json::encode(&Value::text(self.cut(&value.to_text(budget)?)), budget)?,
            't' => value.to_bool()?.to_string(),
            'd' => {
                let number = whole(value)?;
                self.signed(number, number.to_string())
            }
            'b' | 'o' | 'x' | 'X' => {
                if kind.eq_ignore_ascii_case(&'x')
                    && let Value::Text(text) = value
                {
                    let hex = hex::encode(text.as_bytes());
                    return Ok(if kind == 'X' { hex.to_uppercase() } else { hex });
                }
                let Number::Whole(number) = whole(value)? else {
                    return failed("a whole number is required");
                };
                let sign = if number < 0 { "-" } else { "" };
                let size = number.unsigned_abs();
                match kind {
                    'b' => format!("{sign}{size:b}"),
                    'o' => format!("{sign}{size:o}"),
                    'x' => format!("{sign}{size:x}"),
                    _ => format!("{sign}{size:X}"),
                }
            }
            'f' | 'F' => {
                let number = value.to_number()?;
                let precision = self.precision.unwrap_or(6);
                let text = match number {
                    Number::Whole(whole) if precision == 0 => whole.to_string(),
                    Number::Whole(whole) => format!("{whole}.{}", "0".repeat(precision)),
                    Number::Broken(float) => format!("{float:.precision$}"),
                };
                self.signed(number, text)
            }
            'e' | 'E' => {
                let number = value.to_number()?;
                let text = format!("{:.*e}", self.precision.unwrap_or(6), number.as_f64());
                let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                let (sign, exponent) = match exponent.strip_prefix('-') {
                    Some(exponent) => ('-', exponent),
                    None => ('+', exponent),
                };
                self.signed(number, format!("{digits}{kind}{sign}{exponent:0>2}"))
            }
            'g' | 'G' => {
                let number = value.to_number()?;
                self.signed(number, number.to_string())
            }
            other => return failed(format!("there is no verb %{other}")),
        })
    }

    fn cut(&self, text: &str) -> String {
        match self.precision {
            Some(precision) => text.chars().take(precision).collect(),
            None => text.to_owned(),
        }
    }

    fn signed(&self, number: Number, text: String) -> String {
        match (number.as_f64() >= 0.0, self.plus, self.space) {
            (true, true, _) => format!("+{text}"),
            (true, false, true) => format!(" {text}"),
            _ => text,
        }
    }

    fn pad(&self, text: &str) -> String {
        let missing = self.width.saturating_sub(text.chars().count());
        if missing == 0 {
            return text.to_owned();
        }
        if self.minus {
            return format!("{text}{}", " ".repeat(missing));
        }
        if !self.zero {
            return format!("{}{text}", " ".repeat(missing));
        }
        let sign = text.find(|char: char| !matches!(char, '+' | '-' | ' ')).unwrap_or(0);
        format!("{}{}{}", &text[..sign], "0".repeat(missing), &text[sign..])
    }
}

fn whole(value: &Value) -> Result<Number> {
    match value.to_number()? {
        number @ Number::Whole(_) => Ok(number),
        Number::Broken(_) => failed("a whole number is required"),
    }
}

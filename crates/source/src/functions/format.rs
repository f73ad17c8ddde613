//! `format` and `formatlist`: the verbs `%v %#v %s %q %d %f %e %g %b %o %x %X %t %%` with flags, width and precision.

use num_bigint::Sign;
use unicode_segmentation::UnicodeSegmentation as _;

use super::Param::{Nullable, Text};
use super::{Args, Function, variadic};
use crate::budget::{Budget, EvalError, NODE_COST, Result, failed, unavailable};
use crate::json;
use crate::number::Number;
use crate::value::Value;
use crate::value_type::Type;

/// Widest field, and most digits.
const MAX_WIDTH: usize = 10_000;

pub(super) const FUNCTIONS: &[Function] =
    &[variadic("format", &[Text], Nullable, format), variadic("formatlist", &[Text], Nullable, format_list)];

fn format(args: &Args<'_>) -> Result<Value> {
    known(args)?;
    args.text_result(apply(args, &args.text(0)?, &args.values[1..])?)
}

/// Fails for a plain `null`: its result is unknown in Terraform, too.
fn known(args: &Args<'_>) -> Result<()> {
    match args.values.iter().any(|value| matches!(value, Value::Null(Type::Any))) {
        true => Err(EvalError::Unknown("null has no type".into())),
        false => Ok(()),
    }
}

/// Lists among the arguments give their elements one after the other; other arguments are repeated.
fn format_list(args: &Args<'_>) -> Result<Value> {
    known(args)?;
    let pattern = args.text(0)?;
    let mut length = None;
    for at in 1..args.values.len() {
        if let Value::List(list) = args.value(at)? {
            if length.is_some_and(|length| length != list.items.len()) {
                return failed("the lists have different lengths");
            }
            length = Some(list.items.len());
        }
    }
    let mut out = Vec::new();
    for at in 0..length.unwrap_or(1) {
        args.budget.spend(NODE_COST * args.values.len())?;
        let row: Vec<_> = args.values[1..]
            .iter()
            .map(|value| match value {
                Value::List(list) => list.items[at].clone(),
                other => other.clone(),
            })
            .collect();
        out.push(args.text_result(apply(args, &pattern, &row)?)?);
    }
    Ok(Value::list(Type::Text, out))
}

/// The part between `%` and the letter.
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

/// A pattern that is being parsed.
struct Pattern<'p> {
    rest: &'p str,
}

impl Pattern<'_> {
    fn take(&mut self, expected: char) -> bool {
        let rest = self.rest.strip_prefix(expected);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn digits(&mut self) -> Result<Option<usize>> {
        let end = self.rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        if digits.is_empty() {
            return Ok(None);
        }
        match digits.parse() {
            Ok(value) if value <= MAX_WIDTH => Ok(Some(value)),
            _ => unavailable(format!("a field that is wider than {MAX_WIDTH} is not written here")),
        }
    }

    /// A verb up to its letter, and which value it is for.
    fn verb(&mut self, next: usize) -> Result<(Verb, usize)> {
        let mut verb = Verb::default();
        loop {
            match self.rest.as_bytes().first() {
                Some(b'+') => verb.plus = true,
                Some(b'-') => verb.minus = true,
                Some(b'0') => verb.zero = true,
                Some(b'#') => verb.sharp = true,
                Some(b' ') => verb.space = true,
                _ => break,
            }
            self.rest = &self.rest[1..];
        }
        verb.width = self.digits()?.unwrap_or(0);
        if self.take('.') {
            verb.precision = Some(self.digits()?.unwrap_or(0));
        }
        if !self.take('[') {
            return Ok((verb, next));
        }
        let leading_zero = self.rest.starts_with('0');
        let Some(index @ 1..) = self.digits()?.filter(|_| !leading_zero) else {
            return failed("an argument index is written [1], [2] and so on");
        };
        if !self.take(']') {
            return failed("an argument index ends with ]");
        }
        Ok((verb, index - 1))
    }
}

fn apply(args: &Args<'_>, pattern: &str, values: &[Value]) -> Result<String> {
    let mut out = String::new();
    let mut pattern = Pattern { rest: pattern };
    let (mut next, mut highest) = (0usize, 0usize);
    while let Some((plain, rest)) = pattern.rest.split_once('%') {
        args.budget.spend(NODE_COST + plain.len())?;
        out.push_str(plain);
        pattern.rest = rest;
        if pattern.take('%') {
            out.push('%');
            continue;
        }
        let (verb, index) = pattern.verb(next)?;
        let Some(letter) = pattern.rest.chars().next().filter(char::is_ascii_alphabetic) else {
            return failed("a verb ends with a letter: write %% for a percent sign");
        };
        pattern.rest = &pattern.rest[1..];
        let Some(value) = values.get(index) else {
            return failed(format!("the verb %{letter} has no value"));
        };
        next = index + 1;
        highest = highest.max(next);
        args.budget.spend(verb.width + verb.precision.unwrap_or(0))?;
        let text = verb.render(letter, value, args.budget)?;
        args.budget.spend(text.len())?;
        out.push_str(&text);
    }
    out.push_str(pattern.rest);
    if highest < values.len() {
        return failed(format!("{} values are given, but the text uses {highest}", values.len()));
    }
    Ok(out)
}

impl Verb {
    fn render(&self, letter: char, value: &Value, budget: &Budget) -> Result<String> {
        if value.is_null() && letter != 'v' {
            return failed(format!("null has no text for %{letter}"));
        }
        Ok(match letter {
            'v' => self.padded(&match value {
                Value::Text(text) if !self.sharp => text.to_string(),
                Value::Number(number) if !self.sharp => number.short_text(budget)?,
                other => json::encode(other, budget)?,
            }),
            's' => self.padded(&self.cut(&value.to_text(budget)?)),
            'q' => self.padded(&json::encode(&Value::text(self.cut(&value.to_text(budget)?)), budget)?),
            't' => value.to_bool()?.to_string(),
            'b' | 'd' | 'o' | 'x' | 'X' => self.integer(letter, &value.to_number(budget)?)?,
            'e' | 'E' | 'f' | 'g' | 'G' => self.float(letter, &value.to_number(budget)?, budget)?,
            other => return failed(format!("unknown verb %{other}")),
        })
    }

    /// Truncates to the precision; none means no bound.
    fn cut(&self, text: &str) -> String {
        match self.precision {
            Some(precision @ 1..) => text.graphemes(true).take(precision).collect(),
            _ => text.to_owned(),
        }
    }

    fn padded(&self, text: &str) -> String {
        let missing = self.width.saturating_sub(text.graphemes(true).count());
        let padding = (if self.zero { "0" } else { " " }).repeat(missing);
        if self.minus { format!("{text}{padding}") } else { format!("{padding}{text}") }
    }

    /// The sign of a number; flags add a plus or a space.
    const fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.plus, self.space) {
            (true, ..) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            (false, false, false) => "",
        }
    }

    /// Fills a number up to the width: zeros go behind the sign.
    fn filled(&self, sign: &str, digits: &str, zeros: bool) -> String {
        let missing = self.width.saturating_sub(sign.len() + digits.len());
        match (zeros, self.minus) {
            (true, _) => format!("{sign}{}{digits}", "0".repeat(missing)),
            (false, true) => format!("{sign}{digits}{}", " ".repeat(missing)),
            (false, false) => format!("{}{sign}{digits}", " ".repeat(missing)),
        }
    }

    fn integer(&self, letter: char, number: &Number) -> Result<String> {
        let Some(whole) = number.as_integer() else { return failed("a whole number is required") };
        let size = whole.magnitude();
        let (prefix, digits) = match letter {
            'b' => ("0b", size.to_str_radix(2)),
            'o' => ("0", size.to_str_radix(8)),
            'x' => ("0x", size.to_str_radix(16)),
            'X' => ("0X", size.to_str_radix(16).to_uppercase()),
            _ => ("", size.to_string()),
        };
        let sign = self.sign(whole.sign() == Sign::Minus);
        let sign = format!("{sign}{}", if self.sharp { prefix } else { "" });
        let digits = match self.precision {
            // Zero without any digit is nothing at all.
            Some(0) if digits == "0" => return Ok(String::new()),
            Some(precision) => format!("{}{digits}", "0".repeat(precision.saturating_sub(digits.len()))),
            None => digits,
        };
        Ok(self.filled(&sign, &digits, self.zero && !self.minus && self.precision.is_none()))
    }

    fn float(&self, letter: char, number: &Number, budget: &Budget) -> Result<String> {
        let sign = self.sign(number.is_negative());
        let shortest = matches!(letter, 'g' | 'G') && self.precision.is_none();
        let Some(decimal) = number.decimal(shortest, budget)? else {
            let sign = if sign.is_empty() { "+" } else { sign };
            return Ok(self.filled(sign, "Inf", false));
        };
        let digits = match letter {
            'f' => decimal.plain(Some(self.precision.unwrap_or(6))),
            'e' | 'E' => decimal.scientific(Some(self.precision.unwrap_or(6)), letter),
            'G' => decimal.general(self.precision, 'E'),
            _ => decimal.general(self.precision, 'e'),
        };
        // Unlike integers, these get zeros with a minus, too.
        Ok(self.filled(sign, &digits, self.zero))
    }
}

//! Numbers with the arithmetic of Terraform: binary floating point whose precision belongs to the value, which is 512 bits
//! for what is written in a configuration, 53 for results of functions that compute in `f64`, and 64 for counts.
//!
//! Why not a crate for floats: the results must be Terraform's to the last digit. That needs the precision per value, a
//! negative zero, rounding to even after each operation, and the shortest decimal that stands for a value at its
//! precision. `astro-float` rounds precisions up to whole words, `dashu-float` has no negative zero, and none writes
//! the shortest decimal. The rest is integer arithmetic, for which `num-bigint` is used.

mod decimal;

use std::cmp::Ordering;
use std::rc::Rc;

use num_bigint::{BigInt, BigUint, Sign};

pub(crate) use self::decimal::Decimal;
use crate::budget::{Budget, NODE_COST, Result, failed, unavailable};

/// Bits of a number that is written as text.
const LITERAL_PRECISION: u32 = 512;
/// Bits of a number that counts something.
const COUNT_PRECISION: u32 = 64;
/// Largest size, as a power of two, and largest precision: about 2,400 decimal digits. Terraform's own bounds are so far
/// beyond that a single number would take seconds to print.
const MAX_EXPONENT: u32 = 8192;
/// Longest text of a number.
const MAX_TEXT_SIZE: usize = 4096;

#[derive(Clone, Debug)]
pub(crate) struct Number {
    negative: bool,
    size: Size,
    precision: u32,
}

#[derive(Clone, Debug)]
enum Size {
    Zero,
    /// `mantissa * 2^exponent`; the mantissa is odd.
    Finite {
        mantissa: Rc<BigUint>,
        exponent: i32,
    },
    Infinite,
}

fn beyond<T>() -> Result<T> {
    unavailable("numbers of this size are not computed here")
}

impl Number {
    const fn zero(negative: bool, precision: u32) -> Self {
        Self { negative, size: Size::Zero, precision }
    }

    const fn infinite(negative: bool, precision: u32) -> Self {
        Self { negative, size: Size::Infinite, precision }
    }

    /// Rounds to the nearest number of a precision, and to the even one of two that are equally near. `more` tells that the
    /// exact value is a little larger than the mantissa, by less than one.
    fn rounded(
        negative: bool,
        mut mantissa: BigUint,
        mut exponent: i64,
        precision: u32,
        more: bool,
    ) -> Result<Self> {
        let excess = mantissa.bits().saturating_sub(u64::from(precision));
        if excess > 0 {
            let half = mantissa.bit(excess - 1);
            let above = more || mantissa.trailing_zeros().is_some_and(|zeros| zeros < excess - 1);
            mantissa >>= excess;
            exponent += i64::try_from(excess).unwrap_or(i64::MAX);
            if half && (above || mantissa.bit(0)) {
                mantissa += 1u32;
            }
        }
        let Some(zeros) = mantissa.trailing_zeros() else { return Ok(Self::zero(negative, precision)) };
        mantissa >>= zeros;
        exponent = exponent.saturating_add_unsigned(zeros);
        let top = exponent.saturating_add_unsigned(mantissa.bits());
        match i32::try_from(exponent) {
            Ok(exponent) if top.unsigned_abs() <= u64::from(MAX_EXPONENT) && precision <= MAX_EXPONENT => {
                let size = Size::Finite { mantissa: Rc::new(mantissa), exponent };
                Ok(Self { negative, size, precision })
            }
            _ => beyond(),
        }
    }

    /// An integer of any size, with the precision that it needs.
    fn integer(value: &BigInt) -> Result<Self> {
        let size = value.magnitude().clone();
        let precision = u32::try_from(size.bits()).unwrap_or(u32::MAX).max(COUNT_PRECISION);
        Self::rounded(value.sign() == Sign::Minus, size, 0, precision, false)
    }

    /// Reads decimal notation with an optional fraction and exponent, as it is converted from a text.
    pub(crate) fn parse(text: &str, budget: &Budget) -> Result<Self> {
        budget.spend(text.len())?;
        let wrong = || failed("a number is required");
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if matches!(unsigned, "inf" | "Inf") {
            return Ok(Self::infinite(negative, LITERAL_PRECISION));
        }
        let (digits, power) = match unsigned.find(['e', 'E', 'p', 'P']) {
            Some(at) => (&unsigned[..at], Some(&unsigned[at..])),
            None => (unsigned, None),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all = format!("{whole}{fraction}");
        if all.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
            return wrong();
        }
        let (mut tens, mut twos) = (0i64, 0i64);
        if let Some(power) = power {
            let digits = power[1..].strip_prefix(['-', '+']).unwrap_or(&power[1..]);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return wrong();
            }
            // Beyond what fits, only the sign matters.
            let value =
                power[1..].parse().unwrap_or(if power[1..].starts_with('-') { i64::MIN } else { i64::MAX });
            *(if power.starts_with(['e', 'E']) { &mut tens } else { &mut twos }) = value;
        }
        let all = all.trim_start_matches('0');
        if all.is_empty() {
            return Ok(Self::zero(negative, LITERAL_PRECISION));
        }
        tens = tens.saturating_sub(i64::try_from(fraction.len()).unwrap_or(i64::MAX));
        let far = |power: i64| power.unsigned_abs() > u64::from(MAX_EXPONENT);
        if all.len() > MAX_TEXT_SIZE || far(tens) || far(twos) {
            return beyond();
        }
        budget.spend(all.len() * all.len() / 8 + usize::try_from(tens.unsigned_abs()).unwrap_or(0))?;
        let Ok(mantissa) = all.parse::<BigUint>() else { return wrong() };
        let exponent = tens + twos;
        let fives = BigUint::from(5u32).pow(u32::try_from(tens.unsigned_abs()).unwrap_or(0));
        if tens >= 0 {
            return Self::rounded(negative, mantissa * fives, exponent, LITERAL_PRECISION, false);
        }
        Self::quotient(negative, (&mantissa, &fives), exponent, LITERAL_PRECISION)
    }

    fn quotient(
        negative: bool,
        (numerator, denominator): (&BigUint, &BigUint),
        exponent: i64,
        precision: u32,
    ) -> Result<Self> {
        let expected = denominator.bits() + u64::from(precision) + 2;
        let shift = expected.saturating_sub(numerator.bits());
        let numerator = numerator << shift;
        let quotient = &numerator / denominator;
        let more = &quotient * denominator != numerator;
        Self::rounded(negative, quotient, exponent.saturating_sub_unsigned(shift), precision, more)
    }

    /// The number of a text in some base, as `parseint` reads it: letters count on after the digits, and above base 36 small
    /// and capital ones are different.
    pub(crate) fn parse_integer(text: &str, base: u32, budget: &Budget) -> Result<Option<Self>> {
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        if unsigned.len() > MAX_TEXT_SIZE {
            return beyond();
        }
        budget.spend(unsigned.len() * unsigned.len() / 8)?;
        let mut size = BigUint::ZERO;
        for byte in unsigned.bytes() {
            let digit = match byte {
                b'0'..=b'9' => byte - b'0',
                b'a'..=b'z' => byte - b'a' + 10,
                b'A'..=b'Z' if base <= 36 => byte - b'A' + 10,
                b'A'..=b'Z' => byte - b'A' + 36,
                _ => return Ok(None),
            };
            if u32::from(digit) >= base {
                return Ok(None);
            }
            size = size * base + digit;
        }
        if unsigned.is_empty() {
            return Ok(None);
        }
        let sign = if text.starts_with('-') { Sign::Minus } else { Sign::Plus };
        Self::integer(&BigInt::from_biguint(sign, size)).map(Some)
    }

    /// The result of a function that computes in `f64`.
    pub(crate) fn from_f64(value: f64) -> Result<Self> {
        const FRACTION: u32 = f64::MANTISSA_DIGITS - 1;
        let precision = f64::MANTISSA_DIGITS;
        let negative = value.is_sign_negative();
        if value.is_nan() {
            return failed("the result is not a number");
        }
        if value.is_infinite() {
            return Ok(Self::infinite(negative, precision));
        }
        let bits = value.to_bits();
        let (power, fraction) = ((bits >> FRACTION) & 0x7ff, bits & ((1 << FRACTION) - 1));
        let mantissa = if power == 0 { fraction } else { fraction | (1 << FRACTION) };
        let exponent = i64::try_from(power.max(1)).unwrap_or(0) - 1075;
        Self::rounded(negative, mantissa.into(), exponent, precision, false)
    }

    /// The nearest `f64`; none when that is infinite and the number is not.
    pub(crate) fn as_f64(&self) -> Option<f64> {
        let sign = if self.negative { -1.0 } else { 1.0 };
        let Size::Finite { mantissa, exponent } = &self.size else {
            return Some(sign * if self.is_zero() { 0.0 } else { f64::INFINITY });
        };
        let top = i64::from(*exponent).saturating_add_unsigned(mantissa.bits());
        // Below the smallest normal number there is a bit less for each power of two.
        let bits = match u32::try_from(53 + (top + 1021).min(0)) {
            // Between a half of the smallest number and all of it.
            Ok(0) if **mantissa > BigUint::ZERO + 1u32 => return Some(sign * f64::from_bits(1)),
            Ok(0) | Err(_) => return Some(sign * 0.0),
            Ok(bits) => bits,
        };
        let near = Self::rounded(false, (**mantissa).clone(), (*exponent).into(), bits, false).ok()?;
        let Size::Finite { mantissa, exponent } = near.size else { return None };
        let digits = mantissa.iter_u64_digits().next().unwrap_or(0);
        #[expect(clippy::cast_precision_loss, reason = "there are at most 53 bits")]
        let value = digits as f64 * 2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2);
        value.is_finite().then_some(sign * value)
    }

    /// The number if it is whole and fits.
    pub(crate) fn as_whole(&self) -> Option<i64> {
        self.as_integer()?.try_into().ok()
    }

    /// The number if it is whole.
    pub(crate) fn as_integer(&self) -> Option<BigInt> {
        self.truncated().filter(|(_, exact)| *exact).map(|(whole, _)| whole)
    }

    /// The number without its fraction, and whether it has none; nothing for an infinite one.
    fn truncated(&self) -> Option<(BigInt, bool)> {
        let sign = if self.negative { Sign::Minus } else { Sign::Plus };
        match &self.size {
            Size::Zero => Some((BigInt::ZERO, true)),
            Size::Finite { mantissa, exponent } => {
                let shift = exponent.unsigned_abs();
                let exact = *exponent >= 0;
                let size = if exact { &**mantissa << shift } else { &**mantissa >> shift };
                Some((BigInt::from_biguint(sign, size), exact))
            }
            Size::Infinite => None,
        }
    }

    pub(crate) const fn is_zero(&self) -> bool {
        matches!(self.size, Size::Zero)
    }

    pub(crate) const fn is_infinite(&self) -> bool {
        matches!(self.size, Size::Infinite)
    }

    /// Whether there is a minus before it.
    pub(crate) const fn is_negative(&self) -> bool {
        self.negative
    }

    pub(crate) fn negate(&self) -> Self {
        Self { negative: !self.negative, ..self.clone() }
    }

    pub(crate) fn absolute(&self) -> Self {
        Self { negative: false, ..self.clone() }
    }

    /// Charges the budget for an operation whose time grows with the square of the length.
    fn charge(&self, other: &Self, budget: &Budget) -> Result<u32> {
        let precision = self.precision.max(other.precision);
        let words = precision as usize / 64 + 1;
        budget.spend(NODE_COST + words * words * 4)?;
        Ok(precision)
    }

    pub(crate) fn add(&self, other: &Self, budget: &Budget) -> Result<Self> {
        let precision = self.charge(other, budget)?;
        match (&self.size, &other.size) {
            (Size::Infinite, Size::Infinite) if self.negative != other.negative => {
                failed("opposite infinities have no sum")
            }
            (Size::Infinite, _) => Ok(Self::infinite(self.negative, precision)),
            (_, Size::Infinite) => Ok(Self::infinite(other.negative, precision)),
            (Size::Zero, Size::Zero) => Ok(Self::zero(self.negative && other.negative, precision)),
            (Size::Zero, _) => Ok(Self { precision, ..other.clone() }),
            (_, Size::Zero) => Ok(Self { precision, ..self.clone() }),
            (Size::Finite { mantissa: a, exponent: x }, Size::Finite { mantissa: b, exponent: y }) => {
                let low = *x.min(y);
                let aligned = |mantissa: &BigUint, exponent: i32, negative: bool| {
                    let sign = if negative { Sign::Minus } else { Sign::Plus };
                    BigInt::from_biguint(sign, mantissa << exponent.abs_diff(low))
                };
                let sum = aligned(a, *x, self.negative) + aligned(b, *y, other.negative);
                let negative = sum.sign() == Sign::Minus;
                Self::rounded(negative, sum.into_parts().1, low.into(), precision, false)
            }
        }
    }

    pub(crate) fn subtract(&self, other: &Self, budget: &Budget) -> Result<Self> {
        self.add(&other.negate(), budget)
    }

    /// The product keeps more bits than its factors have, up to those of a written number.
    pub(crate) fn multiply(&self, other: &Self, budget: &Budget) -> Result<Self> {
        let precision = self.charge(other, budget)?;
        let product = self.product(other, LITERAL_PRECISION)?;
        let needed = match &product.size {
            Size::Finite { mantissa, .. } => u32::try_from(mantissa.bits()).unwrap_or(u32::MAX),
            _ => 0,
        };
        Ok(Self { precision: precision.max(needed), ..product })
    }

    fn product(&self, other: &Self, precision: u32) -> Result<Self> {
        let negative = self.negative != other.negative;
        match (&self.size, &other.size) {
            (Size::Zero, Size::Infinite) | (Size::Infinite, Size::Zero) => {
                failed("zero cannot be multiplied by infinity")
            }
            (Size::Infinite, _) | (_, Size::Infinite) => Ok(Self::infinite(negative, precision)),
            (Size::Zero, _) | (_, Size::Zero) => Ok(Self::zero(negative, precision)),
            (Size::Finite { mantissa: a, exponent: x }, Size::Finite { mantissa: b, exponent: y }) => {
                Self::rounded(negative, &**a * &**b, i64::from(*x) + i64::from(*y), precision, false)
            }
        }
    }

    pub(crate) fn divide(&self, other: &Self, budget: &Budget) -> Result<Self> {
        let precision = self.charge(other, budget)?;
        let negative = self.negative != other.negative;
        match (&self.size, &other.size) {
            (Size::Zero, Size::Zero) | (Size::Infinite, Size::Infinite) => {
                failed("zero cannot be divided by zero, nor infinity by infinity")
            }
            (Size::Zero, _) | (_, Size::Infinite) => Ok(Self::zero(negative, precision)),
            (Size::Infinite, _) | (_, Size::Zero) => Ok(Self::infinite(negative, precision)),
            (Size::Finite { mantissa: a, exponent: x }, Size::Finite { mantissa: b, exponent: y }) => {
                Self::quotient(negative, (a, b), i64::from(*x) - i64::from(*y), precision)
            }
        }
    }

    /// The remainder of a division that rounds towards zero; the number itself for a division by zero.
    pub(crate) fn remainder(&self, other: &Self, budget: &Budget) -> Result<Self> {
        if self.is_infinite() || other.is_infinite() {
            return unavailable("a remainder of infinity is not computed here");
        }
        if other.is_zero() {
            return Ok(self.clone());
        }
        let quotient = self.divide(other, budget)?;
        let Some((times, _)) = quotient.truncated() else { return beyond() };
        let precision = self.precision;
        let negative = times.sign() == Sign::Minus;
        let times = Self::rounded(negative, times.into_parts().1, 0, precision, false)?;
        let taken = other.product(&times, precision)?.negate();
        // As if both had the precision of the first.
        let rest = self.add(&Self { precision, ..taken }, budget)?;
        Ok(Self { precision, ..rest })
    }

    /// The nearest whole number that is not larger, or not smaller.
    pub(crate) fn rounded_to(&self, up: bool) -> Result<Self> {
        let Some((whole, exact)) = self.truncated() else { return Ok(self.clone()) };
        let whole = match (exact, up, self.negative) {
            (false, true, false) => whole + 1,
            (false, false, true) => whole - 1,
            _ => whole,
        };
        let negative = whole.sign() == Sign::Minus;
        Self::rounded(negative, whole.into_parts().1, 0, self.precision, false)
    }

    /// The order by size.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let rank = |number: &Self| match (&number.size, number.negative) {
            (Size::Zero, _) => 0,
            (Size::Finite { .. }, negative) => {
                if negative {
                    -1
                } else {
                    1
                }
            }
            (Size::Infinite, negative) => {
                if negative {
                    -2
                } else {
                    2
                }
            }
        };
        let order = rank(self).cmp(&rank(other));
        let (Size::Finite { mantissa: a, exponent: x }, Size::Finite { mantissa: b, exponent: y }) =
            (&self.size, &other.size)
        else {
            return order;
        };
        if order.is_ne() {
            return order;
        }
        let low = *x.min(y);
        let order = (&**a << x.abs_diff(low)).cmp(&(&**b << y.abs_diff(low)));
        if self.negative { order.reverse() } else { order }
    }

    /// Whether two numbers are equal: fractions are when their decimal notation is the same.
    pub(crate) fn equals(&self, other: &Self, budget: &Budget) -> Result<bool> {
        match (self.as_integer(), other.as_integer()) {
            (Some(a), Some(b)) => Ok(a == b),
            (None, None) => Ok(self.text(budget)? == other.text(budget)?),
            _ => Ok(false),
        }
    }

    /// The shortest decimal notation that identifies this number, without exponent.
    pub(crate) fn text(&self, budget: &Budget) -> Result<String> {
        match self.decimal(true, budget)? {
            Some(decimal) => Ok(format!("{}{}", self.minus(), decimal.plain(None))),
            None => Ok(self.infinity().to_owned()),
        }
    }

    /// The same with an exponent where the number is large or small.
    pub(crate) fn short_text(&self, budget: &Budget) -> Result<String> {
        match self.decimal(true, budget)? {
            Some(decimal) => Ok(format!("{}{}", self.minus(), decimal.general(None, 'e'))),
            None => Ok(self.infinity().to_owned()),
        }
    }

    /// The sign in front of a text.
    pub(crate) const fn minus(&self) -> &'static str {
        if self.negative { "-" } else { "" }
    }

    const fn infinity(&self) -> &'static str {
        if self.negative { "-Inf" } else { "+Inf" }
    }

    /// The decimal digits: all of them, or the fewest that distinguish this number from others of its precision. None
    /// for infinity.
    pub(crate) fn decimal(&self, shortest: bool, budget: &Budget) -> Result<Option<Decimal>> {
        match &self.size {
            Size::Infinite => Ok(None),
            Size::Zero => Ok(Some(Decimal::default())),
            Size::Finite { mantissa, exponent } => {
                let words = (mantissa.bits() + u64::from(exponent.unsigned_abs())) / 64 + 1;
                // Three conversions, with divisions by ten.
                budget.spend(NODE_COST * 4 + usize::try_from(words * words * 16).unwrap_or(usize::MAX))?;
                let mut decimal = Decimal::of(mantissa, (*exponent).into());
                if shortest {
                    decimal.shorten(mantissa, (*exponent).into(), self.precision);
                }
                Ok(Some(decimal))
            }
        }
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        let size = BigUint::from(value.unsigned_abs());
        Self::rounded(value < 0, size, 0, COUNT_PRECISION, false)
            .unwrap_or(Self::zero(false, COUNT_PRECISION))
    }
}

#[cfg(test)]
mod floats;
#[cfg(test)]
mod tests;

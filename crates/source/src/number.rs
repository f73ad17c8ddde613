//! Numbers as Terraform's language has them: exact integers, and decimals that print as people write them.

use std::cmp::Ordering;
use std::fmt;

/// A number. Whole numbers are exact as long as they fit; others have the precision of an `f64`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Whole(i128),
    Broken(f64),
}

/// Whole floating point numbers below this become exact.
const EXACT: f64 = 1e30;

impl Number {
    /// Reads decimal notation with an optional fraction and exponent.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Ok(whole) = text.parse() {
            return Some(Self::Whole(whole));
        }
        let decimal =
            text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e' | b'E'));
        if decimal { text.parse().ok().and_then(Self::from_f64) } else { None }
    }

    /// None for infinities and what is not a number.
    pub(crate) fn from_f64(value: f64) -> Option<Self> {
        if !value.is_finite() {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "the value is whole and below 1e30")]
        let number = if value.fract() == 0.0 && value.abs() < EXACT {
            Self::Whole(value as i128)
        } else {
            Self::Broken(value)
        };
        Some(number)
    }

    #[expect(clippy::cast_precision_loss, reason = "a float is asked for")]
    pub(crate) const fn as_f64(self) -> f64 {
        match self {
            Self::Whole(whole) => whole as f64,
            Self::Broken(value) => value,
        }
    }

    /// The number if it is whole and fits.
    pub(crate) fn as_whole(self) -> Option<i64> {
        match self {
            Self::Whole(whole) => whole.try_into().ok(),
            Self::Broken(_) => None,
        }
    }

    pub(crate) fn negate(self) -> Option<Self> {
        match self {
            Self::Whole(whole) => whole.checked_neg().map(Self::Whole),
            Self::Broken(value) => Self::from_f64(-value),
        }
    }

    fn both(
        self,
        other: Self,
        exact: impl Fn(i128, i128) -> Option<i128>,
        float: impl Fn(f64, f64) -> f64,
    ) -> Option<Self> {
        if let (Self::Whole(a), Self::Whole(b)) = (self, other)
            && let Some(whole) = exact(a, b)
        {
            return Some(Self::Whole(whole));
        }
        Self::from_f64(float(self.as_f64(), other.as_f64()))
    }

    pub(crate) fn add(self, other: Self) -> Option<Self> {
        self.both(other, i128::checked_add, |a, b| a + b)
    }

    pub(crate) fn subtract(self, other: Self) -> Option<Self> {
        self.both(other, i128::checked_sub, |a, b| a - b)
    }

    pub(crate) fn multiply(self, other: Self) -> Option<Self> {
        self.both(other, i128::checked_mul, |a, b| a * b)
    }

    /// None when dividing by zero.
    pub(crate) fn divide(self, other: Self) -> Option<Self> {
        let exact = |a: i128, b: i128| if a.checked_rem(b)? == 0 { a.checked_div(b) } else { None };
        self.both(other, exact, |a, b| a / b)
    }

    /// The remainder with the sign of `self`; none when dividing by zero.
    pub(crate) fn remainder(self, other: Self) -> Option<Self> {
        self.both(other, i128::checked_rem, |a, b| a % b)
    }

    /// Applies a rounding function.
    pub(crate) fn rounded(self, how: impl Fn(f64) -> f64) -> Option<Self> {
        match self {
            Self::Whole(_) => Some(self),
            Self::Broken(value) => Self::from_f64(how(value)),
        }
    }

    pub(crate) fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => a.cmp(&b),
            _ => self.as_f64().total_cmp(&other.as_f64()),
        }
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.compare(*other) == Ordering::Equal
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self::Whole(value.into())
    }
}

impl fmt::Display for Number {
    /// Without exponent, and without the noise that binary fractions add after fifteen digits: Terraform computes with
    /// far more digits and so prints `0.1 + 0.2` as `0.3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(whole) => write!(f, "{whole}"),
            Self::Broken(value) => {
                let short: f64 = format!("{value:.14e}").parse().unwrap_or(*value);
                write!(f, "{short}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_terraform_prints_them() {
        for (text, want) in [
            ("5", "5"),
            ("1.50", "1.5"),
            ("1e3", "1000"),
            ("-0.25", "-0.25"),
            ("3.0", "3"),
            ("1e-7", "0.0000001"),
        ] {
            assert_eq!(Number::parse(text).map(|n| n.to_string()).as_deref(), Some(want), "{text}");
        }
        let sum = Number::parse("0.1").unwrap().add(Number::parse("0.2").unwrap()).unwrap();
        assert_eq!(sum.to_string(), "0.3");
        for wrong in ["", "x", "inf", "NaN", "0x1", "1e999"] {
            assert!(Number::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn whole_numbers_stay_exact() {
        let big = Number::parse("123456789012345678901234567890").unwrap();
        assert_eq!(big.to_string(), "123456789012345678901234567890");
        assert_eq!(Number::from(7).divide(Number::from(2)).unwrap().to_string(), "3.5");
        assert_eq!(Number::from(8).divide(Number::from(2)).unwrap().to_string(), "4");
        assert_eq!(Number::from(-7).remainder(Number::from(3)).unwrap().to_string(), "-1");
        assert!(Number::from(1).divide(Number::from(0)).is_none());
        assert!(Number::from(1).remainder(Number::from(0)).is_none());
    }
}

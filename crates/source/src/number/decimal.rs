//! Decimal digits of a binary number.

use num_bigint::BigUint;

/// `0.DIGITS * 10^point`, without zeros at either end; no digits are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decimal {
    /// Digits as ASCII.
    digits: Vec<u8>,
    point: i64,
}

impl Decimal {
    /// All digits of `mantissa * 2^exponent`.
    pub(super) fn of(mantissa: &BigUint, exponent: i64) -> Self {
        let shift = exponent.unsigned_abs();
        let (whole, fraction) = match exponent >= 0 {
            true => (mantissa << shift, 0),
            // A half is five tenths.
            false => {
                let fives = BigUint::from(5u32).pow(u32::try_from(shift).unwrap_or(u32::MAX));
                (mantissa * fives, exponent.saturating_neg())
            }
        };
        let digits = whole.to_string().into_bytes();
        let point = i64::try_from(digits.len()).unwrap_or(i64::MAX) - fraction;
        let mut decimal = Self { digits, point };
        decimal.trim();
        decimal
    }

    /// Drops zeros behind the last other digit.
    fn trim(&mut self) {
        while self.digits.last() == Some(&b'0') {
            self.digits.pop();
        }
        if self.digits.is_empty() {
            self.point = 0;
        }
    }

    fn at(&self, index: usize) -> u8 {
        self.digits.get(index).copied().unwrap_or(b'0')
    }

    fn cut(&mut self, count: usize) {
        self.digits.truncate(count);
        self.trim();
    }

    fn cut_up(&mut self, count: usize) {
        self.digits.truncate(count);
        while self.digits.last() == Some(&b'9') {
            self.digits.pop();
        }
        match self.digits.last_mut() {
            Some(digit) => *digit += 1,
            None => {
                self.digits.push(b'1');
                self.point += 1;
            }
        }
    }

    /// Rounds to so many digits, and to the even one of two that are equally near.
    fn round(&mut self, count: i64) {
        let Ok(count) = usize::try_from(count) else { return self.cut(0) };
        if count >= self.digits.len() {
            return;
        }
        let is_half = self.digits[count] == b'5' && count + 1 == self.digits.len();
        let up = match is_half {
            true => count > 0 && !self.digits[count - 1].is_multiple_of(2),
            false => self.digits[count] >= b'5',
        };
        if up { self.cut_up(count) } else { self.cut(count) }
    }

    /// Keeps the fewest digits that distinguish the number from its neighbors at a precision.
    pub(super) fn shorten(&mut self, mantissa: &BigUint, exponent: i64, precision: u32) {
        // One bit more than the precision, so that half of the distance to the next number is one.
        let shift = (u64::from(precision) + 1).saturating_sub(mantissa.bits());
        let (mantissa, exponent) = (mantissa << shift, exponent.saturating_sub_unsigned(shift));
        let lower = Self::of(&(&mantissa - 1u32), exponent);
        let upper = Self::of(&(&mantissa + 1u32), exponent);
        // A value in the middle of two numbers is rounded to the even one.
        let inclusive = !mantissa.bit(1);
        for (index, &digit) in self.digits.iter().enumerate() {
            let (low, high) = (lower.at(index), upper.at(index));
            let down = low != digit || inclusive && index + 1 == lower.digits.len();
            let up = digit != high && (inclusive || digit + 1 < high || index + 1 < upper.digits.len());
            match (down, up) {
                (true, true) => return self.round(i64::try_from(index).unwrap_or(i64::MAX) + 1),
                (true, false) => return self.cut(index + 1),
                (false, true) => return self.cut_up(index + 1),
                (false, false) => {}
            }
        }
    }

    /// Without exponent, with so many digits after the point, or all.
    pub(crate) fn plain(mut self, after: Option<usize>) -> String {
        let all = i64::try_from(self.digits.len()).unwrap_or(i64::MAX);
        let after = match after {
            Some(after) => {
                self.round(self.point.saturating_add_unsigned(after as u64));
                after
            }
            None => usize::try_from(all - self.point).unwrap_or(0),
        };
        let mut out = String::new();
        match usize::try_from(self.point) {
            Ok(whole @ 1..) => out.extend((0..whole).map(|index| char::from(self.at(index)))),
            _ => out.push('0'),
        }
        if after > 0 {
            out.push('.');
            let digit = |index: i64| usize::try_from(index).map_or(b'0', |index| self.at(index));
            let first = self.point;
            out.extend((0i64..).take(after).map(|index| char::from(digit(first + index))));
        }
        out
    }

    /// One digit, so many after the point, or all, and an exponent.
    pub(crate) fn scientific(mut self, after: Option<usize>, letter: char) -> String {
        if let Some(after) = after {
            self.round(i64::try_from(after).unwrap_or(i64::MAX).saturating_add(1));
        }
        let after = after.unwrap_or(self.digits.len().saturating_sub(1));
        let mut out = String::from(char::from(self.at(0)));
        if after > 0 {
            out.push('.');
            out.extend((1..=after).map(|index| char::from(self.at(index))));
        }
        let exponent = if self.digits.is_empty() { 0 } else { self.point - 1 };
        let sign = if exponent < 0 { '-' } else { '+' };
        out.push_str(&format!("{letter}{sign}{:02}", exponent.unsigned_abs()));
        out
    }

    /// With an exponent for numbers that are small or large; `digits` are all there may be.
    pub(crate) fn general(mut self, digits: Option<usize>, letter: char) -> String {
        let shortest = digits.is_none();
        if let Some(digits) = digits {
            self.round(i64::try_from(digits.max(1)).unwrap_or(i64::MAX));
        }
        let all = i64::try_from(self.digits.len()).unwrap_or(i64::MAX);
        let expected = digits.map_or(all, |digits| i64::try_from(digits.max(1)).unwrap_or(i64::MAX));
        let mut largest = if expected > all && all >= self.point { all } else { expected };
        if shortest {
            largest = 6;
        }
        let exponent = self.point - 1;
        if exponent < -4 || exponent >= largest {
            let after = usize::try_from(expected.min(all) - 1).unwrap_or(0);
            return self.scientific(Some(after), letter);
        }
        let expected = if expected > self.point { all } else { expected };
        let after = usize::try_from(expected - self.point).unwrap_or(0);
        self.plain(Some(after))
    }
}

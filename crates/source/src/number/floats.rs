//! Numbers of 53 bits calculate, compare and print as the processor's floats do.

use super::*;
use crate::random::Random;

/// A float with a power of two in a range around one. Every fourth has few digits, so that results are exact, or in the
/// middle of two floats.
fn float(random: &mut Random, range: u64) -> f64 {
    let power = (1023 - range / 2 + random.bits() % range) << 52;
    let all = random.bits() >> 12;
    let fraction = if random.below(4) == 0 { all & (0xf << 48) } else { all };
    f64::from_bits(random.bits() & (1 << 63) | power | fraction)
}

fn number(value: f64) -> Number {
    Number::from_f64(value).unwrap()
}

#[track_caller]
fn same(found: &Number, expected: f64, what: &str) {
    let found = found.as_f64().unwrap();
    assert_eq!(found.to_bits(), expected.to_bits(), "{what}: {found} instead of {expected}");
}

#[test]
fn sums_products_and_quotients_are_rounded_once() {
    let (budget, mut random) = (Budget::new(), Random::from_seed(1));
    for _ in 0..3000 {
        let (a, b) = (float(&mut random, 80), float(&mut random, 80));
        let (x, y) = (number(a), number(b));
        same(&x.add(&y, &budget).unwrap(), a + b, &format!("{a} + {b}"));
        same(&x.subtract(&y, &budget).unwrap(), a - b, &format!("{a} - {b}"));
        same(&x.multiply(&y, &budget).unwrap(), a * b, &format!("{a} * {b}"));
        same(&x.divide(&y, &budget).unwrap(), a / b, &format!("{a} / {b}"));
        same(&x.subtract(&x, &budget).unwrap(), 0.0, "nothing is left");
    }
}

#[test]
fn zeros_and_infinities_have_the_signs_of_floats() {
    let budget = Budget::new();
    let all = [0.0, -0.0, 1.5, -1.5, f64::INFINITY, f64::NEG_INFINITY];
    for (a, b) in all.into_iter().flat_map(|a| all.map(|b| (a, b))) {
        let (x, y) = (number(a), number(b));
        for (found, expected, what) in [
            (x.add(&y, &budget), a + b, "+"),
            (x.subtract(&y, &budget), a - b, "-"),
            (x.multiply(&y, &budget), a * b, "*"),
            (x.divide(&y, &budget), a / b, "/"),
        ] {
            match expected.is_nan() {
                true => assert!(found.is_err(), "{a} {what} {b}"),
                false => same(&found.unwrap(), expected, &format!("{a} {what} {b}")),
            }
        }
        assert_eq!(x.compare(&y), a.partial_cmp(&b).unwrap(), "{a} and {b}");
        same(&x.negate(), -a, "negated");
        same(&x.absolute(), a.abs(), "absolute");
    }
}

#[test]
fn the_order_and_the_nearest_whole_numbers_are_those_of_floats() {
    let mut random = Random::from_seed(2);
    for _ in 0..3000 {
        let (a, b) = (float(&mut random, 12), float(&mut random, 12));
        assert_eq!(number(a).compare(&number(b)), a.partial_cmp(&b).unwrap(), "{a} and {b}");
        assert_eq!(number(a).compare(&number(a)), Ordering::Equal);
        for (up, expected) in [(true, a.ceil()), (false, a.floor())] {
            let rounded = number(a).rounded_to(up).unwrap();
            // There is no negative zero among whole numbers.
            same(&rounded, expected + 0.0, &format!("{a} to a whole number"));
        }
        let is_whole = a.fract() == 0.0;
        assert_eq!(number(a).as_integer().is_some(), is_whole, "{a}");
        #[expect(clippy::cast_possible_truncation, reason = "they are small")]
        let whole = is_whole.then_some(a as i64);
        assert_eq!(number(a).as_whole(), whole, "{a}");
    }
}

#[test]
fn the_largest_and_smallest_whole_numbers_fit() {
    for (value, expected) in [
        ("9223372036854775807", Some(i64::MAX)),
        ("9223372036854775808", None),
        ("-9223372036854775808", Some(i64::MIN)),
        ("-9223372036854775809", None),
        ("-0", Some(0)),
        ("inf", None),
    ] {
        assert_eq!(Number::parse(value, &Budget::new()).unwrap().as_whole(), expected, "{value}");
    }
    for value in [0, 1, -1, i64::MAX, i64::MIN] {
        assert_eq!(Number::from(value).as_whole(), Some(value));
        assert_eq!(Number::from(value).text(&Budget::new()).unwrap(), value.to_string());
    }
}

#[test]
fn remainders_of_whole_numbers_have_the_sign_of_the_first() {
    let (budget, mut random) = (Budget::new(), Random::from_seed(3));
    for _ in 0..1000 {
        let mut whole = || {
            let bits = random.bits();
            i64::from_ne_bytes(bits.to_ne_bytes()) >> (random.bits() % 62)
        };
        let (a, b) = (whole(), whole());
        if b == 0 || b == -1 {
            continue;
        }
        let of = |value: i64| Number::parse(&value.to_string(), &budget).unwrap();
        let rest = of(a).remainder(&of(b), &budget).unwrap();
        assert_eq!(rest.as_whole(), Some(a % b), "{a} % {b}");
        assert_eq!(rest.precision, LITERAL_PRECISION);
    }
}

#[test]
fn the_shortest_digits_are_those_of_floats() {
    let mut random = Random::from_seed(4);
    for _ in 0..1500 {
        // Not a power of two: Terraform does not take into account that the number below is closer.
        let a = f64::from_bits(float(&mut random, 300).to_bits() | 1);
        let (found, shortest) = (number(a).text(&Budget::new()).unwrap(), a.to_string());
        // In the middle of two, either is near.
        assert!(found.parse() == Ok(a) && found.len() == shortest.len(), "{found} instead of {shortest}");
    }
}

#[test]
fn whole_numbers_have_no_more_digits_than_they_need() {
    let mut random = Random::from_seed(8);
    for round in 0..3000 {
        // The numbers next to it are farther away than one.
        let mantissa = (random.bits() >> 11) | 1 << 52 | u64::from(round % 4 != 0);
        #[expect(clippy::cast_precision_loss, reason = "it has 53 bits")]
        let a = mantissa as f64 * 2f64.powi(1 + round % 9);
        let (found, shortest) = (number(a).text(&Budget::new()).unwrap(), format!("{a:e}"));
        assert_eq!(found.parse(), Ok(a), "{found}");
        let digits =
            |text: &str| text.split('e').next().unwrap().replace('.', "").trim_end_matches('0').len();
        assert_eq!(digits(&found), digits(&shortest), "{found} instead of {shortest}");
    }
}

#[test]
fn digits_are_rounded_to_the_even_one_of_two() {
    let mut random = Random::from_seed(5);
    for round in 0..1500 {
        let (a, digits) = (float(&mut random, 60).abs(), round % 24);
        let decimal = || number(a).decimal(false, &Budget::new()).unwrap().unwrap();
        assert_eq!(decimal().plain(Some(digits)), format!("{a:.digits$}"), "{a} with {digits} digits");
        let (digits_of, exponent) = {
            let text = format!("{a:.digits$e}");
            let (digits, exponent) = text.split_once('e').unwrap();
            (digits.to_owned(), exponent.parse::<i32>().unwrap())
        };
        let sign = if exponent < 0 { '-' } else { '+' };
        let expected = format!("{digits_of}E{sign}{:02}", exponent.abs());
        assert_eq!(decimal().scientific(Some(digits), 'E'), expected, "{a} with {digits} digits");
    }
    for (value, digits, expected) in [
        (0.5, 0, "0"),
        (1.5, 0, "2"),
        (2.5, 0, "2"),
        (0.05, 0, "0"),
        (9.5, 0, "10"),
        (99.96, 1, "100.0"),
        (0.0, 2, "0.00"),
    ] {
        let decimal = number(value).decimal(false, &Budget::new()).unwrap().unwrap();
        assert_eq!(decimal.plain(Some(digits)), expected, "{value}");
    }
}

#[test]
fn the_nearest_float_is_found_between_any_two() {
    let mut random = Random::from_seed(6);
    for _ in 0..1500 {
        let mantissa = u128::from(random.bits() >> (random.bits() % 12)) | 1;
        let whole = mantissa << (random.bits() % 60);
        #[expect(clippy::cast_precision_loss, reason = "this is the question")]
        let expected = whole as f64;
        same(&Number::parse(&whole.to_string(), &Budget::new()).unwrap(), expected, &whole.to_string());
    }
    // Among the smallest floats, and at the bound to the others.
    for round in 0..300u64 {
        let mantissa = (random.bits() >> (10 + round % 54)) | 1;
        let text = Decimal::of(&mantissa.into(), -1075).plain(None);
        same(&Number::parse(&text, &Budget::new()).unwrap(), text.parse().unwrap(), &text);
        let bits = random.bits() >> (11 + round % 53);
        same(&number(f64::from_bits(bits)), f64::from_bits(bits), "itself");
    }
    for text in [
        "1.7976931348623158e308",
        "1.7976931348623159e308",
        "2.4703282292062327e-324",
        "2.4703282292062328e-324",
        "1e-400",
    ] {
        let expected = text.parse::<f64>().unwrap();
        let found = Number::parse(text, &Budget::new()).unwrap().as_f64();
        assert_eq!(found, expected.is_finite().then_some(expected), "{text}");
    }
}

#[test]
fn whole_numbers_of_every_base_are_read() {
    let budget = Budget::new();
    let mut random = Random::from_seed(7);
    for _ in 0..500 {
        let (value, base) =
            (random.bits() >> (random.bits() % 63), 2 + u32::try_from(random.bits() % 35).unwrap());
        let text = BigUint::from(value).to_str_radix(base);
        for text in
            [text.clone(), text.to_uppercase(), format!("+{text}"), format!("-{text}"), format!("00{text}")]
        {
            let found = Number::parse_integer(&text, base, &budget).unwrap().unwrap();
            let negative = text.starts_with('-') && value != 0;
            let expected = format!("{}{value}", if negative { "-" } else { "" });
            assert_eq!(found.absolute().text(&budget).unwrap(), value.to_string(), "{text} of base {base}");
            assert!(value == 0 || found.text(&budget).unwrap() == expected, "{text} of base {base}");
        }
    }
}

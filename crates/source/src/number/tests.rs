//! Arithmetic, rounding and printing of numbers.

use super::*;

fn number(text: &str) -> Number {
    Number::parse(text, &Budget::new()).unwrap()
}

fn text(number: &Number) -> String {
    number.text(&Budget::new()).unwrap()
}

#[test]
fn numbers_are_printed_as_by_terraform() {
    for (written, want) in [
        ("5", "5"),
        ("1.50", "1.5"),
        ("1e3", "1000"),
        ("-0.25", "-0.25"),
        ("3.0", "3"),
        ("1e-7", "0.0000001"),
        ("-0", "-0"),
        ("1p5", "32"),
        ("inf", "+Inf"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
    ] {
        assert_eq!(text(&number(written)), want, "{written}");
    }
    for wrong in ["", "x", "NaN", "0x1", "1e", "e1", ".", "1_000", " 1", "1e+", "--1"] {
        assert!(Number::parse(wrong, &Budget::new()).is_err(), "{wrong}");
    }
}

#[test]
fn printed_numbers_parse_to_the_same_number() {
    let budget = Budget::new();
    let mut value = number("0.7");
    for step in 0..200 {
        let printed = text(&value);
        assert_eq!(number(&printed).compare(&value), Ordering::Equal, "{step}: {printed}");
        value =
            value.multiply(&number("1.37"), &budget).unwrap().divide(&number("3"), &budget).unwrap().negate();
    }
}

#[test]
fn floats_convert_in_both_directions() {
    for value in
        [0.0, -0.0, 1.0, -1.5, 0.1, 1e300, 5e-324, f64::MAX, f64::MIN_POSITIVE, 2.2e-308, f64::INFINITY]
    {
        let back = Number::from_f64(value).unwrap().as_f64().unwrap();
        assert_eq!(back.to_bits(), value.to_bits(), "{value}");
    }
    assert!(Number::from_f64(f64::NAN).is_err());
    assert_eq!(number("1e309").as_f64(), None);
    assert_eq!(number("1e-400").as_f64(), Some(0.0));
}

#[test]
fn size_is_bounded() {
    for far in ["1e3000", "1e-3000", "1e999999999999999999999", "1e-999999999999999999999", "1p9000"] {
        assert!(Number::parse(far, &Budget::new()).is_err(), "{far}");
    }
    assert_eq!(text(&number("0e999999999999999999999")), "0");
    let mut value = number("1e1000");
    let budget = Budget::new();
    while let Ok(square) = value.multiply(&value, &budget) {
        value = square;
    }
    assert!(text(&value).len() < 3000);
}

#[test]
fn a_value_between_two_numbers_becomes_the_even_one() {
    // Here the numbers are two apart.
    let base = BigUint::from(1u32) << LITERAL_PRECISION;
    for (lower, even) in [(0u32, 0u32), (2, 4), (4, 4), (6, 8)] {
        let (between, lower, upper) = (&base + lower + 1u32, &base + lower, &base + lower + 2u32);
        let even = &base + even;
        for (written, want) in [
            (format!("{between}"), &even),
            (format!("{between}.0"), &even),
            (format!("{between}000e-3"), &even),
            (format!("{lower}.9"), &lower),
            (format!("{between}.1"), &upper),
        ] {
            assert_eq!(number(&written).compare(&number(&want.to_string())), Ordering::Equal, "{written}");
        }
    }
}

#[test]
fn the_longest_text_of_a_number_is_read() {
    let parse = |size: usize| {
        Number::parse(&format!("-007.{}", "3".repeat(size - 1)), &Budget::new()).map(|number| text(&number))
    };
    assert!(parse(MAX_TEXT_SIZE).unwrap().starts_with("-7.33333"));
    assert!(parse(MAX_TEXT_SIZE + 1).is_err());
}

#[test]
fn remainders_of_infinity_are_not_computed() {
    let budget = Budget::new();
    for (left, right) in [("inf", "2"), ("2", "inf"), ("inf", "inf"), ("-inf", "0")] {
        assert!(number(left).remainder(&number(right), &budget).is_err(), "{left} % {right}");
    }
    assert_eq!(text(&number("-7").remainder(&number("2"), &budget).unwrap()), "-1");
}

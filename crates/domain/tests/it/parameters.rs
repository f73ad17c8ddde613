//! Values of parameters against their definitions.

use coder_domain::parameter::{Definition, validate};
use proptest::prelude::*;

fn definition(kind: &str) -> Definition {
    Definition { name: "p".to_owned(), kind: kind.to_owned(), mutable: true, ..Definition::default() }
}

/// An oracle with its own comparison: the sign of the step, and which signs each word permits.
fn may_step(monotonic: &str, step: i64) -> bool {
    match monotonic {
        "increasing" => step >= 0,
        "decreasing" => step <= 0,
        _ => true,
    }
}

proptest! {
    #[test]
    fn monotonic_numbers_move_in_their_direction_only(
        monotonic in prop::sample::select(vec!["increasing", "decreasing", ""]),
        last in -20_i64..20,
        step in -3_i64..=3,
    ) {
        let mut number = definition("number");
        number.validation_monotonic = monotonic.to_owned();
        let value = (last + step).to_string();
        let outcome = validate(&number, &value, Some(&last.to_string()));
        prop_assert_eq!(outcome.is_ok(), may_step(monotonic, step), "{} from {} to {}", monotonic, last, value);
        if let Err(text) = outcome {
            let names_both = text.contains(&value) && text.contains(&last.to_string());
            prop_assert!(names_both, "{}", text);
        }
        prop_assert!(validate(&number, &value, None).is_ok(), "there is no previous value");
    }

    #[test]
    fn bounds_belong_to_the_permitted_range(min in -5_i32..5, size in 0_i32..5, value in -12_i64..12) {
        let mut number = definition("number");
        (number.validation_min, number.validation_max) = (Some(min), Some(min + size));
        let inside = (i64::from(min)..=i64::from(min + size)).contains(&value);
        prop_assert_eq!(validate(&number, &value.to_string(), None).is_ok(), inside);
    }

    /// Without a regular expression a string is free; an expression that cannot be compiled refuses every value.
    #[test]
    fn a_string_is_matched_only_where_there_is_an_expression(value in "[a-z0-9(]{1,12}") {
        let mut string = definition("string");
        prop_assert!(validate(&string, &value, None).is_ok());
        string.validation_regex = "^[a-z]+$".to_owned();
        let letters = value.bytes().all(|byte| byte.is_ascii_lowercase());
        prop_assert_eq!(validate(&string, &value, None).is_ok(), letters);
        string.validation_regex = "(".to_owned();
        prop_assert!(validate(&string, &value, None).is_err());
    }
}

/// The expression is for strings: other types have rules of their own.
#[test]
fn expressions_do_not_apply_to_other_types() {
    for (kind, value) in [("number", "7"), ("bool", "true"), ("list(string)", "[\"1\"]")] {
        let mut parameter = definition(kind);
        parameter.validation_regex = "^[a-z]{20}$".to_owned();
        assert_eq!(validate(&parameter, value, None), Ok(()), "{kind}");
    }
}

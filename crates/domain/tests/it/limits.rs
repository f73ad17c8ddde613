//! Bounds of tags, at the bound and one beyond it.

use std::collections::BTreeMap;

use coder_domain::tags::{Error, MAX_TAG_BYTES, MAX_TAGS, validate};

fn one(key: String, value: String) -> BTreeMap<String, String> {
    [(key, value)].into()
}

#[test]
fn keys_and_values_have_a_longest_length() {
    let long = |extra: usize| "x".repeat(MAX_TAG_BYTES + extra);
    assert_eq!(validate(&one(long(0), long(0))), Ok(()));
    assert_eq!(validate(&one(long(1), String::new())), Err(Error::TooLong(MAX_TAG_BYTES + 1)));
    assert_eq!(validate(&one("key".to_owned(), long(1))), Err(Error::TooLong(MAX_TAG_BYTES + 1)));
    // Bytes count, not characters.
    let wide = "é".repeat(MAX_TAG_BYTES / 2);
    assert_eq!(validate(&one("key".to_owned(), wide.clone())), Ok(()));
    assert_eq!(validate(&one("key".to_owned(), wide + "é")), Err(Error::TooLong(MAX_TAG_BYTES + 2)));
}

#[test]
fn a_set_has_a_largest_size() {
    let set = |size: usize| (0..size).map(|number| (number.to_string(), String::new())).collect();
    assert_eq!(validate(&set(MAX_TAGS)), Ok(()));
    assert_eq!(validate(&set(MAX_TAGS + 1)), Err(Error::TooMany(MAX_TAGS + 1)));
}

#[test]
fn the_byte_zero_is_refused_in_keys_and_in_values() {
    for (key, value) in [("a\0", "b"), ("a", "\0b")] {
        assert_eq!(validate(&one(key.to_owned(), value.to_owned())), Err(Error::Nul));
    }
}

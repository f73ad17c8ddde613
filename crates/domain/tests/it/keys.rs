//! Random secrets: their lengths, their characters, and how they are compared.

use std::collections::BTreeMap;

use coder_domain::key::{self, ApiToken, random_text};
use proptest::prelude::*;

/// Every byte value in turn.
fn all_bytes() -> impl FnMut(&mut [u8]) {
    let mut next = 0_u8;
    move |bytes| {
        for byte in bytes {
            *byte = next;
            next = next.wrapping_add(1);
        }
    }
}

#[test]
fn random_text_has_exactly_the_length_that_was_asked_for() {
    for length in 0..200 {
        assert_eq!(random_text(length, all_bytes()).len(), length);
    }
    assert_eq!(key::new_provisioner_key(all_bytes()).expose().len(), 43);
    let token = ApiToken::generate(all_bytes());
    assert_eq!((token.id.len(), token.secret.expose().len()), (10, 22));
}

/// 248 bytes are four times the alphabet; the other eight are thrown away.
#[test]
fn every_character_is_equally_likely() {
    let text = random_text(248, all_bytes());
    let mut counts = BTreeMap::new();
    for character in text.chars() {
        *counts.entry(character).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 62, "{counts:?}");
    assert!(counts.iter().all(|(character, count)| character.is_ascii_alphanumeric() && *count == 4));
    // After these the source starts again, behind the eight bytes that are not used.
    let more = random_text(250, all_bytes());
    assert_eq!(more.strip_prefix(text.as_str()), Some(&text[..2]));
}

proptest! {
    #[test]
    fn secrets_are_the_same_exactly_when_their_texts_are(left in ".{0,40}", right in ".{0,40}") {
        prop_assert!(key::same_secret(&left, &left));
        prop_assert_eq!(key::same_secret(&left, &right), left == right);
        let longer = format!("{left}x");
        prop_assert!(!key::same_secret(&left, &longer));
    }
}

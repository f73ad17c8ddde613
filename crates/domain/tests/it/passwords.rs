//! The strength of passwords, against the size of the alphabets in use.

use coder_domain::password::{Error, MAX_LENGTH, entropy_bits, validate};
use proptest::prelude::*;

/// One character of each class, and the size of the class.
const CLASSES: [(char, f64); 6] =
    [('h', 26.0), ('H', 26.0), ('7', 10.0), ('$', 5.0), ('-', 5.0), ('#', 23.0)];

fn close(left: f64, right: f64) -> bool {
    (left - right).abs() < 1e-9
}

#[test]
fn each_class_counts_with_its_whole_alphabet() {
    for (character, size) in CLASSES {
        assert!(close(entropy_bits(&character.to_string()), size.log2()), "{character}");
        // A character outside of the classes counts for itself.
        assert!(close(entropy_bits(&format!("{character}é")), (size + 1.0).log2() * 2.0), "{character}é");
    }
    assert!(close(entropy_bits(""), 0.0));
    assert!(close(entropy_bits("é"), 0.0), "an alphabet of one character has no entropy");
}

#[test]
fn repetitions_and_sequences_add_nothing_from_the_third_character_on() {
    let bits = |password: &str| entropy_bits(password) / 26_f64.log2();
    for (password, length) in [
        ("hh", 2.0),
        ("hhh", 2.0),
        ("hhhhh", 2.0),
        ("abz", 3.0),
        ("abc", 2.0),
        ("cba", 2.0),
        ("qwerty", 2.0),
        ("hqabcd", 4.0),
    ] {
        assert!(close(bits(password), length), "{password}: {}", bits(password));
    }
    assert!(close(entropy_bits("AbC"), 52_f64.log2() * 2.0), "letter case does not hide a sequence");
}

#[test]
fn the_longest_password_counts_characters() {
    let password = |length| "hé".chars().cycle().take(length).collect::<String>();
    assert_eq!(validate(&password(MAX_LENGTH)), Ok(()));
    assert_eq!(validate(&password(MAX_LENGTH + 1)), Err(Error::TooLong));
}

/// Four characters of no class make an alphabet of two bits.
#[test]
fn a_password_of_exactly_52_bits_is_strong_enough() {
    let password = |length| "éüñå".chars().cycle().take(length).collect::<String>();
    assert!(close(entropy_bits(&password(26)), 52.0));
    assert_eq!(validate(&password(26)), Ok(()));
    assert_eq!(validate(&password(25)), Err(Error::TooWeak));
}

proptest! {
    /// Strong is what has 52 bits.
    #[test]
    fn weak_is_below_the_bound(password in "[a-zA-Z0-9!_#é]{0,64}") {
        let expected = if entropy_bits(&password) < 52.0 { Err(Error::TooWeak) } else { Ok(()) };
        prop_assert_eq!(validate(&password), expected);
    }

    #[test]
    fn more_characters_are_never_weaker(password in "[a-zA-Z0-9!_#é]{0,20}", more in "[a-zA-Z0-9!_#é]{1,5}") {
        let longer = password.clone() + &more;
        prop_assert!(entropy_bits(&longer) >= entropy_bits(&password) - 1e-9);
    }
}

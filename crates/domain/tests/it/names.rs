//! Names against regular expressions that say the same in another way.

use coder_domain::names;
use proptest::prelude::*;
use regex::Regex;

fn matches(pattern: &str, text: &str) -> bool {
    Regex::new(&format!("^(?:{pattern})$")).expect("a pattern of this test").is_match(text)
}

const WORDS: &str = "[A-Za-z0-9]+(-[A-Za-z0-9]+)*";

fn is_reserved(text: &str, words: &[&str]) -> bool {
    words.contains(&text.to_ascii_lowercase().as_str())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn names_are_words_joined_by_hyphens(text in "[ab0é_. -]{0,5}|[a0]{30,35}|(?i:new|create|default|news)") {
        let is_name = matches(WORDS, &text)
            && text.len() <= 32
            && !is_reserved(&text, &["new", "create"])
            // An id without hyphens.
            && !matches("[0-9A-Fa-f]{32}", &text);
        prop_assert_eq!(names::name(&text).is_ok(), is_name);
        let is_organization = is_name && !is_reserved(&text, &["default"]);
        prop_assert_eq!(names::organization(&text).is_ok(), is_organization);
    }

    #[test]
    fn version_names_have_more_separators(text in "[ab0é_. -]{0,5}|[a0]{62,67}") {
        let is_name = matches("[A-Za-z0-9]+([_.-][A-Za-z0-9]+)*", &text) && text.len() <= 64;
        prop_assert_eq!(names::template_version(&text).is_ok(), is_name);
    }

    #[test]
    fn daemon_names_start_and_end_with_a_letter_or_digit(text in "[ab0é_. -]{0,5}|[a0]{61,66}") {
        let is_name = matches("[A-Za-z0-9][A-Za-z0-9-]{0,61}[A-Za-z0-9]", &text);
        prop_assert_eq!(names::daemon(&text).is_ok(), is_name);
    }

    #[test]
    fn key_names_are_visible_characters(text in "[abé_./?#%\\\\ \t\u{1}-]{0,5}|[é]{62,67}|(?i:psk|built-in|user-auth|psks)") {
        let is_name = matches(r"[^\s\x00-\x1f/\\?#%]{1,64}", &text)
            && !is_reserved(&text, &["built-in", "user-auth", "psk"]);
        prop_assert_eq!(names::provisioner_key(&text).is_ok(), is_name);
    }

    #[test]
    fn display_names_have_no_space_at_an_end(text in "[ é]{0,4}|[é]{62,67}|[é]{126,131}") {
        let has_ends = text.is_empty() || matches("[^ ](.*[^ ])?", &text);
        let length = text.chars().count();
        prop_assert_eq!(names::display_name(&text).is_ok(), has_ends && length <= 64);
        prop_assert_eq!(names::real_name(&text).is_ok(), has_ends && length <= 128);
    }

    #[test]
    fn agents_and_slugs_are_short_words(text in "[aB0é_-]{0,5}|[a0]{62,67}") {
        let is_agent = matches(WORDS, &text) && text.len() <= 64;
        prop_assert_eq!(names::agent(&text), is_agent);
        prop_assert_eq!(names::app_slug(&text), is_agent && !matches(".*[A-Z].*", &text));
    }

    #[test]
    fn an_address_has_one_at_sign_between_two_texts(text in "[a@é \t\u{7f}]{0,6}", fill in 0_usize..5) {
        let is_address = matches(r"[^@\s\x00-\x1f\x7f]+@[^@\s\x00-\x1f\x7f]+", &text);
        prop_assert_eq!(names::email(&text), is_address);
        let long = format!("{}@b", "a".repeat(250 + fill));
        prop_assert_eq!(names::email(&long), long.len() <= 254);
    }
}

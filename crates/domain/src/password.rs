//! When a password is strong enough (scheduling-and-auth PWD-2). The server hashes passwords.

use std::collections::BTreeSet;

/// The least entropy, in bits.
pub const MIN_ENTROPY_BITS: f64 = 52.0;
/// The longest password, in characters.
pub const MAX_LENGTH: usize = 64;

/// Why a password was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Above the limit.
    #[error("password must be no more than {MAX_LENGTH} characters")]
    TooLong,
    /// Too easy to guess.
    #[error(
        "insecure password, try including more special characters, uppercase letters, numbers or using a longer password"
    )]
    TooWeak,
}

/// Checks length and entropy.
pub fn validate(password: &str) -> Result<(), Error> {
    if password.chars().count() > MAX_LENGTH {
        return Err(Error::TooLong);
    }
    if entropy_bits(password) < MIN_ENTROPY_BITS {
        return Err(Error::TooWeak);
    }
    Ok(())
}

/// An upper bound of the guesses needed, as bits: the size of the alphabets in use, to the power of the length
/// without repeated and sequential characters.
#[must_use]
pub fn entropy_bits(password: &str) -> f64 {
    let alphabet = alphabet_size(password);
    if alphabet == 0 {
        return 0.0;
    }
    let length = effective_length(password);
    // Both numbers are small: at most a few hundred.
    #[expect(clippy::cast_precision_loss, reason = "both are far below 2^52")]
    let bits = (alphabet as f64).log2() * length as f64;
    bits
}

const CLASSES: &[(&str, usize)] = &[
    ("abcdefghijklmnopqrstuvwxyz", 26),
    ("ABCDEFGHIJKLMNOPQRSTUVWXYZ", 26),
    ("0123456789", 10),
    ("!@$&*", 5),
    ("_-., ", 5),
    ("\"#%'()+/:;<=>?[\\]^{|}~`", 23),
];

fn alphabet_size(password: &str) -> usize {
    let known: usize =
        CLASSES.iter().filter(|(class, _)| password.contains(|c| class.contains(c))).map(|c| c.1).sum();
    let others: BTreeSet<char> =
        password.chars().filter(|c| !CLASSES.iter().any(|(class, _)| class.contains(*c))).collect();
    known + others.len()
}

const SEQUENCES: &[&str] =
    &["0123456789", "qwertyuiop", "asdfghjkl", "zxcvbnm", "abcdefghijklmnopqrstuvwxyz"];

/// The characters that count. The third and later ones of a run of equal or sequential characters do not count.
fn effective_length(password: &str) -> usize {
    let chars: Vec<char> = password.to_lowercase().chars().collect();
    let predictable = |window: &[char]| {
        let equal = window.iter().all(|c| Some(c) == window.first());
        let text: String = window.iter().collect();
        let reversed: String = window.iter().rev().collect();
        equal || SEQUENCES.iter().any(|sequence| sequence.contains(&text) || sequence.contains(&reversed))
    };
    chars.len() - chars.windows(3).filter(|window| predictable(window)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pwd_2_weak_and_strong() {
        for weak in ["", "password", "12345678901234567890", "aaaaaaaaaaaaaaaaaaaaaaaa", "abcdefghijklmnop"] {
            assert_eq!(validate(weak), Err(Error::TooWeak), "{weak}");
        }
        for strong in ["SomeSecurePassword!", "correct horse battery staple", "tr0ub4dor&3xX"] {
            assert_eq!(validate(strong), Ok(()), "{strong}");
        }
        assert_eq!(validate(&"aB3$x9".repeat(11)), Err(Error::TooLong));
    }
}

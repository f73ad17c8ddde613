//! Which names are legal (http-api 1.10).

/// Why a name was refused; the text completes "name …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing was given.
    #[error("must not be empty")]
    Empty,
    /// Longer than allowed.
    #[error("must be at most {0} characters")]
    TooLong(usize),
    /// Shorter than allowed.
    #[error("must be at least {0} characters")]
    TooShort(usize),
    /// Characters outside the rule.
    #[error("must consist of {0}")]
    Characters(&'static str),
    /// A word with another meaning.
    #[error("{0:?} is reserved, choose another one")]
    Reserved(String),
    /// It reads as the id of an object.
    #[error("must not be an id")]
    Id,
    /// Space at an end.
    #[error("must not start or end with a space")]
    Spaces,
}

fn words(text: &str, separators: &[char]) -> bool {
    !text.is_empty()
        && text
            .split(separators)
            .all(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

fn length(text: &str, limit: usize) -> Result<(), Error> {
    match text.chars().count() {
        0 => Err(Error::Empty),
        count if count > limit => Err(Error::TooLong(limit)),
        _ => Ok(()),
    }
}

/// User, template, workspace and token names: 1 to 32 letters and digits in words joined by single hyphens, not
/// `new` or `create`.
pub fn name(text: &str) -> Result<(), Error> {
    length(text, 32)?;
    if !words(text, &['-']) {
        return Err(Error::Characters("letters and digits, joined by single hyphens"));
    }
    // 32 hexadecimal digits are an id without its hyphens: the path of another object.
    if uuid::Uuid::try_parse(text).is_ok() {
        return Err(Error::Id);
    }
    reserved(text, &["new", "create"])
}

/// User names: as [`name`], and no word that has another meaning behind `/users/`.
pub fn user(text: &str) -> Result<(), Error> {
    name(text)?;
    reserved(text, &["me", "first", "login", "logout", "roles", "authmethods", "oauth2", "oidc", "otp"])
}

/// Organization names: as [`name`], and not `default`, which addresses the default organization.
pub fn organization(text: &str) -> Result<(), Error> {
    name(text)?;
    reserved(text, &["default"])
}

/// Template version names: 1 to 64 letters and digits in words joined by single `_`, `.` or `-`.
pub fn template_version(text: &str) -> Result<(), Error> {
    length(text, 64)?;
    if words(text, &['_', '.', '-']) {
        Ok(())
    } else {
        Err(Error::Characters("letters and digits, joined by single '_', '.' or '-'"))
    }
}

/// Provisioner key names: 1 to 64 characters, not one of the reserved keys (scheduling-and-auth KEY-2, KEY-3).
/// The official server checks only the length; we also refuse what could not be typed into a URL.
pub fn provisioner_key(text: &str) -> Result<(), Error> {
    length(text, 64)?;
    reserved(text, RESERVED_KEYS)?;
    if text.chars().any(|c| c.is_control() || c.is_whitespace() || matches!(c, '/' | '\\' | '?' | '#' | '%'))
    {
        return Err(Error::Characters("visible characters other than / \\ ? # %"));
    }
    Ok(())
}

/// The names of the three reserved provisioner keys.
pub const RESERVED_KEYS: &[&str] = &["built-in", "user-auth", "psk"];

/// Daemon names as the command line takes them: 2 to 63 letters, digits and hyphens, starting and ending with a
/// letter or digit (scheduling-and-auth 7.1).
pub fn daemon(text: &str) -> Result<(), Error> {
    length(text, 63)?;
    if text.len() < 2 {
        return Err(Error::TooShort(2));
    }
    let bytes = text.as_bytes();
    let edges = bytes.first().into_iter().chain(bytes.last()).all(u8::is_ascii_alphanumeric);
    if edges && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-') {
        Ok(())
    } else {
        Err(Error::Characters("letters, digits and hyphens, starting and ending with a letter or digit"))
    }
}

/// Display names: at most 64 characters without space at an end; may be empty.
pub fn display_name(text: &str) -> Result<(), Error> {
    spaced(text, 64)
}

/// A person's real name: at most 128 characters without space at an end; may be empty.
pub fn real_name(text: &str) -> Result<(), Error> {
    spaced(text, 128)
}

fn spaced(text: &str, limit: usize) -> Result<(), Error> {
    if text.is_empty() {
        return Ok(());
    }
    length(text, limit)?;
    if text.trim() == text { Ok(()) } else { Err(Error::Spaces) }
}

fn reserved(text: &str, words: &[&str]) -> Result<(), Error> {
    if words.iter().any(|word| word.eq_ignore_ascii_case(text)) {
        return Err(Error::Reserved(text.to_lowercase()));
    }
    Ok(())
}

/// Agent names, compared without case: words of letters and digits joined by single hyphens (wire-protocol 4.5).
#[must_use]
pub fn agent(text: &str) -> bool {
    text.len() <= 64 && words(text, &['-'])
}

/// App slugs: as [`agent`], in lower case.
#[must_use]
pub fn app_slug(text: &str) -> bool {
    agent(text) && !text.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// An e-mail address in outline: one `@` with something on both sides, no space, at most 254 characters.
#[must_use]
pub fn email(text: &str) -> bool {
    let parts = text.split_once('@');
    text.len() <= 254
        && !text.chars().any(|c| c.is_whitespace() || c.is_control())
        && parts.is_some_and(|(local, host)| !local.is_empty() && !host.is_empty() && !host.contains('@'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_users_templates_and_workspaces() {
        for good in ["a", "dev-1", "A0", &"z".repeat(32), &"a".repeat(31)] {
            assert_eq!(name(good), Ok(()), "{good}");
        }
        for bad in ["", "-a", "a-", "a--b", "a_b", "a b", "é", "new", "Create", &"a".repeat(33)] {
            assert!(name(bad).is_err(), "{bad}");
        }
        assert!(organization("Default").is_err());
    }

    /// Paths name users and organizations by id or by name, and an id is read first.
    #[test]
    fn a_name_addresses_nothing_else() {
        assert_eq!(name("5e0a1f6c9d3b47c28a1b2c3d4e5f6071"), Err(Error::Id));
        for word in ["me", "Login", "first", "roles", "logout"] {
            assert!(matches!(user(word), Err(Error::Reserved(_))), "{word}");
        }
        assert_eq!(name("me"), Ok(()), "a workspace may be called so");
    }

    #[test]
    fn template_version_names() {
        assert_eq!(template_version("v1.2_rc-3"), Ok(()));
        assert!(template_version("v1..2").is_err());
        assert!(template_version(&"a".repeat(65)).is_err());
        assert_eq!(template_version(&"a".repeat(64)), Ok(()));
    }

    #[test]
    fn key_2_and_key_3() {
        assert_eq!(provisioner_key(&"k".repeat(64)), Ok(()));
        assert_eq!(provisioner_key(&"k".repeat(65)), Err(Error::TooLong(64)));
        assert_eq!(provisioner_key(""), Err(Error::Empty));
        for reserved in ["built-in", "User-Auth", "PSK"] {
            assert!(matches!(provisioner_key(reserved), Err(Error::Reserved(_))), "{reserved}");
        }
    }

    #[test]
    fn daemon_names() {
        assert_eq!(daemon("a1"), Ok(()));
        assert_eq!(daemon(&"d".repeat(63)), Ok(()));
        for bad in ["", "a", "-ab", "ab-", "a_b", &"d".repeat(64)] {
            assert!(daemon(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn agent_names_and_app_slugs() {
        assert!(agent("Main-1") && !agent("main_1") && !agent("-main") && !agent(""));
        assert!(app_slug("code-server") && !app_slug("Code"));
    }
}

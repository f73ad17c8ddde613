//! The environment variables of a job's Terraform, which are the inputs of this provider (terraform section 2).

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

/// The variables of one job. They contain tokens and keys, so `Debug` prints only their number.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// The value of a variable; none when it is not set.
    pub(crate) fn find(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value of a variable; empty when it is not set.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.find(name).unwrap_or_default()
    }

    /// The value of a variable, or `otherwise` when it is empty or not set.
    pub(crate) fn get_or<'a>(&'a self, name: &str, otherwise: &'a str) -> &'a str {
        match self.get(name) {
            "" => otherwise,
            value => value,
        }
    }

    /// The variable whose name ends in the hash of `key`.
    pub(crate) fn find_hashed(&self, prefix: &str, key: &str) -> Option<&str> {
        self.find(&format!("{prefix}{}", sha256_hex(key)))
    }
}

impl From<BTreeMap<String, String>> for Environment {
    fn from(variables: BTreeMap<String, String>) -> Self {
        Self(variables)
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Environment({} variables)", self.0.len())
    }
}

/// The lower-case hexadecimal SHA-256 at the end of variable names.
pub(crate) fn sha256_hex(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashed_names_are_found_and_values_are_not_printed() {
        let name = format!("CODER_PARAMETER_{}", sha256_hex("region"));
        let environment: Environment = [(name.as_str(), "eu"), ("EMPTY", "")].into_iter().collect();
        assert_eq!(environment.find_hashed("CODER_PARAMETER_", "region"), Some("eu"));
        assert_eq!(environment.find_hashed("CODER_PARAMETER_", "other"), None);
        assert_eq!((environment.find("EMPTY"), environment.get_or("EMPTY", "x")), (Some(""), "x"));
        assert_eq!(format!("{environment:?}"), "Environment(2 variables)");
    }
}

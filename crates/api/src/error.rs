//! The body of every error, and of the successes that have only a message.

use serde::{Deserialize, Serialize};

use crate::json::nullable;

/// The body of every error response (http-api 1.6).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ErrorBody {
    /// What failed, for people.
    pub message: String,
    /// The cause.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Which fields of the request are wrong.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub validations: Vec<Validation>,
}

/// One field that was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Validation {
    /// The JSON name of the field, or the name of the query parameter.
    pub field: String,
    /// What is wrong with it.
    pub detail: String,
}

impl ErrorBody {
    /// A body with a message alone.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Adds a refused field.
    #[must_use]
    pub fn with_validation(mut self, field: impl Into<String>, detail: impl Into<String>) -> Self {
        self.validations.push(Validation { field: field.into(), detail: detail.into() });
        self
    }
}

/// A success without other content, such as the response to a cancel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub message: String,
}

impl Message {
    /// A success with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

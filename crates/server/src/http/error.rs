//! The error every handler returns, and the only place where it becomes a response.
//!
//! The message is for the caller. The internal cause is kept apart and reaches only the log.

use axum::response::{IntoResponse, Response};
use coder_api::error::{ErrorBody, Validation};
use coder_wire::error_chain;
use http::StatusCode;
use http::header::{self, HeaderValue};

use crate::stored_file;

/// What handlers return.
pub type Result<T> = std::result::Result<T, Error>;

/// Largest error body on routes whose clients read only the beginning of it (wire-protocol 1.7).
pub const COMPACT_BYTES: usize = 1023;

/// The texts of an error response, in the extensions of the response: `pages` renders them as HTML.
#[derive(Clone, Debug)]
pub struct ErrorText {
    /// What failed.
    pub message: String,
    /// Why, or what to do; may be empty.
    pub detail: String,
}

/// An outcome other than success.
#[derive(Debug)]
pub struct Error {
    status: StatusCode,
    body: ErrorBody,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
    compact: bool,
}

impl Error {
    /// An error with this status and message.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, body: ErrorBody::new(message), source: None, compact: false }
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 400 about one field of the request.
    pub fn invalid(field: &str, detail: impl ToString) -> Self {
        Self::bad_request("Validation failed.").field(field, detail)
    }

    /// 401.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, message)
    }

    /// 403.
    pub fn forbidden() -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden.")
    }

    /// 404. Objects that do not exist and objects that the caller may not see get the same text.
    pub fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "Resource not found or you do not have access to this resource")
    }

    /// 409.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    /// 409 for a name that is taken.
    pub fn name_taken(message: impl Into<String>) -> Self {
        Self::conflict(message).field("name", "This value is already in use and should be unique.")
    }

    /// 500; the source goes to the log only.
    pub fn internal(message: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..Self::new(StatusCode::INTERNAL_SERVER_ERROR, message) }
    }

    /// Adds an explanation.
    #[must_use]
    pub fn detail(mut self, detail: impl ToString) -> Self {
        self.body.detail = detail.to_string();
        self
    }

    /// Adds a validation error of one field.
    #[must_use]
    pub fn field(mut self, field: &str, detail: impl ToString) -> Self {
        self.body.validations.push(Validation { field: field.to_owned(), detail: detail.to_string() });
        self
    }

    /// Keeps the body under [`COMPACT_BYTES`].
    #[must_use]
    pub const fn compact(mut self) -> Self {
        self.compact = true;
        self
    }

    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// The message for the caller.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.body.message
    }

    /// Everything that the caller may read, in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let fields = self.body.validations.iter().map(|found| format!("{}: {}", found.field, found.detail));
        let detail = Some(self.body.detail.clone()).filter(|detail| !detail.is_empty());
        let parts = std::iter::once(self.body.message.trim_end_matches('.').to_owned());
        parts.chain(detail).chain(fields).collect::<Vec<_>>().join("; ")
    }

    /// The internal cause, for the log.
    #[must_use]
    pub fn cause(&self) -> String {
        self.source.as_deref().map(|source| error_chain::describe(source)).unwrap_or_default()
    }
}

impl From<stored_file::Error> for Error {
    fn from(error: stored_file::Error) -> Self {
        match error {
            stored_file::Error::Store(error) => error.into(),
            stored_file::Error::Work(_) => Self::internal("Internal error.", error),
        }
    }
}

impl From<coder_store::Error> for Error {
    fn from(error: coder_store::Error) -> Self {
        use coder_store::Error as E;
        match error {
            E::NotFound { .. } => Self::not_found(),
            E::Conflict { .. } => {
                Self { source: Some(error.into()), ..Self::conflict("Resource already exists.") }
            }
            E::Stale { .. } => Self {
                source: Some(error.into()),
                ..Self::conflict("The resource changed at the same time, try again.")
            },
            E::Unavailable { .. } => Self {
                source: Some(error.into()),
                ..Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "The database does not answer, try again in a moment.",
                )
            },
            E::DiskFull(_) => Self {
                source: Some(error.into()),
                ..Self::new(
                    StatusCode::INSUFFICIENT_STORAGE,
                    "The disk is full: nothing can be stored until an administrator makes room.",
                )
            },
            // Administrators need the name of the key. It is not secret.
            E::RowKeyMissing { .. } => {
                let detail = error.to_string();
                Self::internal("The workspace's state cannot be read.", error).detail(detail)
            }
            other => Self::internal("Internal error.", other),
        }
    }
}

/// Truncates a text to at most `limit` bytes, at the end of a character.
fn cut(text: &mut String, limit: usize) {
    text.truncate(text.floor_char_boundary(limit));
}

fn compact(body: &mut ErrorBody) {
    cut(&mut body.message, 200);
    cut(&mut body.detail, 200);
    body.validations.truncate(1);
    for validation in &mut body.validations {
        cut(&mut validation.field, 40);
        cut(&mut validation.detail, 80);
    }
    // An escaped character can take six bytes. The details are dropped then.
    if serde_json::to_vec(body).map_or(0, |bytes| bytes.len()) > COMPACT_BYTES {
        body.detail.clear();
        body.validations.clear();
        cut(&mut body.message, 120);
    }
}

impl IntoResponse for Error {
    fn into_response(mut self) -> Response {
        if let Some(source) = &self.source {
            let chain = error_chain::describe(source.as_ref());
            if self.status.is_server_error() {
                tracing::error!(
                    status = self.status.as_u16(),
                    message = self.body.message,
                    error = chain,
                    "request failed"
                );
            } else {
                tracing::debug!(
                    status = self.status.as_u16(),
                    message = self.body.message,
                    error = chain,
                    "request refused"
                );
            }
        }
        if self.compact {
            compact(&mut self.body);
        }
        let mut response = super::body::json(self.status, &self.body);
        let ErrorBody { message, detail, .. } = self.body;
        response.extensions_mut().insert(ErrorText { message, detail });
        if matches!(self.status, StatusCode::UNAUTHORIZED) {
            response.headers_mut().insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"coder\", error=\"invalid_token\""),
            );
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn body_of(error: Error) -> Vec<u8> {
        axum::body::to_bytes(error.into_response().into_body(), 1 << 20).await.unwrap().to_vec()
    }

    #[tokio::test]
    async fn compact_bodies_stay_under_their_limit() {
        for text in ["x".repeat(5000), "\u{1}".repeat(5000), "ß".repeat(5000)] {
            let error = Error::bad_request(text.clone()).detail(&text).field(&text, &text).compact();
            let body = body_of(error).await;
            assert!(body.len() <= COMPACT_BYTES, "{}", body.len());
            serde_json::from_slice::<serde_json::Value>(&body).unwrap();
        }
    }

    #[tokio::test]
    async fn inner_errors_do_not_reach_the_caller() {
        let body = body_of(Error::internal("Internal error.", std::io::Error::other("hunter2"))).await;
        assert!(!String::from_utf8(body).unwrap().contains("hunter2"));
    }
}

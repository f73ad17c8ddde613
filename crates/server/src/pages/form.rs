//! Submitted forms.

use std::collections::HashMap;

use axum::extract::Request;

use crate::http::{Error, body};

/// The fields of a submitted form; the last one of a name counts.
pub(super) struct Form(HashMap<String, String>);

impl Form {
    /// Reads a form of at most 64 KiB.
    pub(super) async fn read(request: Request) -> Result<Self, Error> {
        let bytes = body::read(request, body::PUBLIC_BYTES).await?;
        Ok(Self(url::form_urlencoded::parse(&bytes).into_owned().collect()))
    }

    /// A field, empty when absent.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

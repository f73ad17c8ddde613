//! Warnings that travel with a success, in a header that official clients print for the person (http-api 1.3).

use axum::response::{IntoResponse, Response};
use coder_api::headers::FEATURE_WARNING;
use http::HeaderValue;

/// A response, and what its caller should know about it.
#[derive(Debug)]
pub struct Warned<R>(pub R, pub Vec<&'static str>);

impl<R: IntoResponse> IntoResponse for Warned<R> {
    fn into_response(self) -> Response {
        let mut response = self.0.into_response();
        for text in self.1 {
            response.headers_mut().append(FEATURE_WARNING, HeaderValue::from_static(text));
        }
        response
    }
}

//! Warnings beside a successful response, in a header that official clients print (http-api 1.3).

use axum::response::{IntoResponse, Response};
use coder_api::headers::FEATURE_WARNING;
use http::HeaderValue;

/// A response with warnings.
#[derive(Debug)]
pub struct WithWarnings<R>(pub R, pub Vec<&'static str>);

impl<R: IntoResponse> IntoResponse for WithWarnings<R> {
    fn into_response(self) -> Response {
        let mut response = self.0.into_response();
        for text in self.1 {
            response.headers_mut().append(FEATURE_WARNING, HeaderValue::from_static(text));
        }
        response
    }
}

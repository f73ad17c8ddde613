//! JSON in and out: bounded request bodies, and responses in the form official clients read.

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use coder_api::error::Message;
use coder_wire::error_chain;
use http::StatusCode;
use http::header::{self, HeaderValue};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::Error;
use crate::memory::{self, Holder};

/// Largest JSON request; a template version's message alone may be 1 MiB.
pub const JSON_BYTES: usize = 2 << 20;
/// Largest JSON request on routes that carry a provisioner state.
pub const STATE_BYTES: usize = 16 << 20;
/// Largest JSON request without authentication.
pub const PUBLIC_BYTES: usize = 64 << 10;

/// A JSON request body of at most `LIMIT` bytes, or a JSON response.
#[derive(Debug)]
pub struct Json<T, const LIMIT: usize = JSON_BYTES>(pub T);

impl<T: DeserializeOwned, S: Sync, const LIMIT: usize> FromRequest<S> for Json<T, LIMIT> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self, Error> {
        let bytes = read(request, LIMIT).await?;
        parse(&bytes).map(Self)
    }
}

/// Reads a JSON document.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    let refuse =
        |error: serde_json::Error| Error::bad_request("Request body must be valid JSON.").detail(error);
    serde_json::from_slice(bytes).map_err(refuse)
}

/// Reads a body of at most `limit` bytes. Its memory stays reserved until the response is made. A declared length reserves
/// nothing.
pub async fn read(request: Request, limit: usize) -> Result<Bytes, Error> {
    let holder = memory::of(&request).cloned();
    let mut reserved = holder.as_ref().map(Holder::body);
    let (mut body, mut bytes) = (Frames::new(request.into_body(), limit), BytesMut::new());
    while let Some(frame) = body.next().await? {
        if let Some(reserved) = &mut reserved {
            reserved.grow(bytes.len() + frame.len()).await?;
        }
        bytes.extend_from_slice(&frame);
    }
    if let (Some(holder), Some(reserved)) = (holder, reserved) {
        holder.keep(reserved);
    }
    Ok(bytes.freeze())
}

/// A body of bounded length, frame by frame.
pub struct Frames {
    body: Limited<Body>,
    limit: usize,
}

impl Frames {
    /// A body of at most `limit` bytes.
    #[must_use]
    pub fn new(body: Body, limit: usize) -> Self {
        Self { body: Limited::new(body, limit), limit }
    }

    /// The next bytes; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(frame) = self.body.frame().await {
            match frame {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Err(error) if error.is::<LengthLimitError>() => return Err(too_large(self.limit)),
                Err(error) => return Err(broken(error.as_ref())),
            }
        }
        Ok(None)
    }
}

/// 413.
pub fn too_large(limit: usize) -> Error {
    Error::new(StatusCode::PAYLOAD_TOO_LARGE, "Request body too large.")
        .detail(format!("The limit is {limit} bytes."))
}

/// A body that ended early or stopped coming.
fn broken(error: &(dyn std::error::Error + 'static)) -> Error {
    if error_chain::causes(error).any(|cause| cause.is::<super::io_timeouts::PeerTooSlow>()) {
        return Error::new(StatusCode::REQUEST_TIMEOUT, "The request body arrives too slowly.");
    }
    Error::bad_request("The request body could not be read.")
}

pub fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(mut bytes) => {
            bytes.push(b'\n');
            let mut response = (status, bytes).into_response();
            let kind = HeaderValue::from_static("application/json; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
        Err(error) => {
            tracing::error!(%error, "a response could not be written as JSON");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

impl<T: Serialize, const LIMIT: usize> IntoResponse for Json<T, LIMIT> {
    fn into_response(self) -> Response {
        json(StatusCode::OK, &self.0)
    }
}

/// 201 with a JSON body.
#[derive(Debug)]
pub struct Created<T>(pub T);

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        json(StatusCode::CREATED, &self.0)
    }
}

/// 200 with `{message}`.
pub fn message(text: &str) -> Json<Message> {
    Json(Message::new(text))
}

/// 204.
#[derive(Debug)]
pub struct NoContent;

impl IntoResponse for NoContent {
    fn into_response(self) -> Response {
        StatusCode::NO_CONTENT.into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_json_is_400() {
        assert_eq!(parse::<u8>(b"{").unwrap_err().status(), StatusCode::BAD_REQUEST);
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_413() {
        let request = |size| Request::new(Body::from(vec![0; size]));
        let error = read(request(11), 10).await.unwrap_err();
        assert_eq!(error.status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(read(request(10), 10).await.unwrap().len(), 10);
    }
}

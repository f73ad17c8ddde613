//! Sending one call and reading its answer within limits.

use std::time::Duration;

use coder_domain::backoff::Backoff;
use http::{HeaderMap, HeaderValue, Method};
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;

use super::error::{Call, Error, ErrorResponse};
use super::{Client, secret_value};
use crate::headers;

/// Longest JSON answer; `/workspaces` returns everything there is.
const JSON_LIMIT: usize = 64 << 20;
/// Longest error body that is read; the rest is dropped.
const ERROR_LIMIT: usize = 64 << 10;
/// The longest delay before a repetition; if the server demands more, the call is not repeated.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl Client {
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, Error> {
        let (call, body) = self.repeat(path, query, HeaderMap::new()).await?;
        decode(call, &body)
    }

    /// A GET whose list is `null` when empty on some servers.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<Vec<T>, Error> {
        Ok(self.get::<Option<Vec<T>>>(path, query).await?.unwrap_or_default())
    }

    /// A GET for bytes of any kind.
    pub(super) async fn bytes(&self, path: &str) -> Result<Vec<u8>, Error> {
        Ok(self.repeat(path, &[], HeaderMap::new()).await?.1)
    }

    pub(super) async fn send<B: Serialize + Sync, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &B,
    ) -> Result<T, Error> {
        let (call, answer) =
            self.call(method, self.url(path, &[]), Some(encode(body)), HeaderMap::new()).await?;
        decode(call, &answer)
    }

    /// A call with a body whose response is ignored.
    pub(super) async fn send_without_answer<B: Serialize + Sync>(
        &self,
        method: Method,
        path: &str,
        body: &B,
    ) -> Result<(), Error> {
        self.call(method, self.url(path, &[]), Some(encode(body)), HeaderMap::new()).await.map(drop)
    }

    /// A call without a body.
    pub(super) async fn send_empty<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, Error> {
        let (call, answer) = self.call(method, self.url(path, query), None, HeaderMap::new()).await?;
        decode(call, &answer)
    }

    /// A call without a body whose response is ignored.
    pub(super) async fn command(&self, method: Method, path: &str) -> Result<(), Error> {
        self.call(method, self.url(path, &[]), None, HeaderMap::new()).await.map(drop)
    }

    /// A GET with further headers; repeated like any other.
    pub(super) async fn get_with<T: DeserializeOwned>(
        &self,
        path: &str,
        extra: HeaderMap,
    ) -> Result<T, Error> {
        let (call, body) = self.repeat(path, &[], extra).await?;
        decode(call, &body)
    }

    async fn repeat(
        &self,
        path: &str,
        query: &[(&str, &str)],
        extra: HeaderMap,
    ) -> Result<(Call, Vec<u8>), Error> {
        let mut backoff = Backoff::new(Duration::from_millis(200), LONGEST_PAUSE).with_jitter();
        let mut left = self.server.retries;
        loop {
            match self.call(Method::GET, self.url(path, query), None, extra.clone()).await {
                Err(error) if left > 0 && error.is_retryable() && error.retry_after() <= LONGEST_PAUSE => {
                    left -= 1;
                    tracing::debug!(%error, "trying again");
                    tokio::time::sleep(backoff.next_delay().max(error.retry_after())).await;
                }
                result => return result,
            }
        }
    }

    async fn call(
        &self,
        method: Method,
        url: Url,
        body: Option<Vec<u8>>,
        extra: HeaderMap,
    ) -> Result<(Call, Vec<u8>), Error> {
        let call = Call::new(method.clone(), &url);
        let mut request = self.server.http.request(method, url).headers(extra);
        if let Some(body) = body {
            let json = HeaderValue::from_static("application/json");
            request = request.header(http::header::CONTENT_TYPE, json).body(body);
        }
        let limit = self.server.timeouts.request;
        let response = self.execute(&call, request.timeout(limit), limit).await?;
        let body = read(&call, response, JSON_LIMIT, limit).await?;
        Ok((call, body))
    }

    /// Sends a request with the session and turns error statuses into errors.
    pub(super) async fn execute(
        &self,
        call: &Call,
        mut request: reqwest::RequestBuilder,
        limit: Duration,
    ) -> Result<reqwest::Response, Error> {
        if let Some(token) = &self.token {
            request = request
                .header(headers::SESSION_TOKEN, secret_value(token).map_err(|()| Error::InvalidToken)?);
        }
        let response = request.send().await.map_err(|error| failed(call, error, limit))?;
        self.record_headers(response.headers());
        if response.status().is_success() {
            return Ok(response);
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read_start(response, ERROR_LIMIT).await;
        Err(Error::Status(Box::new(ErrorResponse::read(call.clone(), status, &headers, &body))))
    }
}

pub(super) fn failed(call: &Call, error: reqwest::Error, limit: Duration) -> Error {
    if error.is_timeout() {
        return call.timeout(limit, if error.is_connect() { "connecting" } else { "waiting for the answer" });
    }
    call.transport(error.without_url())
}

fn encode<B: Serialize>(body: &B) -> Vec<u8> {
    serde_json::to_vec(body).expect("request types have string keys and infallible members")
}

pub(super) fn decode<T: DeserializeOwned>(at: Call, body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|source| Error::Decode { at, source })
}

pub(super) async fn read(
    call: &Call,
    mut response: reqwest::Response,
    limit: usize,
    time: Duration,
) -> Result<Vec<u8>, Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failed(call, error, time))? {
        if body.len() + chunk.len() > limit {
            return Err(Error::TooLarge { at: call.clone(), limit });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The beginning of a body. A connection that breaks meanwhile does not hide the status that came with it.
async fn read_start(mut response: reqwest::Response, limit: usize) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = limit - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if body.len() == limit {
            break;
        }
    }
    body
}

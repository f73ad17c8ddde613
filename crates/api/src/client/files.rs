//! Uploading and downloading archives without holding them in memory twice.

use bytes::Bytes;
use coder_domain::ids::FileId;
use http::{HeaderValue, Method};

use super::error::Call;
use super::request::{decode, failed, read};
use super::{Client, Error};
use crate::files::UploadResponse;
use crate::paths;

/// Longest answer to an upload.
const ANSWER_LIMIT: usize = 64 << 10;

/// A file that is arriving.
pub struct Download {
    /// The media type without parameters.
    pub content_type: String,
    /// The length in bytes that the server claims, if any.
    pub length: Option<u64>,
    call: Call,
    response: reqwest::Response,
    silence: std::time::Duration,
}

impl Client {
    /// Uploads an archive of type [`crate::files::TAR`] or [`crate::files::ZIP`].
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn upload(&self, content_type: &'static str, body: Bytes) -> Result<FileId, Error> {
        self.upload_body(content_type, body.into()).await
    }

    /// Uploads an archive as it is produced; an error of the stream fails the upload.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn upload_stream<S>(&self, content_type: &'static str, body: S) -> Result<FileId, Error>
    where
        S: futures_util::Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    {
        self.upload_body(content_type, reqwest::Body::wrap_stream(body)).await
    }

    async fn upload_body(&self, content_type: &'static str, body: reqwest::Body) -> Result<FileId, Error> {
        let url = self.url(paths::FILES, &[]);
        let call = Call::new(Method::POST, &url);
        let limit = self.server.timeouts.transfer;
        let request = self.server.http.post(url).timeout(limit).body(body);
        let request = request.header(http::header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        let response = self.execute(&call, request, limit).await?;
        let answer = read(&call, response, ANSWER_LIMIT, limit).await?;
        decode::<UploadResponse>(call, &answer).map(|answer| answer.id)
    }

    /// Starts a download; with `zip` a tar archive is converted.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn download(&self, file: FileId, zip: bool) -> Result<Download, Error> {
        let url = self.url(&paths::file(file), &[("format", if zip { "zip" } else { "" })]);
        let call = Call::new(Method::GET, &url);
        let silence = self.server.timeouts.transfer;
        let answer = self.execute(&call, self.server.http.get(url), silence);
        let response = tokio::time::timeout(silence, answer);
        let response = response.await.map_err(|_| call.timeout(silence, "waiting for the answer"))??;
        let kind = response.headers().get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim().to_owned();
        let length = response.content_length();
        Ok(Download { content_type, length, call, response, silence })
    }
}

impl std::fmt::Debug for Download {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Download").field("length", &self.length).finish_non_exhaustive()
    }
}

impl Download {
    /// The next piece, or `None` at the end.
    ///
    /// # Errors
    /// The connection broke or was silent for too long.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let chunk = tokio::time::timeout(self.silence, self.response.chunk());
        let chunk = chunk.await.map_err(|_| self.call.timeout(self.silence, "downloading"))?;
        chunk.map_err(|error| failed(&self.call, error, self.silence))
    }

    /// Everything, if it is at most `limit` bytes.
    ///
    /// # Errors
    /// As [`Self::chunk`], and [`Error::TooLarge`].
    pub async fn bytes(mut self, limit: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if bytes.len() + chunk.len() > limit {
                return Err(Error::TooLarge { at: self.call, limit });
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }
}

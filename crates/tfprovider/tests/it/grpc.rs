//! Responses to peers that are not Terraform.

use std::time::Duration;

use bytes::Bytes;
use coder_tfprovider::{Environment, ProviderListener, ProviderServer};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

fn listening() -> (TempDir, ProviderListener) {
    let folder = tempfile::tempdir().unwrap();
    let listening =
        ProviderServer::new().listen(folder.path(), folder.path(), Environment::default()).unwrap();
    (folder, listening)
}

/// Makes a call on a separate connection. Returns its status and the bytes of the response.
async fn call(listening: &ProviderListener, path: &str, body: impl Into<Bytes>) -> (String, Bytes) {
    let stream = UnixStream::connect(listening.socket()).await.unwrap();
    let answer = tokio::time::timeout(DEADLINE, call_on(stream, path, body.into()));
    answer.await.unwrap().expect("a connection")
}

/// Makes a call and waits for its end; none when the connection ends first.
pub(crate) async fn call_on<S>(stream: S, path: &str, body: Bytes) -> Option<(String, Bytes)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.ok()?;
    let connection = tokio::spawn(connection);
    let request = Request::post(format!("http://provider{path}"))
        .header("content-type", "application/grpc")
        .body(Full::new(body))
        .unwrap();
    let response = sender.send_request(request).await.ok()?;
    let headers = response.headers().clone();
    let body = response.into_body().collect().await.ok()?;
    connection.abort();
    let trailers: HeaderMap = body.trailers().cloned().unwrap_or_default();
    let status = trailers.get("grpc-status").or(headers.get("grpc-status"))?.to_str().unwrap().to_owned();
    Some((status, body.to_bytes()))
}

pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let mut framed = vec![0];
    framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    framed.extend(message);
    framed
}

/// A message of one type name, field 1.
fn named(name: &str) -> Vec<u8> {
    let mut message = vec![0x0a, u8::try_from(name.len()).unwrap()];
    message.extend(name.as_bytes());
    framed(&message)
}

#[tokio::test]
async fn malformed_calls_are_refused() {
    let (_folder, listening) = listening();
    let read = "/tfplugin5.Provider/ReadResource";
    let mut too_short = named("coder_agent");
    too_short.pop();
    let mut compressed = named("coder_agent");
    compressed[0] = 1;
    for (path, body, status) in [
        ("/tfplugin5.Provider/Dance", framed(&[]), "12"),
        ("/", framed(&[]), "12"),
        (read, Vec::new(), "3"),
        (read, vec![0, 0, 0], "3"),
        (read, too_short, "3"),
        (read, compressed, "3"),
        (read, framed(&[0xff; 16]), "3"),
        (read, named("coder_nothing"), "3"),
        (read, framed(b"\x0a\x0bcoder_agent\x12\x03\x0a\x01\xc1"), "3"),
        (read, named("coder_agent"), "0"),
    ] {
        assert_eq!(call(&listening, path, body.clone()).await.0, status, "{path} {body:x?}");
    }
}

#[tokio::test]
async fn messages_have_a_largest_size() {
    let (_folder, listening) = listening();
    let body = framed(&vec![0; 33 << 20]);
    let (status, _) = call(&listening, "/tfplugin5.Provider/ReadResource", body).await;
    assert_eq!(status, "8");
}

#[tokio::test]
async fn a_request_to_shut_down_ends_nothing() {
    let (_folder, listening) = listening();
    assert_eq!(call(&listening, "/plugin.GRPCController/Shutdown", framed(&[])).await.0, "0");
    assert_eq!(call(&listening, "/tfplugin5.Provider/Stop", framed(&[])).await.0, "0");
    let (status, schema) = call(&listening, "/tfplugin5.Provider/GetSchema", framed(&[])).await;
    assert_eq!(status, "0");
    assert!(schema.len() > 5_000);
    let (_, health) = call(&listening, "/grpc.health.v1.Health/Check", framed(&[])).await;
    assert_eq!(health.as_ref(), framed(&[0x08, 0x01]));
}

/// A connection that was idle for long is opened again by the peer, which does not configure it again.
#[tokio::test]
async fn a_new_connection_knows_the_address_of_the_last_configuration() {
    let (_folder, listening) = listening();
    let read = framed(b"\x0a\x0fcoder_workspace\x12\x03\x0a\x01\x80");
    let has = |body: &Bytes, text: &str| body.windows(text.len()).any(|part| part == text.as_bytes());
    let (status, before) = call(&listening, "/tfplugin5.Provider/ReadDataSource", read.clone()).await;
    assert!(status == "0" && has(&before, "https://mydeployment.coder.com"));
    let config = framed(b"\x12\x15\x0a\x13\x81\xa3url\xadhttps://there");
    assert_eq!(call(&listening, "/tfplugin5.Provider/Configure", config).await.0, "0");
    let (_, after) = call(&listening, "/tfplugin5.Provider/ReadDataSource", read).await;
    assert!(has(&after, "https://there"));
}

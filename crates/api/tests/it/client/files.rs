//! Uploads and downloads.

use std::time::Duration;

use coder_api::client::{Client, Error, Options, Timeouts};
use coder_api::files::TAR;
use coder_domain::ids::FileId;
use hyper::body::Bytes;
use tokio::io::AsyncWriteExt as _;

use super::server::{Server, head, json};
use super::{client, options};

const FILE: &str = "00000000-0000-4000-8000-000000000007";

#[tokio::test]
async fn uploads_in_one_piece_and_in_many() {
    let server = Server::http(|_, before| {
        json(if before == 0 { 201 } else { 200 }, &format!(r#"{{"hash":"{FILE}"}}"#))
    })
    .await;
    let client = client(&server.url());
    let file: FileId = FILE.parse().unwrap();
    assert_eq!(client.upload(TAR, Bytes::from_static(b"whole")).await.unwrap(), file);
    let pieces = ["in ", "pieces"].map(|piece| Ok(Bytes::from_static(piece.as_bytes())));
    assert_eq!(client.upload_stream(TAR, futures_util::stream::iter(pieces)).await.unwrap(), file);
    let seen = server.seen();
    assert_eq!((&seen[0].body[..], seen[0].header("content-length")), (&b"whole"[..], Some("5")));
    assert_eq!(
        (&seen[1].body[..], seen[1].header("transfer-encoding")),
        (&b"in pieces"[..], Some("chunked"))
    );
    assert!(seen.iter().all(|seen| seen.header("content-type") == Some("application/x-tar")));
}

#[tokio::test]
async fn a_source_that_fails_fails_the_upload() {
    let server = Server::http(|_, _| json(201, "{}")).await;
    let pieces = vec![Ok(Bytes::from_static(b"a")), Err(std::io::Error::other("disk gone"))];
    let error =
        client(&server.url()).upload_stream(TAR, futures_util::stream::iter(pieces)).await.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error:?}");
}

#[tokio::test]
async fn downloads_know_their_type_and_stop_at_a_limit() {
    let server = Server::http(|_, _| {
        let mut answer = json(200, "archive");
        answer.headers_mut().insert("content-type", "application/x-tar; charset=x".parse().unwrap());
        answer
    })
    .await;
    let client = client(&server.url());
    let download = client.download(FILE.parse().unwrap(), false).await.unwrap();
    assert_eq!((download.content_type.as_str(), download.length), (TAR, Some(7)));
    assert_eq!(download.bytes(7).await.unwrap(), b"archive");
    let download = client.download(FILE.parse().unwrap(), true).await.unwrap();
    assert!(matches!(download.bytes(6).await, Err(Error::TooLarge { limit: 6, .. })));
    assert_eq!(server.seen()[1].line, format!("GET /api/v2/files/{FILE}?format=zip"));
}

#[tokio::test]
async fn a_download_that_stalls_ends() {
    let server = Server::raw(|mut stream, _| async move {
        head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nab").await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    let timeouts = Timeouts { transfer: Duration::from_millis(50), ..Timeouts::default() };
    let client = Client::new(&server.url(), None, Options { timeouts, ..options() }).unwrap();
    let download = client.download(FILE.parse().unwrap(), false).await.unwrap();
    assert!(matches!(download.bytes(1000).await, Err(Error::Timeout { .. })));
}

//! Logs of jobs: whole, in pieces, and followed (http-api 10.1).

use futures_util::StreamExt as _;
use tokio::net::TcpStream;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::*;
use crate::harness::settings;

/// The lines that a follower gets until its connection ends, with the code and reason of the end.
async fn follow(address: std::net::SocketAddr, token: &str, path: &str) -> (Vec<String>, u16, String) {
    let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
    request.headers_mut().insert("coder-session-token", token.parse().unwrap());
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut socket, _) = client_async(request, stream).await.unwrap();
    let mut lines = Vec::new();
    loop {
        match tokio::time::timeout(WAIT_LIMIT, socket.next()).await.unwrap().unwrap().unwrap() {
            Message::Text(text) => {
                let line: Value = serde_json::from_str(text.strip_suffix('\n').unwrap()).unwrap();
                lines.push(line["output"].as_str().unwrap().to_owned());
            }
            Message::Close(Some(end)) => return (lines, end.code.into(), end.reason.to_string()),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_follower_gets_each_line_once_until_the_job_ends() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let (version, posted) = import(&server, &owner, json!({})).await;
    let (app, address, stop) = server.listening_app(settings()).await;
    let beside = server.beside_app(app);
    let daemon = Daemon::untagged(&beside, "d").await;
    daemon.take(posted).await;
    daemon.update(posted, 2).await.unwrap();
    let path = format!("/api/v2/templateversions/{version}/logs");
    let stored = server.get(&owner, &path).await.expect(200);
    let texts: Vec<_> =
        stored.as_array().unwrap().iter().map(|line| line["output"].as_str().unwrap().to_owned()).collect();
    assert_eq!(&texts[texts.len() - 2..], ["line 0", "line 1"]);
    let last_but_one = stored[texts.len() - 2]["id"].as_i64().unwrap();
    let following = tokio::spawn({
        let (owner, path) = (owner.clone(), format!("{path}?follow&after={last_but_one}"));
        async move { follow(address, &owner, &path).await }
    });
    daemon.update(posted, 1).await.unwrap();
    daemon.fail(posted, "no").await.unwrap();
    let (lines, code, reason) = following.await.unwrap();
    assert_eq!(&lines[..2], ["line 1", "line 0"]);
    assert_eq!((code, &*reason), (1000, "done"));
    let after = server.get(&owner, &format!("{path}?after={last_but_one}")).await.expect(200);
    let after: Vec<_> =
        after.as_array().unwrap().iter().map(|line| line["output"].as_str().unwrap().to_owned()).collect();
    assert_eq!(after, lines, "each line once, in the order of the whole log");
    assert_eq!(
        follow(address, &owner, &format!("{path}?follow")).await.0,
        [texts[..texts.len() - 1].to_vec(), lines].concat()
    );
    stop.cancel();
}

#[tokio::test]
async fn a_log_of_several_pages_is_one_array() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let (version, posted) = import(&server, &owner, json!({})).await;
    let daemon = Daemon::untagged(&server, "d").await;
    daemon.take(posted).await;
    daemon.update(posted, 2500).await.unwrap();
    let path = format!("/api/v2/templateversions/{version}/logs");
    for (more, want) in [("", 2500), ("?after=0", 2500)] {
        let answer = server.get(&owner, &format!("{path}{more}")).await;
        assert_eq!(answer.headers["content-type"], "application/json; charset=utf-8");
        let lines = answer.expect(200);
        let outputs: Vec<_> = lines.as_array().unwrap().iter().map(|line| line["output"].clone()).collect();
        let wanted: Vec<_> = (0..want).map(|at| json!(format!("line {at}"))).collect();
        assert!(outputs.ends_with(&wanted) && outputs.len() < want + 10, "{}", outputs.len());
    }
    let all = server.get(&owner, &path).await.expect(200);
    let all = all.as_array().unwrap();
    for left in [0, 1, 1000, 1001] {
        let after = all[all.len() - left - 1]["id"].as_i64().unwrap();
        let rest = server.get(&owner, &format!("{path}?after={after}")).await.expect(200);
        assert!(rest.as_array().unwrap()[..] == all[all.len() - left..], "{left}");
    }
}

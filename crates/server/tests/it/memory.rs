//! Memory budgets: what requests and daemons can make the server reserve, and that it is released.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use coder_server::tasks::driver::Task as _;
use coder_server::tasks::purge_files::PurgeFiles;
use coder_store::{files, jobs};
use coder_testkit::wait::{WAIT_LIMIT, eventually, settled};
use futures_util::StreamExt as _;
use http::Request;
use serde_json::{Value, json};

use crate::harness::{TestServer, on_both_engines, settings, tar};

const MIB: usize = 1 << 20;
const TOKENS: &str = "/api/v2/users/me/keys/tokens";

/// A request with a body that never ends.
fn held(token: &str, path: &str, kind: &str, size: usize) -> Request<Body> {
    let pieces = (0..size / 65_536).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 65_536])));
    let body = futures_util::stream::iter(pieces).chain(futures_util::stream::pending());
    let request = Request::post(path).header("Coder-Session-Token", token).header("content-type", kind);
    request.body(Body::from_stream(body)).unwrap()
}

#[tokio::test]
async fn held_bodies_are_bounded_and_in_nobodys_way() {
    let server = std::sync::Arc::new(TestServer::sqlite().await);
    let owner = server.owner().await;
    let member = server.user(&owner, "dev", &[]).await;
    let mut requests = tokio::task::JoinSet::new();
    for number in 0..200 {
        let request = if number % 2 == 0 {
            held(&member, TOKENS, "application/json", MIB)
        } else {
            held(&member, "/api/v2/files", "application/x-tar", MIB)
        };
        let server = std::sync::Arc::clone(&server);
        requests.spawn(async move { server.send(request).await.status });
    }
    settled(|| server.app.memory.used()).await;
    let (peak, _) = server.app.memory.take_peaks();
    // A holder has at most half of the free memory. One request may exceed this.
    assert!(peak <= 80 * MIB, "{peak}");
    // Small requests of the same member and large requests of other members do not wait.
    let made = server.post(&member, TOKENS, json!({ "lifetime": 3_600_000_000_000_i64 }));
    tokio::time::timeout(WAIT_LIMIT, made).await.unwrap().expect(201);
    let large = json!({ "lifetime": 3_600_000_000_000_i64, "token_name": "x".repeat(MIB) });
    let refused = tokio::time::timeout(WAIT_LIMIT, server.post(&owner, TOKENS, large)).await.unwrap();
    assert_eq!(refused.status, 400, "the body was read: the name is too long");
    requests.shutdown().await;
    eventually("everything is released", || server.app.memory.used() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn request_that_waits_too_long_for_memory_gets_503() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let mut reservation = server.app.memory.holder(7).memory().reserve();
    reservation.grow(48 * MIB).await;
    let mut rest = server.app.memory.holder(8).memory().reserve();
    while rest.try_grow(rest.amount() + MIB) {}
    let mut more = server.app.memory.holder(9).memory().reserve();
    more.grow(90 * MIB).await;
    let large = json!({ "token_name": "x".repeat(MIB) });
    let refused = server.post(&owner, TOKENS, large).await.expect(503);
    assert!(refused["detail"].as_str().unwrap().contains("Try again"), "{refused}");
    drop((reservation, rest, more));
    eventually("everything is released", || server.app.memory.used() == 0).await;
}

on_both_engines! {
    async fn a_long_file_comes_back_as_it_was(server: TestServer) {
        let owner = server.owner().await;
        let content: String = (0..1_000_000_u32).map(|number| char::from(b'a' + (number % 23) as u8)).collect();
        let archive = tar(&[("main.tf", "resource {}"), ("large.txt", &content)]);
        assert!(archive.len() > 3 * files::PART_BYTES);
        let uploaded = server.upload(&owner, "application/x-tar", archive.clone()).await.expect(201);
        let id = uploaded["hash"].as_str().unwrap();
        assert_eq!(server.upload(&owner, "application/x-tar", archive.clone()).await.expect(200)["hash"], *id);
        let path = format!("/api/v2/files/{id}");
        let down = server.get(&owner, &path).await;
        assert_eq!(down.headers["content-length"], archive.len().to_string().as_str());
        assert!(down.body == archive);
        // Converted to a zip and back, the archive has the same content.
        let zipped = server.get(&owner, &format!("{path}?format=zip")).await;
        let again = server.upload(&owner, "application/zip", zipped.body).await.expect(201);
        let down = server.get(&owner, &format!("/api/v2/files/{}", again["hash"].as_str().unwrap())).await;
        let mut archive = tar::Archive::new(down.body.as_slice());
        let names: Vec<_> = archive.entries().unwrap().map(|entry| entry.unwrap().size()).collect();
        assert_eq!(names, [11, 1_000_000]);
        // Its workspace tags are found in it.
        let request = json!({ "file_id": id, "storage_method": "file", "provisioner": "terraform" });
        server.post(&owner, "/api/v2/organizations/default/templateversions", request).await.expect(201);
        eventually("everything is released", || server.app.memory.used() == 0).await;
    }

    async fn files_that_nothing_uses_are_removed_after_a_day(server: TestServer) {
        let owner = server.owner().await;
        let upload = async |owner: &str, content: &str| -> coder_domain::ids::FileId {
            let answer = server.upload(owner, "application/x-tar", tar(&[("main.tf", content)])).await;
            answer.json()["hash"].as_str().unwrap().parse().unwrap()
        };
        let make = async |owner: &str, file| {
            let request = json!({ "file_id": file, "storage_method": "file", "provisioner": "terraform" });
            server.post(owner, "/api/v2/organizations/default/templateversions", request).await
        };
        let used = upload(&owner, "# used").await;
        let (unused, again) = (upload(&owner, "# unused").await, upload(&owner, "# again").await);
        let version = make(&owner, used).await.expect(201);
        let purge = async || PurgeFiles::default().run(&server.app).await.unwrap();
        let is_there = async |file| {
            files::find(&mut server.app.store.reader().await.unwrap(), file).await.unwrap().is_some()
        };
        server.advance(24 * 3600);
        purge().await;
        assert!(is_there(unused).await, "a day has not passed yet");
        // A file that is uploaded again counts from the new upload on.
        let owner = server.login("admin@example.com").await;
        assert_eq!(upload(&owner, "# again").await, again);
        server.advance(1);
        purge().await;
        purge().await;
        assert_eq!((is_there(used).await, is_there(unused).await, is_there(again).await), (true, false, true));
        assert_eq!(make(&owner, unused).await.refused(404), "file_id");
        make(&owner, again).await.expect(201);
        server.advance(48 * 3600);
        purge().await;
        assert!(is_there(again).await && is_there(used).await);
        let job = version["job"]["id"].as_str().unwrap().parse().unwrap();
        jobs::get(&mut server.app.store.reader().await.unwrap(), job).await.unwrap();
    }
}

#[tokio::test]
async fn files_that_nothing_uses_have_a_quota() {
    let mut config = settings();
    config.limits.unused_upload_bytes = 10_000;
    let server = TestServer::sqlite_with(config).await;
    let owner = server.owner().await;
    let member = server.user(&owner, "dev", &[]).await;
    let upload = async |token: &str, byte: u8| {
        server.upload(token, "application/x-tar", vec![byte; 4096]).await.status.as_u16()
    };
    assert_eq!((upload(&member, 1).await, upload(&member, 2).await), (201, 201));
    assert_eq!(upload(&member, 3).await, 403);
    assert_eq!(upload(&owner, 3).await, 201, "each user has a separate quota");
    let refused = server.upload(&member, "application/x-tar", vec![4; 4096]).await.expect(403);
    assert!(refused["detail"].as_str().unwrap().contains("8192 bytes"), "{refused}");
    // Used or removed files do not count any more.
    server.advance(25 * 3600);
    PurgeFiles::default().run(&server.app).await.unwrap();
    let member = server.login("dev@example.com").await;
    assert_eq!(upload(&member, 3).await, 201);
}

#[tokio::test]
async fn a_long_log_is_one_array() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let (version, job) = server.version(&owner, json!({})).await;
    append_lines(&server, job, 1000).await;
    let path = format!("/api/v2/templateversions/{version}/logs");
    let all = server.get(&owner, &path).await.expect(200);
    let all = all.as_array().unwrap();
    assert_eq!(all.len(), 1000);
    for (number, line) in all.iter().enumerate() {
        assert_eq!(line["id"].as_u64().unwrap() as usize, number + 1);
        assert!(line["output"].as_str().unwrap().starts_with(&format!("{number} ")));
    }
    let rest = server.get(&owner, &format!("{path}?after=998")).await.expect(200);
    assert_eq!(rest.as_array().unwrap().len(), 2);
    assert_eq!(server.get(&owner, &format!("{path}?after=1000")).await.expect(200), Value::Array(Vec::new()));
    tokio::time::timeout(Duration::from_secs(20), async {
        eventually("everything is released", || server.app.memory.used() == 0).await;
    })
    .await
    .unwrap();
}

/// Appends lines of 1,000 bytes, which have 3,500 bytes in JSON.
async fn append_lines(server: &TestServer, job: coder_domain::ids::JobId, count: usize) {
    let line = |number: usize| jobs_line(server.app.now(), format!("{number} {}", "\u{1}x".repeat(500)));
    let lines: Vec<_> = (0..count).map(line).collect();
    let mut tx = server.app.store.begin().await.unwrap();
    for batch in lines.chunks(100) {
        jobs::logs::append_system(&mut tx, job, batch).await.unwrap();
    }
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn pages_of_followers_that_do_not_read_are_counted() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let (version, job) = server.version(&owner, json!({})).await;
    append_lines(&server, job, 4000).await;
    let (app, address, stop) = server.listening_app(settings()).await;
    let path = format!("/api/v2/templateversions/{version}/logs?follow");
    let mut followers = Vec::new();
    for _ in 0..3 {
        let (status, follower) = crate::limits::open_websocket(address, &owner, &path).await;
        assert!(status.contains(" 101 "), "{status}");
        followers.push(follower);
    }
    eventually("their pages are reserved", || app.memory.used() > 600 << 10).await;
    assert!(settled(|| app.memory.used()).await <= 3 << 19);
    drop(followers);
    eventually("everything is released", || app.memory.used() == 0).await;
    stop.cancel();
}

fn jobs_line(now: coder_domain::Timestamp, output: String) -> jobs::logs::NewLine {
    use coder_store::jobs::logs::{Level, NewLine, Source};
    let stage = "Plan".to_owned();
    NewLine { created_at: now, source: Source::Provisioner, level: Level::Info, stage, output }
}

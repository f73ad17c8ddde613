//! Calls between our own two ends, and captured requests replayed against our server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use coder_wire::daemon::{Client, Error, Limits, rpc, serve_stream};
use coder_wire::drpc::client::Call;
use coder_wire::drpc::frame::{self, Kind, Packet};
use coder_wire::drpc::{self, MAX_MESSAGE_SIZE, Status};
use coder_wire::messages::provisioner::DataUploadType;
use coder_wire::messages::provisionerd::{
    AcquiredJob, CommitQuotaRequest, CompletedJob, Empty, FailedJob, UpdateJobRequest,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::harness::{JOB, Script, content, in_memory};

const WAIT_LIMIT: Duration = Duration::from_secs(20);

fn update(job_id: &str, readme: usize) -> UpdateJobRequest {
    UpdateJobRequest {
        job_id: job_id.to_owned(),
        readme: vec![1; readme].into(),
        ..UpdateJobRequest::default()
    }
}

/// Writes bytes to our server, ends our side, and returns the packets of the answer.
async fn answer(script: &Arc<Script>, request: &[u8], end: bool) -> Vec<Packet> {
    let (mut near, far) = tokio::io::duplex(16 << 20);
    let serving = tokio::spawn(serve_stream(Box::new(far), Arc::clone(script), Limits::default()));
    near.write_all(request).await.unwrap();
    if end {
        near.shutdown().await.unwrap();
    }
    let mut bytes = Vec::new();
    timeout(WAIT_LIMIT, near.read_to_end(&mut bytes)).await.unwrap().unwrap();
    timeout(WAIT_LIMIT, serving).await.unwrap().unwrap();
    let (packets, end) = frame::parse(&bytes);
    assert_eq!(end, Ok(()));
    packets
}

/// Like [`answer`], but keeps our side open until as many packets came as are expected.
async fn answer_of(script: &Arc<Script>, request: &[u8], count: usize) -> Vec<Packet> {
    let (mut near, far) = tokio::io::duplex(16 << 20);
    let serving = tokio::spawn(serve_stream(Box::new(far), Arc::clone(script), Limits::default()));
    near.write_all(request).await.unwrap();
    let mut bytes = Vec::new();
    while frame::parse(&bytes).0.len() < count {
        let read = timeout(WAIT_LIMIT, near.read_buf(&mut bytes)).await.unwrap().unwrap();
        assert!(read > 0, "{:?}", frame::parse(&bytes));
    }
    drop(near);
    timeout(WAIT_LIMIT, serving).await.unwrap().unwrap();
    frame::parse(&bytes).0
}

fn captured(name: &str, direction: char) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/vectors/{name}.hex"));
    let text = std::fs::read_to_string(path).unwrap();
    let groups = text.lines().filter_map(|line| line.strip_prefix(direction)).flat_map(str::split_whitespace);
    let group = |group: &str| match group.split_once('*') {
        Some((byte, count)) => hex::decode(byte).unwrap().repeat(count.parse().unwrap()),
        None => hex::decode(group).unwrap(),
    };
    groups.flat_map(group).collect()
}

/// Kind and ids of packets, without the Close of a caller.
fn shape(packets: &[Packet]) -> Vec<(Kind, u64, u64)> {
    packets.iter().map(|packet| (packet.kind, packet.stream, packet.message)).collect()
}

#[tokio::test]
async fn captured_requests_get_answers_of_the_captured_shape() {
    for (name, deliver) in [
        ("drpc-unary-heartbeat", None),
        ("drpc-unary-commit-quota", None),
        ("drpc-unary-metadata", None),
        ("drpc-unary-split", None),
        ("drpc-unknown-rpc", None),
        ("drpc-two-calls-one-conn", None),
        ("drpc-acquire-canceled", None),
        ("drpc-acquire-delivered", Some(Duration::ZERO)),
        ("drpc-upload-file", None),
    ] {
        let script = Script::new(deliver);
        let request = captured(name, '>');
        let expected = shape(&frame::parse(&captured(name, '<')).0);
        assert_eq!(shape(&answer_of(&script, &request, expected.len()).await), expected, "{name}");
    }
}

#[tokio::test]
async fn an_acquire_ends_with_close_and_not_with_close_send() {
    let packets =
        answer_of(&Script::new(Some(Duration::ZERO)), &captured("drpc-acquire-delivered", '>'), 2).await;
    assert_eq!(shape(&packets), [(Kind::MESSAGE, 1, 1), (Kind::CLOSE, 1, 2)]);
    let packets = answer_of(&Script::new(None), &captured("drpc-acquire-canceled", '>'), 2).await;
    assert_eq!(shape(&packets), [(Kind::MESSAGE, 1, 1), (Kind::CLOSE, 1, 2)]);
    assert!(packets[0].data.is_empty());
}

#[tokio::test]
async fn soft_cancel_and_close_break_an_acquire() {
    for name in ["drpc-soft-cancel", "drpc-stream-client-close", "drpc-stream-context-cancel"] {
        let script = Script::new(None);
        answer(&script, &captured(name, '>'), true).await;
        script.noted("broken").await;
    }
}

#[tokio::test]
async fn our_requests_are_the_captured_bytes() {
    let written = |request: UpdateJobRequest| async move {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut call = Call::new(near, rpc::UPDATE_JOB);
        call.send(&request).await.unwrap();
        call.close_send().await.unwrap();
        drop(call);
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).await.unwrap();
        bytes
    };
    let job_id = "0c8f4d7e-52b1-4b8a-9d65-7f3e1a2b4c6d".to_owned();
    for (name, readme) in [("drpc-unary-heartbeat", &b""[..]), ("drpc-unary-split", &[b'r'; 140_000])] {
        let readme = readme.to_vec().into();
        let bytes =
            written(UpdateJobRequest { job_id: job_id.clone(), readme, ..UpdateJobRequest::default() }).await;
        let mut expected = captured(name, '>');
        // The Close after the answer.
        expected.truncate(expected.len() - 4);
        assert!(bytes == expected, "{name}");
    }
}

#[tokio::test]
async fn the_old_acquire_is_unary() {
    let mut request = Vec::new();
    frame::encode(&mut request, Kind::INVOKE, false, (1, 1), rpc::ACQUIRE_JOB.as_bytes());
    frame::encode(&mut request, Kind::MESSAGE, false, (1, 2), b"");
    frame::encode(&mut request, Kind::CLOSE_SEND, false, (1, 3), b"");
    let packets = answer_of(&Script::new(Some(Duration::ZERO)), &request, 2).await;
    assert_eq!(shape(&packets), [(Kind::MESSAGE, 1, 1), (Kind::CLOSE_SEND, 1, 2)]);
}

#[tokio::test(start_paused = true)]
async fn the_old_acquire_ends_after_5_s() {
    let script = Script::new(None);
    let (session, _serving) = in_memory(&script);
    let start = tokio::time::Instant::now();
    let stream = session.open().await.unwrap();
    let job: AcquiredJob = drpc::client::unary(stream, rpc::ACQUIRE_JOB, &Empty {}).await.unwrap();
    assert_eq!((job.job_id.as_str(), start.elapsed().as_secs()), ("", 5));
}

#[tokio::test]
async fn every_call_goes_through() {
    let script = Script::new(Some(Duration::ZERO));
    let (session, serving) = in_memory(&script);
    let client = Client::new(session);
    assert_eq!(client.acquire(std::future::pending()).await.unwrap().unwrap().job_id, JOB);
    client.update_job(&update("job", 3)).await.unwrap();
    let quota = CommitQuotaRequest { daily_cost: 5, ..CommitQuotaRequest::default() };
    assert_eq!(client.commit_quota(&quota).await.unwrap().credits_consumed, 5);
    client.fail_job(&FailedJob { job_id: "a".to_owned(), ..FailedJob::default() }).await.unwrap();
    script.noted("failed a").await;
    client.complete_job(&CompletedJob { job_id: "b".to_owned(), ..CompletedJob::default() }).await.unwrap();
    script.noted("completed b").await;
    let kind = DataUploadType::UploadTypeModuleFiles;
    client.upload_file(kind, content(3_000_000)).await.unwrap();
    script.noted("uploaded 3000000").await;
    assert_eq!(client.download_file("3000000", kind).await.unwrap(), content(3_000_000));
    assert!(client.download_file("nothing", kind).await.unwrap_err().to_string().contains("no such file"));
    client.session().close().await;
    serving.await.unwrap();
}

#[tokio::test]
async fn an_acquire_that_is_canceled_ends_without_a_job() {
    let script = Script::new(None);
    let (session, _serving) = in_memory(&script);
    let client = Client::new(session);
    let acquired = timeout(WAIT_LIMIT, client.acquire(script.noted("acquire"))).await.unwrap();
    assert_eq!(acquired.unwrap(), None);
    assert!(script.has_noted("canceled"));
}

#[tokio::test]
async fn an_acquire_that_loses_its_connection_is_broken() {
    let script = Script::new(None);
    let (session, serving) = in_memory(&script);
    let client = Client::new(session);
    let acquire = tokio::spawn({
        let client = client.clone();
        async move { client.acquire(std::future::pending()).await }
    });
    script.noted("acquire").await;
    client.session().close().await;
    assert!(acquire.await.unwrap().unwrap_err().is_retryable());
    script.noted("broken").await;
    serving.await.unwrap();
}

#[tokio::test]
async fn a_handler_is_canceled_when_its_caller_disconnects_and_runs_to_its_end() {
    let script = Script::new(None);
    let (session, _serving) = in_memory(&script);
    let client = Client::new(session);
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.update_job(&update("wait", 0)).await }
    });
    script.noted("waiting").await;
    call.abort();
    script.noted("told").await;
    client.update_job(&update("job", 0)).await.unwrap();
}

#[tokio::test]
async fn a_handler_that_panics_ends_its_own_call_only() {
    let script = Script::new(None);
    let (session, _serving) = in_memory(&script);
    let client = Client::new(session);
    let error = client.update_job(&update("panic", 0)).await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    client.update_job(&update("job", 0)).await.unwrap();
}

#[tokio::test]
async fn calls_beyond_the_limit_are_refused_with_a_reason() {
    let script = Script::new(None);
    let (session, _serving) = in_memory(&script);
    let client = Client::new(session);
    let mut waiting = Vec::new();
    for _ in 0..Limits::default().calls + Limits::default().waiting {
        let mut call = Call::new(client.session().open().await.unwrap(), rpc::ACQUIRE_JOB_WITH_CANCEL);
        call.flush().await.unwrap();
        waiting.push(call);
        // Taken, not only received.
        tokio::task::yield_now().await;
    }
    match client.update_job(&update("job", 0)).await {
        Err(Error::Call(drpc::Error::Refused(Status { text, .. }))) => {
            assert!(text.contains("too many calls"))
        }
        other => panic!("{other:?}"),
    }
    drop(waiting);
}

#[tokio::test]
async fn an_answer_over_the_limit_becomes_an_error() {
    let (near, far) = tokio::io::duplex(1 << 20);
    let mut stream = drpc::server::CallStream::new(Box::new(far));
    let mut call = Call::new(near, "/x");
    call.flush().await.unwrap();
    stream.next().await.unwrap().unwrap();
    let result = stream.send(&update("", MAX_MESSAGE_SIZE)).await;
    assert!(matches!(result, Err(drpc::Error::TooLarge { limit: MAX_MESSAGE_SIZE, .. })), "{result:?}");
    stream.fail(&Status::new("too long")).await.unwrap();
    assert!(matches!(call.recv::<Empty>().await, Err(drpc::Error::Refused(_))));
}

/// Late packets of an answered call are ignored and do not affect the next call.
#[tokio::test]
async fn late_packets_of_an_answered_call_do_not_reach_the_next_one() {
    let mut request = Vec::new();
    let message = prost::Message::encode_to_vec(&update("job", 3));
    frame::encode(&mut request, Kind::INVOKE, false, (1, 1), rpc::UPDATE_JOB.as_bytes());
    frame::encode(&mut request, Kind::MESSAGE, false, (1, 2), &message);
    frame::encode(&mut request, Kind::CLOSE_SEND, false, (1, 3), b"");
    frame::encode(&mut request, Kind::MESSAGE, false, (1, 4), b"late");
    frame::encode(&mut request, Kind::CANCEL, false, (1, 5), b"");
    frame::encode(&mut request, Kind::INVOKE, false, (2, 1), rpc::UPDATE_JOB.as_bytes());
    frame::encode(&mut request, Kind::MESSAGE, false, (2, 2), &message);
    frame::encode(&mut request, Kind::CLOSE_SEND, false, (2, 3), b"");
    let packets = answer_of(&Script::new(None), &request, 4).await;
    let answer = |call| [(Kind::MESSAGE, call, 1), (Kind::CLOSE_SEND, call, 2)];
    assert_eq!(shape(&packets), [answer(1), answer(2)].concat());
}

#[tokio::test]
async fn a_request_of_the_largest_size_is_sent() {
    let script = Script::new(None);
    let (session, _serving) = in_memory(&script);
    let client = Client::new(session);
    let sized = |size: usize| {
        let mut request = update("job", size - 20);
        let rest = size - prost::Message::encoded_len(&request);
        request.readme = vec![1; size - 20 + rest].into();
        assert_eq!(prost::Message::encoded_len(&request), size);
        request
    };
    client.update_job(&sized(MAX_MESSAGE_SIZE)).await.unwrap();
    let refused = client.update_job(&sized(MAX_MESSAGE_SIZE + 1)).await.unwrap_err();
    let too_large = matches!(&refused, Error::Call(drpc::Error::TooLarge { limit: MAX_MESSAGE_SIZE, .. }));
    assert!(too_large && !refused.is_retryable(), "{refused:?}");
}

/// As the official clients do it, so that a server need not wait for the end of the connection.
#[tokio::test]
async fn a_caller_ends_the_call_when_it_has_its_answer() {
    let (near, mut far) = tokio::io::duplex(1024);
    let mut answer = Vec::new();
    frame::encode(&mut answer, Kind::MESSAGE, false, (1, 1), b"");
    far.write_all(&answer).await.unwrap();
    let _: Empty = drpc::client::unary(near, "/x", &update("job", 3)).await.unwrap();
    let mut request = Vec::new();
    timeout(WAIT_LIMIT, far.read_to_end(&mut request)).await.unwrap().unwrap();
    let kinds: Vec<_> = frame::parse(&request).0.iter().map(|packet| packet.kind).collect();
    assert_eq!(kinds, [Kind::INVOKE, Kind::MESSAGE, Kind::CLOSE_SEND, Kind::CLOSE]);
}

#[tokio::test]
async fn a_request_that_nobody_reads_ends_with_its_peer() {
    let (near, mut far) = tokio::io::duplex(1024);
    let mut call = Call::new(near, "/x");
    let message = update("job", 200_000);
    let mut sending = Box::pin(call.send(&message));
    assert!(futures_util::FutureExt::now_or_never(sending.as_mut()).is_none(), "it waits for its peer");
    far.shutdown().await.unwrap();
    let result = timeout(WAIT_LIMIT, sending).await.unwrap();
    assert!(matches!(result, Err(drpc::Error::Lost(_))), "{result:?}");
}

/// Later versions may add kinds for the control of a call.
#[tokio::test]
async fn control_packets_of_unknown_kinds_are_ignored() {
    let unknown = Kind(60);
    let mut request = Vec::new();
    let message = prost::Message::encode_to_vec(&update("job", 3));
    frame::encode(&mut request, unknown, true, (1, 1), b"before");
    frame::encode(&mut request, Kind::INVOKE, false, (1, 2), rpc::UPDATE_JOB.as_bytes());
    frame::encode(&mut request, unknown, true, (1, 3), b"within");
    frame::encode(&mut request, Kind::MESSAGE, false, (1, 4), &message);
    frame::encode(&mut request, Kind::CLOSE_SEND, false, (1, 5), b"");
    let packets = answer_of(&Script::new(None), &request, 2).await;
    assert_eq!(shape(&packets), [(Kind::MESSAGE, 1, 1), (Kind::CLOSE_SEND, 1, 2)]);
    // Without that mark an unknown kind ends the connection.
    let mut request = Vec::new();
    frame::encode(&mut request, Kind::INVOKE, false, (1, 1), rpc::UPDATE_JOB.as_bytes());
    frame::encode(&mut request, unknown, false, (1, 2), b"within");
    assert!(
        answer(&Script::new(None), &request, false).await.iter().all(|packet| packet.kind != Kind::MESSAGE)
    );

    let (near, mut far) = tokio::io::duplex(1024);
    let mut answer = Vec::new();
    frame::encode(&mut answer, unknown, true, (1, 1), b"within");
    frame::encode(&mut answer, Kind::MESSAGE, false, (1, 2), b"");
    far.write_all(&answer).await.unwrap();
    let received = timeout(WAIT_LIMIT, Call::new(near, "/x").recv::<Empty>()).await.unwrap();
    assert!(matches!(received, Ok(Some(_))), "{received:?}");
}

/// What a caller must not send ends its connection, and the error says what it was.
#[tokio::test]
async fn packets_that_belong_to_no_call_or_begin_it_twice_are_violations() {
    let unknown = Kind(60);
    for (kinds, expected) in [
        (&[Kind::MESSAGE][..], "a message comes before its call"),
        (&[unknown], "a packet has an unknown kind"),
        (&[Kind::INVOKE, Kind::INVOKE], "a call was made twice"),
        (&[Kind::INVOKE, Kind::METADATA], "a call was made twice"),
        (&[Kind::INVOKE, unknown], "a packet has an unknown kind"),
    ] {
        let (mut near, far) = tokio::io::duplex(1024);
        let mut bytes = Vec::new();
        for (message, kind) in (1..).zip(kinds) {
            frame::encode(&mut bytes, *kind, false, (1, message), b"");
        }
        near.write_all(&bytes).await.unwrap();
        let mut stream = drpc::server::CallStream::new(Box::new(far));
        let error = match timeout(WAIT_LIMIT, stream.next()).await.unwrap() {
            Ok(_) => timeout(WAIT_LIMIT, stream.recv()).await.unwrap().unwrap_err(),
            Err(error) => error,
        };
        assert!(matches!(error, drpc::Error::Protocol(what) if what == expected), "{kinds:?}: {error:?}");
    }
}

/// The daemon must not try again what the server refused, so the refusal counts and not the broken pipe behind it.
#[tokio::test]
async fn the_peers_error_is_reported_when_the_request_could_not_be_written() {
    let refusal = Status::new("you do not own this job");
    for said in [Some(&refusal), None] {
        // Less room than the request needs, so that writing meets the end.
        let (near, mut far) = tokio::io::duplex(1024);
        if let Some(status) = said {
            let mut answer = Vec::new();
            frame::encode(&mut answer, Kind::ERROR, false, (1, 1), &status.encode());
            far.write_all(&answer).await.unwrap();
        }
        drop(far);
        let mut call = Call::new(near, rpc::UPDATE_JOB);
        let outcome = call.send(&update("job", 200_000)).await;
        match said {
            Some(status) => {
                assert!(
                    matches!(&outcome, Err(drpc::Error::Refused(heard)) if heard == status),
                    "{outcome:?}"
                )
            }
            None => assert!(matches!(&outcome, Err(drpc::Error::Lost(_))), "{outcome:?}"),
        }
    }
}

/// Each way in which a peer can end an answer has an outcome of its own, and nothing comes after it.
#[tokio::test]
async fn a_caller_learns_how_the_peer_ended_the_answer() {
    let refusal = Status::new("you do not own this job").encode();
    for (kind, data) in [
        (Kind::CLOSE, &b""[..]),
        (Kind::CLOSE_SEND, b""),
        (Kind::ERROR, &refusal),
        (Kind::CANCEL, b""),
        (Kind::INVOKE, b"/x"),
    ] {
        let (near, mut far) = tokio::io::duplex(1024);
        let mut answer = Vec::new();
        frame::encode(&mut answer, kind, false, (1, 1), data);
        far.write_all(&answer).await.unwrap();
        let mut call = Call::new(near, "/x");
        let outcome = timeout(WAIT_LIMIT, call.recv::<Empty>()).await.unwrap();
        let expected = match kind {
            Kind::CLOSE | Kind::CLOSE_SEND => matches!(outcome, Ok(None)),
            Kind::ERROR => matches!(outcome, Err(drpc::Error::Refused(_))),
            Kind::CANCEL => matches!(outcome, Err(drpc::Error::Canceled)),
            _ => matches!(outcome, Err(drpc::Error::Protocol(_))),
        };
        assert!(expected, "{kind:?}: {outcome:?}");
        if kind != Kind::INVOKE {
            let after = timeout(WAIT_LIMIT, call.recv::<Empty>()).await.unwrap();
            assert!(matches!(after, Ok(None)), "{kind:?}: {after:?}");
        }
    }
}

//! The Go libraries as the daemon, our code as the server.

use std::time::Duration;

use super::harness::{JOB, Script, Server, go_client};

/// Runs one scenario and checks what must hold in every run: no reset from either side, and no stream left.
async fn run(scenario: &str, deliver_after: Option<Duration>) -> std::sync::Arc<Script> {
    let script = Script::new(deliver_after);
    let server = Server::start(&script).await;
    if let Some(report) = go_client(&server.url, scenario).await {
        assert_eq!(
            (&report["resets_in"], &report["resets_out"]),
            (&0.into(), &0.into()),
            "{scenario}: {report}"
        );
        assert_eq!(report["goaways_in"], 0, "{scenario}: {report}");
        assert_eq!(server.open_streams().await, 0, "{scenario}");
    } else {
        // Nothing ran, so nothing was noted; let the caller's checks pass.
        for entry in ["broken", "canceled", "delivered", "uploaded 5000000"] {
            script.skip(entry);
        }
    }
    script
}

macro_rules! scenarios {
    ($($(#[$doc:meta])* $name:ident: $scenario:expr;)*) => {
        $(
            $(#[$doc])*
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                run($scenario, None).await;
            }
        )*
    };
}

scenarios! {
    unary: "unary";
    message_of_three_mib: "big=3145728";
    /// 4194304 bytes with the rest of the message.
    message_of_exactly_the_limit: "big=4194294";
    /// One byte more is answered, so that the daemon does not try again for ever.
    message_over_the_limit_is_answered: "over=4194295";
    message_far_over_the_limit_is_answered: "over=9000000";
    handler_error_keeps_code_and_text: "error";
    unknown_call_is_answered: "unknown";
    two_calls_on_one_stream: "two";
    download: "download=5000000";
    empty_download: "download=0";
    download_of_nothing: "download-missing";
    three_thousand_calls: "many=3000";
    parallel_calls: "parallel";
    pings_are_answered: "ping";
    text_message_closes_with_1003: "text";
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_delivers_and_ends_the_call() {
    run(&format!("acquire={JOB}"), Some(Duration::ZERO)).await.noted("delivered").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_is_canceled() {
    run("cancel=", None).await.noted("canceled").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_whose_stream_ends_is_broken() {
    run("leave", None).await.noted("broken").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_whose_connection_is_cut_is_broken() {
    run("cut", None).await.noted("broken").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload() {
    run("upload=5000000", None).await.noted("uploaded 5000000").await;
}

/// The Go library gives a session up after 75 s when a stream has not been acknowledged. Both directions wait in one
/// test, so that they hold up one test thread only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_idle_for_80_s_are_delivered_in_both_directions() {
    let ours = async {
        run(&format!("acquire={JOB}"), Some(Duration::from_secs(80))).await.noted("delivered").await
    };
    tokio::join!(ours, super::go_server::idle_for_80_s());
}

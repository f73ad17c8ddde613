//! Unusual output of programs arrives readable and complete.

use crate::fake_server::Server;
use crate::fixture::{PLAIN, Running, start, tar};

#[tokio::test(flavor = "multi_thread")]
async fn odd_bytes_and_endless_lines_arrive() {
    let real = coder_requirements::require!(program Terraform);
    let script = r#"case "$1" in
apply)
  printf 'bad \377 byte and \000 nul\n'
  printf 'to stderr \377\000\n' >&2
  head -c 3000000 /dev/zero | tr '\000' 'x'
  printf '\nafter the long line\n'
  i=0; while [ $i -lt 3000 ]; do echo "line $i end"; i=$((i+1)); done
  ;;
esac
exec "$REAL" "$@""#;
    let server = Server::new();
    let _running = Running::with_stand_in(&server, &real, script);
    server.give(start(tar(&[("main.tf", PLAIN)])));
    let (record, _) = server.completed().await;
    assert!(record.has_line("bad \u{fffd} byte and  nul"));
    assert!(record.has_line("to stderr \u{fffd}"));
    assert!(record.lines().all(|line| !line.output.contains('\0') && line.output.len() <= 16 * 1024));
    let long: usize =
        record.lines().filter(|line| line.output.starts_with("xxx")).map(|line| line.output.len()).sum();
    assert_eq!(long, 3_000_000);
    assert!(record.has_line("after the long line"));
    let numbered: Vec<&str> =
        record.lines().map(|line| line.output.as_str()).filter(|text| text.starts_with("line ")).collect();
    assert_eq!(numbered.len(), 3000, "no line is lost");
    assert!(
        numbered.iter().enumerate().all(|(number, text)| *text == format!("line {number} end")),
        "order is kept"
    );
    assert!(record.updates.iter().all(|update| prost::Message::encoded_len(update) < 1024 * 1024));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_debug_build_shows_debug_lines_and_an_ordinary_one_all_it_gets() {
    let real = coder_requirements::require!(program Terraform);
    let script = r#"case "$1" in
apply) echo "log level is ${TF_LOG:-unset}"; echo '{"@level":"trace","@message":"tracing"}';;
esac
exec "$REAL" "$@""#;
    let server = Server::new();
    let _running = Running::with_stand_in(&server, &real, script);
    let mut job = start(tar(&[("main.tf", PLAIN)]));
    server.give(job.clone());
    let (record, _) = server.completed().await;
    assert!(record.has_line("log level is unset") && record.has_line("tracing"));

    let server = Server::new();
    let _running = Running::with_stand_in(&server, &real, script);
    crate::fixture::edit_build(&mut job, |build| build.log_level = "debug".to_owned());
    server.give(job);
    let (record, _) = server.completed().await;
    assert!(record.has_line("log level is JSON") && !record.has_line("tracing"));
}

/// Megabytes of output; 1024 for the long form.
fn megabytes() -> usize {
    std::env::var("CODER_TEST_OUTPUT_MB").ok().and_then(|count| count.parse().ok()).unwrap_or(16)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_64_mb_and_much_output_take_bounded_memory() {
    let real = coder_requirements::require!(program Terraform);
    let dir = tempfile::tempdir().unwrap();
    let more = megabytes();
    let script = format!(
        "case \"$1\" in\napply)\n  head -c 64000000 /dev/zero | tr '\\000' 'x'; echo\n  yes 'a line of a chatty tool that has much to say' | head -c {more}000000; echo\n  ;;\nesac\nexec \"$REAL\" \"$@\""
    );
    let terraform = crate::fixture::stand_in(dir.path(), &real, &script);
    let server = Server::new();
    server.forget_lines();
    let socket = dir.path().join("s");
    crate::daemon_process::listen(&server, &socket);
    let variables = [(crate::daemon_process::TERRAFORM, terraform.as_path())];
    let daemon = crate::daemon_process::Child::start(&socket, &dir.path().join("cache"), &variables);
    let mut job = start(tar(&[("main.tf", PLAIN)]));
    crate::fixture::edit_build(&mut job, |build| {
        build.variable_values =
            crate::fixture::variables(&[("unused", "a secret that has to be looked for")]);
    });
    server.give(job);
    // The long form takes longer than any other wait.
    let limit = std::time::Duration::from_secs(60 + more as u64);
    server.wait_for_long("the end of the job", limit, crate::fake_server::Record::is_over).await;
    let (record, _) = server.completed().await;
    let lines = more * 1_000_000 / 45 * 44;
    assert!(record.forgotten >= 64_000_000 + lines, "{}", record.forgotten);
    let peak = daemon.peak() >> 20;
    assert!(peak < 160, "{peak} MiB");
}

//! Commands without a terminal, without a login, and with contradicting flags end with a message and do not hang.

use crate::program::Home;

/// An address without a listener.
const UNREACHABLE_URL: &str = "http://127.0.0.1:1";

#[test]
fn not_logged_in() {
    let home = Home::new();
    home.run(&["whoami"]).refused("coder login <url>");
    let login = home.run(&["login"]).refused("no server was used before: name one with");
    assert_eq!(login.err.matches("coder login <url>").count(), 1, "{}", login.err);
    home.run(&["whoami", "--url", UNREACHABLE_URL]).refused("CODER_SESSION_TOKEN");
    home.run(&["list", "--url", "ftp://x", "--token", "t"]).refused("not an http or https URL");
    home.run(&["provisioner", "start", "--url", UNREACHABLE_URL])
        .refused("must provide a pre-shared key or provisioner key");
}

#[test]
fn an_unreachable_server_is_named_with_a_hint() {
    let home = Home::new();
    let outcome = home.run(&["whoami", "--url", UNREACHABLE_URL, "--token", "a-b"]).refused("cannot reach");
    assert!(outcome.err.contains("127.0.0.1:1") && outcome.err.contains("hint:"), "{}", outcome.err);
    assert!(!outcome.err.contains("a-b"));
}

#[test]
fn contradicting_flags_of_a_daemon() {
    let mut home = Home::new();
    home.set("CODER_URL", UNREACHABLE_URL);
    let start = |flags: &[&str], words: &str| {
        let args: Vec<_> = ["provisioner", "start"].iter().chain(flags).copied().collect();
        home.run(&args).refused(words);
    };
    start(&["--key", "k", "--psk", "p"], "both");
    start(&["--key", "k", "--tag", "a=b"], "cannot use --tag with a provisioner key");
    start(&["--key", "k", "--org", "o"], "cannot use --org with a provisioner key");
    start(&["--psk", "p", "-O", "o"], "cannot use --org with a pre-shared key");
    start(&["--psk", "p", "--tag", "nonsense"], "nonsense");
    start(&["--psk", "p", "--name=-bad-"], "daemon name");
    start(&["--psk", "p", "--log-human="], "no log output");
    start(&["--psk", "p", "--log-filter", "("], "invalid log filter");
}

#[test]
fn a_variable_counts_like_its_flag_and_an_empty_one_not_at_all() {
    let mut home = Home::new();
    home.set("CODER_URL", UNREACHABLE_URL)
        .set("CODER_PROVISIONER_DAEMON_KEY", "k")
        .set("CODER_PROVISIONERD_TAGS", "a=b");
    home.run(&["provisioner", "start"]).refused("cannot use --tag with a provisioner key");
    home.set("CODER_PROVISIONERD_TAGS", "").set("CODER_ORGANIZATION", "");
    home.run(&["provisioner", "start", "--psk", "p"]).refused("both");
}

#[test]
fn a_refused_value_of_a_variable_names_the_variable() {
    let mut home = Home::new();
    home.set("CODER_VERBOSE", "perhaps").set("CODER_PROVISIONER_DAEMON_SLOTS", "999");
    home.run(&["version"])
        .refused("hint: the value is that of the variable CODER_VERBOSE: change or unset it");
    home.set("CODER_VERBOSE", "");
    home.run(&["provisioner", "start"])
        .refused("hint: the value is that of the variable CODER_PROVISIONER_DAEMON_SLOTS");
    let typed = home.run(&["provisioner", "start", "--slots", "0"]).refused("'0'");
    assert!(!typed.err.contains("hint: "), "{}", typed.err);
}

#[test]
fn a_template_directory_is_checked_before_anything_is_sent() {
    let mut home = Home::new();
    home.set("CODER_URL", UNREACHABLE_URL).set("CODER_SESSION_TOKEN", "t");
    home.run(&["templates", "push", "-d", "absent", "-y"]).refused("absent");
    home.run(&["templates", "push", "-d", "-", "-y"]).refused("name the template");
    home.run(&["templates", "push", "bad name", "-y"]).refused("bad name");
}

#[test]
fn init_writes_an_example_once() {
    let home = Home::new();
    home.run(&["templates", "init"])
        .refused("\nerror: cannot ask \"Example:\": standard input has ended; pass --id NAME");
    home.run(&["templates", "init", "--id", "nothing"]).refused("choose from: hello");
    home.run(&["templates", "init", "--id", "hello", "mine"]).success();
    assert!(std::fs::read_to_string(home.path().join("mine/main.tf")).unwrap().contains("coder_agent"));
    home.run(&["templates", "init", "--id", "hello", "mine"]).refused("not empty");
    assert!(home.answer(&["templates", "init", "other"], "docker\n").success().out.is_empty());
    assert!(home.path().join("other/main.tf").exists());
}

#[test]
fn a_server_refuses_what_it_cannot_do() {
    let home = Home::new();
    home.run(&["server", "--http-address="]).refused("no address to listen on");
    home.run(&["server", "--log-human="]).refused("no log output");
    home.run(&["server", "--http-address", "127.0.0.1:0", "--postgres-url", "mysql://x"]).refused("database");
}

//! What people see and type on a terminal.

use crate::end_to_end::write;
use crate::processes::{EMAIL, PASSWORD, Server, USER};
use crate::program::Home;
use crate::pseudo_terminal::Terminal;

#[test]
fn a_weak_or_mistyped_password_is_asked_again_and_the_other_answers_stay() {
    let server = Server::start(&[]);
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["login", &server.url]);
    for (question, answer) in [
        ("User name:", "bad name"),
        ("User name:", USER),
        ("Full name:", ""),
        ("E-mail address:", EMAIL),
        ("Password:", "weak"),
        ("insecure password", ""),
        ("Password:", PASSWORD),
        ("The same again:", "other"),
        ("the passwords differ", ""),
        ("Password:", PASSWORD),
        ("The same again:", PASSWORD),
    ] {
        terminal.wait_for(question);
        if !answer.is_empty() || question == "Full name:" {
            terminal.type_keys(&format!("{answer}\r"));
        }
    }
    let (status, screen) = terminal.end();
    assert!(status.success(), "{screen:#?}");
    let screen = screen.join("\n");
    assert_eq!(screen.matches("E-mail address:").count(), 1, "{screen}");
    assert!(screen.contains(&format!("You are logged in as {USER}.")), "{screen}");
    assert!(!screen.contains(PASSWORD) && !screen.contains("weak\n"), "{screen}");
}

#[test]
fn an_example_is_chosen_with_the_arrow_keys_or_by_its_name() {
    let home = Home::new();
    for (keys, words) in [("\x1b[B\x1b[A\r", "hello"), ("dock\r", "docker"), ("\x1bdocker\r", "docker")] {
        let directory = format!("of-{words}-{}", keys.len());
        let mut terminal = Terminal::start(&home, &["templates", "init", &directory]);
        terminal.wait_for("(arrow keys, Enter)");
        terminal.type_keys(keys);
        let (status, screen) = terminal.end();
        assert!(status.success(), "{screen:#?}");
        assert_eq!(screen[0], format!("> Example: {words}"), "the list is gone: {screen:#?}");
        assert!(home.path().join(directory).join("main.tf").exists());
    }
    let mut terminal = Terminal::start(&home, &["templates", "init"]);
    terminal.wait_for("(arrow keys, Enter)");
    terminal.type_keys("\x1b\x03");
    let (status, screen) = terminal.end();
    assert_eq!(status.code(), Some(130), "{screen:#?}");
    assert_eq!(screen[0], "error: interrupted", "{screen:#?}");
}

#[test]
fn tables_fit_into_80_columns_and_wide_ones_are_whole() {
    let server = Server::start(&[]);
    let home = server.first_user();
    let name = "a-name-of-a-key-that-is-about-as-long-as-allowed";
    home.run(&["provisioner", "keys", "create", name, "--tag", "environment=on_prem,datacenter=chicago"])
        .success();
    for list in [
        &["provisioner", "keys", "list"][..],
        &["users", "list"],
        &["tokens", "list", "--all"],
        &["organizations", "list"],
    ] {
        let (status, screen) = Terminal::start(&home, list).end();
        assert!(status.success(), "{screen:#?}");
        assert!(screen.iter().all(|line| line.chars().count() <= 80), "{list:?}: {screen:#?}");
        let wide = Terminal::start(&home, &[list, &["-o", "wide"]].concat()).end().1;
        assert!(!wide.join("\n").contains('…'), "{list:?}: {wide:#?}");
    }
    let keys = Terminal::start(&home, &["provisioner", "keys", "list"]).end().1.join("\n");
    assert!(keys.contains("datacenter=chicago environment=on_prem"), "tags are whole: {keys}");
}

const FAILS: &str = r#"
resource "terraform_data" "first" {
  count = 2
}
resource "terraform_data" "last" {
  depends_on = [terraform_data.first]
  provisioner "local-exec" {
    command = "echo the cause; exit 3"
  }
}
"#;

#[test]
fn lines_of_terraform_are_folded_until_something_fails() {
    coder_requirements::require!(Terraform);
    let server = Server::start(&["--provisioner-daemons=1"]);
    let home = server.first_user();
    let template = write(&home, "folded", FAILS);
    let push = ["templates", "push", "folded", "-d", &template, "-y"];
    let (status, screen) = Terminal::start(&home, &push).end();
    assert!(status.success(), "{screen:#?}");
    assert!(
        screen.iter().any(|line| line.starts_with("=== ✔ Detecting persistent resources [")),
        "{screen:#?}"
    );
    assert!(screen.contains(&"terraform_data.first (peripheral, persistent) ×2".to_owned()), "{screen:#?}");
    assert!(!screen.join("\n").contains("Plan to create"), "{screen:#?}");

    let (status, screen) = Terminal::start(&home, &["create", "w", "-t", "folded", "-y"]).end();
    assert_eq!(status.code(), Some(1), "{screen:#?}");
    let at = |words: &str| {
        screen.iter().position(|line| line.contains(words)).unwrap_or_else(|| panic!("{words}: {screen:#?}"))
    };
    // One line for each resource that is done, then what led to the error, then the error.
    assert!(at("✔ terraform_data.first[") < at("terraform_data.last: Creating..."));
    assert!(at("(local-exec): the cause") < at("Error: local-exec provisioner error"));
    assert!(
        !screen
            .iter()
            .any(|line| line.contains("terraform_data.first[0]: Creating...") && line.contains("✔")),
        "{screen:#?}"
    );
    assert!(at("✘ Starting workspace") < at("hint: the whole log: coder logs w"));

    // Everything is shown with --verbose.
    let (_, screen) = Terminal::start(&home, &["delete", "w", "-y", "--verbose"]).end();
    assert!(screen.join("\n").contains(": Destroying..."), "{screen:#?}");
}

#[test]
fn a_push_that_waits_says_why_once_and_shows_the_time() {
    let server = Server::start(&[]);
    let home = server.first_user();
    let template = write(&home, "waits", "");
    let mut terminal = Terminal::start(&home, &["templates", "push", "waits", "-d", &template, "-y"]);
    terminal.wait_for("waiting: No daemon has joined this organization. Start a daemon:");
    terminal.wait_for(" 2s");
    terminal.type_keys("\x03");
    let (status, screen) = terminal.end();
    assert_eq!(status.code(), Some(130), "{screen:#?}");
    let text = screen.join("\n");
    assert!(!text.contains("WARN:") && text.matches("No daemon has joined").count() <= 1, "{text}");
    assert!(text.ends_with("error: interrupted\n") || text.ends_with("error: interrupted"), "{text}");
}

#[test]
fn a_wrong_password_is_asked_again() {
    let server = Server::start(&[]);
    server.first_user();
    let home = Home::new();
    let mut terminal = Terminal::start(&home, &["login", &server.url]);
    for (question, answer) in [
        ("Token:", ""),
        ("E-mail address:", EMAIL),
        ("Password:", "wrong"),
        ("Incorrect email or password", ""),
        // The address stays.
        (EMAIL, "\r"),
        ("Password:", PASSWORD),
    ] {
        terminal.wait_for(question);
        match answer {
            "" if question != "Token:" => {}
            "\r" => terminal.type_keys("\r"),
            answer => terminal.type_keys(&format!("{answer}\r")),
        }
    }
    let (status, screen) = terminal.end();
    assert!(status.success(), "{screen:#?}");
    assert!(screen.join("\n").contains(&format!("You are logged in as {USER}.")), "{screen:#?}");
}

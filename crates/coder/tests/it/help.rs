//! Help texts, exit codes and completion.

use crate::program::Home;

/// Every command's help, so that a change of the command line shows in review.
#[test]
fn help_of_every_command() {
    let home = Home::new();
    let mut page = String::new();
    let mut root = coder::command();
    root.build();
    let mut open = vec![(Vec::<String>::new(), root)];
    while let Some((path, command)) = open.pop() {
        let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
        args.push("--help");
        let outcome = home.run(&args).success();
        assert_eq!(outcome.err, "");
        page.push_str(&format!("$ coder {}\n{}\n", args.join(" "), outcome.out));
        let mut subs: Vec<_> =
            command.get_subcommands().filter(|sub| sub.get_name() != "help").cloned().collect();
        subs.reverse();
        open.extend(subs.into_iter().map(|sub| {
            let mut path = path.clone();
            path.push(sub.get_name().to_owned());
            (path, sub)
        }));
    }
    insta::assert_snapshot!(page);
}

#[test]
fn exit_codes_are_zero_and_one() {
    let mut home = Home::new();
    home.run(&["version"]).success();
    home.run(&["--help"]).success();
    // Every command shows its help, in every environment.
    for group in [&[][..], &["templates"], &["provisioner", "keys"], &["users"]] {
        for url in ["", "http://127.0.0.1:1"] {
            home.set("CODER_URL", url);
            let outcome = home.run(group).success();
            assert!(
                outcome.out.contains("Usage: coder") && outcome.err.is_empty(),
                "{group:?}: {}",
                outcome.err
            );
            assert_eq!(outcome.out, home.run(&[group, &["--help"]].concat()).success().out);
        }
    }
    home.run(&["no-such-command"]).refused("no-such-command");
    home.run(&["version", "--no-such-flag"]).refused("--no-such-flag");
    let misplaced = home.run(&["templates", "my-template", "push"]).refused("my-template");
    assert!(misplaced.err.contains("hint: names come after the command: coder templates push my-template"));
}

#[test]
fn version_says_what_it_is_compatible_with() {
    let home = Home::new();
    let text = home.run(&["version"]).success().out;
    assert!(
        text.starts_with(&format!("coder {} (compatible with Coder v2.30.0+", env!("CARGO_PKG_VERSION"))),
        "{text}"
    );
    for flag in ["--version", "-V"] {
        assert_eq!(home.run(&[flag]).success().out.lines().next(), text.lines().next(), "{flag}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&home.run(&["version", "-o", "json"]).success().out).unwrap();
    let version = json["version"].as_str().unwrap();
    let hex = version.strip_prefix("v2.30.0+").unwrap();
    assert!(hex.len() == 7 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()), "{version}");
}

#[test]
fn completion_for_the_usual_shells() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = home.run(&["completion", shell]).success().out;
        assert!(script.contains("CODER_COMPLETE") && script.len() < 4096, "{shell}: {script}");
    }
    let script = home.run(&["completion", "bash"]).success().out;
    assert_eq!(home.run(&["completion", "--shell", "bash", "--print"]).success().out, script);
    home.run(&["completion"]).refused("name it");
}

#[test]
fn older_names_lead_to_the_same_commands() {
    let home = Home::new();
    let same = |left: &[&str], right: &[&str]| {
        let usage = |args: &[&str]| home.run(args).success().out;
        assert_eq!(usage(left), usage(right), "{left:?}");
    };
    same(&["provisionerd", "start", "--help"], &["provisioner", "start", "--help"]);
    same(&["provisioners", "keys", "ls", "--help"], &["provisioner", "keys", "list", "--help"]);
    same(&["provisioner", "job", "list", "--help"], &["provisioner", "jobs", "list", "--help"]);
    same(&["template", "push", "--help"], &["templates", "push", "--help"]);
}

//! Commands against a real server that need no daemon.

use crate::processes::{Server, USER};
use crate::program::{Home, finish};

#[test]
fn a_new_key_ends_with_its_token_alone() {
    let server = Server::start(&[]);
    let home = server.first_user();
    let args =
        ["provisioner", "keys", "create", "My-Key", "--org", "default", "--tag", "environment=kubernetes"];
    let out = home.run(&args).success().out;
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.len(), 3, "{out}");
    assert!(lines[0].contains("my-key") && lines[0].contains("not be shown again"), "{out}");
    assert_eq!(lines[1], "");
    assert!(lines[2].len() == 43 && lines[2].bytes().all(|byte| byte.is_ascii_alphanumeric()), "{out}");
    assert!(out.ends_with(&format!("{}\n", lines[2])));

    let list = home.run(&["provisioner", "keys", "list"]).success().out;
    assert!(
        list.starts_with("CREATED AT") && list.contains("my-key") && list.contains("environment=kubernetes"),
        "{list}"
    );
    let json = home.run(&["provisioner", "keys", "list", "-o", "json"]).success().out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["tags"]["environment"], "kubernetes");
    assert_eq!(home.run(&["provisioner", "keys", "ls", "-c", "name"]).success().out, "NAME\nmy-key\n");
    home.run(&["provisioner", "keys", "ls", "-c", "colour"]).refused("created at, name, tags");

    home.run(&args).refused("already");
    home.run(&["provisioner", "keys", "create", "psk"]).refused("reserved");
    home.run(&["provisioner", "keys", "create", "k", "--tag", "nonsense"]).refused("nonsense");
    home.run(&["provisioner", "keys", "create", "k", "--org", "other"]).refused("no organization \"other\"");
    home.run(&["provisioner", "keys", "delete", "my-key"]).refused("pass --yes");
    home.run(&["provisioner", "keys", "delete", "my-key", "-y"]).success();
    home.run(&["provisioner", "keys", "delete", "my-key", "-y"])
        .refused("there is no provisioner key \"my-key\"");
}

#[test]
fn a_public_key_stays_until_it_is_reset() {
    let server = Server::start(&[]);
    let home = server.first_user();
    let show = || home.run(&["publickey"]).success().out;
    let key = show();
    assert!(key.starts_with("ssh-ed25519 ") && key.lines().count() == 1, "{key}");
    assert_eq!(show(), key);
    home.run(&["publickey", "--reset"]).refused("--yes");
    assert_eq!(show(), key);
    let other = home.run(&["publickey", "--reset", "--yes"]).success().out;
    assert_ne!(other, key);
    assert_eq!(show(), other);
}

#[test]
fn a_shell_completes_names_of_the_server() {
    let server = Server::start(&[]);
    let home = server.first_user();
    home.run(&["provisioner", "keys", "create", "build-farm"]).success();
    // Calls it like the script of `coder completion bash`.
    let complete = |words: &[&str]| {
        let mut command = home.command(&[&["--", "coder"], words].concat());
        command.env("CODER_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", words.len().to_string());
        command
            .env("_CLAP_IFS", "\n")
            .env("_CLAP_COMPLETE_COMP_TYPE", "9")
            .env("_CLAP_COMPLETE_SPACE", "true");
        finish(command, b"").success().out
    };
    assert_eq!(complete(&["templates", "pu"]).lines().collect::<Vec<_>>(), ["push", "pull"]);
    let keys = complete(&["provisioner", "keys", "delete", ""]);
    assert!(keys.lines().any(|line| line == "build-farm"), "{keys}");
    assert_eq!(complete(&["users", "show", "ad"]).trim(), USER);
    assert_eq!(complete(&["--url", "http://127.0.0.1:1", "start", ""]).matches("build").count(), 0);
}

#[test]
fn manual_pages_are_written_for_every_command() {
    let home = Home::new();
    let page = home.run(&["man"]).success().out;
    assert!(page.contains(".TH coder 1"), "{page}");
    home.run(&["man", "pages"]).success();
    for name in ["coder.1", "coder-templates-push.1", "coder-provisioner-keys-create.1"] {
        assert!(home.path().join("pages").join(name).exists(), "{name}");
    }
}

#[test]
fn tokens() {
    let server = Server::start(&[]);
    let home = server.first_user();
    let token = home.run(&["tokens", "create", "--name", "ci", "--lifetime", "24h"]).success().out;
    assert_eq!(token.trim().len(), 33);
    home.run(&["whoami", "--token", token.trim()]).success();
    assert!(home.run(&["tokens", "list"]).success().out.contains("ci"));
    let shown = home.run(&["tokens", "view", "ci"]).success().out;
    assert!(shown.starts_with("ID ") && shown.contains("ALLOW LIST") && shown.contains("OWNER"), "{shown}");
    let json: serde_json::Value =
        serde_json::from_str(&home.run(&["tokens", "view", "ci", "-o", "json"]).success().out).unwrap();
    assert_eq!((json.as_array().unwrap().len(), json[0]["token_name"].as_str()), (1, Some("ci")));
    home.run(&["tokens", "create", "--lifetime", "1000h"]).refused("at most 168h0m0s");
    home.run(&["tokens", "remove", "ci"]).success();
    home.run(&["whoami", "--token", token.trim()]).refused("does not accept the token of --token");
}

#[test]
fn organizations_and_users() {
    let server = Server::start(&[]);
    let home = server.first_user();
    let shown = home.run(&["organizations", "show"]).success().out;
    assert!(shown.contains("coder") && shown.contains("true"), "{shown}");
    let id = home.run(&["organizations", "show", "--only-id"]).success().out;
    assert_eq!(home.run(&["org", "show", "default", "--only-id"]).success().out, id);
    assert_eq!(home.run(&["org", "show", "me", "--only-id"]).success().out, id);
    let user = home.run(&["users", "show", "me"]).success().out;
    assert!(user.contains(USER) && user.contains("owner"), "{user}");
}

#[test]
fn empty_lists_say_so_on_standard_error() {
    let server = Server::start(&[]);
    let home = server.first_user();
    let lists: [&[&str]; 5] = [
        &["list"],
        &["templates", "list"],
        &["provisioner", "list"],
        &["provisioner", "keys", "list"],
        &["provisioner", "jobs", "list"],
    ];
    for args in lists {
        let outcome = home.run(args).success();
        assert_eq!(outcome.out, "", "{args:?}");
        assert!(outcome.err.starts_with("There are no "), "{args:?}: {}", outcome.err);
        let json = [args, &["-o", "json"]].concat();
        assert_eq!(home.run(&json).success().out, "[]\n", "{args:?}");
    }
    let search = home.run(&["list", "--search", "status:running"]).success().err;
    assert_eq!(search, "There are no workspaces that match \"status:running\".\n");
}

#[test]
fn missing_objects_are_named_in_the_error() {
    let server = Server::start(&[]);
    let home = server.first_user();
    for command in ["show", "start", "delete", "logs"] {
        home.run(&[command, "absent"]).refused("there is no workspace \"absent\"");
    }
    home.run(&["create", "w", "--template", "absent"]).refused("there is no template \"absent\"");
    home.run(&["create", "w"]).refused("--template NAME");
    home.run(&["create", "new", "--template", "x"]).refused("reserved");
    for command in [&["versions", "list"][..], &["delete", "-y"][..]] {
        let args = [&["templates"], command, &["absent"]].concat();
        home.run(&args)
            .refused("there is no template \"absent\" in organization coder: see `coder templates list`");
    }
}

#[test]
fn an_untouched_database_is_sound() {
    let server = Server::start(&[]);
    server.first_user();
    let outcome = server.home().run(&["server", "check"]).success();
    assert!(outcome.err.contains("keeps all its rules"), "{}", outcome.err);
}

/// Everything below a directory.
fn tree(path: &std::path::Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| [tree(&path), vec![path]].concat()).collect()
}

#[test]
fn inspecting_commands_create_no_database() {
    let mut home = Home::new();
    home.set("CODER_STATE_ENCRYPTION_KEYS", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=");
    std::fs::create_dir(home.path().join("empty")).unwrap();
    std::fs::create_dir(home.path().join("foreign")).unwrap();
    std::fs::write(home.path().join("foreign/coder.sqlite"), "").unwrap();
    let before = tree(home.path());
    for command in
        [&["server", "check"][..], &["server", "states", "rotate"], &["server", "states", "decrypt"]]
    {
        for place in ["typo", "typo/deeper", "empty", "foreign"] {
            let args = [command, &["--data-dir", place]].concat();
            let refused = home.run(&args).refused("no Coder database was found there");
            assert!(refused.err.contains("--data-dir"), "{}", refused.err);
        }
        home.run(command).refused("no Coder database was found there");
        assert_eq!(tree(home.path()), before, "{command:?}");
    }
}

#[test]
fn a_data_directory_has_one_server_at_a_time() {
    let mut server = Server::start(&[]);
    server.first_user();
    let home = server.home();
    let pid = server.process.id();
    let second = home.run(&["server", "--http-address", "127.0.0.1:0"]).refused("uses the data directory");
    assert!(second.err.contains(&format!("process {pid},")), "{}", second.err);
    home.run(&["server", "check"]).success();
    let key = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
    let decrypt = ["server", "states", "decrypt", "--state-encryption-keys", key];
    home.run(&decrypt).refused(&format!("process {pid},"));
    // It may end in any way.
    server.process.signal("KILL");
    server.process.end();
    let server = server.restart("127.0.0.1:0");
    let home = server.home();
    home.run(&["server", "--http-address", "127.0.0.1:0"])
        .refused(&format!("process {},", server.process.id()));
}

#[test]
fn a_server_says_at_its_start_which_key_it_lacks() {
    let (key, other) =
        ("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", "MTEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=");
    let mut place = Home::new();
    place.set("CODER_STATE_ENCRYPTION_KEYS", key);
    let mut server = Server::in_home(place, "127.0.0.1:0", &[]);
    server.process.signal("TERM");
    assert!(server.process.end().success());
    for keys in [other, ""] {
        let mut command = server.home().command(&["server", "--http-address", "127.0.0.1:0"]);
        if keys.is_empty() {
            command.env_remove("CODER_STATE_ENCRYPTION_KEYS");
        } else {
            command.env("CODER_STATE_ENCRYPTION_KEYS", keys);
        }
        let refused = finish(command, b"").refused("are encrypted with the key");
        assert!(refused.err.contains("--state-encryption-keys"), "{}", refused.err);
    }
    server.restart("127.0.0.1:0");
}

#[test]
fn a_server_stops_on_either_signal_with_success() {
    for signal in ["TERM", "INT"] {
        let mut server = Server::start(&[]);
        server.process.signal(signal);
        assert!(server.process.end().success(), "{signal}");
    }
}

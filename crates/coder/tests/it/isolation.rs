//! What a template can read of the daemon that runs it, with the real program.

use coder_requirements::Requirement;

use crate::end_to_end::write;
use crate::processes::{Server, WAIT_LIMIT};
use crate::program::{Home, finish, until};

/// Searches for a text in processes and files, without printing the matches.
const SEARCHING_TEMPLATE: &str = r#"
resource "terraform_data" "spy" {
  provisioner "local-exec" {
    command = <<-EOT
      found=0
      for file in /proc/[0-9]*/environ /proc/[0-9]*/cmdline SESSION; do
        tr '\0' '\n' < "$file" 2>/dev/null | grep -v "grep" | grep -q "PART-A""-PART-B" && found=1
      done
      echo "spy found $found"
      echo "work $(ls CACHE/work | wc -l)"
    EOT
  }
}
"#;

#[test]
fn a_template_reads_neither_the_key_nor_the_session() {
    coder_requirements::require!(Terraform);
    let server = Server::start(&[]);
    let home = server.first_user();
    let key = home
        .run(&["provisioner", "keys", "create", "spied"])
        .success()
        .out
        .lines()
        .last()
        .unwrap()
        .to_owned();
    let mut elsewhere = Home::new();
    elsewhere.set("CODER_URL", &server.url).set("CODER_PROVISIONER_DAEMON_KEY", &key);
    // Files of a login in the daemon's home.
    let session = elsewhere.config();
    std::fs::create_dir_all(&session).unwrap();
    std::fs::write(session.join("session"), &key).unwrap();
    let flags = ["--job-isolation", "required", "--prometheus-enable", "--prometheus-address", "127.0.0.1:0"];
    let mut daemon = server.daemon_that_tries(&elsewhere, "careful", &flags);
    let started = until(WAIT_LIMIT, || {
        let log = daemon.log();
        (log.contains("successfully connected") || log.contains("cannot be isolated")).then_some(log)
    });
    if !coder_requirements::has(Requirement::Namespaces) {
        assert!(started.is_some_and(|log| log.contains("cannot be isolated")));
        assert!(!daemon.end().success());
        return;
    }
    daemon.wait_for_log("jobs are isolated");
    let cache = elsewhere.path().join("cache-careful");
    std::fs::create_dir_all(cache.join("work/Session-of-another")).unwrap();
    let (first, second) = key.split_at(key.len() / 2);
    let spy = SEARCHING_TEMPLATE
        .replace("PART-A\"\"-PART-B", &format!("{first}\"\"{second}"))
        .replace("SESSION", &session.join("session").display().to_string())
        .replace("CACHE", &cache.display().to_string());
    let directory = write(&home, "spy", &spy);
    home.run(&["templates", "push", "spy", "-y", "-d", &directory]).success();
    home.run(&["create", "spied", "--template", "spy", "-y"]).success();
    let logs = home.run(&["logs", "spied"]).success().out;
    assert!(logs.contains("spy found 0") && logs.contains("work 1"), "{logs}");
    home.run(&["delete", "spied", "-y"]).success();
}

#[test]
fn states_are_encrypted_checked_and_rotated() {
    coder_requirements::require!(Terraform);
    let (old, new) =
        ("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", "MTEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=");
    let mut place = Home::new();
    place.set("CODER_STATE_ENCRYPTION_KEYS", old);
    let server = Server::in_home(place, "127.0.0.1:0", &["--provisioner-daemons=1"]);
    let address = server.url.trim_start_matches("http://").to_owned();
    let home = server.first_user();
    let directory =
        write(&home, "kept", "resource \"terraform_data\" \"a\" {\n  input = \"find-me-if-you-can\"\n}\n");
    home.run(&["templates", "push", "kept", "-y", "-d", &directory]).success();
    home.run(&["create", "kept", "--template", "kept", "-y"]).success();
    let state = home.run(&["state", "pull", "kept"]).success().out;
    assert!(state.contains("find-me-if-you-can"));
    let data = server.home().home().join(".local/share/coder");
    let stored = |needle: &[u8]| {
        std::fs::read_dir(&data).unwrap().any(|file| {
            std::fs::read(file.unwrap().path()).unwrap().windows(needle.len()).any(|part| part == needle)
        })
    };
    // Only a state has such a field. The value itself is also in the template.
    assert!(state.contains("\"lineage\"") && !stored(b"\"lineage\""), "the state is unencrypted on the disk");
    assert!(stored(b"\0cst1"));
    let wrong = ["server", "check", "--state-encryption-keys", new];
    let refused = server.home().run(&wrong);
    assert!(
        !refused.status.success() && refused.out.contains("values are encrypted with this key"),
        "{}",
        refused.out
    );
    let both = format!("{new},{old}");
    let rotated =
        server.home().run(&["server", "states", "rotate", "--state-encryption-keys", &both]).success();
    assert!(
        rotated.err.contains("are encrypted with the key") || rotated.out.contains("are encrypted"),
        "{}",
        rotated.err
    );
    server.home().run(&wrong).success();
    // A running server would encrypt its new values again.
    let decrypt = ["server", "states", "decrypt", "--state-encryption-keys", new];
    server.home().run(&decrypt).refused(&format!("another server, process {},", server.process.id()));
    let mut server = server;
    server.process.signal("TERM");
    assert!(server.process.end().success());
    server.home().run(&decrypt).success();
    // The variable of this home names the old key. A check without any key proves that nothing is encrypted.
    let mut without = server.home().command(&["server", "check"]);
    without.env_remove("CODER_STATE_ENCRYPTION_KEYS");
    finish(without, b"").success();
    let server = server.restart(&address);
    assert_eq!(home.run(&["state", "pull", "kept"]).success().out, state);
    server
        .home()
        .run(&["server", "states", "rotate", "--state-encryption-keys", "c2hvcnQ="])
        .refused("number 1");
}

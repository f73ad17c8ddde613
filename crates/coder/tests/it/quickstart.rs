//! `coder quickstart` from an empty directory to a running workspace and back.

use std::process::Stdio;

use crate::processes::PATIENCE;
use crate::program::{Home, until, wait};

/// Whether a process with this id exists.
fn lives(pid: &str) -> bool {
    std::path::Path::new("/proc").join(pid).join("cmdline").exists()
}

#[test]
fn a_running_workspace_in_one_command() {
    coder_requirements::require!(Terraform);
    let home = Home::new();
    let data = home.path().join("data");
    for round in 1..=2 {
        let (out, err) = (home.path().join("out"), home.path().join("err"));
        let mut command = home.command(&[
            "quickstart",
            "--data-dir",
            data.to_str().unwrap(),
            "--http-address",
            "127.0.0.1:0",
        ]);
        command.stdin(Stdio::null());
        command.stdout(std::fs::File::create(&out).unwrap()).stderr(std::fs::File::create(&err).unwrap());
        let mut child = command.spawn().unwrap();
        let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap();
        let ready = until(PATIENCE * 2, || {
            let ended = child.try_wait().unwrap().is_some();
            (ended || read(&out).contains("Press Ctrl-C")).then_some(!ended)
        });
        let text = read(&out);
        if ready != Some(true) {
            let _ = child.kill();
            let log = |name: &str| std::fs::read_to_string(data.join(name)).unwrap_or_default();
            panic!("round {round}: {text}\n{}\n{}\n{}", read(&err), log("server.log"), log("daemon.log"));
        }
        // The width of paths and of Terraform's lines cannot be limited.
        let long =
            |line: &&str| line.chars().count() > 80 && !line.contains('/') && !line.starts_with("    ");
        let err_text = read(&err);
        let wide: Vec<_> = text.lines().chain(err_text.lines()).filter(long).collect();
        assert!(wide.is_empty(), "wider than a terminal: {wide:#?}");
        assert!(text.contains("terraform_data.machine") && text.contains("agent main"), "{text}");
        let built = text.lines().find(|line| line.starts_with("Built by")).unwrap();
        assert!(built.contains("quickstart-daemon"), "{built}");
        let daemon = built.rsplit(' ').next().unwrap().to_owned();
        assert!(lives(&daemon) && daemon != child.id().to_string(), "{built}");

        // The printed variable is enough to continue.
        let line = text.lines().find(|line| line.contains("export CODER_CONFIG_DIR=")).unwrap();
        let mut person = Home::new();
        person.set("CODER_CONFIG_DIR", line.split_once('=').unwrap().1);
        assert!(person.run(&["list"]).success().out.contains("Running"));

        let status =
            std::process::Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status().unwrap();
        assert!(status.success());
        assert!(wait(&mut child, PATIENCE).success(), "{}", read(&err));
        assert!(
            until(PATIENCE, || (!lives(&daemon)).then_some(())).is_some(),
            "the daemon {daemon} is still running"
        );
    }
}

#[test]
fn without_terraform_it_says_what_to_do() {
    let mut home = Home::new();
    home.set("PATH", "/nonexistent");
    let found_none = "neither terraform nor tofu was found in PATH";
    let outcome = home.run(&["quickstart", "--terraform-install=false"]).refused(found_none);
    assert!(outcome.err.contains("--terraform-path"), "{}", outcome.err);
    // Otherwise it installs one like every daemon, from the mirror, whose password is not shown.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mirror = format!("--terraform-mirror=http://me:geheim@{closed}/");
    let outcome = home.run(&["quickstart", &mirror]).refused(found_none);
    assert!(outcome.err.contains(&format!("{closed}/index.json")), "{}", outcome.err);
    assert!(!outcome.err.contains("geheim"), "{}", outcome.err);
}

/// Processes with the text in their arguments.
fn processes(marker: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let arguments = |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| String::from_utf8_lossy(&arguments(*pid)).contains(marker)).collect()
}

#[test]
fn a_killed_quickstart_leaves_nothing_behind() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut home = Home::new();
    let temporary = home.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    home.set("TMPDIR", temporary.display().to_string());
    // A Terraform that never ends. Its arguments identify it.
    let (terraform, marker) = (home.path().join("terraform"), format!("{}/endless", home.path().display()));
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = version ]; then echo '{{\"terraform_version\":\"1.9.8\"}}'; exit; fi\n\
         exec sh -c 'while :; do sleep 1; done' '{marker}'\n"
    );
    std::fs::write(&terraform, script).unwrap();
    std::fs::set_permissions(&terraform, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = format!("--terraform-path={}", terraform.display());
    let mut command = home.command(&["quickstart", &program, "--http-address", "127.0.0.1:0"]);
    let err = home.path().join("err");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&err).unwrap());
    let mut child = command.spawn().unwrap();
    let works = until(PATIENCE, || {
        let ended = child.try_wait().unwrap().is_some();
        (ended || !processes(&marker).is_empty()).then_some(!ended)
    });
    let said = std::fs::read_to_string(&err).unwrap();
    let of_daemon = format!("{}/coder-quickstart-", temporary.display());
    let daemons = processes(&of_daemon);
    // No process may outlive this test, even if it fails.
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((works, daemons.len()), (Some(true), 1), "{said}");
    let left =
        until(PATIENCE, || (processes(&of_daemon).len() + processes(&marker).len() == 0).then_some(()));
    assert!(left.is_some(), "{:?} and {:?} live on", processes(&of_daemon), processes(&marker));

    let dirs = || {
        let entries = std::fs::read_dir(&temporary).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.display().to_string().starts_with(&of_daemon)).collect::<Vec<_>>()
    };
    let [dir] = &dirs()[..] else { panic!("{:?}", dirs()) };
    // The next start fails too, and still removes the directory.
    let outcome = home.run(&["quickstart", "--terraform-path=/nowhere", "--terraform-install=false"]);
    let outcome = outcome.refused("no such file");
    assert!(outcome.err.contains(&format!("Removed {}", dir.display())), "{}", outcome.err);
    assert!(!dir.exists());
    assert_eq!(dirs().len(), 0, "a failed start leaves no files");
}

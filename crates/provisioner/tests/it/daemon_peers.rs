//! Several daemons of one user: no job of one reaches what belongs to another.

use std::path::Path;

use coder_provisioner::{IsolationMode, RunError};
use coder_testkit::wait;

use crate::fake_server::Server;
use crate::fixture::{Running, start, tar, terraform};
use crate::isolation::{has, isolation_level, output_of};

/// A daemon that isolates its jobs or does not start; its directory is `dir`.
fn careful(server: &Server, registry: &Path, cache: Option<&Path>) -> Running {
    Running::with(server, |config, dir| {
        config.registry = Some(registry.join("registry"));
        config.isolation = IsolationMode::Required;
        std::fs::create_dir(dir.join("config")).unwrap();
        std::fs::write(dir.join("config/session"), "SECRET-OF-THE-OTHER").unwrap();
        config.hidden = vec![dir.join("config")];
        if let Some(cache) = cache {
            config.cache_dir = cache.to_owned();
        }
    })
}

/// Skips a test where jobs cannot be isolated.
fn can_be_apart() -> bool {
    terraform().is_some() && isolation_level(&Running::start(&Server::new())).is_some()
}

/// Runs a job of one daemon that attacks a directory of another, and returns what it printed.
async fn attacked(server: &Server, victim: &Path, dirs: &[&Path]) -> Vec<String> {
    let provider = dirs[0].join("plugins/host/ns/type/1.0.0/linux_amd64/provider");
    std::fs::create_dir_all(provider.parent().unwrap()).unwrap();
    std::fs::write(&provider, "program").unwrap();
    let mut script = String::new();
    for dir in dirs {
        let dir = dir.display();
        script.push_str(&format!(
            "echo seen $(ls -A {dir} 2>/dev/null | wc -l)\n\
             mkdir -p {dir}/plugins 2>/dev/null; echo hostile > {dir}/planted && echo planted\n\
             mv {dir} {dir}.moved && echo moved\n\
             ls {dir}/../{0}/plugins && echo listed\n",
            Path::new(&dir.to_string()).file_name().unwrap().display(),
        ));
    }
    script.push_str(&format!(
        "echo hostile > {provider} && echo written\n\
         ln {provider} linked && echo linked\n\
         mv {victim} {victim}.moved && echo moved\n\
         cat {victim}/config/session\n\
         echo end",
        provider = provider.display(),
        victim = victim.display(),
    ));
    let lines = output_of(server, &script).await;
    let of_script: Vec<String> = lines
        .into_iter()
        .filter_map(|line| line.split_once("local-exec): ").map(|(_, said)| said.to_owned()))
        .filter(|line| !line.starts_with("Executing"))
        .collect();
    assert!(has(&of_script, "end"), "{of_script:#?}");
    assert_eq!(std::fs::read_to_string(&provider).unwrap(), "program");
    for dir in dirs {
        assert!(!dir.join("planted").exists() && dir.exists(), "{}", dir.display());
    }
    of_script
}

fn held(lines: &[String], dirs: usize) {
    for broken in ["planted", "moved", "written", "linked", "SECRET"] {
        assert!(!lines.iter().any(|line| line.starts_with(broken)), "{broken}: {lines:#?}");
    }
    assert_eq!(lines.iter().filter(|line| *line == "seen 0").count(), dirs, "{lines:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn job_reaches_nothing_of_another_daemon_whichever_started_first() {
    if !can_be_apart() {
        return;
    }
    for victim_is_first in [true, false] {
        let registry = tempfile::tempdir().unwrap();
        let (server, elsewhere) = (Server::new(), Server::new());
        let start = |server: &Server| careful(server, registry.path(), None);
        let (victim, attacker);
        if victim_is_first {
            victim = start(&elsewhere);
            attacker = start(&server);
        } else {
            attacker = start(&server);
            assert!(attacker.status.wait_for(|status| status.connected).await.is_some());
            victim = start(&elsewhere);
        }
        // It is registered when it has started working.
        assert!(victim.status.wait_for(|status| status.connected).await.is_some());
        let dirs = [
            victim.dir.path().join("cache"),
            victim.dir.path().join("config"),
            registry.path().join("registry"),
        ];
        let dirs: Vec<&Path> = dirs.iter().map(|dir| dir.as_path()).collect();
        held(&attacked(&server, victim.dir.path(), &dirs).await, dirs.len());
        drop(attacker);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn job_reaches_no_cache_in_another_or_behind_a_link() {
    if !can_be_apart() {
        return;
    }
    let registry = tempfile::tempdir().unwrap();
    let (server, elsewhere, third) = (Server::new(), Server::new(), Server::new());
    let attacker = careful(&server, registry.path(), None);
    assert!(attacker.status.wait_for(|status| status.connected).await.is_some());
    // In the part of the attacker's cache that its own jobs read.
    let inside = attacker.dir.path().join("cache/plugins/nested");
    let nested = careful(&elsewhere, registry.path(), Some(&inside));
    let real = registry.path().join("real");
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, registry.path().join("link")).unwrap();
    let linked = careful(&third, registry.path(), Some(&registry.path().join("link/cache")));
    for victim in [&nested, &linked] {
        assert!(victim.status.wait_for(|status| status.connected).await.is_some());
    }
    let behind = real.join("cache");
    let dirs = [inside.as_path(), behind.as_path()];
    held(&attacked(&server, nested.dir.path(), &dirs).await, dirs.len());
    // A job of the nested daemon does not reach the outer one either.
    let around = attacker.dir.path().join("cache");
    let lines =
        output_of(&elsewhere, &format!("echo around $(ls {} | tr '\\n' ' ')\necho end", around.display()))
            .await;
    assert!(lines.iter().any(|line| line.trim_end().ends_with("): around plugins")), "{lines:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_waits_for_jobs_that_began_before_it_was_known() {
    if !can_be_apart() {
        return;
    }
    let registry = tempfile::tempdir().unwrap();
    let (server, elsewhere) = (Server::new(), Server::new());
    let first = careful(&server, registry.path(), None);
    let (begun, go) = (registry.path().join("begun"), registry.path().join("go"));
    let waits = format!(
        "resource \"terraform_data\" \"a\" {{\n  provisioner \"local-exec\" {{\n    command = \"touch {}; while [ ! -e {} ]; do sleep 0.2; done\"\n  }}\n}}\n",
        begun.display(),
        go.display()
    );
    server.give(start(tar(&[("main.tf", &waits)])));
    wait::eventually("the first job", || begun.exists()).await;
    let list = registry.path().join("registry");
    let known = list.read_dir().unwrap().count();
    let second = careful(&elsewhere, registry.path(), None);
    wait::eventually("the second daemon to be known", || list.read_dir().unwrap().count() > known).await;
    assert!(!second.status.get().connected && first.at_work() == 1);
    std::fs::write(&go, "").unwrap();
    assert!(second.status.wait_for(|status| status.connected).await.is_some());
    assert_eq!(first.at_work(), 0, "it has begun beside a job that sees its directories");
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_does_not_start_with_a_registry_that_others_can_write_to() {
    use std::os::unix::fs::PermissionsExt as _;
    if !can_be_apart() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let squatted = dir.path().join("registry");
    std::fs::create_dir(&squatted).unwrap();
    std::fs::set_permissions(&squatted, std::fs::Permissions::from_mode(0o777)).unwrap();
    let mut refused = careful(&Server::new(), dir.path(), None);
    let error = refused.ended().await.unwrap_err();
    assert!(matches!(error, RunError::Registry(_)), "{error}");
    let words = error.to_string();
    assert!(words.contains("its mode is 0777") && words.contains("--daemon-registry"), "{words}");
    // As far as this machine permits: it logs so and continues.
    let running = Running::with(&Server::new(), |config, _| config.registry = Some(squatted.clone()));
    assert!(running.status.wait_for(|status| status.connected).await.is_some());
    assert_eq!(squatted.read_dir().unwrap().count(), 0, "nothing is written where others can write");
}

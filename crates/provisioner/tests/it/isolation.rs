//! What a template's commands can see of the daemon and of other jobs.

use coder_provisioner::{IsolationLevel, IsolationMode, JobLimits, RunError, TerraformSource};
use coder_requirements::Requirement;
use coder_wire::messages::provisionerd::completed_job::Type;

use crate::fake_server::Server;
use crate::fixture::{PLAIN, Running, import, runs_with, stand_in, start, tar, terraform};

/// Runs a script in an apply, and returns what it printed.
pub(crate) async fn output_of(server: &Server, script: &str) -> Vec<String> {
    let template = format!(
        "resource \"terraform_data\" \"a\" {{\n  provisioner \"local-exec\" {{\n    command = <<-EOT\n{script}\n    EOT\n  }}\n}}\n"
    );
    let ended = |record: &crate::fake_server::Record| record.completed.len() + record.failed.len();
    let (before, lines) = (ended(&server.record()), server.record().lines().count());
    server.give(start(tar(&[("main.tf", &template)])));
    let record = server.wait_for("the end of the job", |record| ended(record) > before).await;
    record.lines().skip(lines).map(|line| line.output.clone()).collect()
}

/// The sleep time of a process that must not outlive its job. It is unique to this run, because processes of
/// other runs may exist on the machine.
fn sleep_seconds(number: u32) -> String {
    format!("{}.{}", 86_400 + number, std::process::id())
}

pub(crate) fn has(lines: &[String], wanted: &str) -> bool {
    lines.iter().any(|line| line.contains(wanted))
}

/// What this kernel permits, probed by another program than ours: a daemon must reach it.
pub(crate) fn kernel_level() -> IsolationLevel {
    if !cfg!(target_os = "linux") {
        return IsolationLevel::None;
    }
    let can = |flags: &[&str]| {
        let output = std::process::Command::new("unshare").args(flags).arg("true").output();
        output.expect("unshare of util-linux is installed").status.success()
    };
    let users = ["--user", "--map-root-user"];
    let directories = [users.as_slice(), &["--mount"]].concat();
    let full = ["--mount", "--pid", "--fork", "--mount-proc"];
    if can(&full) || can(&[users.as_slice(), &full].concat()) {
        IsolationLevel::Full
    } else if can(&directories) {
        IsolationLevel::Directories
    } else {
        IsolationLevel::None
    }
}

/// The isolation level of a daemon, which must be all that the kernel permits; `None` without isolation.
pub(crate) fn isolation_level(running: &Running) -> Option<IsolationLevel> {
    let level = running.status.get().isolation;
    assert_eq!(level, kernel_level());
    if level == IsolationLevel::None {
        assert!(!coder_requirements::has(Requirement::Namespaces), "the kernel has namespaces");
        return None;
    }
    Some(level)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_reads_neither_the_daemon_nor_another_job() {
    if terraform().is_some() {
        looks_around().await;
    }
}

/// Runs a job that tries to see what it must not. Returns the isolation level.
async fn looks_around() -> Option<IsolationLevel> {
    let server = Server::new();
    let running = Running::with(&server, |config, dir| {
        let (config_dir, other) = (dir.join("config"), dir.join("cache/work/Session-other/template"));
        std::fs::create_dir_all(&config_dir).unwrap();
        std::fs::write(config_dir.join("session"), "SECRET-OF-THE-DAEMON").unwrap();
        std::fs::create_dir_all(&other).unwrap();
        std::fs::write(other.join("terraform.tfstate"), r#"{"SECRET-OF-ANOTHER-JOB": 1}"#).unwrap();
        std::fs::create_dir_all(dir.join("cache/init/entry")).unwrap();
        std::fs::create_dir_all(dir.join("cache/plugins")).unwrap();
        config.hidden = vec![config_dir];
    });
    let level = isolation_level(&running)?;
    let cache = running.dir.path().join("cache");
    let dir = running.dir.path().display();
    let pid = std::process::id();
    // A job with pids of its own may use this number itself.
    let may_see_pid = level != IsolationLevel::Full;
    let script = format!(
        "echo begin\n\
         cat {dir}/config/session || true\n\
         cat {dir}/cache/work/*/template/terraform.tfstate || true\n\
         echo work $(ls ../.. | wc -l)\n\
         echo up $(ls -a ../../.. | tr '\\n' ' ')\n\
         echo prepared $(ls {dir}/cache/init | wc -l)\n\
         touch {dir}/cache/plugins/touched && echo written || echo refused\n\
         touch own && echo own\n\
         umount {dir}/cache/work 2>/dev/null && echo unmounted\n\
         unshare -Urm sh -c 'umount {dir}/cache/work' 2>/dev/null && echo unmounted\n\
         {may_see_pid} && cat /proc/{pid}/environ >/dev/null 2>&1 && echo environ\n\
         echo processes $(ls -d /proc/[0-9]* | wc -l)\n\
         echo end"
    );
    let lines = output_of(&server, &script).await;
    assert!(has(&lines, "end") && has(&lines, "own"), "{lines:#?}");
    for forbidden in ["SECRET-OF", "written", "unmounted", "environ"] {
        let found = lines.iter().find(|line| {
            line.contains(forbidden) && line.contains("local-exec): ") && !line.contains("Executing")
        });
        assert!(found.is_none(), "{found:?}");
    }
    assert!(has(&lines, "work 1") && has(&lines, "prepared 0") && has(&lines, "refused"), "{lines:#?}");
    assert!(!cache.join("plugins/touched").exists());
    if level == IsolationLevel::Full {
        let seen =
            lines.iter().find_map(|line| line.split_once("processes ")?.1.trim().parse::<usize>().ok());
        assert!(seen.is_some_and(|seen| seen < 8), "{lines:#?}");
    }
    assert!(cache.join("work/Session-other/template/terraform.tfstate").exists());
    Some(level)
}

/// What containers and older kernels do not permit.
#[cfg(target_os = "linux")]
mod restricted {
    use super::*;
    use crate::kernel_restrictions::{Without, without};

    const ALL: libc::c_int = libc::CLONE_NEWNS | libc::CLONE_NEWUSER | libc::CLONE_NEWPID;

    async fn runs_a_job(level: impl Fn(IsolationLevel) -> bool) {
        let server = Server::new();
        let running = Running::start(&server);
        let found = running.status.get().isolation;
        assert!(level(found), "{found}");
        server.give(start(tar(&[("main.tf", PLAIN)])));
        server.completed().await;
    }

    #[test]
    fn without_namespaces_of_processes_a_job_reads_no_more() {
        coder_requirements::require!(Terraform);
        let name = "isolation::restricted::without_namespaces_of_processes_a_job_reads_no_more";
        without(&[Without::Namespaces(libc::CLONE_NEWPID)], name, async {
            assert_ne!(looks_around().await, Some(IsolationLevel::Full));
            // A process that left its group is identified by its marker alone.
            let server = Server::new();
            let _running = Running::start(&server);
            let seconds = sleep_seconds(1);
            let script = format!(
                "setsid sh -c '> left; exec sleep {seconds}' >/dev/null 2>&1 &\n\
                 while [ ! -e left ]; do sleep 0.01; done\necho begun"
            );
            let lines = output_of(&server, &script).await;
            assert!(has(&lines, "begun"), "{lines:#?}");
            assert!(!runs_with(&format!("sleep\u{0}{seconds}")), "what a job left behind still runs");
        });
    }

    #[test]
    fn without_any_namespace_jobs_run_and_required_isolation_is_refused() {
        coder_requirements::require!(Terraform);
        let name = "isolation::restricted::without_any_namespace_jobs_run_and_required_isolation_is_refused";
        without(&[Without::Namespaces(ALL)], name, async {
            runs_a_job(|level| level == IsolationLevel::None).await;
            let mut running =
                Running::with(&Server::new(), |config, _| config.isolation = IsolationMode::Required);
            let error = running.ended().await.unwrap_err();
            assert!(matches!(error, RunError::NotIsolated(_)));
            assert!(error.to_string().contains("namespaces cannot be created"), "{error}");
        });
    }

    #[test]
    fn the_reason_is_the_smallest_obstacle() {
        coder_requirements::require!(Terraform);
        let name = "isolation::restricted::the_reason_is_the_smallest_obstacle";
        without(&[Without::Namespaces(libc::CLONE_NEWPID), Without::Mounts], name, async {
            let mut running =
                Running::with(&Server::new(), |config, _| config.isolation = IsolationMode::Required);
            let error = running.ended().await.unwrap_err().to_string();
            // Without any namespaces, that error comes first.
            let user = std::process::Command::new("unshare").args(["-U", "true"]).status();
            if user.is_ok_and(|status| status.success()) {
                assert!(
                    error.ends_with("directories cannot be masked: Operation not permitted (os error 1)"),
                    "{error}"
                );
            }
        });
    }

    #[test]
    fn kernels_before_5_10_run_jobs() {
        coder_requirements::require!(Terraform);
        let name = "isolation::restricted::kernels_before_5_10_run_jobs";
        without(&[Without::DescriptorFlags], name, runs_a_job(|_| true));
    }

    #[test]
    fn where_processes_have_no_descriptors_jobs_run_without_namespaces_of_processes() {
        coder_requirements::require!(Terraform);
        let name = "isolation::restricted::where_processes_have_no_descriptors_jobs_run_without_namespaces_of_processes";
        without(&[Without::Descriptors], name, async {
            // Without pidfds the first process of a namespace cannot be waited for.
            let wanted = if kernel_level() == IsolationLevel::Full {
                IsolationLevel::Directories
            } else {
                kernel_level()
            };
            runs_a_job(|level| level == wanted).await;
        });
    }

    /// Root in a user namespace still owns the kernel's settings.
    async fn reaches_no_setting_of_the_kernel() {
        let server = Server::new();
        let running = Running::start(&server);
        if isolation_level(&running).is_none() {
            return;
        }
        let script = "for file in /proc/sys/kernel/core_pattern /proc/sysrq-trigger; do\n                      if [ -w $file ]; then echo may write $file; fi\ndone\necho looked";
        let lines = output_of(&server, script).await;
        let may = lines.iter().find(|line| line.contains("): may write"));
        assert!(has(&lines, "): looked") && may.is_none(), "{lines:#?}");
    }

    #[test]
    fn an_administrator_of_nothing_reaches_no_setting_of_the_kernel() {
        coder_requirements::require!(Terraform);
        let name = "isolation::restricted::an_administrator_of_nothing_reaches_no_setting_of_the_kernel";
        without(&[Without::Administration], name, reaches_no_setting_of_the_kernel());
    }

    #[test]
    fn nor_does_one_who_sees_other_processes() {
        coder_requirements::require!(Terraform);
        let name = "isolation::restricted::nor_does_one_who_sees_other_processes";
        let what = [Without::Administration, Without::Namespaces(libc::CLONE_NEWPID)];
        without(&what, name, reaches_no_setting_of_the_kernel());
    }
}

/// `init` runs git and its programs for sources that a template names.
#[tokio::test(flavor = "multi_thread")]
async fn programs_started_by_init_reach_neither_the_daemon_nor_another_job() {
    let real = coder_requirements::require!(program Terraform);
    let (server, seconds) = (Server::new(), sleep_seconds(2));
    let running = Running::with(&server, |config, dir| {
        let (other, kept) = (dir.join("cache/work/Session-other"), dir.join("cache/files/content"));
        for dir in [&other, &kept, &dir.join("cache/init/entry"), &dir.join("cache/installing/other")] {
            std::fs::create_dir_all(dir).unwrap();
        }
        std::fs::write(other.join("state"), "SECRET-OF-ANOTHER-JOB").unwrap();
        std::fs::write(kept.join("file"), "SECRET-OF-ANOTHER-TEMPLATE").unwrap();
        std::fs::write(dir.join("session"), "SECRET-OF-THE-DAEMON").unwrap();
        config.hidden = vec![dir.join("session")];
        let (shown, pid) = (dir.display(), std::process::id());
        let script = format!(
            "if [ \"$1\" = init ]; then\n\
             cat {shown}/session {shown}/cache/work/*/state {shown}/cache/files/content/* 2>&1\n\
             cat /proc/{pid}/environ >/dev/null 2>&1 && echo spied environ\n\
             cat /proc/$PPID/environ 2>/dev/null | tr '\\0' '\\n' | grep '^CARGO_PKG_NAME=' | sed 's/^/spied parent /'\n\
             echo spied work $(ls {shown}/cache/work | wc -l) prepared $(ls {shown}/cache/init | wc -l)\n\
             touch \"$TF_PLUGIN_CACHE_DIR/filled\" && echo spied filled\n\
             touch {shown}/cache/plugins/forged 2>/dev/null && echo spied forged\n\
             echo spied installing $(ls {shown}/cache/installing | wc -l)\n\
             touch {shown}/cache/other 2>/dev/null && echo spied other\n\
             setsid sleep {seconds} & echo spied end\n\
             fi\nexec \"$REAL\" \"$@\""
        );
        config.terraform = TerraformSource::File(stand_in(dir, &real, &script));
    });
    let Some(level) = isolation_level(&running) else { return };
    server.give(start(tar(&[("main.tf", PLAIN)])));
    let (record, _) = server.completed().await;
    let lines: Vec<String> = record.lines().map(|line| line.output.clone()).collect();
    assert!(has(&lines, "spied end") && has(&lines, "spied filled"), "{lines:#?}");
    assert!(has(&lines, "spied work 1 prepared 0") && has(&lines, "spied installing 1"), "{lines:#?}");
    for forbidden in ["SECRET-OF", "spied parent", "spied other", "spied forged"] {
        assert!(!has(&lines, forbidden), "{forbidden}: {lines:#?}");
    }
    // A job with pids of its own may use the daemon's number itself.
    assert!(level == IsolationLevel::Full || !has(&lines, "spied environ"), "{lines:#?}");
    let cache = running.dir.path().join("cache");
    assert!(!cache.join("plugins/filled").exists() && !cache.join("other").exists());
    if level == IsolationLevel::Full {
        assert!(!runs_with(&format!("sleep\u{0}{seconds}")), "what init left behind still runs");
    }
}

/// Git works with a repository of this user as it does outside.
#[tokio::test(flavor = "multi_thread")]
async fn a_module_from_git_is_fetched_by_an_init_that_is_kept_apart() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    let running = Running::start(&server);
    let repository = running.dir.path().join("repository");
    std::fs::create_dir(&repository).unwrap();
    std::fs::write(repository.join("main.tf"), PLAIN).unwrap();
    let git = |args: &[&str]| {
        let mut command = std::process::Command::new("git");
        let identity =
            ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"];
        command.current_dir(&repository).args(identity).args(args);
        command.output().is_ok_and(|output| output.status.success())
    };
    coder_requirements::require!(Git);
    assert!(git(&["init"]) && git(&["add", "main.tf"]) && git(&["commit", "-m", "a module"]));
    let main = format!("module \"m\" {{\n  source = \"git::file://{}\"\n}}\n", repository.display());
    server.give(import(tar(&[("main.tf", &main)]), &[]));
    let (_, result) = server.completed().await;
    let Type::TemplateImport(result) = result else { panic!("no import") };
    assert_eq!(result.start_resources[0].module_path, "module.m");
    assert!(!result.module_files.is_empty(), "it is kept with the version");
}

/// Inherited descriptors of the daemon: a job gets none.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_job_inherits_no_open_file_of_the_daemon() {
    coder_requirements::require!(Terraform);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("left-open");
    let file = std::fs::File::create(&path).unwrap();
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
    for isolation in [IsolationMode::Auto, IsolationMode::None] {
        let server = Server::new();
        let _running = Running::with(&server, |config, _| config.isolation = isolation);
        let lines = output_of(&server, "echo open $(ls -l /proc/self/fd)").await;
        assert!(has(&lines, "open total") && !has(&lines, "left-open"), "{lines:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_job_started_outlives_it() {
    coder_requirements::require!(Terraform);
    coder_requirements::require!(Namespaces);
    let server = Server::new();
    let running = Running::start(&server);
    assert_eq!(isolation_level(&running), Some(IsolationLevel::Full));
    // Outside its group and session, and without the marker in its environment.
    let stray = running.dir.path().join("alive").display().to_string();
    let script = format!(
        "env -i setsid sh -c 'while :; do date > {stray}; sleep 0.02; done' >/dev/null 2>&1 &\n\
         while [ ! -s {stray} ]; do sleep 0.01; done\necho started"
    );
    let lines = output_of(&server, &script).await;
    assert!(has(&lines, "started"));
    assert!(!runs_with(&stray), "a process of the job still writes");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_isolation_jobs_run_like_the_daemon() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    let running = Running::with(&server, |config, dir| {
        config.isolation = IsolationMode::None;
        std::fs::create_dir_all(dir.join("cache/init/entry")).unwrap();
    });
    assert_eq!(running.status.get().isolation, IsolationLevel::None);
    let lines = output_of(
        &server,
        &format!("echo prepared $(ls {}/cache/init | wc -l)", running.dir.path().display()),
    )
    .await;
    assert!(!has(&lines, "prepared 0") && has(&lines, "prepared "), "{lines:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_has_no_more_than_it_may() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    let running = Running::with(&server, |config, _| {
        config.limits =
            JobLimits { processes: Some(200), memory_bytes: Some(1 << 30), processors: Some(1.0) };
    });
    let limits = running.status.get().limits;
    assert_eq!(limits.len(), 3, "{limits:?}");
    let script = "echo groups; cat /proc/self/cgroup; echo data $(ulimit -d)\n\
                  for i in $(seq 400); do sleep 1 & done 2>/dev/null; echo survived";
    let lines = output_of(&server, script).await;
    if limits.iter().any(|words| words.starts_with("pids: control group")) {
        assert!(has(&lines, "coder-job-") && !has(&lines, "): survived"), "{lines:#?}");
    } else {
        assert!(has(&lines, "data 1048576"), "{lines:#?}");
    }
}

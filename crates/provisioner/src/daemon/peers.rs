//! What a daemon does at its start about the other daemons of its user and the home directory that they share:
//! jobs must not see what belongs to another daemon (docs/isolation.md).

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Once;
use std::time::Duration;

use super::config::{Config, RunError};
use crate::files::cache_dir::resolve;
use crate::isolation::{
    AppliedLimits, DaemonRegistry, IsolationLevel, IsolationMode, IsolationSupport, JobHome, SandboxConfig,
};
use crate::job::workdir;
use crate::terraform::binary::TerraformSource;
use crate::terraform::command::environment::Environment;

/// How often to check whether jobs of other daemons have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The sandbox configuration of a daemon.
pub(crate) fn sandbox_config(config: &Config, environment: &Environment) -> SandboxConfig {
    let support = IsolationSupport::of(config.isolation);
    let home = JobHome::from_environment(
        environment.variables(),
        &config.home,
        support.level != IsolationLevel::None,
    );
    let hidden = config.hidden.iter().chain([&config.file_cache]);
    SandboxConfig {
        support,
        cache: config.cache_dir.clone(),
        hidden: hidden.map(|path| resolve(path)).collect(),
        programs: programs(config, environment.path()),
        home,
        registry: DaemonRegistry::locate(config.registry.as_deref()),
        limits: AppliedLimits::detect(&config.limits),
    }
}

/// The available programs, and the directory of installed ones.
fn programs(config: &Config, path: Option<&OsStr>) -> Vec<PathBuf> {
    let in_path = |name: &str| {
        let mut dirs = path.map(std::env::split_paths).into_iter().flatten();
        dirs.find_map(|dir| Some(dir.join(name)).filter(|file| file.is_file()))
    };
    let given = match &config.terraform {
        TerraformSource::SearchPath => ["terraform", "tofu"].into_iter().filter_map(in_path).collect(),
        TerraformSource::File(file) => vec![file.clone()],
        TerraformSource::Paths(places) => places.clone(),
    };
    let installed = config.install.iter().map(|install| install.dir.clone());
    given.into_iter().chain(installed).collect()
}

/// Registers the paths of this daemon. Returns true when running jobs of other daemons may see them. Blocks.
///
/// # Errors
/// Jobs of other daemons would see the paths, and [`IsolationMode::Required`] was requested.
pub(crate) fn register(isolation: IsolationMode, sandbox_config: &SandboxConfig) -> Result<bool, RunError> {
    let own: Vec<PathBuf> = sandbox_config.hidden.iter().chain([&sandbox_config.cache]).cloned().collect();
    let programs: Vec<PathBuf> = sandbox_config.programs.iter().map(|path| resolve(path)).collect();
    let prepared = sandbox_config.registry.prepare().map_err(|error| error.to_string());
    let registered = prepared
        .and_then(|()| sandbox_config.registry.register(&own, &programs).map_err(|error| error.to_string()));
    match registered {
        Ok(is_new) => Ok(is_new && sandbox_config.support.level != IsolationLevel::None),
        Err(reason) if isolation == IsolationMode::Required => Err(RunError::Registry(reason)),
        Err(reason) => {
            if sandbox_config.support.level != IsolationLevel::None {
                tracing::warn!(target: "provisioner", %reason, "this daemon cannot be registered, so jobs of other daemons of this user may see its files: name a directory that only this user can write to (--daemon-registry)");
            }
            Ok(false)
        }
    }
}

/// Jobs of other daemons that started before this daemon was registered see its directories until they end.
/// With [`IsolationMode::Required`] the daemon waits for them.
pub(crate) async fn wait_for_jobs_of_peers(isolation: IsolationMode, sandbox_config: &SandboxConfig) {
    let (registry, cache) = (sandbox_config.registry.clone(), sandbox_config.cache.clone());
    let looking = tokio::task::spawn_blocking(move || {
        let others = registry.read().into_hidden().filter(|path| *path != cache);
        others.flat_map(|path| workdir::locks(&path.join("work"))).collect::<Vec<PathBuf>>()
    });
    let mut locks = looking.await.unwrap_or_default();
    let mut is_logged = false;
    loop {
        let looking = tokio::task::spawn_blocking(move || {
            locks.retain(|lock| workdir::is_held(lock));
            locks
        });
        locks = looking.await.unwrap_or_default();
        let Some(first) = locks.first() else { return };
        let (jobs, first) = (locks.len(), first.display());
        if isolation != IsolationMode::Required {
            tracing::warn!(target: "provisioner", jobs, %first, "jobs of other daemons of this user started before this daemon was registered, and may see its directories until they end");
            return;
        }
        if !std::mem::replace(&mut is_logged, true) {
            tracing::warn!(target: "provisioner", jobs, %first, "waiting for jobs of other daemons of this user that started before this daemon was registered and may see its directories");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Logs which well-known files of the daemon's home directory jobs do not see.
pub(crate) fn log_hidden_home_files(home: &JobHome) {
    static LOGGED: Once = Once::new();
    let hidden_files = home.hidden_files();
    if !hidden_files.is_empty() {
        // Daemons inside a server share one home directory.
        LOGGED.call_once(|| {
            tracing::warn!(target: "provisioner", files = %hidden_files.join(", "), "jobs have a home directory of their own and do not see these files of this user: name what they need with --job-home");
        });
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::time::SystemTime;

    use super::*;
    use crate::job::workdir::WorkDir;

    /// A daemon whose directories lie in `dir`.
    fn daemon(dir: &Path, name: &str, level: IsolationLevel) -> SandboxConfig {
        let cache = dir.join(name);
        std::fs::create_dir_all(&cache).unwrap();
        let support = IsolationSupport::at(level);
        let registry = DaemonRegistry::locate(Some(&dir.join("registry")));
        SandboxConfig { support, cache, registry, ..SandboxConfig::default() }
    }

    #[test]
    fn jobs_of_others_may_see_a_daemon_that_was_not_registered_before() {
        let dir = tempfile::tempdir().unwrap();
        for (name, level, new) in [
            ("one", IsolationLevel::Full, true),
            ("one", IsolationLevel::Full, false),
            ("two", IsolationLevel::Directories, true),
            ("three", IsolationLevel::None, false),
        ] {
            let daemon = daemon(dir.path(), name, level);
            assert_eq!(register(IsolationMode::Auto, &daemon).unwrap(), new, "{name} {level}");
            assert!(daemon.registry.read().into_hidden().any(|path| path == daemon.cache), "{name}");
        }
    }

    #[test]
    fn a_registry_that_others_can_write_to_is_refused_where_isolation_is_required() {
        let dir = tempfile::tempdir().unwrap();
        let registry = dir.path().join("registry");
        std::fs::create_dir(&registry).unwrap();
        std::fs::set_permissions(&registry, std::fs::Permissions::from_mode(0o777)).unwrap();
        let daemon = daemon(dir.path(), "one", IsolationLevel::Full);
        assert!(!register(IsolationMode::Auto, &daemon).unwrap());
        let refused = register(IsolationMode::Required, &daemon);
        assert!(
            matches!(&refused, Err(RunError::Registry(reason)) if reason.contains("its mode is 0777")),
            "{refused:?}"
        );
        assert!(registry.read_dir().unwrap().next().is_none(), "nothing is written to it");
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_of_others_are_waited_for_where_isolation_is_required() {
        let dir = tempfile::tempdir().unwrap();
        let other = daemon(dir.path(), "other", IsolationLevel::Full);
        let own = daemon(dir.path(), "own", IsolationLevel::Full);
        for daemon in [&other, &own] {
            register(IsolationMode::Required, daemon).unwrap();
        }
        let create = |daemon: &SandboxConfig| {
            WorkDir::create(&daemon.cache.join("work"), SystemTime::UNIX_EPOCH).unwrap()
        };
        let (own_job, jobs) = (create(&own), [create(&other), create(&other)]);
        wait_for_jobs_of_peers(IsolationMode::Auto, &own).await;
        let waiting = wait_for_jobs_of_peers(IsolationMode::Required, &own);
        tokio::pin!(waiting);
        for job in jobs {
            let early = tokio::time::timeout(POLL_INTERVAL * 3, &mut waiting).await;
            assert!(early.is_err(), "a job of the other daemon is running");
            drop(job);
        }
        waiting.await;
        drop(own_job);
    }
}

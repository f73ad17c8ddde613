//! Flags of external and built-in daemons about the isolation and limits of jobs (docs/isolation.md), and about caches.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args as ClapArgs;
use coder_provisioner::{Config, IsolationMode, JobLimits};

use crate::env;

/// Flags about all jobs of a daemon.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Jobs {
    /// Variables that jobs inherit from the daemon's environment, `*` for any ending; default all but `CODER_*`.
    #[arg(long, env = env::PROVISIONER_DAEMON_JOB_ENV_ALLOW, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) job_env_allow: Vec<String>,
    /// Keep jobs apart from the daemon and from each other: auto (as far as possible here), required, or none.
    #[arg(long, env = env::JOB_ISOLATION, default_value = "auto", value_name = "MODE")]
    pub(crate) job_isolation: IsolationMode,
    /// Further files and directories that jobs must not see, such as caches of other daemons.
    #[arg(long, env = env::JOB_HIDE, value_delimiter = ',', value_name = "PATHS")]
    pub(crate) job_hide: Vec<PathBuf>,
    /// Files and directories of the daemon's home that jobs see, read-only, such as .aws,.kube; default none, as jobs have an
    /// empty home of their own. Files that variables such as KUBECONFIG name are seen anyway.
    #[arg(long, env = env::JOB_HOME, value_delimiter = ',', value_name = "PATHS")]
    pub(crate) job_home: Vec<PathBuf>,
    /// Where the daemons of one user register the directories that no job may see; the same for all of them. Default
    /// /var/lib/coder-daemons for root, ~/.local/state/coder-daemons for others.
    #[arg(long, env = env::DAEMON_REGISTRY, value_name = "DIRECTORY")]
    pub(crate) daemon_registry: Option<PathBuf>,
    /// Most memory of one job in MiB, where the kernel offers that; default no limit.
    #[arg(long, env = env::JOB_MEMORY_MIB, value_name = "MIB", value_parser = clap::value_parser!(u64).range(64..))]
    pub(crate) job_memory_mib: Option<u64>,
    /// Most processes and threads of one job, where the kernel offers that; default no limit.
    #[arg(long, env = env::JOB_PROCESSES, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(16..))]
    pub(crate) job_processes: Option<u64>,
    /// Most processors of one job, such as 1.5, where the kernel offers that; default no limit.
    #[arg(long, env = env::JOB_PROCESSORS, value_name = "NUMBER", value_parser = processors)]
    pub(crate) job_processors: Option<f64>,
    /// Most space for modules and bundles that the server keeps, so that later jobs need not download them, in MiB; 0 keeps
    /// none.
    #[arg(long, env = env::FILE_CACHE_MIB, default_value_t = 1024, value_name = "MIB", value_parser = clap::value_parser!(u64).range(..=1 << 30))]
    pub(crate) file_cache_mib: u64,
}

impl Jobs {
    /// Sets up a daemon, whose jobs must not see `hidden` either.
    pub(crate) fn apply(&self, config: &mut Config, hidden: Vec<PathBuf>) -> anyhow::Result<()> {
        config.job_environment = (!self.job_env_allow.is_empty()).then(|| self.job_env_allow.clone());
        config.isolation = self.job_isolation;
        for path in hidden.into_iter().chain(self.job_hide.iter().cloned()) {
            config
                .hidden
                .push(std::path::absolute(&path).with_context(|| format!("hide {}", path.display()))?);
        }
        config.home = self.job_home.clone();
        config.registry = self.daemon_registry.clone();
        config.limits = JobLimits {
            memory_bytes: self.job_memory_mib.map(|mib| mib << 20),
            processes: self.job_processes,
            processors: self.job_processors,
        };
        config.file_cache_bytes = self.file_cache_mib << 20;
        Ok(())
    }

    /// The same as variables, for a daemon that is another process.
    pub(crate) fn variables(&self) -> Vec<(&'static str, OsString)> {
        let text = |name, value: Option<String>| value.map(|value| (name, OsString::from(value)));
        let list = |name, values: &[OsString]| {
            (!values.is_empty()).then(|| (name, values.join(std::ffi::OsStr::new(","))))
        };
        let allowed: Vec<OsString> = self.job_env_allow.iter().map(OsString::from).collect();
        let hidden: Vec<OsString> = self.job_hide.iter().map(OsString::from).collect();
        let of_home: Vec<OsString> = self.job_home.iter().map(OsString::from).collect();
        let registry = self.daemon_registry.as_ref().map(OsString::from);
        [
            list(env::PROVISIONER_DAEMON_JOB_ENV_ALLOW, &allowed),
            text(env::JOB_ISOLATION, Some(self.job_isolation.to_string())),
            list(env::JOB_HIDE, &hidden),
            list(env::JOB_HOME, &of_home),
            registry.map(|registry| (env::DAEMON_REGISTRY, registry)),
            text(env::JOB_MEMORY_MIB, self.job_memory_mib.map(|mib| mib.to_string())),
            text(env::JOB_PROCESSES, self.job_processes.map(|number| number.to_string())),
            text(env::JOB_PROCESSORS, self.job_processors.map(|number| number.to_string())),
            text(env::FILE_CACHE_MIB, Some(self.file_cache_mib.to_string())),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

fn processors(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().map_err(|error| error.to_string())?;
    if (0.01..=4096.0).contains(&number) { Ok(number) } else { Err("must be 0.01 to 4096".to_owned()) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::daemon_flags::terraform::Terraform;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        terraform: Terraform,
        #[command(flatten)]
        jobs: Jobs,
    }

    /// The flags of a program, as its daemon gets them.
    fn passed_on(args: &[&str]) -> Vec<(String, String)> {
        let program = Program::parse_from(["coder"].iter().chain(args));
        let variables = program.terraform.variables().into_iter().chain(program.jobs.variables());
        variables.map(|(name, value)| (name.to_owned(), value.into_string().unwrap())).collect()
    }

    #[test]
    fn every_flag_is_passed_on_to_a_daemon_of_another_process() {
        let command = <Program as clap::CommandFactory>::command();
        let every = [
            "--terraform-path=/a,/b",
            "--terraform-install=false",
            "--terraform-mirror=https://me:secret@mirror.example/",
            "--job-env-allow=AWS_*",
            "--job-env-allow=HOME",
            "--job-isolation=required",
            "--job-hide=/c",
            "--job-home=.aws,.kube",
            "--daemon-registry=/d",
            "--job-memory-mib=512",
            "--job-processes=64",
            "--job-processors=1.5",
            "--file-cache-mib=7",
        ];
        let passed = passed_on(&every);
        let named: Vec<_> = command
            .get_arguments()
            .filter_map(|argument| argument.get_env()?.to_str().map(str::to_owned))
            .collect();
        for name in &named {
            assert!(passed.iter().any(|(passed, _)| passed == name), "{name} is not passed on");
        }
        assert_eq!(passed.len(), named.len());
        let value = |name| passed.iter().find(|(passed, _)| passed == name).unwrap().1.as_str();
        assert_eq!(value(env::TERRAFORM_PATH), "/a,/b");
        assert_eq!(value(env::TERRAFORM_INSTALL), "false");
        assert_eq!(value(env::PROVISIONER_DAEMON_JOB_ENV_ALLOW), "AWS_*,HOME");
        assert_eq!(value(env::JOB_ISOLATION), "required");
        assert_eq!((value(env::JOB_HOME), value(env::DAEMON_REGISTRY)), (".aws,.kube", "/d"));
        assert_eq!((value(env::JOB_PROCESSORS), value(env::FILE_CACHE_MIB)), ("1.5", "7"));
        // Without a flag, the default of the daemon applies.
        let passed = passed_on(&[]);
        let names: Vec<_> = passed.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, [env::TERRAFORM_INSTALL, env::JOB_ISOLATION, env::FILE_CACHE_MIB]);
    }
}

//! The flags of `coder provisioner start` (scheduling-and-auth 7.1).

use std::path::PathBuf;

use crate::daemon_flags::jobs::Jobs;
use crate::daemon_flags::terraform::Terraform;
use crate::ignored_flags::IgnoredFlag;
use crate::{args, env, logging};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory for caches, one per daemon on a host; default ~/.cache/coder.
    #[arg(short, long, env = env::CACHE_DIRECTORY, value_name = "DIR")]
    pub(crate) cache_dir: Option<PathBuf>,
    /// Tag as key=value; may be repeated. `scope=user` runs only your own jobs.
    #[arg(short, long = "tag", env = env::PROVISIONERD_TAGS, value_delimiter = ',', value_name = "KEY=VALUE")]
    pub(crate) tags: Vec<String>,
    /// Provisioner key to join with. The variable is safer: other users can see the command line.
    #[arg(long, env = env::PROVISIONER_DAEMON_KEY, hide_env_values = true, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Pre-shared key of the deployment to join with; provisioner keys are better.
    #[arg(long, env = env::PROVISIONER_DAEMON_PSK, hide_env_values = true, value_name = "SECRET")]
    pub(crate) psk: Option<String>,
    /// Name of the daemon; default the host's short name.
    #[arg(long, env = env::PROVISIONER_DAEMON_NAME, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Jobs to run at once, 1 to 256. Each has a directory and a Terraform of its own.
    #[arg(long, env = env::PROVISIONER_DAEMON_SLOTS, default_value = "1", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) slots: u16,
    /// Run one job, then end.
    #[arg(long, env = env::PROVISIONER_DAEMON_ONCE)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) terraform: Terraform,
    #[command(flatten)]
    pub(crate) jobs: Jobs,
    /// Show debug messages.
    #[arg(short, long, env = env::PROVISIONER_DAEMON_VERBOSE)]
    pub(crate) verbose: bool,
    /// File for the human-readable log; empty turns it off.
    #[arg(long, env = env::PROVISIONER_LOG_HUMAN, default_value = "/dev/stderr", value_name = "FILE")]
    pub(crate) log_human: String,
    /// File for the log as JSON lines.
    #[arg(long, env = env::PROVISIONER_LOG_JSON, default_value = "", value_name = "FILE")]
    pub(crate) log_json: String,
    /// File for the log as Stackdriver JSON lines.
    #[arg(long, env = env::PROVISIONER_LOG_STACKDRIVER, default_value = "", value_name = "FILE")]
    pub(crate) log_stackdriver: String,
    /// Regular expression: matching debug messages are shown; may be repeated.
    #[arg(long, env = env::PROVISIONER_LOG_FILTER, value_delimiter = ',', value_name = "REGEX")]
    pub(crate) log_filter: Vec<String>,
    /// Serve Prometheus metrics, health and status over HTTP.
    #[arg(long, env = env::PROMETHEUS_ENABLE)]
    pub(crate) prometheus_enable: bool,
    /// Address of the metrics, /healthz, /readyz, /status and POST /drain.
    #[arg(long, env = env::PROMETHEUS_ADDRESS, default_value = "127.0.0.1:2112", value_name = "HOST:PORT")]
    pub(crate) prometheus_address: String,
    /// End at once, together with running jobs, when the pipe at the standard input is closed. For programs that start a daemon
    /// and must not leave it behind when they are killed.
    #[arg(long, hide = true)]
    pub(crate) end_with_stdin: bool,
    /// Let templates start agents on this machine that outlive their jobs (coder_local_agent). For quickstart.
    #[arg(long, hide = true)]
    pub(crate) local_agents: bool,
    /// Accepted for compatibility: the server sends jobs to the daemon, which does not poll.
    #[arg(long, hide = true, env = env::PROVISIONERD_POLL_INTERVAL, value_name = "DURATION")]
    pub(crate) poll_interval: Option<String>,
    /// Accepted for compatibility.
    #[arg(long, hide = true, env = env::PROVISIONERD_POLL_JITTER, value_name = "DURATION")]
    pub(crate) poll_jitter: Option<String>,
    /// Experiments to turn on; none exist yet.
    #[arg(long, hide = true, env = env::EXPERIMENTS, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) experiments: Vec<String>,
    #[command(flatten)]
    pub(crate) organization: args::Organization,
}

impl Args {
    /// The log as asked for.
    pub(crate) fn log_settings(&self) -> logging::Settings {
        logging::Settings {
            file: None,
            human: self.log_human.clone(),
            json: self.log_json.clone(),
            stackdriver: self.log_stackdriver.clone(),
            filter: self.log_filter.clone(),
            verbose: self.verbose,
        }
    }

    /// The given flags that have no effect.
    pub(crate) fn ignored(&self) -> Vec<IgnoredFlag> {
        let flags = [
            ("poll-interval", env::PROVISIONERD_POLL_INTERVAL, self.poll_interval.is_some()),
            ("poll-jitter", env::PROVISIONERD_POLL_JITTER, self.poll_jitter.is_some()),
            ("experiments", env::EXPERIMENTS, !self.experiments.is_empty()),
        ];
        let given = flags.into_iter().filter(|(_, _, is_given)| *is_given);
        given.map(|(name, variable, _)| IgnoredFlag { name, variable }).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    #[test]
    fn every_given_flag_without_effect_is_named_with_the_next_step() {
        let warnings = |words: &[&str]| -> Vec<String> {
            let command = Args::augment_args(clap::Command::new("start"));
            let words = ["start"].iter().chain(words);
            let matches = command.try_get_matches_from(words).unwrap();
            let args = Args::from_arg_matches(&matches).unwrap();
            args.ignored().iter().map(|flag| flag.warning()).collect()
        };
        assert!(warnings(&["--name=a"]).is_empty());
        let given = warnings(&["--poll-interval=1s", "--poll-jitter=1s", "--experiments=a"]);
        assert_eq!(given.len(), 3);
        for (warning, (flag, variable)) in given.iter().zip([
            ("--poll-interval ", "CODER_PROVISIONERD_POLL_INTERVAL"),
            ("--poll-jitter ", "CODER_PROVISIONERD_POLL_JITTER"),
            ("--experiments ", "CODER_EXPERIMENTS"),
        ]) {
            let next_step = format!("remove the flag, or the variable {variable}");
            assert!(warning.starts_with(flag) && warning.ends_with(&next_step), "{warning}");
        }
    }
}

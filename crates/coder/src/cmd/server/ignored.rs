//! Official server flags that are accepted without effect, so that existing scripts and unit files start this server.
//!
//! Only flags that are harmless to ignore are listed: intervals of polls that this server does not need, and features that it
//! does not have. A flag whose absence would weaken security or change behavior is not listed, so the server refuses it.

use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches, parser::ValueSource};

use crate::ignored_flags::IgnoredFlag;

/// Flag and variable; whether it takes a value.
const FLAGS: &[(&str, &str, bool)] = &[
    ("postgres-conn-max-idle", "CODER_PG_CONN_MAX_IDLE", true),
    ("provisioner-daemon-poll-interval", "CODER_PROVISIONER_DAEMON_POLL_INTERVAL", true),
    ("provisioner-daemon-poll-jitter", "CODER_PROVISIONER_DAEMON_POLL_JITTER", true),
    (
        "workspace-prebuilds-reconciliation-interval",
        "CODER_WORKSPACE_PREBUILDS_RECONCILIATION_INTERVAL",
        true,
    ),
    ("strict-transport-security-options", "CODER_STRICT_TRANSPORT_SECURITY_OPTIONS", true),
    ("default-oauth-refresh-lifetime", "CODER_DEFAULT_OAUTH_REFRESH_LIFETIME", true),
    ("ssh-keygen-algorithm", "CODER_SSH_KEYGEN_ALGORITHM", true),
    ("prometheus-collect-agent-stats", "CODER_PROMETHEUS_COLLECT_AGENT_STATS", false),
    ("prometheus-aggregate-agent-stats-by", "CODER_PROMETHEUS_AGGREGATE_AGENT_STATS_BY", true),
    ("prometheus-collect-db-metrics", "CODER_PROMETHEUS_COLLECT_DB_METRICS", false),
    ("pprof-enable", "CODER_PPROF_ENABLE", false),
    ("pprof-address", "CODER_PPROF_ADDRESS", true),
    ("trace", "CODER_TRACE_ENABLE", false),
    ("trace-logs", "CODER_TRACE_LOGS", false),
    ("trace-honeycomb-api-key", "CODER_TRACE_HONEYCOMB_API_KEY", true),
    ("health-check-refresh", "CODER_HEALTH_CHECK_REFRESH", true),
    ("health-check-threshold-database", "CODER_HEALTH_CHECK_THRESHOLD_DATABASE", true),
    ("stats-collection-usage-stats-enable", "CODER_STATS_COLLECTION_USAGE_STATS_ENABLE", false),
    ("telemetry", "CODER_TELEMETRY_ENABLE", false),
    ("swagger-enable", "CODER_SWAGGER_ENABLE", false),
    ("update-check", "CODER_UPDATE_CHECK", false),
    ("experiments", "CODER_EXPERIMENTS", true),
    ("api-keys-retention", "CODER_API_KEYS_RETENTION", true),
    ("audit-logs-retention", "CODER_AUDIT_LOGS_RETENTION", true),
    ("connection-logs-retention", "CODER_CONNECTION_LOGS_RETENTION", true),
    ("workspace-agent-logs-retention", "CODER_WORKSPACE_AGENT_LOGS_RETENTION", true),
    ("docs-url", "CODER_DOCS_URL", true),
    ("support-links", "CODER_SUPPORT_LINKS", true),
    ("web-terminal-renderer", "CODER_WEB_TERMINAL_RENDERER", true),
    ("cli-upgrade-message", "CODER_CLI_UPGRADE_MESSAGE", true),
    ("hide-ai-tasks", "CODER_HIDE_AI_TASKS", false),
    ("proxy-health-interval", "CODER_PROXY_HEALTH_INTERVAL", true),
    ("derp-server-region-name", "CODER_DERP_SERVER_REGION_NAME", true),
    ("oauth2-github-default-provider-enable", "CODER_OAUTH2_GITHUB_DEFAULT_PROVIDER_ENABLE", false),
    (
        "external-auth-github-default-provider-enable",
        "CODER_EXTERNAL_AUTH_GITHUB_DEFAULT_PROVIDER_ENABLE",
        false,
    ),
];

/// The flags that were given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ignored {
    pub(crate) given: Vec<IgnoredFlag>,
}

impl clap::Args for Ignored {
    fn augment_args(command: Command) -> Command {
        FLAGS.iter().fold(command, |command, (name, variable, takes_value)| {
            let arg = Arg::new(*name).long(*name).env(*variable).hide(true).hide_env_values(true);
            let arg =
                if *takes_value { arg.action(ArgAction::Append) } else { arg.action(ArgAction::SetTrue) };
            command.arg(arg.help("Accepted for compatibility; has no effect in this release."))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Ignored {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let is_given = |flag: &IgnoredFlag| {
            let source = matches.value_source(flag.name);
            matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
        };
        let flags = FLAGS.iter().map(|(name, variable, _)| IgnoredFlag { name, variable });
        Ok(Self { given: flags.filter(is_given).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;

    #[test]
    fn every_given_flag_is_named_with_the_next_step() {
        for (name, variable, takes_value) in FLAGS {
            let flag = if *takes_value { format!("--{name}=1") } else { format!("--{name}") };
            let command = Ignored::augment_args(Command::new("server"));
            let matches = command.try_get_matches_from(["server", &flag]).unwrap();
            let given = Ignored::from_arg_matches(&matches).unwrap().given;
            let warnings: Vec<_> = given.iter().map(|flag| flag.warning()).collect();
            assert_eq!(
                warnings,
                [format!(
                    "--{name} has no effect in this release: remove the flag, or the variable {variable}"
                )]
            );
        }
    }
}

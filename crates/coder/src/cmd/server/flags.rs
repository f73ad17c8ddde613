//! The flags of `coder server`, by their official names (scheduling-and-auth 7.3, 7.4).

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use coder_domain::secret::Secret;

use super::ignored::Ignored;
use super::ssh_flags::SshFlags;
use super::{create_admin_user, states};
use crate::args::boolean;
use crate::daemon_flags::jobs::Jobs;
use crate::daemon_flags::terraform::Terraform;
use crate::{duration, env, logging};

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    /// A task other than serving.
    #[command(subcommand)]
    pub(crate) command: Option<Subcommand>,
    #[command(flatten)]
    pub(crate) network: Network,
    #[command(flatten)]
    pub(crate) tls: Tls,
    #[command(flatten)]
    pub(crate) database: Database,
    #[command(flatten)]
    pub(crate) sessions: SessionFlags,
    #[command(flatten)]
    pub(crate) ssh: SshFlags,
    #[command(flatten)]
    pub(crate) provisioning: Provisioning,
    #[command(flatten)]
    pub(crate) logs: Logs,
    #[command(flatten)]
    pub(crate) ignored: Ignored,
}

/// The tasks other than serving.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Subcommand {
    /// Check a database for violated invariants.
    Check,
    /// Create an owner directly in the database, for administrators who are locked out. The server may run meanwhile.
    CreateAdminUser(create_admin_user::Args),
    /// Encrypt the secrets in a database with another key, or decrypt them. The server may run meanwhile.
    States {
        #[command(subcommand)]
        command: states::Command,
    },
}

/// Where the server is reached.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Networking")]
pub(crate) struct Network {
    /// URL under which people and daemons reach the server.
    #[arg(long, env = env::ACCESS_URL, value_name = "URL")]
    pub(crate) access_url: Option<String>,
    /// Host under which apps of workspaces have host names of their own, such as *.apps.example.com; needs --access-url.
    #[arg(long, env = env::WILDCARD_ACCESS_URL, value_name = "HOST")]
    pub(crate) wildcard_access_url: Option<String>,
    /// Do not serve apps under paths of the server's own host.
    #[arg(long, env = env::DISABLE_PATH_APPS)]
    pub(crate) disable_path_apps: bool,
    /// Let people open apps under paths that others share with them. Such an app can act as everybody who opens it.
    #[arg(long, env = env::DANGEROUS_ALLOW_PATH_APP_SHARING)]
    pub(crate) dangerous_allow_path_app_sharing: bool,
    /// Let owners of the site open everybody's apps under paths. Such an app can act as the owner who opens it.
    #[arg(long, env = env::DANGEROUS_ALLOW_PATH_APP_SITE_OWNER_ACCESS)]
    pub(crate) dangerous_allow_path_app_site_owner_access: bool,
    /// Redirect browsers that use another host name, or HTTP instead of HTTPS, to the access URL.
    #[arg(long, env = env::REDIRECT_TO_ACCESS_URL)]
    pub(crate) redirect_to_access_url: bool,
    /// Address to listen on; empty turns plain HTTP off.
    #[arg(long, env = env::HTTP_ADDRESS, default_value = "127.0.0.1:3000", value_name = "HOST:PORT")]
    pub(crate) http_address: String,
    /// Older name of --http-address.
    #[arg(short = 'a', long, hide = true, env = env::ADDRESS, value_name = "HOST:PORT")]
    pub(crate) address: Option<String>,
    /// Headers in which trusted proxies name the client, such as X-Forwarded-For; the first one of a request counts.
    #[arg(long, env = env::PROXY_TRUSTED_HEADERS, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) proxy_trusted_headers: Vec<String>,
    /// Networks of trusted proxies, such as 10.0.0.0/8.
    #[arg(long, env = env::PROXY_TRUSTED_ORIGINS, value_delimiter = ',', value_name = "NETWORKS")]
    pub(crate) proxy_trusted_origins: Vec<String>,
    /// Most requests a minute to the API, for each user and path; 0 or less means no limit.
    #[arg(long, env = env::API_RATE_LIMIT, default_value_t = 512, allow_negative_numbers = true, value_name = "NUMBER")]
    pub(crate) api_rate_limit: i64,
    /// Turn all rate limits off.
    #[arg(long, env = env::DANGEROUS_DISABLE_RATE_LIMITS)]
    pub(crate) dangerous_disable_rate_limits: bool,
    /// Lose every wake-up of waiting daemons and followers; only for measurements of polling.
    #[arg(long, hide = true, env = env::DANGEROUS_DROP_WAKE_UPS)]
    pub(crate) dangerous_drop_wake_ups: bool,
    /// Serve Prometheus metrics.
    #[arg(long, env = env::PROMETHEUS_ENABLE)]
    pub(crate) prometheus_enable: bool,
    /// Address of the metrics, over plain HTTP.
    #[arg(long, env = env::PROMETHEUS_ADDRESS, default_value = "127.0.0.1:2112", value_name = "HOST:PORT")]
    pub(crate) prometheus_address: String,
    /// STUN servers, as host or host:port, with which official clients and agents find direct paths; may be repeated. `disable`
    /// stands for none.
    #[arg(long, env = env::DERP_SERVER_STUN_ADDRESSES, value_delimiter = ',', value_name = "HOST:PORT")]
    pub(crate) derp_server_stun_addresses: Vec<String>,
    /// URL at which the other servers on the same Postgres reach this one, and this one alone. With it, users reach agents
    /// that are connected to another server.
    #[arg(long, env = env::DERP_SERVER_RELAY_URL, value_name = "URL")]
    pub(crate) derp_server_relay_url: Option<String>,
    /// Tell clients and agents not to connect to each other directly.
    #[arg(long, env = env::BLOCK_DIRECT)]
    pub(crate) block_direct_connections: bool,
    /// Tell clients and agents to reach the relay over WebSockets.
    #[arg(long, env = env::DERP_FORCE_WEBSOCKETS)]
    pub(crate) derp_force_websockets: bool,
}

/// HTTPS.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "TLS")]
pub(crate) struct Tls {
    /// Listen for HTTPS.
    #[arg(long, env = env::TLS_ENABLE)]
    pub(crate) tls_enable: bool,
    /// Address to listen on for HTTPS.
    #[arg(long, env = env::TLS_ADDRESS, default_value = "127.0.0.1:3443", value_name = "HOST:PORT")]
    pub(crate) tls_address: String,
    /// Certificate chain (PEM); may be repeated, each one with a key.
    #[arg(long, env = env::TLS_CERT_FILE, value_delimiter = ',', value_name = "FILE")]
    pub(crate) tls_cert_file: Vec<PathBuf>,
    /// Private key (PEM) of the certificate at the same position; may be repeated.
    #[arg(long, env = env::TLS_KEY_FILE, value_delimiter = ',', value_name = "FILE")]
    pub(crate) tls_key_file: Vec<PathBuf>,
    /// Authorities (PEM) that sign client certificates.
    #[arg(long, env = env::TLS_CLIENT_CA_FILE, value_name = "FILE")]
    pub(crate) tls_client_ca_file: Option<PathBuf>,
    /// Which certificate clients must present: none, request, require-any, verify-if-given, require-and-verify.
    #[arg(long, env = env::TLS_CLIENT_AUTH, default_value = "none", hide_possible_values = true, value_name = "POLICY")]
    pub(crate) tls_client_auth: ClientAuthPolicy,
    /// Oldest TLS version: tls12 or tls13.
    #[arg(long, env = env::TLS_MIN_VERSION, default_value = "tls12", hide_possible_values = true, value_name = "VERSION")]
    pub(crate) tls_min_version: MinTlsVersion,
    /// Seconds of the Strict-Transport-Security header; 0 sends none.
    #[arg(long, env = env::STRICT_TRANSPORT_SECURITY, default_value_t = 0, value_name = "SECONDS")]
    pub(crate) strict_transport_security: u64,
}

/// The location of the data; also for the subcommands.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Database")]
pub(crate) struct Database {
    /// URL of a Postgres 13+ database; without it the embedded SQLite file is used.
    #[arg(long, env = env::PG_CONNECTION_URL, hide_env_values = true, global = true, value_name = "URL")]
    pub(crate) postgres_url: Option<String>,
    /// Most connections to Postgres.
    #[arg(long, env = env::PG_CONN_MAX_OPEN, default_value_t = 10, global = true, value_name = "NUMBER")]
    pub(crate) postgres_conn_max_open: usize,
    /// Directory of the embedded database; default ~/.local/share/coder.
    #[arg(long, env = env::DATA_DIR, global = true, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// How the embedded database is written: normal, or full, which loses nothing in a power failure.
    #[arg(long, env = env::SQLITE_SYNCHRONOUS, default_value = "normal", global = true, hide_possible_values = true, value_name = "MODE")]
    pub(crate) sqlite_synchronous: Synchronous,
    /// Keys that encrypt the stored secrets, each 32 bytes in base64; the first encrypts, all decrypt.
    #[arg(long, env = env::STATE_ENCRYPTION_KEYS, hide_env_values = true, global = true, value_delimiter = ',', value_parser = secret, value_name = "KEYS")]
    pub(crate) state_encryption_keys: Vec<Secret>,
}

/// `--tls-client-auth`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientAuthPolicy {
    None,
    Request,
    RequireAny,
    VerifyIfGiven,
    RequireAndVerify,
}

/// `--tls-min-version`; older versions are not safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MinTlsVersion {
    Tls12,
    Tls13,
}

/// `--sqlite-synchronous`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Synchronous {
    Normal,
    Full,
}

/// `--samesite-auth-cookie`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CookieSameSite {
    Lax,
    None,
}

fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}

/// Sessions and passwords.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Sessions")]
pub(crate) struct SessionFlags {
    /// Lifetime of a session.
    #[arg(long, env = env::SESSION_DURATION, default_value = "24h", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) session_duration: Duration,
    /// Do not extend sessions when they are used.
    #[arg(long, env = env::DISABLE_SESSION_EXPIRY_REFRESH)]
    pub(crate) disable_session_expiry_refresh: bool,
    /// Longest lifetime of a token.
    #[arg(long, env = env::MAX_TOKEN_LIFETIME, default_value = "876600h", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) max_token_lifetime: Duration,
    /// Longest lifetime of an owner's token.
    #[arg(long, env = env::MAX_ADMIN_TOKEN_LIFETIME, default_value = "168h", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) max_admin_token_lifetime: Duration,
    /// Default lifetime of a token.
    #[arg(long, env = env::DEFAULT_TOKEN_LIFETIME, default_value = "168h", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) default_token_lifetime: Duration,
    /// Turn logging in with a password off.
    #[arg(long, env = env::DISABLE_PASSWORD_AUTH)]
    pub(crate) disable_password_auth: bool,
    /// Send cookies over HTTPS only, even if the access URL is not https.
    #[arg(long, env = env::SECURE_AUTH_COOKIE)]
    pub(crate) secure_auth_cookie: bool,
    /// SameSite of the session cookie: lax or none.
    #[arg(long, env = env::SAMESITE_AUTH_COOKIE, default_value = "lax", hide_possible_values = true, value_name = "VALUE")]
    pub(crate) samesite_auth_cookie: CookieSameSite,
}

/// Jobs and daemons.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Provisioning")]
pub(crate) struct Provisioning {
    /// Daemons inside the server; 0 turns them off.
    #[arg(long, env = env::PROVISIONER_DAEMONS, default_value_t = 3, value_name = "NUMBER")]
    pub(crate) provisioner_daemons: u32,
    /// Types of jobs that built-in daemons run; only terraform.
    #[arg(long, hide = true, env = env::PROVISIONER_TYPES, value_delimiter = ',', default_value = "terraform")]
    pub(crate) provisioner_types: Vec<String>,
    /// Pre-shared key with which any daemon may join the default organization; provisioner keys are better.
    #[arg(long, env = env::PROVISIONER_DAEMON_PSK, hide_env_values = true, value_name = "SECRET")]
    pub(crate) provisioner_daemon_psk: Option<String>,
    /// Time Terraform has to stop when its job is canceled; then it is killed.
    #[arg(long, env = env::PROVISIONER_FORCE_CANCEL_INTERVAL, default_value = "10m", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) provisioner_force_cancel_interval: Duration,
    /// Interval of the search for hung jobs.
    #[arg(long, hide = true, env = env::JOB_HANG_DETECTOR_INTERVAL, default_value = "1m", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) job_hang_detector_interval: Duration,
    /// Time without a heartbeat after which a started job fails.
    #[arg(long, env = env::JOB_HUNG_AFTER, default_value = "5m", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) job_hung_after: Duration,
    /// Time after which a waiting job fails when no daemon that can run it was seen.
    #[arg(long, env = env::JOB_PENDING_AFTER, default_value = "30m", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) job_pending_after: Duration,
    /// Time in which a disconnected daemon may reconnect before its jobs fail.
    #[arg(long, env = env::DAEMON_GRACE, default_value = "2m", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) daemon_grace: Duration,
    /// Most bytes of log that one job may keep, in MiB; later lines are dropped, and the log says so.
    #[arg(long, env = env::JOB_LOG_MIB, default_value_t = 64, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub(crate) job_log_mib: u32,
    /// Directory for caches of built-in daemons; default ~/.cache/coder.
    #[arg(long, env = env::CACHE_DIRECTORY, value_name = "DIR")]
    pub(crate) cache_dir: Option<PathBuf>,
    /// Which Terraform the built-in daemons use.
    #[command(flatten)]
    pub(crate) terraform: Terraform,
    #[command(flatten)]
    pub(crate) jobs: Jobs,
    /// Allow builds with Terraform's debug output.
    #[arg(long, env = env::ENABLE_TERRAFORM_DEBUG_MODE)]
    pub(crate) enable_terraform_debug_mode: bool,
    /// Longest time between two looks for scheduled starts and stops; the server wakes when one is due.
    #[arg(long, hide = true, env = env::AUTOBUILD_POLL_INTERVAL, default_value = "1m", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) autobuild_poll_interval: Duration,
    /// When the quiet hours of users begin who chose none; templates that require stops stop workspaces then.
    #[arg(long, env = env::QUIET_HOURS_DEFAULT_SCHEDULE, default_value = "CRON_TZ=UTC 0 0 * * *", value_name = "SCHEDULE")]
    pub(crate) default_quiet_hours_schedule: String,
    /// Whether users may choose their quiet hours.
    #[arg(long, env = env::ALLOW_CUSTOM_QUIET_HOURS, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_value_t = true, default_missing_value = "true", value_parser = boolean, value_name = "BOOL")]
    pub(crate) allow_custom_quiet_hours: bool,
    /// Interval at which agents report traffic and sessions.
    #[arg(long, hide = true, env = env::AGENT_STATS_REFRESH_INTERVAL, default_value = "30s", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) agent_stats_refresh_interval: Duration,
    /// Allow renaming workspaces.
    #[arg(long, env = env::ALLOW_WORKSPACE_RENAMES)]
    pub(crate) allow_workspace_renames: bool,
}

/// The log.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Logging")]
pub(crate) struct Logs {
    /// File for the human-readable log; empty turns it off.
    #[arg(long, env = env::LOGGING_HUMAN, default_value = "/dev/stderr", value_name = "FILE")]
    pub(crate) log_human: String,
    /// File for the log as JSON lines.
    #[arg(long, env = env::LOGGING_JSON, default_value = "", value_name = "FILE")]
    pub(crate) log_json: String,
    /// File for the log as Stackdriver JSON lines.
    #[arg(long, env = env::LOGGING_STACKDRIVER, default_value = "", value_name = "FILE")]
    pub(crate) log_stackdriver: String,
    /// Regular expression: matching debug messages are shown; may be repeated.
    #[arg(short = 'l', long, env = env::LOG_FILTER, value_delimiter = ',', value_name = "REGEX")]
    pub(crate) log_filter: Vec<String>,
}

impl Logs {
    /// The settings of the log.
    pub(crate) fn settings(&self, verbose: bool) -> logging::Settings {
        logging::Settings {
            file: None,
            human: self.log_human.clone(),
            json: self.log_json.clone(),
            stackdriver: self.log_stackdriver.clone(),
            filter: self.log_filter.clone(),
            verbose,
        }
    }
}

//! Every environment variable that this program reads, each one a documented constant.
//!
//! `docs/reference/environment.md` is generated from [`ALL`]; nothing else in the workspace reads the environment.

use std::path::{Path, PathBuf};

/// A variable with the sentence that documents it.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
}

macro_rules! variables {
    ($($(#[doc = $doc:literal])+ $constant:ident = $name:literal;)*) => {
        $($(#[doc = $doc])+ pub const $constant: &str = $name;)*

        /// All variables, in the order of this file.
        pub const ALL: &[Variable] = &[$(Variable { name: $name, about: concat!($($doc),+) }),*];
    };
}

variables! {
    /// URL of the server.
    URL = "CODER_URL";
    /// Session or API token; takes precedence over the one saved by `coder login`.
    SESSION_TOKEN = "CODER_SESSION_TOKEN";
    /// Directory with the saved URL, session and organization; default `~/.config/coderv2`.
    CONFIG_DIR = "CODER_CONFIG_DIR";
    /// Base of the default configuration directory (freedesktop.org rule).
    XDG_CONFIG_HOME = "XDG_CONFIG_HOME";
    /// Base of the default data directory (freedesktop.org rule).
    XDG_DATA_HOME = "XDG_DATA_HOME";
    /// Base of the default cache directory (freedesktop.org rule).
    XDG_CACHE_HOME = "XDG_CACHE_HOME";
    /// Home directory, below which the default directories are.
    HOME = "HOME";
    /// Organization to work in, by name or id.
    ORGANIZATION = "CODER_ORGANIZATION";
    /// Additional HTTP headers as `name=value`, separated by commas.
    HEADER = "CODER_HEADER";
    /// Command whose output lines `name=value` become additional HTTP headers.
    HEADER_COMMAND = "CODER_HEADER_COMMAND";
    /// Turns off the warning about a server of another version.
    NO_VERSION_WARNING = "CODER_NO_VERSION_WARNING";
    /// Turns off the warnings of the server, such as of settings that it does not act on.
    NO_FEATURE_WARNING = "CODER_NO_FEATURE_WARNING";
    /// Prints addresses instead of opening a browser.
    NO_OPEN = "CODER_NO_OPEN";
    /// Changes nothing: connections to workspaces always use the relay.
    DISABLE_DIRECT_CONNECTIONS = "CODER_DISABLE_DIRECT_CONNECTIONS";
    /// Changes nothing: no measurements of connections are sent.
    DISABLE_NETWORK_TELEMETRY = "CODER_DISABLE_NETWORK_TELEMETRY";
    /// Changes nothing: the session is always saved in a file.
    USE_KEYRING = "CODER_USE_KEYRING";
    /// Shows debug messages.
    VERBOSE = "CODER_VERBOSE";
    /// When set and not empty, output has no colours (no-color.org).
    NO_COLOR = "NO_COLOR";
    /// `dumb` turns colours and live progress off.
    TERM = "TERM";
    /// Width of the output in columns, when it cannot be asked from the terminal.
    COLUMNS = "COLUMNS";
    /// The shell that `coder completion` writes its script for.
    SHELL = "SHELL";
    /// Set by the scripts of `coder completion` when they request candidates; the value is the shell's name.
    COMPLETE = "CODER_COMPLETE";
    /// Where programs are looked for, among them `terraform`.
    PATH = "PATH";

    /// User name of the first user, for `coder login`.
    FIRST_USER_USERNAME = "CODER_FIRST_USER_USERNAME";
    /// E-mail address of the first user.
    FIRST_USER_EMAIL = "CODER_FIRST_USER_EMAIL";
    /// Full name of the first user.
    FIRST_USER_FULL_NAME = "CODER_FIRST_USER_FULL_NAME";
    /// Password of the first user.
    FIRST_USER_PASSWORD = "CODER_FIRST_USER_PASSWORD";
    /// Whether the first user asks for a trial license; this server has none, so only `false` makes sense.
    FIRST_USER_TRIAL = "CODER_FIRST_USER_TRIAL";

    /// User name of the account that `coder server create-admin-user` makes.
    USERNAME = "CODER_USERNAME";
    /// E-mail address of that account.
    EMAIL = "CODER_EMAIL";
    /// Password of that account.
    PASSWORD = "CODER_PASSWORD";

    /// Provisioner key with which a daemon joins.
    PROVISIONER_DAEMON_KEY = "CODER_PROVISIONER_DAEMON_KEY";
    /// Pre-shared key of the deployment: accepted by the server, sent by a daemon.
    PROVISIONER_DAEMON_PSK = "CODER_PROVISIONER_DAEMON_PSK";
    /// Tags of a daemon or of a new provisioner key as `key=value`, separated by commas.
    PROVISIONERD_TAGS = "CODER_PROVISIONERD_TAGS";
    /// Name of the daemon; default the host's short name.
    PROVISIONER_DAEMON_NAME = "CODER_PROVISIONER_DAEMON_NAME";
    /// Jobs a daemon runs at once. Ours, not an official name.
    PROVISIONER_DAEMON_SLOTS = "CODER_PROVISIONER_DAEMON_SLOTS";
    /// Ends a daemon after one job. Ours, not an official name.
    PROVISIONER_DAEMON_ONCE = "CODER_PROVISIONER_DAEMON_ONCE";
    /// Variables that jobs inherit, separated by commas. Ours, not an official name.
    PROVISIONER_DAEMON_JOB_ENV_ALLOW = "CODER_PROVISIONER_DAEMON_JOB_ENV_ALLOW";
    /// Whether jobs are isolated: `auto`, `required` or `none`. Ours, not an official name.
    JOB_ISOLATION = "CODER_PROVISIONER_DAEMON_JOB_ISOLATION";
    /// Files and directories that jobs must not see, separated by commas. Ours, not an official name.
    JOB_HIDE = "CODER_PROVISIONER_DAEMON_JOB_HIDE";
    /// Files and directories of the daemon's home that jobs see, read-only, separated by commas. Ours, not an official name.
    JOB_HOME = "CODER_PROVISIONER_DAEMON_JOB_HOME";
    /// Where the daemons of one user register the directories that their jobs must not see. Ours, not an official name.
    DAEMON_REGISTRY = "CODER_PROVISIONER_DAEMON_REGISTRY";
    /// Most memory of one job in MiB. Ours, not an official name.
    JOB_MEMORY_MIB = "CODER_PROVISIONER_DAEMON_JOB_MEMORY_MIB";
    /// Most processes and threads of one job. Ours, not an official name.
    JOB_PROCESSES = "CODER_PROVISIONER_DAEMON_JOB_PROCESSES";
    /// Most processors of one job. Ours, not an official name.
    JOB_PROCESSORS = "CODER_PROVISIONER_DAEMON_JOB_PROCESSORS";
    /// Most space for files of servers that a daemon keeps for later jobs, in MiB. Ours, not an official name.
    FILE_CACHE_MIB = "CODER_PROVISIONER_DAEMON_FILE_CACHE_MIB";
    /// Shows the daemon's debug messages.
    PROVISIONER_DAEMON_VERBOSE = "CODER_PROVISIONER_DAEMON_VERBOSE";
    /// Accepted for compatibility; has no effect, because the server sends jobs to the daemon.
    PROVISIONERD_POLL_INTERVAL = "CODER_PROVISIONERD_POLL_INTERVAL";
    /// Accepted for compatibility; has no effect.
    PROVISIONERD_POLL_JITTER = "CODER_PROVISIONERD_POLL_JITTER";
    /// File for the daemon's human-readable log.
    PROVISIONER_LOG_HUMAN = "CODER_PROVISIONER_DAEMON_LOGGING_HUMAN";
    /// File for the daemon's log as JSON lines.
    PROVISIONER_LOG_JSON = "CODER_PROVISIONER_DAEMON_LOGGING_JSON";
    /// File for the daemon's log as Stackdriver JSON lines.
    PROVISIONER_LOG_STACKDRIVER = "CODER_PROVISIONER_DAEMON_LOGGING_STACKDRIVER";
    /// Regular expressions, separated by commas: matching debug messages of the daemon are shown.
    PROVISIONER_LOG_FILTER = "CODER_PROVISIONER_DAEMON_LOG_FILTER";
    /// Terraform or OpenTofu to offer: programs and directories, separated by commas; default those in `PATH`.
    TERRAFORM_PATH = "CODER_TERRAFORM_PATH";
    /// Whether a daemon installs Terraform when nothing on offer can run a template.
    TERRAFORM_INSTALL = "CODER_PROVISIONER_TERRAFORM_INSTALL";
    /// Where a daemon installs Terraform from.
    TERRAFORM_MIRROR = "CODER_PROVISIONER_TERRAFORM_MIRROR";
    /// Directory for caches, one per daemon on a host.
    CACHE_DIRECTORY = "CODER_CACHE_DIRECTORY";
    /// Experiments to turn on; none exist yet.
    EXPERIMENTS = "CODER_EXPERIMENTS";

    /// Most daemons that `coder provisioner list` shows.
    PROVISIONER_LIST_LIMIT = "CODER_PROVISIONER_LIST_LIMIT";
    /// Whether `coder provisioner list` shows daemons that are offline.
    PROVISIONER_SHOW_OFFLINE = "CODER_PROVISIONER_SHOW_OFFLINE";
    /// Which statuses `coder provisioner list` shows.
    PROVISIONER_LIST_STATUS = "CODER_PROVISIONER_LIST_STATUS";
    /// Longest silence of daemons that `coder provisioner list` shows.
    PROVISIONER_LIST_MAX_AGE = "CODER_PROVISIONER_LIST_MAX_AGE";
    /// Which statuses `coder provisioner jobs list` shows.
    PROVISIONER_JOB_LIST_STATUS = "CODER_PROVISIONER_JOB_LIST_STATUS";
    /// Most jobs that `coder provisioner jobs list` shows.
    PROVISIONER_JOB_LIST_LIMIT = "CODER_PROVISIONER_JOB_LIST_LIMIT";
    /// Whose jobs `coder provisioner jobs list` shows.
    PROVISIONER_JOB_LIST_INITIATOR = "CODER_PROVISIONER_JOB_LIST_INITIATOR";

    /// Template of a new workspace.
    TEMPLATE_NAME = "CODER_TEMPLATE_NAME";
    /// Template version of a new workspace.
    TEMPLATE_VERSION = "CODER_TEMPLATE_VERSION";
    /// Parameter values `name=value` of a build, separated by commas.
    RICH_PARAMETER = "CODER_RICH_PARAMETER";
    /// Parameter defaults `name=value`, separated by commas; asked for nevertheless.
    RICH_PARAMETER_DEFAULT = "CODER_RICH_PARAMETER_DEFAULT";
    /// YAML file with parameter values.
    RICH_PARAMETER_FILE = "CODER_RICH_PARAMETER_FILE";
    /// Ephemeral parameter values `name=value` of one build, separated by commas.
    EPHEMERAL_PARAMETER = "CODER_EPHEMERAL_PARAMETER";
    /// Older name of `CODER_EPHEMERAL_PARAMETER`.
    BUILD_OPTION = "CODER_BUILD_OPTION";
    /// Whether a build asks for values of ephemeral parameters.
    PROMPT_EPHEMERAL_PARAMETERS = "CODER_PROMPT_EPHEMERAL_PARAMETERS";
    /// Whether start asks for all parameters again.
    ALWAYS_PROMPT = "CODER_ALWAYS_PROMPT";
    /// When a new workspace starts automatically, as `coder schedule start` takes it.
    WORKSPACE_START_AT = "CODER_WORKSPACE_START_AT";
    /// Time zone of this machine; default the target of the link `/etc/localtime`.
    TZ = "TZ";
    /// How long a new workspace runs before it stops automatically.
    WORKSPACE_STOP_AFTER = "CODER_WORKSPACE_STOP_AFTER";
    /// Whether a new workspace follows its template (`always`) or not (`never`).
    WORKSPACE_AUTOMATIC_UPDATES = "CODER_WORKSPACE_AUTOMATIC_UPDATES";
    /// Workspace whose parameter values a new workspace gets.
    WORKSPACE_COPY_PARAMETERS_FROM = "CODER_WORKSPACE_COPY_PARAMETERS_FROM";
    /// Whether a new workspace takes the defaults of parameters without asking.
    WORKSPACE_USE_PARAMETER_DEFAULTS = "CODER_WORKSPACE_USE_PARAMETER_DEFAULTS";
    /// Lifetime of a new token.
    TOKEN_LIFETIME = "CODER_TOKEN_LIFETIME";
    /// Name of a new token.
    TOKEN_NAME = "CODER_TOKEN_NAME";
    /// User of a new token.
    TOKEN_USER = "CODER_TOKEN_USER";

    /// Whether `coder ssh` carries the SSH port over standard input and output.
    SSH_STDIO = "CODER_SSH_STDIO";
    /// Prefix that `coder ssh` takes off the host name.
    SSH_SSH_HOST_PREFIX = "CODER_SSH_SSH_HOST_PREFIX";
    /// Suffix that `coder ssh` takes off the host name.
    SSH_HOSTNAME_SUFFIX = "CODER_SSH_HOSTNAME_SUFFIX";
    /// Whether `coder ssh` forwards the SSH agent of this machine.
    SSH_FORWARD_AGENT = "CODER_SSH_FORWARD_AGENT";
    /// Whether `coder ssh` forwards the GnuPG agent of this machine.
    SSH_FORWARD_GPG = "CODER_SSH_FORWARD_GPG";
    /// Socket of the SSH agent that `coder ssh` forwards.
    SSH_IDENTITY_AGENT = "CODER_SSH_IDENTITY_AGENT";
    /// Socket of the SSH agent of this session (OpenSSH).
    SSH_AUTH_SOCK = "SSH_AUTH_SOCK";
    /// How often `coder ssh` looks whether the workspace was stopped.
    WORKSPACE_POLL_INTERVAL = "CODER_WORKSPACE_POLL_INTERVAL";
    /// Whether `coder ssh` waits for startup scripts: `yes`, `no` or `auto`.
    SSH_WAIT = "CODER_SSH_WAIT";
    /// Older form of `CODER_SSH_WAIT=no`.
    SSH_NO_WAIT = "CODER_SSH_NO_WAIT";
    /// Remote forwards of `coder ssh`, separated by commas.
    SSH_REMOTE_FORWARD = "CODER_SSH_REMOTE_FORWARD";
    /// Variables of the remote command of `coder ssh`, separated by commas.
    SSH_ENV = "CODER_SSH_ENV";
    /// Directory for a file about the connection of `coder ssh`, which editors read.
    SSH_NETWORK_INFO_DIR = "CODER_SSH_NETWORK_INFO_DIR";
    /// How often `coder ssh` writes that file.
    SSH_NETWORK_INFO_INTERVAL = "CODER_SSH_NETWORK_INFO_INTERVAL";
    /// Directory for a file with the debug log of `coder ssh`.
    SSH_LOG_DIR = "CODER_SSH_LOG_DIR";
    /// Whether connecting does not start a stopped workspace.
    SSH_DISABLE_AUTOSTART = "CODER_SSH_DISABLE_AUTOSTART";
    /// What `coder ssh` reports the use of the workspace as.
    SSH_USAGE_APP = "CODER_SSH_USAGE_APP";
    /// Configuration file of OpenSSH.
    SSH_CONFIG_FILE = "CODER_SSH_CONFIG_FILE";
    /// Path of the coder program that `coder config-ssh` writes.
    SSH_CONFIG_BINARY_PATH = "CODER_SSH_CONFIG_BINARY_PATH";
    /// Options of OpenSSH that `coder config-ssh` writes, separated by commas.
    SSH_CONFIG_OPTS = "CODER_SSH_CONFIG_OPTS";
    /// Whether `coder config-ssh` only shows what would change.
    SSH_DRY_RUN = "CODER_SSH_DRY_RUN";
    /// Whether `coder config-ssh` leaves the proxy command out.
    SSH_SKIP_PROXY_COMMAND = "CODER_SSH_SKIP_PROXY_COMMAND";
    /// Whether `coder config-ssh` uses the options of the last time.
    SSH_USE_PREVIOUS_OPTIONS = "CODER_SSH_USE_PREVIOUS_OPTIONS";
    /// Prefix of the host names that `coder config-ssh` writes.
    CONFIGSSH_SSH_HOST_PREFIX = "CODER_CONFIGSSH_SSH_HOST_PREFIX";
    /// Suffix of the host names that `coder config-ssh` writes.
    CONFIGSSH_HOSTNAME_SUFFIX = "CODER_CONFIGSSH_HOSTNAME_SUFFIX";
    /// Whether connections that `coder config-ssh` sets up wait for startup scripts.
    CONFIGSSH_WAIT = "CODER_CONFIGSSH_WAIT";
    /// Whether connections that `coder config-ssh` sets up do not start stopped workspaces.
    CONFIGSSH_DISABLE_AUTOSTART = "CODER_CONFIGSSH_DISABLE_AUTOSTART";
    /// TCP ports of `coder port-forward`, separated by commas.
    PORT_FORWARD_TCP = "CODER_PORT_FORWARD_TCP";
    /// UDP ports of `coder port-forward`, separated by commas.
    PORT_FORWARD_UDP = "CODER_PORT_FORWARD_UDP";
    /// Whether `coder open vscode` makes a session for VS Code.
    OPEN_VSCODE_GENERATE_TOKEN = "CODER_OPEN_VSCODE_GENERATE_TOKEN";
    /// Place from which `coder open app` opens an app.
    OPEN_APP_REGION = "CODER_OPEN_APP_REGION";

    /// Token of a workspace's agent.
    AGENT_TOKEN = "CODER_AGENT_TOKEN";
    /// File with the token of a workspace's agent.
    AGENT_TOKEN_FILE = "CODER_AGENT_TOKEN_FILE";
    /// URL of the server, for a workspace's agent and commands beside it.
    AGENT_URL = "CODER_AGENT_URL";
    /// How an agent proves itself: `token`.
    AGENT_AUTH = "CODER_AGENT_AUTH";
    /// Directory for the logs of an agent and of its scripts.
    AGENT_LOG_DIR = "CODER_AGENT_LOG_DIR";
    /// Directory in which an agent's scripts have directories of their own.
    AGENT_SCRIPT_DATA_DIR = "CODER_AGENT_SCRIPT_DATA_DIR";
    /// Additional HTTP headers of an agent as `name=value`, separated by commas.
    AGENT_HEADER = "CODER_AGENT_HEADER";
    /// Command whose output lines `name=value` become additional HTTP headers of an agent.
    AGENT_HEADER_COMMAND = "CODER_AGENT_HEADER_COMMAND";
    /// How long an SSH connection to an agent may be silent.
    AGENT_SSH_MAX_TIMEOUT = "CODER_AGENT_SSH_MAX_TIMEOUT";
    /// Whether files cannot be transferred over SSH to an agent.
    AGENT_BLOCK_FILE_TRANSFER = "CODER_AGENT_BLOCK_FILE_TRANSFER";
    /// File for an agent's human-readable log.
    AGENT_LOGGING_HUMAN = "CODER_AGENT_LOGGING_HUMAN";
    /// File for an agent's log as JSON lines.
    AGENT_LOGGING_JSON = "CODER_AGENT_LOGGING_JSON";
    /// File for an agent's log as Stackdriver JSON lines.
    AGENT_LOGGING_STACKDRIVER = "CODER_AGENT_LOGGING_STACKDRIVER";
    /// What an agent runs in: `envbox`, `envbuilder`, `exectrace`, separated by commas.
    AGENT_SUBSYSTEM = "CODER_AGENT_SUBSYSTEM";
    /// Not supported by this agent, whose log names it: direct connections.
    AGENT_TAILNET_LISTEN_PORT = "CODER_AGENT_TAILNET_LISTEN_PORT";
    /// Not supported by this agent, whose log names it.
    AGENT_PPROF_ADDRESS = "CODER_AGENT_PPROF_ADDRESS";
    /// Not supported by this agent, whose log names it.
    AGENT_PROMETHEUS_ADDRESS = "CODER_AGENT_PROMETHEUS_ADDRESS";
    /// Not supported by this agent, whose log names it.
    AGENT_DEBUG_ADDRESS = "CODER_AGENT_DEBUG_ADDRESS";
    /// Not supported by this agent, whose log names it: dev containers.
    AGENT_DEVCONTAINERS_ENABLE = "CODER_AGENT_DEVCONTAINERS_ENABLE";
    /// Not supported by this agent, whose log names it.
    AGENT_SOCKET_SERVER_ENABLED = "CODER_AGENT_SOCKET_SERVER_ENABLED";
    /// Not supported by this agent, whose log names it.
    AGENT_SOCKET_PATH = "CODER_AGENT_SOCKET_PATH";
    /// Not supported by this agent, whose log names it.
    AGENT_BOUNDARY_LOG_PROXY_SOCKET_PATH = "CODER_AGENT_BOUNDARY_LOG_PROXY_SOCKET_PATH";
    /// Directory into which `coder dotfiles` links, instead of the home directory.
    SYMLINK_DIR = "CODER_SYMLINK_DIR";
    /// Repository that `coder dotfiles` looks for the installation script in: a directory below its root.
    DOTFILES_REPO_DIR = "CODER_DOTFILES_REPO_DIR";

    /// URL under which people and daemons reach the server.
    ACCESS_URL = "CODER_ACCESS_URL";
    /// Host under which apps of workspaces have host names of their own, such as *.apps.example.com.
    WILDCARD_ACCESS_URL = "CODER_WILDCARD_ACCESS_URL";
    /// Whether apps are not served under paths of the server's own host.
    DISABLE_PATH_APPS = "CODER_DISABLE_PATH_APPS";
    /// Whether people may open apps under paths that others share with them.
    DANGEROUS_ALLOW_PATH_APP_SHARING = "CODER_DANGEROUS_ALLOW_PATH_APP_SHARING";
    /// Whether owners of the site may open everybody's apps under paths.
    DANGEROUS_ALLOW_PATH_APP_SITE_OWNER_ACCESS = "CODER_DANGEROUS_ALLOW_PATH_APP_SITE_OWNER_ACCESS";
    /// Whether browsers that use another host name, or HTTP instead of HTTPS, are redirected to the access URL.
    REDIRECT_TO_ACCESS_URL = "CODER_REDIRECT_TO_ACCESS_URL";
    /// Address of the server's plain HTTP listener; `--http-address ''` turns it off.
    HTTP_ADDRESS = "CODER_HTTP_ADDRESS";
    /// Older name of `CODER_HTTP_ADDRESS`.
    ADDRESS = "CODER_ADDRESS";
    /// Turns the HTTPS listener on.
    TLS_ENABLE = "CODER_TLS_ENABLE";
    /// Address of the HTTPS listener.
    TLS_ADDRESS = "CODER_TLS_ADDRESS";
    /// Certificate chains (PEM), separated by commas.
    TLS_CERT_FILE = "CODER_TLS_CERT_FILE";
    /// Private keys (PEM), one for each certificate, separated by commas.
    TLS_KEY_FILE = "CODER_TLS_KEY_FILE";
    /// Authorities (PEM) that sign client certificates.
    TLS_CLIENT_CA_FILE = "CODER_TLS_CLIENT_CA_FILE";
    /// Which certificate clients must present: none, request, require-any, verify-if-given, require-and-verify.
    TLS_CLIENT_AUTH = "CODER_TLS_CLIENT_AUTH";
    /// Oldest TLS version accepted: tls12 or tls13.
    TLS_MIN_VERSION = "CODER_TLS_MIN_VERSION";
    /// Headers in which trusted proxies name the client, such as X-Forwarded-For.
    PROXY_TRUSTED_HEADERS = "CODER_PROXY_TRUSTED_HEADERS";
    /// Networks of trusted proxies.
    PROXY_TRUSTED_ORIGINS = "CODER_PROXY_TRUSTED_ORIGINS";
    /// Seconds of the Strict-Transport-Security header; zero sends none.
    STRICT_TRANSPORT_SECURITY = "CODER_STRICT_TRANSPORT_SECURITY";
    /// STUN servers that official clients and agents find direct paths with, separated by commas.
    DERP_SERVER_STUN_ADDRESSES = "CODER_DERP_SERVER_STUN_ADDRESSES";
    /// URL at which the other servers on the same Postgres reach this server.
    DERP_SERVER_RELAY_URL = "CODER_DERP_SERVER_RELAY_URL";
    /// Whether clients and agents must not connect to each other directly.
    BLOCK_DIRECT = "CODER_BLOCK_DIRECT";
    /// Whether clients and agents must reach the relay over WebSockets.
    DERP_FORCE_WEBSOCKETS = "CODER_DERP_FORCE_WEBSOCKETS";
    /// Beginning of the host names of workspaces in the configuration of OpenSSH.
    SSH_HOSTNAME_PREFIX = "CODER_SSH_HOSTNAME_PREFIX";
    /// End of these host names, without its dot.
    WORKSPACE_HOSTNAME_SUFFIX = "CODER_WORKSPACE_HOSTNAME_SUFFIX";
    /// Options of OpenSSH for workspaces, as Key=Value, separated by commas.
    SSH_CONFIG_OPTIONS = "CODER_SSH_CONFIG_OPTIONS";
    /// URL of a Postgres database; empty uses the embedded SQLite file.
    PG_CONNECTION_URL = "CODER_PG_CONNECTION_URL";
    /// Most connections to Postgres.
    PG_CONN_MAX_OPEN = "CODER_PG_CONN_MAX_OPEN";
    /// Most bytes of log that one job may keep, in MiB. Ours, not an official name.
    JOB_LOG_MIB = "CODER_JOB_LOG_MIB";
    /// Keys that encrypt the secrets in the database, each 32 bytes in base64, separated by commas; the first
    /// encrypts, all decrypt. Ours, not an official name.
    STATE_ENCRYPTION_KEYS = "CODER_STATE_ENCRYPTION_KEYS";
    /// Directory of the embedded database; default `~/.local/share/coder`. Ours, not an official name.
    DATA_DIR = "CODER_DATA_DIR";
    /// Whether the embedded database survives a power cut without losing the last moments: `normal` or `full`. Ours.
    SQLITE_SYNCHRONOUS = "CODER_SQLITE_SYNCHRONOUS";
    /// Lifetime of a login session.
    SESSION_DURATION = "CODER_SESSION_DURATION";
    /// Whether sessions are not extended when they are used.
    DISABLE_SESSION_EXPIRY_REFRESH = "CODER_DISABLE_SESSION_EXPIRY_REFRESH";
    /// Longest lifetime of a token.
    MAX_TOKEN_LIFETIME = "CODER_MAX_TOKEN_LIFETIME";
    /// Longest lifetime of an owner's token.
    MAX_ADMIN_TOKEN_LIFETIME = "CODER_MAX_ADMIN_TOKEN_LIFETIME";
    /// Default lifetime of a token.
    DEFAULT_TOKEN_LIFETIME = "CODER_DEFAULT_TOKEN_LIFETIME";
    /// Turns logging in with a password off.
    DISABLE_PASSWORD_AUTH = "CODER_DISABLE_PASSWORD_AUTH";
    /// Whether cookies are sent over HTTPS only, even if the access URL is not https.
    SECURE_AUTH_COOKIE = "CODER_SECURE_AUTH_COOKIE";
    /// `SameSite` of the session cookie: lax or none.
    SAMESITE_AUTH_COOKIE = "CODER_SAMESITE_AUTH_COOKIE";
    /// Requests a minute to the API; zero or less means no limit.
    API_RATE_LIMIT = "CODER_API_RATE_LIMIT";
    /// Turns all rate limits off.
    DANGEROUS_DISABLE_RATE_LIMITS = "CODER_DANGEROUS_DISABLE_RATE_LIMITS";
    /// Loses every wake-up of waiting daemons and followers, for measurements of polling.
    DANGEROUS_DROP_WAKE_UPS = "CODER_DANGEROUS_DROP_WAKE_UPS";
    /// Daemons inside the server; 0 turns them off.
    PROVISIONER_DAEMONS = "CODER_PROVISIONER_DAEMONS";
    /// Types of jobs that built-in daemons run.
    PROVISIONER_TYPES = "CODER_PROVISIONER_TYPES";
    /// Accepted for compatibility; has no effect.
    PROVISIONER_DAEMON_POLL_INTERVAL = "CODER_PROVISIONER_DAEMON_POLL_INTERVAL";
    /// Accepted for compatibility; has no effect.
    PROVISIONER_DAEMON_POLL_JITTER = "CODER_PROVISIONER_DAEMON_POLL_JITTER";
    /// Time a built-in daemon's Terraform has to stop when its job is canceled.
    PROVISIONER_FORCE_CANCEL_INTERVAL = "CODER_PROVISIONER_FORCE_CANCEL_INTERVAL";
    /// Interval of the search for hung jobs.
    JOB_HANG_DETECTOR_INTERVAL = "CODER_JOB_HANG_DETECTOR_INTERVAL";
    /// Time without a heartbeat after which a started job counts as hung. Ours, not an official name.
    JOB_HUNG_AFTER = "CODER_JOB_HUNG_AFTER";
    /// Waiting time after which a job that no daemon took fails. Ours, not an official name.
    JOB_PENDING_AFTER = "CODER_JOB_PENDING_AFTER";
    /// Time in which a disconnected daemon may reconnect before its jobs fail. Ours, not an official name.
    DAEMON_GRACE = "CODER_DAEMON_GRACE";
    /// Allows builds with debug output of Terraform.
    ENABLE_TERRAFORM_DEBUG_MODE = "CODER_ENABLE_TERRAFORM_DEBUG_MODE";
    /// Longest time between two looks for scheduled starts and stops.
    AUTOBUILD_POLL_INTERVAL = "CODER_AUTOBUILD_POLL_INTERVAL";
    /// When the quiet hours of users begin who chose none.
    QUIET_HOURS_DEFAULT_SCHEDULE = "CODER_QUIET_HOURS_DEFAULT_SCHEDULE";
    /// Whether users may choose their quiet hours.
    ALLOW_CUSTOM_QUIET_HOURS = "CODER_ALLOW_CUSTOM_QUIET_HOURS";
    /// Interval at which agents report traffic and sessions.
    AGENT_STATS_REFRESH_INTERVAL = "CODER_AGENT_STATS_REFRESH_INTERVAL";
    /// Allows renaming workspaces.
    ALLOW_WORKSPACE_RENAMES = "CODER_ALLOW_WORKSPACE_RENAMES";
    /// File for the server's human-readable log.
    LOGGING_HUMAN = "CODER_LOGGING_HUMAN";
    /// File for the server's log as JSON lines.
    LOGGING_JSON = "CODER_LOGGING_JSON";
    /// File for the server's log as Stackdriver JSON lines.
    LOGGING_STACKDRIVER = "CODER_LOGGING_STACKDRIVER";
    /// Regular expressions, separated by commas: matching debug messages of the server are shown.
    LOG_FILTER = "CODER_LOG_FILTER";
    /// Serves Prometheus metrics.
    PROMETHEUS_ENABLE = "CODER_PROMETHEUS_ENABLE";
    /// Address of the Prometheus metrics.
    PROMETHEUS_ADDRESS = "CODER_PROMETHEUS_ADDRESS";

    /// Namespace that the operator looks at; all by default.
    OPERATOR_NAMESPACE = "CODER_OPERATOR_NAMESPACE";
    /// Whether the operator keeps servers as `CoderControlPlane` resources describe them.
    OPERATOR_CONTROL_PLANES = "CODER_OPERATOR_CONTROL_PLANES";
    /// Address of the operator's health, readiness and metrics.
    OPERATOR_HTTP_ADDRESS = "CODER_OPERATOR_HTTP_ADDRESS";
    /// Whether one of several operators is elected.
    OPERATOR_LEADER_ELECTION = "CODER_OPERATOR_LEADER_ELECTION";
    /// Namespace of the lease of the operators.
    OPERATOR_LEASE_NAMESPACE = "CODER_OPERATOR_LEASE_NAMESPACE";
    /// Name of that lease.
    OPERATOR_LEASE_NAME = "CODER_OPERATOR_LEASE_NAME";
    /// Time without renewal after which another operator takes over.
    OPERATOR_LEASE_DURATION = "CODER_OPERATOR_LEASE_DURATION";
    /// File for the operator's human-readable log; empty turns it off.
    OPERATOR_LOG_HUMAN = "CODER_OPERATOR_LOG_HUMAN";
    /// File for the operator's log as JSON lines.
    OPERATOR_LOG_JSON = "CODER_OPERATOR_LOG_JSON";
    /// Regular expressions, separated by commas: matching debug messages of the operator are shown.
    OPERATOR_LOG_FILTER = "CODER_OPERATOR_LOG_FILTER";
    /// Files with the address and the credentials of a Kubernetes cluster, for an operator outside of it.
    KUBECONFIG = "KUBECONFIG";
}

/// The value of a variable; an empty one counts as absent, as in the official program.
pub fn get(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The directory for caches when none is named.
#[must_use]
pub fn cache_directory() -> Option<PathBuf> {
    let base = get(XDG_CACHE_HOME).map(PathBuf::from);
    let base = base.or_else(|| get(HOME).map(|home| Path::new(&home).join(".cache")));
    Some(base?.join("coder"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_is_listed_once_and_documented() {
        let mut names: Vec<_> = ALL.iter().map(|variable| variable.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(ALL.iter().all(|variable| variable.about.trim().ends_with('.')));
    }
}

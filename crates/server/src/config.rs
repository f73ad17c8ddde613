//! The server's settings as plain values. Flags and variables are read and validated in the binary, never here.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use coder_domain::apps::{PathAppRules, WildcardHost};
use coder_domain::external_auth::Provider;
use coder_domain::job::lifecycle;
use coder_domain::key::Network;
use coder_domain::secret::Secret;
use coder_wire::extension::Extensions;
use jiff::SignedDuration;
use url::Url;

/// The settings of a server.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// URL at which people and daemons reach this server. `None` uses the host of each request.
    pub access_url: Option<Url>,
    /// Whether browsers that use another host name are redirected to the access URL.
    pub redirect_to_access_url: bool,
    /// Where to listen.
    pub listen: Listen,
    /// Trusted proxies.
    pub proxies: Proxies,
    /// Sessions, tokens and passwords.
    pub sessions: Sessions,
    /// Bounds on what peers may send and how fast.
    pub limits: Limits,
    /// Jobs and daemons.
    pub provisioning: Provisioning,
    pub workspaces: Workspaces,
    pub schedules: Schedules,
    pub external_auth: ExternalAuth,
    /// The overlay network.
    pub tailnet: Tailnet,
    /// Apps of workspaces in the browser.
    pub apps: Apps,
    /// Plain SSH to workspaces.
    pub ssh: Ssh,
    /// Where `/bin/` and `/install.sh` find our own executable; `None` turns both off.
    pub executable: Option<PathBuf>,
}

impl Config {
    /// Whether cookies are marked `Secure`: it is configured, or people can only use HTTPS.
    #[must_use]
    pub fn has_secure_cookies(&self) -> bool {
        let access_url_is_https = self.access_url.as_ref().is_some_and(|url| url.scheme() == "https");
        self.sessions.secure_cookie || access_url_is_https || self.listens_for_https_only()
    }

    /// Whether plain HTTP is turned off.
    #[must_use]
    pub const fn listens_for_https_only(&self) -> bool {
        self.listen.http.is_none() && self.listen.https.is_some()
    }
}

/// Listening addresses; at least one must be given for [`crate::Server::run`].
#[derive(Clone, Debug, Default)]
pub struct Listen {
    /// Plain HTTP.
    pub http: Option<SocketAddr>,
    pub https: Option<Https>,
    /// Metrics, over plain HTTP; none turns them off.
    pub metrics: Option<SocketAddr>,
    /// `Strict-Transport-Security` max-age in seconds for responses over HTTPS; zero sends no header.
    pub strict_transport_security: u64,
}

#[derive(Clone, Debug)]
pub struct Https {
    /// Address to bind.
    pub address: SocketAddr,
    /// Certificate chains with their keys. The first one is used for unknown names.
    pub certificates: Vec<CertificateFiles>,
    /// Oldest protocol version accepted.
    pub min_version: TlsVersion,
    /// Bundle of authorities that sign client certificates.
    pub client_ca: Option<PathBuf>,
    pub client_auth: ClientAuth,
}

/// Paths of one PEM certificate chain and its PEM private key.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// Certificate chain, leaf first.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// TLS protocol versions that rustls speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2 and newer.
    #[default]
    Tls12,
    /// TLS 1.3 only.
    Tls13,
}

/// `--tls-client-auth` (scheduling-and-auth 7.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// No certificate is requested.
    #[default]
    None,
    /// Requested, not required, not verified.
    Request,
    /// Required, not verified against an authority.
    RequireAny,
    VerifyIfGiven,
    RequireAndVerify,
}

/// Trusted proxies and the headers in which they forward client addresses.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    /// Headers with the client's address. The first one that a request has is used.
    pub headers: Vec<String>,
    /// Networks of the proxies that may send them.
    pub origins: Vec<Network>,
}

impl Proxies {
    /// Whether a trusted proxy has this address.
    #[must_use]
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.origins.iter().any(|network| network.contains(address))
    }
}

/// Sessions, tokens and passwords (scheduling-and-auth 5.1, 5.2, 7.4).
#[derive(Clone, Debug)]
pub struct Sessions {
    /// Lifetime of a login session.
    pub duration: Duration,
    /// Whether use extends a session.
    pub refresh_expiry: bool,
    /// Longest lifetime of a token.
    pub max_token_lifetime: Duration,
    /// Longest lifetime of an owner's token.
    pub max_admin_token_lifetime: Duration,
    /// Lifetime of a token without a requested one.
    pub default_token_lifetime: Duration,
    /// Whether people may log in with a password.
    pub password_auth: bool,
    /// Whether cookies are always marked `Secure`. See [`Config::has_secure_cookies`].
    pub secure_cookie: bool,
    /// `SameSite` of the session cookie.
    pub same_site: SameSite,
    /// Password hashes computed at the same time.
    pub password_concurrency: usize,
}

const HOUR: Duration = Duration::from_secs(3600);

impl Default for Sessions {
    fn default() -> Self {
        Self {
            duration: HOUR * 24,
            refresh_expiry: true,
            max_token_lifetime: HOUR * 876_600,
            max_admin_token_lifetime: HOUR * 168,
            default_token_lifetime: HOUR * 168,
            password_auth: true,
            secure_cookie: false,
            same_site: SameSite::Lax,
            password_concurrency: 2,
        }
    }
}

/// `--samesite-auth-cookie`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SameSite {
    /// `Lax`.
    #[default]
    Lax,
    /// `None`.
    None,
}

/// Bounds (scheduling-and-auth 5.3, http-api 1.9).
#[derive(Clone, Debug)]
pub struct Limits {
    /// Whether requests per minute are limited at all (`--dangerous-disable-rate-limits`).
    pub rate_limits: bool,
    /// Requests a minute and path, for the whole API; zero turns this one off.
    pub api_per_minute: u32,
    /// Log-ins and password changes a minute.
    pub login_per_minute: u32,
    /// Uploads and downloads a minute.
    pub files_per_minute: u32,
    /// Open connections, without upgraded ones; at most half of the open files of the process.
    pub connections: usize,
    /// Open WebSockets of one user; daemons with a provisioner key do not count.
    pub websockets_per_user: usize,
    /// Time for the head of a request, and for a TLS handshake.
    pub head_timeout: Duration,
    /// Time between two requests on one connection.
    pub idle_timeout: Duration,
    /// As `idle_timeout`, for connections of trusted proxies. Load balancers keep theirs for up to 10 minutes.
    pub proxy_idle_timeout: Duration,
    /// Time in which a peer must send 16 KiB of a request body, or read 16 KiB of a response.
    pub stall_timeout: Duration,
    /// Largest uploaded file, and largest content of a converted zip.
    pub upload_bytes: usize,
    /// Most bytes of uploaded files of one user that no template version uses.
    pub unused_upload_bytes: u64,
    /// Folder for temporary files; `None` for the system's.
    pub spool_directory: Option<PathBuf>,
    /// Returns freed memory to the operating system; `None` where the allocator does so.
    pub release_memory: Option<fn()>,
    /// Time for requests and tasks between the soft and the hard stop.
    pub shutdown_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rate_limits: true,
            api_per_minute: 512,
            login_per_minute: 60,
            files_per_minute: 12,
            connections: 16_384,
            websockets_per_user: 1000,
            head_timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(75),
            proxy_idle_timeout: Duration::from_secs(660),
            stall_timeout: Duration::from_secs(60),
            upload_bytes: 100 << 20,
            unused_upload_bytes: 1 << 30,
            spool_directory: None,
            release_memory: None,
            shutdown_grace: Duration::from_secs(5),
        }
    }
}

/// Jobs and daemons (scheduling-and-auth 0, 3.6, 7.3).
#[derive(Clone, Debug)]
pub struct Provisioning {
    /// Number of built-in daemons.
    pub builtin_daemons: u32,
    /// Deployment-wide pre-shared key of external daemons.
    pub psk: Option<Secret>,
    /// Time without an update after which a running job fails.
    pub hung_after: Duration,
    /// Time after which a pending job fails, when no daemon could run it.
    pub pending_after: Duration,
    /// Interval of the job reaper.
    pub reap_every: Duration,
    /// Time a daemon has to stop Terraform gracefully when its job is canceled.
    pub force_cancel_after: Duration,
    /// Grace period in which a daemon with the extension `resume` may reconnect and continue its jobs.
    pub daemon_grace: Duration,
    /// Protocol extensions that are granted to daemons (docs/extensions.md).
    pub extensions: Extensions,
    /// Whether waiting daemons and followers are woken. Tests turn it off to test polling.
    pub wake_ups: bool,
    /// Bytes of log output kept for one job; later lines are dropped.
    pub log_bytes: i64,
}

impl Default for Provisioning {
    fn default() -> Self {
        Self {
            builtin_daemons: 3,
            psk: None,
            hung_after: Duration::from_secs(300),
            pending_after: Duration::from_secs(1800),
            reap_every: Duration::from_secs(60),
            force_cancel_after: Duration::from_secs(600),
            daemon_grace: Duration::from_secs(120),
            extensions: Extensions::ALL,
            wake_ups: true,
            log_bytes: 64 << 20,
        }
    }
}

impl Provisioning {
    /// After which time the server ends a job.
    #[must_use]
    pub fn limits(&self) -> lifecycle::Limits {
        let signed = |limit| SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
        lifecycle::Limits {
            reconnect_grace: signed(self.daemon_grace),
            hung_after: signed(self.hung_after),
            pending_after: signed(self.pending_after),
            ..lifecycle::Limits::default()
        }
    }
}

#[derive(Clone, Debug)]
pub struct ExternalAuth {
    /// The providers; each id once.
    pub providers: Vec<Provider>,
    /// Time limit for requests to providers.
    pub timeout: Duration,
}

impl Default for ExternalAuth {
    fn default() -> Self {
        Self { providers: Vec::new(), timeout: Duration::from_secs(15) }
    }
}

/// What `coder config-ssh` writes on the machines of users.
#[derive(Clone, Debug)]
pub struct Ssh {
    /// Beginning of the host names of workspaces.
    pub hostname_prefix: String,
    /// End of the host names, without its dot.
    pub hostname_suffix: String,
    /// Options of OpenSSH.
    pub config_options: BTreeMap<String, String>,
}

impl Default for Ssh {
    fn default() -> Self {
        Self {
            hostname_prefix: "coder.".to_owned(),
            hostname_suffix: "coder".to_owned(),
            config_options: BTreeMap::new(),
        }
    }
}

/// The overlay network between users and agents (docs/network.md).
#[derive(Clone, Debug)]
pub struct Tailnet {
    /// STUN servers, each `host` or `host:port`. Our own nodes need none; official ones find direct paths with them.
    pub stun_servers: Vec<String>,
    /// Whether peers must not connect to each other directly.
    pub block_direct: bool,
    /// Whether peers must reach the relay over WebSockets.
    pub force_websockets: bool,
    /// Where the other servers on the same Postgres reach this one. `None`: they do not.
    pub relay_url: Option<Url>,
    /// Connections to the relay; at most a quarter of the open files of the process.
    pub relay_connections: usize,
    /// Connections of one user to the coordinator.
    pub user_connections: usize,
}

impl Default for Tailnet {
    fn default() -> Self {
        Self {
            stun_servers: Vec::new(),
            block_direct: false,
            force_websockets: false,
            relay_url: None,
            relay_connections: 16_384,
            user_connections: 256,
        }
    }
}

/// Apps of workspaces (docs/apps.md).
#[derive(Clone, Debug, Default)]
pub struct Apps {
    /// Where apps have host names of their own; none serves them under paths only.
    pub wildcard: Option<WildcardHost>,
    /// `--disable-path-apps`
    pub disable_paths: bool,
    /// What is allowed of apps under paths.
    pub path_rules: PathAppRules,
}

/// Builds by schedule (docs/schedules.md).
#[derive(Clone, Debug)]
pub struct Schedules {
    /// The schedule task looks at least so often what is due. It wakes when something is due, so this only bounds how late a
    /// clock that was set is noticed.
    pub check_every: Duration,
    /// When the quiet hours of users begin who chose none.
    pub default_quiet_hours: String,
    /// Whether users may choose their quiet hours.
    pub allow_custom_quiet_hours: bool,
    /// Interval at which agents report traffic and sessions.
    pub agent_stats_every: Duration,
    /// After the clock was set, no workspace becomes dormant or is deleted for so long.
    pub removal_hold: Duration,
}

impl Default for Schedules {
    fn default() -> Self {
        Self {
            check_every: Duration::from_secs(60),
            default_quiet_hours: "CRON_TZ=UTC 0 0 * * *".to_owned(),
            allow_custom_quiet_hours: true,
            agent_stats_every: Duration::from_secs(30),
            removal_hold: HOUR,
        }
    }
}

/// Workspaces (scheduling-and-auth 7.3).
#[derive(Clone, Copy, Debug, Default)]
pub struct Workspaces {
    /// `--allow-workspace-renames`.
    pub renames: bool,
    /// `--enable-terraform-debug-mode`.
    pub terraform_debug: bool,
}

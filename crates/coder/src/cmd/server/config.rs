//! Converts flags into the server's configuration. All contradictions are found here, before anything starts.

use std::net::{SocketAddr, ToSocketAddrs as _};

use anyhow::{Context as _, ensure};
use coder_domain::apps::{PathAppRules, WildcardHost};
use coder_domain::external_auth;
use coder_domain::key::network;
use coder_domain::schedule::Schedule;
use coder_domain::secret::Secret;
use coder_server::Config;
use coder_server::config::{
    Apps, CertificateFiles, ClientAuth, ExternalAuth, Https, Limits, Listen, Provisioning, Proxies, SameSite,
    Schedules, Sessions, Tailnet, TlsVersion, Workspaces,
};

use url::Url;

use super::flags::{
    Args, ClientAuthPolicy, CookieSameSite, MinTlsVersion, Network, Provisioning as ProvisioningFlags, Tls,
};
use crate::context::server_url;

/// Checks the flags.
pub(crate) fn validate(args: &Args) -> anyhow::Result<Config> {
    let access_url =
        args.network.access_url.as_deref().map(server_url).transpose().context("--access-url")?;
    ensure!(
        access_url.is_some() || !args.network.redirect_to_access_url,
        "--redirect-to-access-url needs --access-url"
    );
    ensure!(
        args.provisioning.provisioner_types.iter().all(|kind| kind == "terraform"),
        "--provisioner-types supports only terraform"
    );
    let variables = std::env::vars_os();
    let variables =
        variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let providers = external_auth::from_env(variables)?;
    let config = Config {
        access_url,
        redirect_to_access_url: args.network.redirect_to_access_url,
        listen: listen(args)?,
        proxies: proxies(&args.network)?,
        sessions: sessions(args)?,
        limits: limits(&args.network),
        provisioning: Provisioning {
            builtin_daemons: args.provisioning.provisioner_daemons,
            psk: args.provisioning.provisioner_daemon_psk.clone().map(Secret::new),
            hung_after: args.provisioning.job_hung_after,
            pending_after: args.provisioning.job_pending_after,
            daemon_grace: args.provisioning.daemon_grace,
            reap_every: args.provisioning.job_hang_detector_interval,
            force_cancel_after: args.provisioning.provisioner_force_cancel_interval,
            log_bytes: i64::from(args.provisioning.job_log_mib) << 20,
            wake_ups: !args.network.dangerous_drop_wake_ups,
            ..Provisioning::default()
        },
        workspaces: Workspaces {
            renames: args.provisioning.allow_workspace_renames,
            terraform_debug: args.provisioning.enable_terraform_debug_mode,
        },
        schedules: schedules(&args.provisioning)?,
        external_auth: ExternalAuth { providers, ..ExternalAuth::default() },
        tailnet: Tailnet {
            stun_servers: stun_servers(&args.network.derp_server_stun_addresses),
            relay_url: relay_url(args.network.derp_server_relay_url.as_deref().unwrap_or_default())?,
            block_direct: args.network.block_direct_connections,
            force_websockets: args.network.derp_force_websockets,
            ..Tailnet::default()
        },
        apps: apps(&args.network)?,
        ssh: args.ssh.settings()?,
        executable: std::env::current_exe().ok(),
    };
    ensure!(
        config.sessions.same_site == SameSite::Lax || config.has_secure_cookies(),
        "--samesite-auth-cookie none needs --secure-auth-cookie or an https --access-url: browsers refuse such cookies \
         otherwise"
    );
    Ok(config)
}

/// An empty text means no wildcard host, as in the official server.
fn apps(network: &Network) -> anyhow::Result<Apps> {
    let wildcard = network.wildcard_access_url.as_deref().filter(|text| !text.trim().is_empty());
    let wildcard = wildcard.map(WildcardHost::parse).transpose().context("--wildcard-access-url")?;
    ensure!(
        wildcard.is_none() || network.access_url.is_some(),
        "--wildcard-access-url needs --access-url: people who open an app are signed in there"
    );
    Ok(Apps {
        wildcard,
        disable_paths: network.disable_path_apps,
        path_rules: PathAppRules {
            sharing: network.dangerous_allow_path_app_sharing,
            site_owner_access: network.dangerous_allow_path_app_site_owner_access,
        },
    })
}

fn schedules(args: &ProvisioningFlags) -> anyhow::Result<Schedules> {
    let default_quiet_hours = args.default_quiet_hours_schedule.clone();
    Schedule::daily(&default_quiet_hours).context("--default-quiet-hours-schedule")?;
    ensure!(!args.autobuild_poll_interval.is_zero(), "--autobuild-poll-interval must be longer than 0s");
    ensure!(
        !args.agent_stats_refresh_interval.is_zero(),
        "--agent-stats-refresh-interval must be longer than 0s"
    );
    Ok(Schedules {
        check_every: args.autobuild_poll_interval,
        default_quiet_hours,
        allow_custom_quiet_hours: args.allow_custom_quiet_hours,
        agent_stats_every: args.agent_stats_refresh_interval,
        ..Schedules::default()
    })
}

/// The addresses; `disable` is the official word for none.
fn stun_servers(given: &[String]) -> Vec<String> {
    let given = given.iter().map(|address| address.trim());
    given.filter(|address| !address.is_empty() && *address != "disable").map(str::to_owned).collect()
}

/// The URL of `--derp-server-relay-url`; an empty text means no relay URL.
fn relay_url(text: &str) -> anyhow::Result<Option<Url>> {
    if text.is_empty() {
        return Ok(None);
    }
    let url = Url::parse(text).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.path() == "/"
            && url.query().is_none()
            && url.username().is_empty()
            && url.password().is_none()
    });
    let hint = "--derp-server-relay-url must be http:// or https:// with a host and a port, like http://10.0.0.3:3000: the \
                address at which the other servers reach this one";
    url.map(Some).context(hint)
}

fn listen(args: &Args) -> anyhow::Result<Listen> {
    // The older flag takes precedence, because users of it have no reason to give the newer one.
    let http = args.network.address.as_ref().unwrap_or(&args.network.http_address);
    let http = if http.is_empty() { None } else { Some(address(http).context("--http-address")?) };
    let https = if args.tls.tls_enable { Some(https(&args.tls)?) } else { None };
    let metrics = &args.network.prometheus_address;
    let metrics = match args.network.prometheus_enable {
        true => Some(address(metrics).context("--prometheus-address")?),
        false => None,
    };
    ensure!(
        http.is_some() || https.is_some(),
        "the server has no address to listen on: give --http-address, or --tls-enable with a certificate"
    );
    Ok(Listen { http, https, metrics, strict_transport_security: args.tls.strict_transport_security })
}

fn https(tls: &Tls) -> anyhow::Result<Https> {
    let (chains, keys) = (&tls.tls_cert_file, &tls.tls_key_file);
    ensure!(!chains.is_empty(), "--tls-enable needs --tls-cert-file and --tls-key-file");
    ensure!(
        chains.len() == keys.len(),
        "each --tls-cert-file needs its --tls-key-file: {} were given with {}",
        chains.len(),
        keys.len()
    );
    let pair = |(certificate, key): (&std::path::PathBuf, &std::path::PathBuf)| CertificateFiles {
        certificate: certificate.clone(),
        key: key.clone(),
    };
    let client_auth = match tls.tls_client_auth {
        ClientAuthPolicy::None => ClientAuth::None,
        ClientAuthPolicy::Request => ClientAuth::Request,
        ClientAuthPolicy::RequireAny => ClientAuth::RequireAny,
        ClientAuthPolicy::VerifyIfGiven => ClientAuth::VerifyIfGiven,
        ClientAuthPolicy::RequireAndVerify => ClientAuth::RequireAndVerify,
    };
    let verifies = matches!(client_auth, ClientAuth::VerifyIfGiven | ClientAuth::RequireAndVerify);
    ensure!(
        !verifies || tls.tls_client_ca_file.is_some(),
        "--tls-client-auth verify-if-given and require-and-verify need --tls-client-ca-file"
    );
    let min_version = match tls.tls_min_version {
        MinTlsVersion::Tls12 => TlsVersion::Tls12,
        MinTlsVersion::Tls13 => TlsVersion::Tls13,
    };
    Ok(Https {
        address: address(&tls.tls_address).context("--tls-address")?,
        certificates: chains.iter().zip(keys).map(pair).collect(),
        min_version,
        client_ca: tls.tls_client_ca_file.clone(),
        client_auth,
    })
}

/// Reads `host:port`; `:port` means all addresses, as in Go.
fn address(text: &str) -> anyhow::Result<SocketAddr> {
    let complete = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    if let Ok(address) = complete.parse() {
        return Ok(address);
    }
    let wrong = || format!("{text:?} is not of the form host:port");
    complete.to_socket_addrs().with_context(wrong)?.next().with_context(wrong)
}

fn proxies(network: &Network) -> anyhow::Result<Proxies> {
    let origin = |text: &String| match text.trim().parse() {
        // As in the official server, 10.0.0.7/8 means 10.0.0.0/8.
        Err(network::Error::HostBits { meant, .. }) => Ok(meant),
        parsed => parsed.context("--proxy-trusted-origins"),
    };
    Ok(Proxies {
        headers: network.proxy_trusted_headers.clone(),
        origins: network.proxy_trusted_origins.iter().map(origin).collect::<Result<_, _>>()?,
    })
}

fn sessions(args: &Args) -> anyhow::Result<Sessions> {
    let flags = &args.sessions;
    let same_site = match flags.samesite_auth_cookie {
        CookieSameSite::Lax => SameSite::Lax,
        CookieSameSite::None => SameSite::None,
    };
    ensure!(!flags.session_duration.is_zero(), "--session-duration must be longer than zero");
    Ok(Sessions {
        duration: flags.session_duration,
        refresh_expiry: !flags.disable_session_expiry_refresh,
        max_token_lifetime: flags.max_token_lifetime,
        max_admin_token_lifetime: flags.max_admin_token_lifetime,
        default_token_lifetime: flags.default_token_lifetime,
        password_auth: !flags.disable_password_auth,
        secure_cookie: flags.secure_auth_cookie,
        same_site,
        ..Sessions::default()
    })
}

fn limits(network: &Network) -> Limits {
    // As in the official server, anything but a positive number means no limit.
    let api_per_minute = u32::try_from(network.api_rate_limit).unwrap_or(0);
    Limits {
        rate_limits: !network.dangerous_disable_rate_limits,
        api_per_minute,
        release_memory: Some(crate::runtime::release_memory),
        ..Limits::default()
    }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn check(flags: &[&str]) -> anyhow::Result<Config> {
        let words = ["coder", "server"].into_iter().chain(flags.iter().copied());
        let matches = crate::command().try_get_matches_from(words)?;
        let Command::Server(args) = Cli::from_arg_matches(&matches)?.command else {
            anyhow::bail!("another command")
        };
        validate(&args)
    }

    #[test]
    fn defaults() {
        let config = check(&[]).unwrap();
        assert_eq!(config.listen.http.unwrap().to_string(), "127.0.0.1:3000");
        assert!(config.listen.https.is_none());
        assert_eq!(config.provisioning.builtin_daemons, 3);
        assert_eq!(config.limits.api_per_minute, 512);
    }

    #[test]
    fn flags_as_scripts_write_them() {
        let config = check(&[
            "--provisioner-daemons=0",
            "--http-address",
            ":0",
            "--dangerous-disable-rate-limits=true",
        ])
        .unwrap();
        assert_eq!(config.provisioning.builtin_daemons, 0);
        assert_eq!(config.listen.http.unwrap().to_string(), "0.0.0.0:0");
        assert!(!config.limits.rate_limits);
        let config =
            check(&["--proxy-trusted-origins=10.0.0.7/8,::1", "--telemetry=false", "--pprof-enable"])
                .unwrap();
        let origins: Vec<_> = config.proxies.origins.iter().map(ToString::to_string).collect();
        assert_eq!(origins, ["10.0.0.0/8", "::1"]);
    }

    #[test]
    fn relay_url_may_be_empty() {
        let given = |url: &str| check(&["--derp-server-relay-url", url]).unwrap().tailnet.relay_url;
        assert_eq!(given(""), None);
        assert_eq!(given("http://10.0.0.6:3000").unwrap().as_str(), "http://10.0.0.6:3000/");
    }

    #[test]
    fn contradictions() {
        let refused = |flags: &[&str], words: &str| {
            let error = format!("{:#}", check(flags).unwrap_err());
            assert!(error.contains(words), "{flags:?}: {error}");
        };
        refused(&["--http-address="], "no address to listen on");
        refused(&["--tls-enable"], "--tls-cert-file");
        refused(&["--tls-enable", "--tls-cert-file=a,b", "--tls-key-file=a"], "2 were given with 1");
        refused(&["--redirect-to-access-url"], "--access-url");
        refused(&["--samesite-auth-cookie=none"], "--secure-auth-cookie");
        refused(&["--samesite-auth-cookie=strict"], "possible values: lax, none");
        refused(&["--proxy-trusted-origins=10.0.0.0/40"], "no valid prefix length");
        refused(&["--provisioner-types=echo"], "supports only terraform");
        refused(&["--session-duration=0"], "longer than zero");
        refused(&["--access-url=ftp://x"], "--access-url");
        for url in ["10.0.0.6:3000", "ftp://x", "http://x/path", "http://user@x", "http://x?a"] {
            refused(&["--derp-server-relay-url", url], "the address at which the other servers reach");
        }
        refused(&["--wildcard-access-url=*.apps.test"], "needs --access-url");
        refused(&["--access-url=http://x.test", "--wildcard-access-url=apps.test"], "begin with its only *");
        refused(&["--no-such-flag"], "unexpected argument");
    }
}

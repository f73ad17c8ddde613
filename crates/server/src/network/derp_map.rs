//! The DERP map that peers are given: the relay inside this server, and the configured STUN servers.

use coder_tailnet::derp::DerpMap;
use coder_tailnet::derp::map::ServerUrl;
use url::{Host, Url};

use crate::config::Config;
use crate::http::AccessUrl;

/// The map for a peer that reaches the server at `url`.
#[must_use]
pub fn of(config: &Config, url: &AccessUrl) -> DerpMap {
    let stun = if config.tailnet.block_direct { &[][..] } else { &config.tailnet.stun_servers };
    DerpMap::of_server(&server_url(&url.0), stun)
}

fn server_url(text: &str) -> ServerUrl {
    let url = Url::parse(text).ok();
    let host = url.as_ref().and_then(Url::host).map(|host| match host {
        Host::Domain(name) => name.to_owned(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    });
    ServerUrl {
        host: host.unwrap_or_else(|| "localhost".to_owned()),
        port: url.as_ref().and_then(Url::port_or_known_default).unwrap_or(443),
        tls: text.starts_with("https://"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relay_is_at_the_access_url() {
        let relay = |url: &str| {
            let map = of(&Config::default(), &AccessUrl(url.to_owned()));
            let node = map.relay(999).unwrap();
            (node.host_name.clone(), node.derp_port, node.force_http)
        };
        assert_eq!(relay("https://coder.example.com"), ("coder.example.com".to_owned(), 443, false));
        assert_eq!(relay("http://127.0.0.1:3000"), ("127.0.0.1".to_owned(), 3000, true));
        assert_eq!(relay("https://[fd00::1]:8443"), ("fd00::1".to_owned(), 8443, false));
        assert_eq!(relay("https://example.com/coder"), ("example.com".to_owned(), 443, false));
    }

    #[test]
    fn stun_servers_are_left_out_when_direct_connections_are_blocked() {
        let mut config = Config::default();
        config.tailnet.stun_servers = vec!["stun.example.com:3478".to_owned()];
        let regions = |config: &Config| of(config, &AccessUrl("https://x.test".to_owned())).regions.len();
        assert_eq!(regions(&config), 2);
        config.tailnet.block_direct = true;
        assert_eq!(regions(&config), 1);
    }
}

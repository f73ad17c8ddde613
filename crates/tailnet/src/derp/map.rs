//! The list of relays that peers are given, in the JSON that the HTTP API has and as a message.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::messages::DerpMap as DerpMapMessage;
use crate::messages::derp_map::region::Node as NodeMessage;
use crate::messages::derp_map::{HomeParams as HomeParamsMessage, Region as RegionMessage};

/// The region of the relay inside the server.
pub const EMBEDDED_REGION: i64 = 999;
/// The first region of a STUN server. Each further one has the next number.
const STUN_REGION: i64 = 1000;
/// A STUN port that means none.
const NO_STUN: i32 = -1;

/// Relays by region.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DerpMap {
    /// Weights for the choice of a home region.
    #[serde(rename = "HomeParams", skip_serializing_if = "Option::is_none")]
    pub home_params: Option<HomeParams>,
    /// Regions by their number.
    #[serde(rename = "Regions", deserialize_with = "or_default")]
    pub regions: BTreeMap<i64, Region>,
    /// Whether regions that a client knows by itself are left out.
    #[serde(rename = "omitDefaultRegions", skip_serializing_if = "is_default")]
    pub omit_default_regions: bool,
}

/// See [`DerpMap::home_params`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HomeParams {
    /// Multiplies the latency of a region.
    #[serde(
        rename = "RegionScore",
        deserialize_with = "or_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub region_score: BTreeMap<i64, f64>,
}

/// Relays that are near to each other.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Region {
    /// Whether it is the relay inside the server: peers use their own URL of the server for it.
    pub embedded_relay: bool,
    /// Its number.
    #[serde(rename = "RegionID")]
    pub region_id: i64,
    /// Its short name.
    pub region_code: String,
    /// Its name.
    pub region_name: String,
    /// Whether it is not chosen as home.
    #[serde(skip_serializing_if = "is_default")]
    pub avoid: bool,
    /// Its relays, the preferred one first.
    #[serde(deserialize_with = "or_default")]
    pub nodes: Vec<Node>,
}

/// A relay or a STUN server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Unique name.
    #[serde(rename = "Name")]
    pub name: String,
    /// Its region.
    #[serde(rename = "RegionID")]
    pub region_id: i64,
    /// Host of its URL.
    #[serde(rename = "HostName")]
    pub host_name: String,
    /// Name in its certificate, if that is another.
    #[serde(rename = "CertName", skip_serializing_if = "is_default")]
    pub cert_name: String,
    /// Its address, to spare name resolution.
    #[serde(rename = "IPv4", skip_serializing_if = "is_default")]
    pub ipv4: String,
    /// See `ipv4`.
    #[serde(rename = "IPv6", skip_serializing_if = "is_default")]
    pub ipv6: String,
    /// -1 for none, 0 for the usual one.
    #[serde(rename = "STUNPort", skip_serializing_if = "is_default")]
    pub stun_port: i32,
    /// Whether it does not relay.
    #[serde(rename = "STUNOnly", skip_serializing_if = "is_default")]
    pub stun_only: bool,
    /// 0 for 443.
    #[serde(rename = "DERPPort", skip_serializing_if = "is_default")]
    pub derp_port: i32,
    /// Whether its certificate is not verified.
    #[serde(rename = "InsecureForTests", skip_serializing_if = "is_default")]
    pub insecure_for_tests: bool,
    /// Whether it is reached without TLS.
    #[serde(rename = "ForceHTTP", skip_serializing_if = "is_default")]
    pub force_http: bool,
    /// Address that answers STUN in tests.
    #[serde(rename = "STUNTestIP", skip_serializing_if = "is_default")]
    pub stun_test_ip: String,
    /// Whether port 80 answers, too.
    #[serde(rename = "CanPort80", skip_serializing_if = "is_default")]
    pub can_port_80: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Official peers write an empty list or map as null.
fn or_default<'a, T: Default + Deserialize<'a>, D: serde::Deserializer<'a>>(value: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

/// Host and port of the URL that a peer uses for the server, and whether it has TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl {
    /// Host without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Whether it is https.
    pub tls: bool,
}

impl DerpMap {
    /// The map of a server: its own relay, and a region for each STUN server (`host` or `host:port`).
    #[must_use]
    pub fn of_server(server: &ServerUrl, stun_servers: &[String]) -> Self {
        let mut map = Self { home_params: Some(HomeParams::default()), ..Self::default() };
        let node = Node {
            name: format!("{EMBEDDED_REGION}b"),
            region_id: EMBEDDED_REGION,
            stun_port: NO_STUN,
            ..Node::default()
        };
        let region = Region {
            embedded_relay: true,
            region_id: EMBEDDED_REGION,
            region_code: "coder".to_owned(),
            region_name: "Coder Embedded Relay".to_owned(),
            nodes: vec![node],
            ..Region::default()
        };
        map.regions.insert(EMBEDDED_REGION, region);
        map.rewrite(server);
        for (region_id, address) in (STUN_REGION..).zip(stun_servers) {
            let (host, port) = match address.rsplit_once(':') {
                Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                    (host, port.parse().unwrap_or(0))
                }
                _ => (address.as_str(), 0),
            };
            let node = Node {
                name: format!("{region_id}stun0"),
                region_id,
                host_name: host.trim_matches(['[', ']']).to_owned(),
                stun_port: port,
                stun_only: true,
                ..Node::default()
            };
            let region = Region {
                region_id,
                region_code: format!("coder_stun_{region_id}"),
                region_name: format!("Coder STUN {region_id}"),
                nodes: vec![node],
                ..Region::default()
            };
            map.regions.insert(region_id, region);
        }
        map
    }

    /// Gives the nodes of embedded regions the host and port that this peer uses for the server.
    pub fn rewrite(&mut self, server: &ServerUrl) {
        for region in self.regions.values_mut().filter(|region| region.embedded_relay) {
            for node in &mut region.nodes {
                node.host_name.clone_from(&server.host);
                node.derp_port = server.port.into();
                node.force_http = !server.tls;
            }
        }
    }

    /// The relay to use in a region; none when it has only STUN servers.
    #[must_use]
    pub fn relay(&self, region: i64) -> Option<&Node> {
        self.regions.get(&region)?.nodes.iter().find(|node| !node.stun_only)
    }

    /// The region that a peer takes as home without measuring: the server's own, else the first with a relay that is not
    /// avoided.
    #[must_use]
    pub fn home(&self) -> Option<i64> {
        let with_relay = |embedded: bool| {
            let mut regions = self.regions.iter();
            regions.find_map(|(id, region)| {
                let fits = region.embedded_relay == embedded && !region.avoid && self.relay(*id).is_some();
                fits.then_some(*id)
            })
        };
        with_relay(true).or_else(|| with_relay(false))
    }

    /// Reads the message. Unknown fields are dropped.
    #[must_use]
    pub fn from_message(message: DerpMapMessage) -> Self {
        let node = |node: NodeMessage| Node {
            name: node.name,
            region_id: node.region_id,
            host_name: node.host_name,
            cert_name: node.cert_name,
            ipv4: node.ipv4,
            ipv6: node.ipv6,
            stun_port: node.stun_port,
            stun_only: node.stun_only,
            derp_port: node.derp_port,
            insecure_for_tests: node.insecure_for_tests,
            force_http: node.force_http,
            stun_test_ip: node.stun_test_ip,
            can_port_80: node.can_port_80,
        };
        let region = |region: RegionMessage| Region {
            embedded_relay: region.embedded_relay,
            region_id: region.region_id,
            region_code: region.region_code,
            region_name: region.region_name,
            avoid: region.avoid,
            nodes: region.nodes.into_iter().map(node).collect(),
        };
        Self {
            home_params: message.home_params.map(|params| HomeParams { region_score: params.region_score }),
            regions: message.regions.into_iter().map(|(id, value)| (id, region(value))).collect(),
            omit_default_regions: false,
        }
    }

    /// The message. Home parameters are always there: official peers fail without them.
    #[must_use]
    pub fn to_message(&self) -> DerpMapMessage {
        let node = |node: &Node| NodeMessage {
            name: node.name.clone(),
            region_id: node.region_id,
            host_name: node.host_name.clone(),
            cert_name: node.cert_name.clone(),
            ipv4: node.ipv4.clone(),
            ipv6: node.ipv6.clone(),
            stun_port: node.stun_port,
            stun_only: node.stun_only,
            derp_port: node.derp_port,
            insecure_for_tests: node.insecure_for_tests,
            force_http: node.force_http,
            stun_test_ip: node.stun_test_ip.clone(),
            can_port_80: node.can_port_80,
        };
        let region = |region: &Region| RegionMessage {
            embedded_relay: region.embedded_relay,
            region_id: region.region_id,
            region_code: region.region_code.clone(),
            region_name: region.region_name.clone(),
            avoid: region.avoid,
            nodes: region.nodes.iter().map(node).collect(),
        };
        let params = self.home_params.clone().unwrap_or_default();
        DerpMapMessage {
            home_params: Some(HomeParamsMessage { region_score: params.region_score }),
            regions: self.regions.iter().map(|(id, value)| (*id, region(value))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> ServerUrl {
        ServerUrl { host: "coder.example.com".to_owned(), port: 443, tls: true }
    }

    /// agent 3.2, 3.5.
    #[test]
    fn json_of_a_server_is_that_of_official_ones() {
        let map = DerpMap::of_server(&server(), &["stun.example.com:19302".to_owned()]);
        let expected = serde_json::json!({
            "HomeParams": {},
            "Regions": {
                "999": {
                    "EmbeddedRelay": true, "RegionID": 999, "RegionCode": "coder",
                    "RegionName": "Coder Embedded Relay",
                    "Nodes": [{
                        "Name": "999b", "RegionID": 999, "HostName": "coder.example.com", "STUNPort": -1,
                        "DERPPort": 443,
                    }],
                },
                "1000": {
                    "EmbeddedRelay": false, "RegionID": 1000, "RegionCode": "coder_stun_1000",
                    "RegionName": "Coder STUN 1000",
                    "Nodes": [{
                        "Name": "1000stun0", "RegionID": 1000, "HostName": "stun.example.com", "STUNPort": 19302,
                        "STUNOnly": true,
                    }],
                },
            },
        });
        assert_eq!(serde_json::to_value(&map).unwrap(), expected);
        assert_eq!(serde_json::from_value::<DerpMap>(expected).unwrap(), map);
        assert_eq!(DerpMap::from_message(map.to_message()), map);
    }

    #[test]
    fn null_and_missing_are_empty() {
        let map: DerpMap =
            serde_json::from_str(r#"{"HomeParams":{"RegionScore":null},"Regions":null}"#).unwrap();
        assert_eq!(map, DerpMap { home_params: Some(HomeParams::default()), ..DerpMap::default() });
        assert_eq!(serde_json::from_str::<DerpMap>("{}").unwrap(), DerpMap::default());
        assert!(DerpMap::default().to_message().home_params.is_some());
    }

    #[test]
    fn embedded_relay_is_reached_as_the_server_is() {
        let mut map = DerpMap::of_server(&server(), &["stun".to_owned(), "[fd00::1]:3478".to_owned()]);
        map.rewrite(&ServerUrl { host: "10.0.0.7".to_owned(), port: 3000, tls: false });
        let relay = map.relay(999).unwrap();
        assert_eq!((relay.host_name.as_str(), relay.derp_port, relay.force_http), ("10.0.0.7", 3000, true));
        assert_eq!(
            (map.regions[&1000].nodes[0].host_name.as_str(), map.regions[&1000].nodes[0].stun_port),
            ("stun", 0)
        );
        let last = &map.regions[&1001].nodes[0];
        assert_eq!((last.host_name.as_str(), last.stun_port), ("fd00::1", 3478));
    }

    #[test]
    fn home_has_a_relay() {
        let mut map = DerpMap::of_server(&server(), &["stun".to_owned()]);
        assert_eq!(map.home(), Some(999));
        assert!(map.relay(1000).is_none());
        let own = Region {
            region_id: 1,
            nodes: vec![Node { name: "1a".to_owned(), ..Node::default() }],
            ..Region::default()
        };
        map.regions.insert(1, own);
        assert_eq!(map.home(), Some(999), "the server's own relay is preferred");
        map.regions.remove(&999);
        assert_eq!(map.home(), Some(1));
        map.regions.get_mut(&1).unwrap().avoid = true;
        assert_eq!(map.home(), None);
    }
}

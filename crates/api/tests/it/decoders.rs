//! One function for each kind of text that a client sends or a person types: whatever the bytes, it ends, and what it says
//! holds. `corpus` replays what fuzzing found with them, and the targets of `fuzz/` call them.

use std::collections::BTreeMap;

use coder_api::builds::CreateWorkspaceBuildRequest;
use coder_api::daemons::ProvisionerDaemon;
use coder_api::error::ErrorBody;
use coder_api::jobs::{ProvisionerJob, ProvisionerJobLog};
use coder_api::keys::{CreateProvisionerKeyRequest, ProvisionerKey, RotateProvisionerKeyRequest};
use coder_api::organizations::CreateOrganizationRequest;
use coder_api::templates::{CreateTemplateRequest, UpdateTemplateRequest};
use coder_api::tokens::CreateTokenRequest;
use coder_api::users::{CreateFirstUserRequest, CreateUserRequest, LoginRequest};
use coder_api::versions::CreateTemplateVersionRequest;
use coder_api::workspaces::CreateWorkspaceRequest;
use coder_domain::Timestamp;
use coder_domain::apps::{PathAddress, PathTarget, Port, SubdomainName, WildcardHost};
use coder_domain::ids::UserId;
use coder_domain::key::network::{AllowList, Network};
use coder_domain::key::{self, ApiToken};
use coder_domain::parameter::{self, Definition};
use coder_domain::protocol::ApiVersion;
use coder_domain::rbac::scope::Scopes;
use coder_domain::tags::{self, TagSet};
use coder_domain::{names, password};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A parsed text is written and parsed again to an equal value.
fn json<T: DeserializeOwned + Serialize>(text: &str) {
    let Ok(value) = serde_json::from_str::<T>(text) else { return };
    let written = serde_json::to_string(&value).expect("what was read can be written");
    let again = serde_json::from_str::<T>(&written);
    let again = again.unwrap_or_else(|error| panic!("{written} is not read again: {error}"));
    assert_eq!(serde_json::to_string(&again).expect("again"), written);
}

/// Requests of clients, and what clients read of a server.
pub(crate) fn requests(data: &[u8]) {
    const ALL: &[fn(&str)] = &[
        json::<CreateWorkspaceBuildRequest>,
        json::<CreateWorkspaceRequest>,
        json::<CreateTemplateVersionRequest>,
        json::<CreateTemplateRequest>,
        json::<UpdateTemplateRequest>,
        json::<CreateTokenRequest>,
        json::<CreateProvisionerKeyRequest>,
        json::<RotateProvisionerKeyRequest>,
        json::<CreateUserRequest>,
        json::<CreateFirstUserRequest>,
        json::<LoginRequest>,
        json::<CreateOrganizationRequest>,
        json::<ProvisionerDaemon>,
        json::<ProvisionerJob>,
        json::<ProvisionerJobLog>,
        json::<ProvisionerKey>,
        json::<ErrorBody>,
        json::<TagSet>,
    ];
    let Some((first, text)) = data.split_first() else { return };
    ALL[usize::from(*first) % ALL.len()](&String::from_utf8_lossy(text));
}

/// Texts with a meaning: tags, names, keys, tokens, scopes, networks, versions, parameters.
pub(crate) fn texts(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    let lines: Vec<&str> = text.lines().take(200).collect();
    match first % 8 {
        0 => tag_lines(&lines),
        1 => {
            let judge = [names::name, names::organization, names::template_version, names::provisioner_key];
            judge.iter().for_each(|judge| drop(judge(&text).map_err(|error| error.to_string())));
            let _ = (names::daemon(&text).is_ok(), names::display_name(&text).is_ok());
            let _ = (names::real_name(&text).is_ok(), names::agent(&text), names::app_slug(&text));
            let _ = (names::email(&text), password::validate(&text).is_ok());
        }
        2 => {
            if let Some(token) = ApiToken::parse(&text) {
                assert_eq!(token.reveal().expose(), text);
                assert!(token.hashed().verify(&token.hashed()));
            }
            assert!(key::same_secret(&text, &text));
        }
        3 => {
            let at = lines.len() / 2;
            if let Ok(scopes) = Scopes::parse(lines[..at].iter().copied(), lines[at..].iter().copied()) {
                assert!(scopes.cover(&scopes) && Scopes::all().cover(&scopes));
            }
            let _ = Scopes::from_stored(&lines[..at], &lines[at..]);
        }
        4 => {
            if let Ok(network) = text.parse::<Network>() {
                assert_eq!(network.to_string().parse(), Ok(network));
            }
            if let Ok(list) = AllowList::parse(lines.iter().copied()) {
                assert!(list.networks().len() <= lines.len());
                let _ = list.allows(text.parse().ok());
            }
        }
        5 => {
            if let Ok(version) = text.parse::<ApiVersion>() {
                assert_eq!(version.to_string().parse(), Ok(version));
            }
            let _ = ApiVersion::accept(coder_domain::protocol::CURRENT, &text);
        }
        6 => {
            let [kind, regex, default, value, ref options @ ..] = lines[..] else { return };
            let definition = Definition {
                kind: kind.to_owned(),
                validation_regex: regex.to_owned(),
                default_value: default.to_owned(),
                options: options.iter().map(|&option| option.to_owned()).collect(),
                ..Definition::default()
            };
            let _ = parameter::validate(&definition, value, Some(default));
        }
        _ => {
            let _ = text.parse::<UserId>();
            let _ = text.parse::<Timestamp>();
        }
    }
}

/// Pairs of tags, as a request, a key and a template may have them.
fn tag_lines(lines: &[&str]) {
    let mut map = BTreeMap::new();
    for line in lines {
        if let Ok((key, value)) = tags::parse_pair(line) {
            assert_eq!(format!("{key}={value}"), *line);
            map.insert(key, value);
        }
    }
    let has_nul = map.iter().any(|(key, value)| key.contains('\0') || value.contains('\0'));
    assert!(!has_nul || tags::validate(&map).is_err());
    let user = UserId::random();
    let set = TagSet::canonical(user, [&map]);
    assert_eq!(TagSet::canonical(user, [set.as_map()]), set, "the canonical form is its own");
    assert!(set.satisfies(&set));
    let build = tags::for_build(user, &set, &map);
    assert!(!build.is_user_scoped() || build.owner() == user.to_string(), "a build's scope is its owner's");
    let _ = tags::for_import(user, &map, &map);
}

/// Where a request goes: a path, a host name, the setting that host names are compared with.
pub(crate) fn app_addresses(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (first, second) = text.split_once('\n').unwrap_or((&text, ""));
    if let Some(address) = PathAddress::parse(first) {
        assert!(PathAddress::is_one(first));
        if let PathTarget::App { base, rest, .. } = address.target {
            assert_eq!(format!("{base}{rest}"), first);
            assert!(rest.is_empty() || rest.starts_with('/'));
        }
    }
    if let Ok(name) = SubdomainName::parse(first) {
        let written = name.to_string();
        assert_eq!(written, first.to_ascii_lowercase());
        assert_eq!(SubdomainName::parse(&written), Ok(name));
    }
    if let Some(port) = Port::parse(first) {
        assert!(port.url().starts_with("http"));
    }
    if let Ok(wildcard) = WildcardHost::parse(first) {
        if let Some(label) = wildcard.label(second) {
            assert!(!label.is_empty() && !label.contains('.'));
            assert_eq!(wildcard.label(&wildcard.with_label(label, None)), Some(label));
        }
        assert_eq!(wildcard.hash().len(), 32);
        assert!(
            wildcard.cookie_domain().is_none_or(|domain| wildcard.with_label("*", None).contains(domain))
        );
    }
}

/// Reads arbitrary bytes.
pub(crate) type Decode = fn(&[u8]);

/// Every reader by the name of its corpus.
pub(crate) const DECODERS: [(&str, Decode); 3] =
    [("requests", requests), ("texts", texts), ("app-addresses", app_addresses)];

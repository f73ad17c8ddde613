//! Authentication of daemons: who may join, in which organization, with which tags (wire-protocol 1.4, scheduling-and-auth
//! 4.2).

use std::collections::BTreeMap;
use std::net::IpAddr;

use coder_api::headers::{BUILD_VERSION, PROVISIONER_KEY, PROVISIONER_PSK};
use coder_domain::ids::{KeyId, OrganizationId, UserId};
use coder_domain::key::{Sha256Digest, is_provisioner_key, same_secret};
use coder_domain::protocol;
use coder_domain::rbac::{Action, Object, Resource};
use coder_domain::tags::{self, TagSet};
use coder_store::daemons::{JoinContext, NewDaemon};
use coder_store::keys;
use coder_wire::extension::{Extension, Extensions};
use http::request::Parts;
use http::{HeaderMap, StatusCode, Uri};
use uuid::Uuid;

use crate::authn::csrf;
use crate::authn::session;
use crate::context::App;
use crate::http::peer::Peer;
use crate::http::{Caller, Error, Result};
use crate::lookup;

/// The error for every missing, unknown, malformed or repeated credential.
pub const UNAUTHENTICATED: &str =
    "API key or external provisioner authentication required, but none provided";
/// The types a daemon can serve.
const TYPES: [&str; 2] = ["terraform", "echo"];
/// Longest name of a daemon in characters.
const NAME_CHARACTERS: usize = 64;
/// Longest build version kept, in characters.
const VERSION_CHARACTERS: usize = 128;

/// The secret and the key that a daemon joined with, and its address.
#[derive(Clone, Debug)]
pub struct PresentedKey {
    pub key: KeyId,
    /// The hash of the secret.
    pub secret: Sha256Digest,
    /// The daemon's address.
    pub address: IpAddr,
}

/// An authenticated daemon.
#[derive(Clone, Debug)]
pub struct Authenticated {
    /// Its row.
    pub join: NewDaemon,
    /// The extensions that are granted.
    pub extensions: Extensions,
    /// The key that it joined with, if any.
    pub presented_key: Option<PresentedKey>,
    /// The user whose token it joined with, if any.
    pub user: Option<UserId>,
    /// The id of that token.
    pub token: Option<String>,
}

impl Authenticated {
    /// The values for the daemon's row.
    #[must_use]
    pub fn as_arrival(&self, server: Uuid) -> JoinContext {
        JoinContext { user: self.user, token: self.token.clone(), ignores_drain: self.cannot_drain(), server }
    }

    /// Whether it lacks the extension `drain`.
    #[must_use]
    pub const fn cannot_drain(&self) -> bool {
        !self.extensions.has(Extension::Drain)
    }

    /// A daemon without extensions.
    #[must_use]
    pub const fn official(join: NewDaemon) -> Self {
        Self { join, extensions: Extensions::NONE, presented_key: None, user: None, token: None }
    }
}

/// A valid credential.
enum Credential {
    Key(Box<keys::MatchedKey>),
    Psk,
    User(Box<Caller>),
}

/// Authenticates and authorizes a request to join. The WebSocket headers are checked later.
pub async fn authenticate(
    app: &App,
    organization: &str,
    request: &Parts,
    peer: Peer,
) -> Result<Authenticated> {
    let (headers, uri) = (&request.headers, &request.uri);
    let credential = credential(app, request, peer).await?;
    let presented_key = match &credential {
        Credential::Key(found) => {
            Some(PresentedKey { key: found.key.id, secret: found.hashed_secret, address: peer.address })
        }
        Credential::Psk | Credential::User(_) => None,
    };
    let (user, token) = match &credential {
        Credential::User(caller) => (Some(caller.user.id), Some(caller.key.id.clone())),
        Credential::Key(_) | Credential::Psk => (None, None),
    };
    let mut tx = app.store.reader().await?;
    let path = lookup::organization(app, &mut tx, organization).await?;
    drop(tx);
    if let Credential::User(caller) = &credential {
        caller.require_visible(Action::Read, Object::in_organization(Resource::Organization, path.id))?;
    }
    let query = JoinQuery::of(uri);
    let tags = query.tags()?;
    let provisioners = query.provisioners()?;
    let (organization_id, key_id, tags) = scope(app, credential, path.id, tags)?;
    tags::validate(tags.as_map()).map_err(|error| {
        Error::bad_request("Given tags are not acceptable to the service").field("tags", error)
    })?;
    let api_version = protocol::CURRENT
        .accept(query.first("version"))
        .map_err(|error| Error::bad_request("Incompatible or unparsable version").field("version", error))?;
    let join = NewDaemon {
        organization_id,
        name: query.name()?,
        key_id,
        provisioners,
        tags,
        version: build_version(headers),
        api_version: api_version.to_string(),
    };
    let extensions = Extensions::from_headers(headers).intersection(app.config.provisioning.extensions);
    Ok(Authenticated { join, extensions, presented_key, user, token })
}

async fn credential(app: &App, request: &Parts, peer: Peer) -> Result<Credential> {
    let headers = &request.headers;
    // Browsers name the page that made the request. Daemons do not (wire-protocol 1.3).
    let is_foreign = csrf::is_foreign(&app.config, headers, &request.extensions);
    let user = match session::presented(headers, &request.uri) {
        Some(presented) if !is_foreign => match session::authenticate(app, &presented).await {
            Ok(caller) => Some(caller),
            // An invalid session is treated as a missing one.
            Err(error) if error.status() == StatusCode::UNAUTHORIZED => None,
            Err(error) => return Err(error),
        },
        _ => None,
    };
    match (user, daemon_credential(app, headers, peer).await?) {
        (None, None) => Err(Error::unauthorized(UNAUTHENTICATED)),
        (None, Some(credential)) => Ok(credential),
        (Some(caller), None) => Ok(Credential::User(Box::new(caller))),
        (Some(_), Some(_)) => Err(Error::bad_request(
            "API key and external provisioner authentication provided, but only one is allowed",
        )),
    }
}

async fn daemon_credential(app: &App, headers: &HeaderMap, peer: Peer) -> Result<Option<Credential>> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (key, psk) = (text(PROVISIONER_KEY), text(PROVISIONER_PSK));
    if !key.is_empty() {
        if !psk.is_empty() || !is_provisioner_key(key) {
            return Ok(None);
        }
        let found = keys::find_by_secret(&mut app.store.reader().await?, Sha256Digest::of(key)).await?;
        let Some(found) = found else { return Ok(None) };
        // The daemon does not learn the reason.
        if let Err(refusal) = found.key.validity().check(found.generation, app.now(), Some(peer.address)) {
            tracing::warn!(key_name = found.key.name, address = %peer.address, %refusal, "refused a daemon");
            return Ok(None);
        }
        let address = peer.address.to_string();
        if found.key.should_record_use(&address, app.now()) {
            keys::update_used(&mut app.store.single().await?, found.key.id, &address, app.now()).await?;
        }
        return Ok(Some(Credential::Key(Box::new(found))));
    }
    let expected = app.config.provisioning.psk.as_ref().filter(|expected| !expected.expose().is_empty());
    let valid = expected.is_some_and(|expected| !psk.is_empty() && same_secret(expected.expose(), psk));
    Ok(valid.then_some(Credential::Psk))
}

/// The organization, the key id and the effective tags for a credential.
fn scope(
    app: &App,
    credential: Credential,
    path: OrganizationId,
    tags: Option<BTreeMap<String, String>>,
) -> Result<(OrganizationId, KeyId, TagSet)> {
    match credential {
        Credential::Key(key) => {
            if tags.is_some() {
                return Err(
                    denied("organization").detail("Tags are not allowed when using a provisioner key.")
                );
            }
            let key = key.key;
            let effective = TagSet::canonical(UserId::NIL, [key.tags.as_map()]);
            organization_scoped(&effective)?;
            Ok((key.organization_id, key.id, effective))
        }
        Credential::Psk => {
            let effective = TagSet::canonical(UserId::NIL, [&tags.unwrap_or_default()]);
            organization_scoped(&effective)?;
            if path != app.default_organization {
                return Err(denied("organization").detail(
                    "The pre-shared key is for the default organization only; use a provisioner key.",
                ));
            }
            Ok((path, KeyId::PSK, effective))
        }
        Credential::User(caller) => {
            let effective = TagSet::canonical(caller.user.id, [&tags.unwrap_or_default()]);
            let object = Object::in_organization(Resource::ProvisionerDaemon, path);
            let (scope, object) = if effective.is_user_scoped() {
                (tags::SCOPE_USER, object.owned_by(caller.user.id))
            } else {
                (tags::SCOPE_ORGANIZATION, object)
            };
            if !caller.may(Action::Create, object) {
                return Err(denied(scope)
                    .detail("Start it with the tag scope=user, or ask an administrator for a key."));
            }
            Ok((path, KeyId::USER_AUTH, effective))
        }
    }
}

/// A daemon that joined without a user cannot be personal (CONF-3, CONF-18).
fn organization_scoped(tags: &TagSet) -> Result<()> {
    if tags.is_user_scoped() {
        return Err(denied(tags::SCOPE_USER)
            .detail("Only a daemon that joins with a user's token can have the tag scope=user."));
    }
    Ok(())
}

fn denied(scope: &str) -> Error {
    Error::new(
        StatusCode::FORBIDDEN,
        format!("You aren't allowed to create provisioner daemons with scope {scope:?}"),
    )
}

fn build_version(headers: &HeaderMap) -> String {
    let text = headers.get(BUILD_VERSION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.chars().take(VERSION_CHARACTERS).collect()
}

/// The query of the request; keys may repeat.
struct JoinQuery(Vec<(String, String)>);

impl JoinQuery {
    fn of(uri: &Uri) -> Self {
        let text = uri.query().unwrap_or_default();
        Self(url::form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    fn first<'a>(&'a self, key: &'a str) -> &'a str {
        self.all(key).next().unwrap_or_default()
    }

    /// None when the request has no tag at all.
    fn tags(&self) -> Result<Option<BTreeMap<String, String>>> {
        let mut tags = BTreeMap::new();
        for text in self.all("tag") {
            let (key, value) = tags::parse_pair(text).map_err(|error| {
                Error::bad_request(format!("Invalid format for tag {text:?}.")).detail(error)
            })?;
            tags.insert(key, value);
        }
        Ok((!tags.is_empty()).then_some(tags))
    }

    fn provisioners(&self) -> Result<Vec<String>> {
        let mut kinds: Vec<String> = Vec::new();
        for kind in self.all("provisioner") {
            if !TYPES.contains(&kind) {
                return Err(Error::bad_request(format!("Unknown provisioner type {kind:?}.")));
            }
            if !kinds.iter().any(|known| known == kind) {
                kinds.push(kind.to_owned());
            }
        }
        if kinds.is_empty() {
            return Err(Error::bad_request("Required query parameter \"provisioner\" is missing."));
        }
        Ok(kinds)
    }

    fn name(&self) -> Result<String> {
        let name = self.first("name");
        if name.is_empty() {
            let name = coder_domain::key::random_text(10, crate::authn::token::random).to_lowercase();
            tracing::warn!(daemon_name = name, "generated a name for a daemon that joined without one");
            return Ok(name);
        }
        if name.chars().count() > NAME_CHARACTERS || name.chars().any(char::is_control) {
            return Err(Error::bad_request("The daemon's name is not acceptable.").field(
                "name",
                format!("use at most {NAME_CHARACTERS} characters, none of them a control character"),
            ));
        }
        Ok(name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> JoinQuery {
        JoinQuery::of(&format!("/?{text}").parse().unwrap())
    }

    #[test]
    fn tag_5_pairs_are_split_at_the_first_equals_sign() {
        let tags = query("tag=a%3Db%3Dc&tag=d%3D").tags().unwrap().unwrap();
        assert_eq!(tags["a"], "b=c");
        assert_eq!(tags["d"], "");
        assert_eq!(query("tag=nothing").tags().unwrap_err().status(), 400);
        assert!(query("name=x").tags().unwrap().is_none());
    }

    #[test]
    fn types_are_required_and_known() {
        assert_eq!(
            query("provisioner=terraform&provisioner=terraform").provisioners().unwrap(),
            ["terraform"]
        );
        assert!(query("").provisioners().is_err());
        assert!(query("provisioner=terraform&provisioner=pulumi").provisioners().is_err());
    }

    #[test]
    fn the_first_version_counts() {
        assert_eq!(query("version=1.14&version=9.9").first("version"), "1.14");
    }

    #[test]
    fn names_are_bounded_and_made_when_missing() {
        assert_eq!(query("").name().unwrap().len(), 10);
        assert!(query(&format!("name={}", "x".repeat(65))).name().is_err());
        assert!(query("name=a%00").name().is_err());
    }
}

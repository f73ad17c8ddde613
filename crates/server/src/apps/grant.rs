//! What a visitor was allowed: one app of one workspace, for a minute. The browser keeps it as a signed token, so that most
//! requests need no look into the database (agent 6.2).

use coder_domain::Timestamp;
use coder_domain::apps::{AccessMethod, SharingLevel};
use coder_domain::ids::{AgentId, UserId, WorkspaceId};
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::authn::signed_token::{KEY_BYTES, TokenKey};

/// The cookie of signed tokens.
pub const COOKIE: &str = "coder_signed_app_token";
/// How long a token is valid. A right that has ended ends after this at the latest.
pub const GRANT_LIFETIME: SignedDuration = SignedDuration::from_mins(1);
/// Longer tokens are not read.
const MAX_BYTES: usize = 8 << 10;
/// Tokens of one request that are tried: paths of apps may contain each other.
const MAX_TOKENS: usize = 4;

/// Which app a request is for, as its host name or path says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppRequest {
    pub access_method: Method,
    /// The path of the app on its host.
    pub base_path: String,
    pub app_prefix: String,
    pub username_or_id: String,
    pub workspace_name_or_id: String,
    pub agent_name_or_id: String,
    pub app_slug_or_port: String,
}

/// How an app is reached, in the words of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    Path,
    Subdomain,
}

impl From<Method> for AccessMethod {
    fn from(method: Method) -> Self {
        match method {
            Method::Path => Self::Path,
            Method::Subdomain => Self::Subdomain,
        }
    }
}

/// The content of the signed token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub request: AppRequest,
    /// The nil id for visitors who are not signed in.
    pub user_id: UserId,
    /// The id of the visitor's session or token, for connections that outlive the minute; none without one.
    pub key_id: Option<String>,
    pub workspace_id: WorkspaceId,
    /// The owner of the workspace.
    pub owner_id: UserId,
    pub agent_id: AgentId,
    pub app_url: String,
    /// `simple` or `passthru`.
    pub cors_behavior: String,
    /// Whether everybody may open the app.
    pub public: bool,
    exp: i64,
}

/// What is granted, before it has an end.
pub struct Granted {
    pub user_id: UserId,
    pub key_id: Option<String>,
    pub workspace_id: WorkspaceId,
    /// The owner of the workspace.
    pub owner_id: UserId,
    pub agent_id: AgentId,
    pub app_url: String,
    pub cors_behavior: String,
    pub level: SharingLevel,
}

/// Makes and reads the tokens.
pub struct Grants(TokenKey);

impl Grants {
    pub(super) fn new(key: &[u8; KEY_BYTES]) -> Self {
        Self(TokenKey::new(key))
    }

    /// A grant, and the token that keeps it.
    pub(super) fn issue(&self, request: AppRequest, granted: Granted, now: Timestamp) -> (Grant, String) {
        let grant = Grant {
            request,
            user_id: granted.user_id,
            key_id: granted.key_id,
            workspace_id: granted.workspace_id,
            owner_id: granted.owner_id,
            agent_id: granted.agent_id,
            app_url: granted.app_url,
            cors_behavior: granted.cors_behavior,
            public: granted.level == SharingLevel::Public,
            exp: (now + GRANT_LIFETIME).as_second(),
        };
        let token = self.0.sign(&grant);
        (grant, token)
    }

    /// A valid grant for exactly this request, among the first few tokens.
    pub(super) fn find<'a>(
        &self,
        tokens: impl Iterator<Item = &'a str>,
        request: &AppRequest,
        now: Timestamp,
    ) -> Option<Grant> {
        let grants = tokens.take(MAX_TOKENS).filter_map(|token| self.0.read::<Grant>(token, MAX_BYTES).ok());
        grants.filter(|grant| grant.exp > now.as_second()).find(|grant| grant.request == *request)
    }
}

#[cfg(test)]
impl Grant {
    /// A grant of a private app, for tests of what looks at it.
    pub(super) fn new(
        request: AppRequest,
        user_id: UserId,
        workspace_id: WorkspaceId,
        agent_id: AgentId,
    ) -> Self {
        Self {
            request,
            user_id,
            key_id: None,
            workspace_id,
            owner_id: user_id,
            agent_id,
            app_url: String::new(),
            cors_behavior: "simple".to_owned(),
            public: false,
            exp: 0,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A request for an app of a workspace.
    pub(in crate::apps) fn request(app: &str) -> AppRequest {
        AppRequest {
            access_method: Method::Subdomain,
            base_path: "/".to_owned(),
            app_prefix: String::new(),
            username_or_id: "ann".to_owned(),
            workspace_name_or_id: "dev".to_owned(),
            agent_name_or_id: String::new(),
            app_slug_or_port: app.to_owned(),
        }
    }

    fn granted() -> Granted {
        Granted {
            user_id: UserId::NIL,
            key_id: None,
            workspace_id: WorkspaceId::random(),
            owner_id: UserId::random(),
            agent_id: AgentId::random(),
            app_url: "http://localhost:8080".to_owned(),
            cors_behavior: "simple".to_owned(),
            level: SharingLevel::Public,
        }
    }

    #[test]
    fn token_is_valid_for_its_own_app_for_a_minute() {
        let grants = Grants::new(&[7; KEY_BYTES]);
        let now = Timestamp::constant(1_780_000_000, 0);
        let (grant, token) = grants.issue(request("web"), granted(), now);
        let find = |grants: &Grants, request, now| grants.find([token.as_str()].into_iter(), &request, now);
        assert_eq!(find(&grants, request("web"), now), Some(grant));
        assert_eq!(find(&grants, request("other"), now), None);
        let other = AppRequest { workspace_name_or_id: "prod".to_owned(), ..request("web") };
        assert_eq!(find(&grants, other, now), None);
        let by_path = AppRequest { access_method: Method::Path, ..request("web") };
        assert_eq!(find(&grants, by_path, now), None);
        assert_eq!(find(&grants, request("web"), now + GRANT_LIFETIME), None);
        assert_eq!(find(&Grants::new(&[8; KEY_BYTES]), request("web"), now), None);
    }

    #[test]
    fn only_a_few_tokens_are_tried() {
        let grants = Grants::new(&[7; KEY_BYTES]);
        let now = Timestamp::constant(1_780_000_000, 0);
        let (_, token) = grants.issue(request("web"), granted(), now);
        let with = |others: usize| {
            let tokens = std::iter::repeat_n("x", others).chain([token.as_str()]);
            grants.find(tokens, &request("web"), now)
        };
        assert!(with(MAX_TOKENS - 1).is_some());
        assert!(with(MAX_TOKENS).is_none());
    }
}

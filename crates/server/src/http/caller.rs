//! The authenticated user of a request, and the two checks of handlers: `require` (403) and `require_visible` (404 or 403).

use std::sync::Arc;

use axum::extract::FromRequestParts;
use coder_domain::rbac::{Action, Object, Resource, SiteRole, Subject, decide};
use coder_store::{tokens, users};
use http::request::Parts;

use super::error::{Error, Result};
use super::origin::Origin;

/// An authenticated user. Routes marked `Authenticated` in the table have one. Only `authn::session` makes one.
#[derive(Clone)]
pub struct Caller {
    /// The account.
    pub user: Arc<users::User>,
    /// The session or token presented.
    pub key: Arc<tokens::ApiKey>,
    /// Roles and memberships.
    pub subject: Arc<Subject>,
    /// Where the request came from, for the audit log.
    pub origin: Arc<Origin>,
}

impl Caller {
    /// Whether the caller may do this.
    #[must_use]
    pub fn may(&self, action: Action, object: Object) -> bool {
        decide(&self.subject, action, object)
    }

    /// 403 unless the caller may do this; for objects whose existence is not secret.
    pub fn require(&self, action: Action, object: Object) -> Result<()> {
        if self.may(action, object) { Ok(()) } else { Err(Error::forbidden()) }
    }

    /// 404 unless the caller may read the object, then 403 unless the action is allowed.
    pub fn require_visible(&self, action: Action, object: Object) -> Result<()> {
        if !self.may(Action::Read, object) {
            return Err(Error::not_found());
        }
        self.require(action, object)
    }

    /// Whether the caller has the site role `owner`.
    #[must_use]
    pub fn is_owner(&self) -> bool {
        self.subject.site.contains(&SiteRole::Owner)
    }

    /// 403 unless the caller may change other people's accounts.
    pub fn require_site(&self, action: Action, resource: Resource) -> Result<()> {
        self.require(action, Object::site(resource))
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| {
            Error::internal(
                "Internal error.",
                "a handler takes a Caller but its row in the route table is not Authenticated",
            )
        })
    }
}

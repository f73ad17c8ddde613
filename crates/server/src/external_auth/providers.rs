//! The configured providers.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use coder_domain::external_auth::Provider;
use coder_domain::ids::UserId;
use parking_lot::Mutex;

use super::oauth_client::{OAuthClient, SetupError};
use crate::config::ExternalAuth;

/// Held while the token of one account is refreshed.
type RefreshLock = tokio::sync::Mutex<()>;

/// The configured providers.
pub struct ExternalAuthProviders {
    providers: Vec<Provider>,
    /// `None` without providers.
    oauth_client: Option<OAuthClient>,
    /// A refresh may revoke the token before it, so there is one refresh at a time for each account.
    refreshing: Mutex<HashMap<(UserId, String), Weak<RefreshLock>>>,
}

impl ExternalAuthProviders {
    /// Makes no connection.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new(settings: &ExternalAuth) -> Result<Self, SetupError> {
        let providers = settings.providers.clone();
        let oauth_client = if providers.is_empty() { None } else { Some(OAuthClient::new(settings)?) };
        Ok(Self { providers, oauth_client, refreshing: Mutex::default() })
    }

    /// Whether no provider is configured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.providers.is_empty()
    }

    /// All providers, in the order of the configuration.
    #[must_use]
    pub fn providers(&self) -> &[Provider] {
        &self.providers
    }

    /// The provider with this id, and the client for it.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<(&Provider, &OAuthClient)> {
        let provider = self.providers.iter().find(|provider| provider.id == id)?;
        Some((provider, self.oauth_client.as_ref()?))
    }

    /// The lock for refreshing the token of an account.
    pub(super) fn refresh_lock(&self, user: UserId, provider: &str) -> Arc<RefreshLock> {
        let mut locks = self.refreshing.lock();
        locks.retain(|_, lock| lock.strong_count() > 0);
        let key = (user, provider.to_owned());
        if let Some(lock) = locks.get(&key).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::default();
        locks.insert(key, Arc::downgrade(&lock));
        lock
    }
}

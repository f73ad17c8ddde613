//! The configured providers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use coder_domain::external_auth::Provider;
use coder_domain::ids::UserId;

use super::oauth_client::{SetupError, Talk};
use crate::config::ExternalAuth;

/// Held by whoever refreshes a token.
type Turn = tokio::sync::Mutex<()>;

/// The configured providers.
pub struct Accounts {
    providers: Vec<Provider>,
    /// None without providers.
    talk: Option<Talk>,
    /// Refreshing a token may end the one before it, so that it is done once at a time for each account.
    refreshing: Mutex<HashMap<(UserId, String), Weak<Turn>>>,
}

impl Accounts {
    /// Makes no connection.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(settings: &ExternalAuth) -> Result<Self, SetupError> {
        let providers = settings.providers.clone();
        let talk = if providers.is_empty() { None } else { Some(Talk::new(settings)?) };
        Ok(Self { providers, talk, refreshing: Mutex::default() })
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

    /// The provider with this id, and how to talk to it.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<(&Provider, &Talk)> {
        let provider = self.providers.iter().find(|provider| provider.id == id)?;
        Some((provider, self.talk.as_ref()?))
    }

    /// What whoever refreshes this account holds meanwhile.
    pub(super) fn turn(&self, user: UserId, provider: &str) -> Arc<Turn> {
        let mut turns = self.refreshing.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| turn.strong_count() > 0);
        let key = (user, provider.to_owned());
        if let Some(turn) = turns.get(&key).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::default();
        turns.insert(key, Arc::downgrade(&turn));
        turn
    }
}

//! Calls about people, sessions, tokens and the server itself.

use coder_domain::secret::Secret;
use http::{HeaderMap, Method};

use super::{Client, Error};
use crate::agents::GitSshKey;
use crate::deployment::{BuildInfo, Entitlements};
use crate::paths;
use crate::tokens::{ApiKey, ApiKeyWithOwner, CreateKeyResponse, CreateTokenRequest, TokenConfig};
use crate::users::{CreateFirstUserRequest, CreateFirstUserResponse, LoginRequest, LoginResponse, User};

/// Every method fails with what [`Error`] describes.
#[expect(clippy::missing_errors_doc, reason = "documented once for the block")]
impl Client {
    /// The server's version and addresses; needs no session.
    pub async fn build_info(&self) -> Result<BuildInfo, Error> {
        self.get(paths::BUILD_INFO, &[]).await
    }

    /// Which features may be used.
    pub async fn entitlements(&self) -> Result<Entitlements, Error> {
        self.get(paths::ENTITLEMENTS, &[]).await
    }

    /// Whether the first user exists.
    ///
    /// A 404 without a build version comes from something that is not a Coder server, and is an error (http-api 1.4).
    pub async fn has_first_user(&self) -> Result<bool, Error> {
        match self.get::<serde_json::Value>(paths::FIRST_USER, &[]).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() && self.server_version().is_some() => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub async fn create_first_user(
        &self,
        request: &CreateFirstUserRequest,
    ) -> Result<CreateFirstUserResponse, Error> {
        self.send(Method::POST, paths::FIRST_USER, request).await
    }

    /// Logs in; the answer's token goes into [`Client::with_token`].
    pub async fn login(&self, email: &str, password: Secret) -> Result<Secret, Error> {
        let request = LoginRequest { email: email.to_owned(), password };
        let answer: Result<LoginResponse, _> = self.send(Method::POST, paths::LOGIN, &request).await;
        Ok(answer
            .map_err(|error| error.with_advice("check the e-mail address and the password"))?
            .session_token)
    }

    /// Ends the session.
    pub async fn logout(&self) -> Result<(), Error> {
        self.command(Method::POST, paths::LOGOUT).await
    }

    /// The public half of a user's key pair for Git.
    pub async fn git_ssh_key(&self, user: &str) -> Result<GitSshKey, Error> {
        self.get(&paths::user_git_ssh_key(user), &[]).await
    }

    /// Makes another key pair.
    pub async fn regenerate_git_ssh_key(&self, user: &str) -> Result<GitSshKey, Error> {
        self.send(Method::PUT, &paths::user_git_ssh_key(user), &serde_json::json!({})).await
    }

    /// A user by name, id, or `me`. An unknown one is a 400 (http-api 1.2).
    pub async fn user(&self, user: &str) -> Result<User, Error> {
        self.get(&paths::user(user), &[]).await
    }

    /// Creates a further session key for the caller.
    pub async fn create_session_key(&self) -> Result<Secret, Error> {
        let key: CreateKeyResponse = self.send_empty(Method::POST, &paths::user_keys(paths::ME), &[]).await?;
        Ok(key.key)
    }

    /// The limits of tokens of a user, by name, id, or `me`.
    pub async fn token_config(&self, user: &str) -> Result<TokenConfig, Error> {
        self.get(&paths::token_config(user), &[]).await
    }

    /// Creates a token; the secret is sent only this once.
    pub async fn create_token(&self, request: &CreateTokenRequest) -> Result<Secret, Error> {
        let key: CreateKeyResponse = self.send(Method::POST, &paths::user_tokens(paths::ME), request).await?;
        Ok(key.key)
    }

    /// The caller's tokens, or with `all` all that the caller may see.
    pub async fn tokens(&self, all: bool) -> Result<Vec<ApiKeyWithOwner>, Error> {
        let all = if all { "true" } else { "false" };
        self.list(&paths::user_tokens(paths::ME), &[("include_all", all)]).await
    }

    /// A token by its name, or failing that by its id.
    pub async fn token_by_name(&self, name: &str) -> Result<ApiKey, Error> {
        match self.get(&paths::user_token(paths::ME, name), &[]).await {
            Err(error) if error.is_not_found() => self.get(&paths::user_key(paths::ME, name), &[]).await,
            result => result,
        }
    }

    /// Ends a token or session key.
    pub async fn delete_key(&self, id: &str) -> Result<(), Error> {
        self.command(Method::DELETE, &paths::user_key(paths::ME, id)).await
    }

    /// The provisioner key that belongs to a secret (wire-protocol 1.1). The secret goes into a header only: the path's
    /// last segment is ignored by servers and shows up in their access logs.
    pub async fn own_provisioner_key(&self, secret: &Secret) -> Result<crate::keys::ProvisionerKey, Error> {
        let mut headers = HeaderMap::new();
        let invalid = |()| Error::InvalidHeader(crate::headers::PROVISIONER_KEY.to_owned());
        headers.insert(crate::headers::PROVISIONER_KEY, super::secret_value(secret).map_err(invalid)?);
        let found = self.with_token(None).get_with(&paths::own_provisioner_key("self"), headers).await;
        found.map_err(|error: Error| error.with_advice(super::daemons::CHECK_KEY))
    }
}

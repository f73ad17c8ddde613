//! The token with which pools of a control plane are managed.
//!
//! On a server without users the operator makes the first one, and keeps its password in a Secret for the people who set the
//! server up. That also closes the time in which anybody who reaches a new server could make the first user. A server that
//! has users needs a token by hand.

use std::time::Duration;

use coder_api::client::{Client as Coder, Error};
use coder_api::tokens::CreateTokenRequest;
use coder_api::users::CreateFirstUserRequest;
use coder_domain::secret::Secret;

/// The first user's name.
pub(crate) const USERNAME: &str = "admin";
/// The first user's e-mail address.
pub(crate) const EMAIL: &str = "admin@coder.local";
/// Longest life of a token. Servers allow owners less by default: a week.
const MAX_TOKEN_LIFETIME: Duration = Duration::from_secs(364 * 24 * 3600);

/// What came of the attempt to get a token.
pub(crate) enum Outcome {
    /// A token, and how long it is valid.
    Token(Secret, Duration),
    /// The server has users, and the password is not that of its first one.
    NeedsToken,
}

/// A token made with the present one, if that is still valid, or with the password of the first user, who is made if the server
/// has none.
///
/// # Errors
/// The server did not answer as expected.
pub(crate) async fn token(
    server: &Coder,
    present: Option<Secret>,
    password: &Secret,
) -> Result<Outcome, Error> {
    if let Some(present) = present {
        match make(&server.with_token(Some(present))).await {
            Err(error) if error.status().is_some_and(|status| status.as_u16() == 401) => {}
            result => return result,
        }
    }
    if !server.has_first_user().await? {
        let request = CreateFirstUserRequest {
            email: EMAIL.to_owned(),
            username: USERNAME.to_owned(),
            name: String::new(),
            password: password.clone(),
            trial: false,
        };
        if let Err(error) = server.create_first_user(&request).await
            && error.status().is_none_or(|status| status.as_u16() != 409)
        {
            return Err(error);
        }
    }
    let session = match server.login(EMAIL, password.clone()).await {
        Ok(session) => session,
        Err(error) if error.status().is_some_and(|status| matches!(status.as_u16(), 400 | 401 | 403)) => {
            return Ok(Outcome::NeedsToken);
        }
        Err(error) => return Err(error),
    };
    make(&server.with_token(Some(session))).await
}

/// Makes a token as somebody who is signed in.
async fn make(signed_in: &Coder) -> Result<Outcome, Error> {
    let most = signed_in.token_config("me").await?.max_token_lifetime;
    let lifetime =
        u64::try_from(most).map_or(MAX_TOKEN_LIFETIME, Duration::from_nanos).min(MAX_TOKEN_LIFETIME);
    // A name can be used once; an interrupted attempt may have used it.
    let name = format!("operator-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let token = signed_in.create_token(&CreateTokenRequest::new(name, lifetime)).await?;
    Ok(Outcome::Token(token, lifetime))
}

/// A password of 51 characters with all kinds that servers ask for.
pub(crate) fn password() -> Secret {
    let random = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()].map(|part| part.simple().to_string()).concat();
    Secret::new(format!("Op-{}", &random[..48]))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coder_api::client::Options;
    use coder_domain::clock::{Clock as _, SystemClock};
    use coder_testkit::server::{TestServer, settings};
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[test]
    fn passwords_are_long_and_differ() {
        let (one, other) = (password(), password());
        assert_ne!(one, other);
        assert!(one.expose().len() >= 40);
    }

    #[tokio::test]
    async fn a_server_with_users_needs_a_token_by_hand() {
        let server = TestServer::start().await.unwrap();
        let outcome = token(&server.owner.with_token(None), None, &password()).await.unwrap();
        assert!(matches!(outcome, Outcome::NeedsToken));
        server.stop().await.unwrap();
    }

    #[tokio::test]
    async fn a_new_server_gets_its_first_user_and_tokens_as_often_as_needed() {
        let mut config = settings();
        config.listen.http = Some(([127, 0, 0, 1], 0).into());
        let database = coder_store::testing::sqlite();
        let clock = Arc::new(SystemClock);
        let location = coder_store::Config::new(database.location.clone());
        let store = coder_store::Store::open(&location, clock.now()).await.unwrap();
        let build =
            coder_server::Build { compatible: "v2.30.0+0000000".to_owned(), product: "test".to_owned() };
        let deps = coder_server::Deps { store, clock, build };
        let server = coder_server::Server::build(config, deps).await.unwrap();
        let url = format!("http://{}", server.handle().http.unwrap());
        let stop = CancellationToken::new();
        let running = tokio::spawn(server.run(stop.clone()));
        let client = Coder::new(&url, None, Options::default()).unwrap();
        let password = password();
        let mut present = None;
        for _ in 0..3 {
            let made = token(&client, present.clone(), &password).await.unwrap();
            let Outcome::Token(made, lifetime) = made else { panic!("a token") };
            assert_eq!(
                lifetime,
                Duration::from_secs(168 * 3600),
                "the most that this server allows an owner"
            );
            // The third time the present one is not valid any more, and the password makes one.
            present = if present.is_none() {
                Some(made.clone())
            } else {
                Some(Secret::new("invalid-0123456789012345678901"))
            };
            let signed_in = client.with_token(Some(made));
            assert_eq!(signed_in.my_organizations().await.unwrap().len(), 1);
            assert_eq!(signed_in.users("").await.unwrap().len(), 1);
        }
        assert!(matches!(token(&client, None, &super::password()).await.unwrap(), Outcome::NeedsToken));
        stop.cancel();
        running.await.unwrap().unwrap();
    }
}

//! Log-in with a password, log-out, and the list of login methods.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use coder_api::users::{AuthMethod, AuthMethods, LoginRequest, LoginResponse};
use coder_domain::secret::Secret;
use coder_store::{tokens, transaction, users};
use http::StatusCode;
use http::header::SET_COOKIE;

use crate::audit::{Event, Kind, Verb};
use crate::authn::cookies;
use crate::authn::csrf;
use crate::context::App;
use crate::http::origin::Origin;
use crate::http::{Caller, Error, Json, Result, body};
use crate::provisioning::credentials::revoke;
use crate::routes::keys::create::open_session;

/// `POST /users/login`
pub async fn login(
    State(app): State<App>,
    origin: Origin,
    Json(request): Json<LoginRequest, { body::PUBLIC_BYTES }>,
) -> Result<Response> {
    let session_token = sign_in(&app, &request.email, request.password, &origin).await?;
    let set = [
        cookies::session(session_token.expose(), &app.config),
        cookies::csrf(&csrf::token(&session_token), &app.config),
    ];
    let mut response = body::Created(LoginResponse { session_token }).into_response();
    for cookie in set.into_iter().flatten() {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    Ok(response)
}

/// Checks e-mail address and password and opens a session (scheduling-and-auth PWD-3, PWD-4, TOK-4).
///
/// A password is hashed in every case, so that the response time does not reveal who has an account.
pub async fn sign_in(app: &App, email: &str, password: Secret, origin: &Origin) -> Result<Secret> {
    let wrong = || Error::unauthorized("Incorrect email or password.");
    if !app.config.sessions.password_auth {
        return Err(Error::new(StatusCode::FORBIDDEN, "Password authentication is disabled."));
    }
    let found = users::find_by_email(&mut app.store.reader().await?, email).await?;
    let found = found.filter(|user| !user.is_system);
    let stored = found.as_ref().and_then(|user| user.password_hash.clone());
    let right =
        app.passwords.verify(password, stored).await.map_err(|e| Error::internal("Internal error.", e))?;
    let Some(user) = found else { return Err(wrong()) };
    let refusal = if user.login_type != users::LoginType::Password {
        Some(Error::new(
            StatusCode::FORBIDDEN,
            format!(
                "Incorrect login type, attempting to use \"password\" but user is of login type {:?}.",
                user.login_type.as_str()
            ),
        ))
    } else if !right {
        Some(wrong())
    } else if user.status == users::UserStatus::Suspended {
        Some(Error::unauthorized("Your account is suspended. Contact an admin to reactivate your account."))
    } else {
        None
    };
    let refusal = match refusal {
        Some(refusal) => refusal,
        None => match open_session(app, &user, origin).await? {
            Some(token) => return Ok(token),
            None => wrong(),
        },
    };
    let event = Event::new(Verb::Login, Kind::ApiKey, user.id.0, "").status(refusal.status());
    event.write(&mut app.store.single().await?, user.id, origin, app.now()).await?;
    Err(refusal)
}

/// `POST /users/logout`: what the token minted and daemons that joined with any of these go, too.
pub async fn logout(State(app): State<App>, caller: Caller) -> Result<Response> {
    let now = app.now();
    let ended = transaction!(app.store, coder_store::Error, |tx| {
        let signed_out = tokens::list_affected_users(tx, caller.user.id, Some(&caller.key.id)).await?;
        tokens::delete(tx, &caller.key.id).await?;
        let event = Event::new(Verb::Logout, Kind::ApiKey, caller.user.id.0, caller.key.token_name.as_str());
        event.by(tx, &caller, now).await?;
        revoke::write_down_tokens(&app, tx, &signed_out, now).await?;
        Ok(signed_out)
    });
    match ended {
        Ok(signed_out) => revoke::tokens(&app, &signed_out).await,
        // Another request ended this session at the same time.
        Err(coder_store::Error::Stale { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let mut response = body::message("Logged out!").into_response();
    if let Some(cookie) = cookies::clear_session(&app.config) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    Ok(response)
}

/// `GET /users/authmethods`
pub async fn methods(State(app): State<App>) -> Json<AuthMethods> {
    let password = AuthMethod { enabled: app.config.sessions.password_auth };
    Json(AuthMethods { password, ..AuthMethods::default() })
}

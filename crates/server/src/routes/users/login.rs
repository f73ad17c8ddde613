//! Log-in with a password, log-out, and which ways to log in there are.

use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use coder_api::users::{AuthMethod, AuthMethods, LoginRequest, LoginResponse};
use coder_domain::secret::Secret;
use coder_store::{tokens, users};
use http::StatusCode;
use http::header::SET_COOKIE;

use crate::authn::cookies;
use crate::context::App;
use crate::http::peer::Peer;
use crate::http::{Caller, Error, Json, Result, body};
use crate::routes::keys::create::open_session;

/// `POST /users/login`
pub async fn login(
    State(app): State<App>,
    Extension(peer): Extension<Peer>,
    Json(request): Json<LoginRequest, { body::PUBLIC_BYTES }>,
) -> Result<Response> {
    let session_token = sign_in(&app, &request.email, request.password, peer).await?;
    let cookie = cookies::session(session_token.expose(), &app.config.sessions);
    let mut response = body::Created(LoginResponse { session_token }).into_response();
    if let Some(cookie) = cookie {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    Ok(response)
}

/// Checks e-mail address and password and opens a session (scheduling-and-auth PWD-3, PWD-4, TOK-4).
///
/// A password is hashed whatever is wrong, so that the time taken does not tell who has an account.
pub async fn sign_in(app: &App, email: &str, password: Secret, peer: Peer) -> Result<Secret> {
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
    if user.login_type != users::LoginType::Password {
        return Err(Error::new(
            StatusCode::FORBIDDEN,
            format!(
                "Incorrect login type, attempting to use \"password\" but user is of login type {:?}.",
                user.login_type.as_str()
            ),
        ));
    }
    if !right {
        return Err(wrong());
    }
    if user.status == users::Status::Suspended {
        return Err(Error::unauthorized(
            "Your account is suspended. Contact an admin to reactivate your account.",
        ));
    }
    open_session(app, user.id, users::LoginType::Password, peer).await
}

/// `POST /users/logout`
pub async fn logout(State(app): State<App>, caller: Caller) -> Result<Response> {
    let mut tx = app.store.begin().await?;
    tokens::delete(&mut tx, &caller.key.id).await?;
    tx.commit().await?;
    let mut response = body::message("Logged out!").into_response();
    if let Some(cookie) = cookies::clear_session(&app.config.sessions) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    Ok(response)
}

/// `GET /users/authmethods`
pub async fn methods(State(app): State<App>) -> Json<AuthMethods> {
    let password = AuthMethod { enabled: app.config.sessions.password_auth };
    Json(AuthMethods { password, ..AuthMethods::default() })
}

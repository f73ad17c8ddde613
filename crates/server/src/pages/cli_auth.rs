//! The page that `coder login` opens. It creates a session token to paste into the terminal.

use askama::Template;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use http::{HeaderMap, StatusCode};

use super::form::Form;
use super::render::{render, with_cookie};
use super::visitor::{csrf_token, is_own_form, visitor};
use crate::context::App;
use crate::http::Error;
use crate::http::origin::Origin;
use crate::routes::keys;

#[derive(Template)]
#[template(path = "cli_auth.html")]
struct CliAuthPage<'a> {
    csrf: &'a str,
    username: &'a str,
    token: &'a str,
}

const SIGN_IN: &str = "/login?redirect=%2Fcli-auth";

/// `GET /cli-auth`
pub async fn show(State(app): State<App>, origin: Origin, headers: HeaderMap) -> Result<Response, Error> {
    let Some(visitor) = visitor(&app, &headers, origin).await else {
        return Ok(Redirect::to(SIGN_IN).into_response());
    };
    let (csrf, cookie) = csrf_token(&app, &headers);
    let page = CliAuthPage { csrf: &csrf, username: &visitor.user.username, token: "" };
    Ok(with_cookie(render(StatusCode::OK, &page)?, cookie))
}

/// `POST /cli-auth`
pub async fn make(State(app): State<App>, request: Request) -> Result<Response, Error> {
    let headers = request.headers().clone();
    let origin = Origin::of(request.extensions(), &headers);
    let form = Form::read(request).await?;
    let Some(visitor) = visitor(&app, &headers, origin).await else {
        return Ok(Redirect::to(SIGN_IN).into_response());
    };
    if !is_own_form(&headers, form.get("csrf_token")) {
        return Ok(Redirect::to("/cli-auth").into_response());
    }
    let token = keys::create::further_session(&app, &visitor, &visitor.user).await?;
    render(StatusCode::OK, &CliAuthPage { csrf: "", username: &visitor.user.username, token: token.expose() })
}

//! Sign-in with e-mail and password in a browser.

use askama::Template;
use axum::extract::{RawQuery, Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use coder_domain::secret::Secret;
use http::{HeaderMap, StatusCode};

use super::form::Form;
use super::local::local_path;
use super::render::{render, with_cookie};
use super::visitor::{csrf_token, is_own_form};
use crate::authn::cookies;
use crate::authn::csrf;
use crate::context::App;
use crate::http::Error;
use crate::http::origin::Origin;
use crate::routes::users::login;

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage<'a> {
    csrf: &'a str,
    redirect: &'a str,
    email: &'a str,
    refusal: &'a str,
}

/// `GET /login`
pub async fn show(
    State(app): State<App>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Error> {
    let query = query.unwrap_or_default();
    let wanted = url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "redirect");
    let redirect = wanted.map_or_else(start_page, |(_, path)| local_or_start(&path));
    let (csrf, cookie) = csrf_token(&app, &headers);
    let page = LoginPage { csrf: &csrf, redirect: &redirect, email: "", refusal: "" };
    Ok(with_cookie(render(StatusCode::OK, &page)?, cookie))
}

/// `POST /login`
pub async fn submit(State(app): State<App>, request: Request) -> Result<Response, Error> {
    let headers = request.headers().clone();
    let origin = Origin::of(request.extensions(), &headers);
    let form = Form::read(request).await?;
    let (email, redirect) = (form.get("email"), local_or_start(form.get("redirect")));
    let outcome = if is_own_form(&headers, form.get("csrf_token")) {
        login::sign_in(&app, email, Secret::new(form.get("password")), &origin).await
    } else {
        Err(Error::bad_request("This form has expired, please try again."))
    };
    match outcome {
        Ok(token) => {
            let session = cookies::session(token.expose(), &app.config);
            let csrf = cookies::csrf(&csrf::token(&token), &app.config);
            let response = with_cookie(Redirect::to(&redirect).into_response(), session);
            Ok(with_cookie(response, csrf))
        }
        Err(error) if error.status().is_client_error() => {
            let (csrf, cookie) = csrf_token(&app, &headers);
            let page = LoginPage { csrf: &csrf, redirect: &redirect, email, refusal: error.message() };
            Ok(with_cookie(render(error.status(), &page)?, cookie))
        }
        Err(error) => Err(error),
    }
}

fn start_page() -> String {
    "/".to_owned()
}

fn local_or_start(path: &str) -> String {
    local_path(path).unwrap_or_else(start_page)
}

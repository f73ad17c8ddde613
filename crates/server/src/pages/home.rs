//! The start page.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode};

use super::render::render;
use super::visitor::visitor;
use crate::context::App;
use crate::http::origin::Origin;
use crate::http::{AccessUrl, Error};

#[derive(Template)]
#[template(path = "home.html")]
struct HomePage<'a> {
    url: &'a str,
    username: &'a str,
    version: &'a str,
    compatible: &'a str,
}

/// `GET /`
pub async fn home(
    State(app): State<App>,
    origin: Origin,
    headers: HeaderMap,
    AccessUrl(url): AccessUrl,
) -> Result<Response, Error> {
    let visitor = visitor(&app, &headers, origin).await;
    render(
        StatusCode::OK,
        &HomePage {
            url: &url,
            username: visitor.as_ref().map_or("", |caller| caller.user.username.as_str()),
            version: &app.build.product,
            compatible: &app.build.compatible,
        },
    )
}

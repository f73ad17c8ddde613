//! Who makes a request for an app.

use coder_domain::secret::Secret;
use http::StatusCode;

use super::grant::Method;
use super::{Head, sign_in};
use crate::authn::session::{self, Carrier, Presented};
use crate::context::App;
use crate::http::origin::Origin;
use crate::http::{Caller, Error};

/// The cookie of visitors of apps under paths, which workspace proxies set.
pub(super) const PATH_COOKIE: &str = "coder_path_app_session_token";

/// The visitor, if one is signed in. The cookie of the app's kind counts first: a request may have a bearer token for the app itself.
pub(super) async fn find(app: &App, method: Method, request: &Head) -> Result<Option<Caller>, Error> {
    let name = match method {
        Method::Path => PATH_COOKIE.to_owned(),
        Method::Subdomain => sign_in::cookie_name(&app.config),
    };
    let own = session::cookie(request.headers(), &name).map(|token| Presented {
        token: Secret::new(token),
        carrier: Carrier::Cookie,
        repeated: false,
    });
    let general = session::presented(request.headers(), request.uri());
    for presented in own.into_iter().chain(general) {
        let origin = Origin::of(request.extensions(), request.headers());
        match session::authenticate_from(app, &presented, origin).await {
            Ok(caller) => return Ok(Some(caller)),
            Err(error) if error.status() == StatusCode::UNAUTHORIZED => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

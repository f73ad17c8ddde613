//! Answers requests for apps and terminals: on host names of apps, and under paths of users.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use coder_domain::agent::ConnectionStatus;
use coder_domain::apps::{PathAddress, PathTarget, SharingLevel, SubdomainName, effective_level, may_open};
use coder_domain::ids::UserId;
use http::StatusCode;
use http::header::{self, HeaderValue};

use super::destination::Destination;
use super::grant::{self, AppRequest, Grant, Granted, Method};
use super::origins::{self, Answers};
use super::proxy::{self, AppAddress};
use super::resolve::{self, Content};
use super::{Head, sign_in, visitor};
use crate::authn::{cookies, session};
use crate::context::App;
use crate::http::limits::{Client, Group};
use crate::http::peer::Peer;
use crate::http::{Error, Result};
use crate::pages;
use crate::routes::workspaces::find::object;

/// The user name that stands for the caller elsewhere; links of apps are for others, too.
const ME: &str = coder_api::paths::ME;

/// Every request with a [`Destination`].
pub async fn serve(State(app): State<App>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let request = Head::from_parts(parts, ());
    let destination = request.extensions().get::<Destination>().cloned();
    let answer = match destination {
        Some(Destination::Host(label)) => on_host(&app, &label, request, body).await,
        Some(Destination::Path) => on_path(&app, request, body).await,
        Some(Destination::Logout) => sign_in::to_own_pages(&app, &request),
        None => Err(Error::not_found()),
    };
    answer.unwrap_or_else(IntoResponse::into_response)
}

async fn on_host(app: &App, label: &str, request: Head, body: Body) -> Result<Response> {
    let name = SubdomainName::parse(label)
        .map_err(|error| Error::bad_request("This host name is not that of an app.").detail(error))?;
    if sign_in::is_in(request.uri().query()) {
        return sign_in::accept(app, &request);
    }
    let wanted = AppRequest {
        access_method: Method::Subdomain,
        base_path: "/".to_owned(),
        app_prefix: name.prefix,
        username_or_id: name.user,
        workspace_name_or_id: name.workspace,
        agent_name_or_id: name.agent,
        app_slug_or_port: name.app,
    };
    let rest = request.uri().path().to_owned();
    open(app, wanted, &rest, request, body).await
}

async fn on_path(app: &App, request: Head, body: Body) -> Result<Response> {
    let uri = request.uri().clone();
    if sign_in::is_in(uri.query()) {
        return Err(Error::bad_request("This address is not that of an app's own host."));
    }
    let address =
        PathAddress::parse(uri.path()).filter(|address| address.user != ME).ok_or_else(not_found)?;
    let PathTarget::App { slug, base, rest } = address.target else {
        return pages::terminal(app, &address, &request).await;
    };
    if app.config.apps.disable_paths {
        return Err(Error::new(StatusCode::FORBIDDEN, "Apps under paths are disabled on this server.")
            .detail("The template can give the app a host name of its own (subdomain = true)."));
    }
    if rest.is_empty() {
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        return temporary(&format!("{base}/{query}"));
    }
    let wanted = AppRequest {
        access_method: Method::Path,
        base_path: base.to_owned(),
        app_prefix: String::new(),
        username_or_id: address.user.to_owned(),
        workspace_name_or_id: address.workspace.to_owned(),
        agent_name_or_id: address.agent.to_owned(),
        app_slug_or_port: slug.to_owned(),
    };
    open(app, wanted, rest, request, body).await
}

/// Serves one app, whose path of the request is `rest`.
async fn open(app: &App, wanted: AppRequest, rest: &str, request: Head, body: Body) -> Result<Response> {
    let tokens = session::cookies(request.headers(), grant::COOKIE);
    let known = app.apps.grants.find(tokens, &wanted, app.now());
    let (grant, cookie) = match known {
        Some(grant) => (grant, None),
        None => match authorize(app, wanted, &request).await? {
            Ok(granted) => granted,
            Err(answer) => return Ok(answer),
        },
    };
    origins::refuse_foreign(&app.config, &grant, &request)?;
    let answers = Answers::of(&app.config, &grant, &request);
    if let Some(preflight) = answers.as_ref().and_then(|answers| answers.preflight(&request)) {
        return Ok(preflight);
    }
    let target = AppAddress::of(&grant.app_url)?;
    let mut response = match target.first_query(rest, request.uri().query()) {
        Some(query) => temporary(&format!("{}?{query}", request.uri().path()))?,
        None => {
            if !grant.user_id.is_nil() {
                app.pending.used(grant.workspace_id);
            }
            let request = request.map(|()| body);
            proxy::forward(app, &grant, &target, rest, answers.as_ref(), request).await?
        }
    };
    if let Some(cookie) = cookie {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

type Issued = (Grant, Option<HeaderValue>);

/// Looks whether the visitor may open the app. The inner error is the answer to a visitor who is not signed in.
async fn authorize(
    app: &App,
    wanted: AppRequest,
    request: &Head,
) -> Result<std::result::Result<Issued, Response>> {
    let method = wanted.access_method;
    let visitor = visitor::find(app, method, request).await?;
    if visitor.is_none()
        && let Some(refused) = limit_stranger(app, request)
    {
        return Ok(Err(refused));
    }
    let rules = app.config.apps.path_rules;
    let found = resolve::find(app, &mut app.store.reader().await?, &wanted).await?;
    let sign_in = || match method {
        Method::Path => {
            let back = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
            Ok(Err(sign_in::to_login(back)))
        }
        Method::Subdomain => sign_in::to_server(app, request).map(Err),
    };
    // Who is not signed in learns nothing about what exists.
    let refuse = || if visitor.is_none() { sign_in() } else { Err(not_found()) };
    let Some(found) = found else { return refuse() };
    let level = match &found.content {
        Content::App(app) => app.level,
        Content::Stopped | Content::Nothing => SharingLevel::Owner,
    };
    let subject = visitor.as_ref().map(|caller| &*caller.subject);
    if !may_open(method.into(), level, subject, object(&found.workspace), rules) {
        return refuse();
    }
    let content = match found.content {
        Content::App(content) => content,
        Content::Nothing => return Err(not_found()),
        Content::Stopped => {
            return Err(Error::bad_request("The workspace is stopped.").detail("Start it to open its apps."));
        }
    };
    if content.status != ConnectionStatus::Connected {
        let state = match content.status {
            ConnectionStatus::Connecting => "connecting",
            ConnectionStatus::TimedOut => "timed out",
            ConnectionStatus::Disconnected | ConnectionStatus::Connected => "disconnected",
        };
        return Err(Error::new(StatusCode::NOT_FOUND, "The workspace is offline.")
            .detail(format!("The state of its agent {:?} is \"{state}\".", content.agent.name)));
    }
    let granted = Granted {
        user_id: visitor.as_ref().map_or(UserId::NIL, |caller| caller.user.id),
        key_id: visitor.as_ref().map(|caller| caller.key.id.clone()),
        workspace_id: found.workspace.id,
        owner_id: found.workspace.owner_id,
        agent_id: content.agent.id,
        app_url: content.url,
        cors_behavior: content.cors_behavior,
        level: effective_level(method.into(), level, rules),
    };
    let (grant, token) = app.apps.grants.issue(wanted, granted, app.now());
    let (path, lifetime) = (&grant.request.base_path, grant::GRANT_LIFETIME.as_secs());
    let cookie = cookies::signed_app_token(grant::COOKIE, &token, path, lifetime, &app.config);
    Ok(Ok((grant, cookie)))
}

/// 429 when visitors of this network who are not signed in have asked for too much. Whoever has a token of an app is not counted.
pub fn limit_stranger(app: &App, request: &Head) -> Option<Response> {
    let peer = request.extensions().get::<Peer>()?;
    let verdict = app.rates.count(Group::Apps, Client::Network(peer.network()), None, app.now())?;
    (!verdict.allowed).then(|| verdict.refuse())
}

/// 404 for what does not exist and what may not be seen.
fn not_found() -> Error {
    Error::new(StatusCode::NOT_FOUND, "The app or workspace does not exist, or you may not open it.")
}

fn temporary(location: &str) -> Result<Response> {
    let location =
        HeaderValue::from_str(location).map_err(|_| Error::bad_request("The address is not valid."))?;
    Ok((StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, location)]).into_response())
}

//! A server in process: the real router over a fresh database, a manual clock, and short request helpers.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::body::Body;
use coder_domain::Timestamp;
use coder_domain::clock::{Clock, ManualClock};
use coder_domain::ids::{FileId, JobId, TemplateId, TemplateVersionId, UserId};
use coder_domain::secret::Secret;
use coder_server::http::connection::Service;
use coder_server::http::origin::Origin;
use coder_server::router;
use coder_server::routes::keys::create::open_session;
use coder_server::routes::users::create;
use coder_server::server::context;
use coder_server::{App, Build, Config, Deps, Server};
use coder_store::testing::{self, TestDatabase};
use coder_store::{Store, jobs, organizations, users};
use http::{Method, Request, Response, StatusCode};
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub(crate) const PASSWORD: &str = "SomeSecurePassword!";
/// Its hash with a fixed salt, computed once.
const PASSWORD_HASH: &str = "$pbkdf2-sha256$65535$MDEyMzQ1Njc4OWFiY2RlZg$le2wYY346GXcp5uaS4+9b2ypyeOPuoPJqX2L6ZDUXYmy8auRVhWbc8a5WR8PbP/wNMt1iIWcO+x8uxB/2IufWw";
pub(crate) const START: Timestamp = Timestamp::constant(1_780_000_000, 0);

/// Runs a test on SQLite, and on Postgres if available.
macro_rules! on_both_engines {
    ($($(#[$meta:meta])* async fn $name:ident($server:ident: $kind:ty) $body:block)*) => {
        $(mod $name {
            #[allow(unused_imports, clippy::allow_attributes, reason = "some tests use none of the parameters")]
            use super::*;

            async fn body($server: $kind) $body

            #[tokio::test]
            async fn sqlite() {
                body(crate::harness::TestServer::sqlite().await).await;
            }

            #[tokio::test]
            async fn postgres() {
                if let Some(server) = crate::harness::TestServer::postgres().await {
                    body(server).await;
                }
            }
        })*
    };
}
pub(crate) use on_both_engines;

/// A server without sockets.
pub(crate) struct TestServer {
    pub(crate) app: App,
    pub(crate) clock: Arc<ManualClock>,
    service: Service,
    database: Arc<TestDatabase>,
}

impl TestServer {
    pub(crate) async fn sqlite() -> Self {
        Self::start(testing::sqlite(), settings()).await
    }

    pub(crate) async fn sqlite_with(config: Config) -> Self {
        Self::start(testing::sqlite(), config).await
    }

    pub(crate) async fn postgres() -> Option<Self> {
        Some(Self::start(testing::postgres().await?, settings()).await)
    }

    pub(crate) async fn start(database: TestDatabase, config: Config) -> Self {
        Self::start_on(Arc::new(database), config, Arc::new(ManualClock::new(START))).await
    }

    /// Another server process on the same database.
    pub(crate) async fn beside(&self, config: Config) -> Self {
        Self::start_on(Arc::clone(&self.database), config, Arc::clone(&self.clock)).await
    }

    /// Another server process on the same database, with a socket; it runs until its token is cancelled.
    pub(crate) async fn listening(&self) -> (SocketAddr, CancellationToken) {
        self.listening_with(settings()).await
    }

    /// Like [`Self::listening`], with other settings.
    pub(crate) async fn listening_with(&self, config: Config) -> (SocketAddr, CancellationToken) {
        let (_, address, stop) = self.listening_app(config).await;
        (address, stop)
    }

    /// Like [`Self::listening_with`], with its context.
    pub(crate) async fn listening_app(&self, mut config: Config) -> (App, SocketAddr, CancellationToken) {
        config.listen.http = Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0));
        config.provisioning.builtin_daemons = 0;
        let location = self.database.location.clone();
        let store = Store::open(&coder_store::Config::new(location), self.clock.now()).await.unwrap();
        let build = Build { compatible: "v2.30.0+0000000".to_owned(), product: "0.0.0-test".to_owned() };
        let deps = Deps { store, clock: self.clock.clone(), build };
        let server = Server::build(config, deps).await.unwrap();
        let (handle, stop) = (server.handle(), CancellationToken::new());
        tokio::spawn({
            let stop = stop.clone();
            async move { server.run(stop).await.unwrap() }
        });
        (handle.app, handle.http.unwrap(), stop)
    }

    /// This database with the context of a server that listens.
    pub(crate) fn beside_app(&self, app: App) -> Self {
        let service = router::service(app.clone());
        Self { service, app, clock: Arc::clone(&self.clock), database: Arc::clone(&self.database) }
    }

    /// Runs SQL on the database directly.
    pub(crate) async fn execute(&self, script: &str) {
        self.database.execute(script).await;
    }

    async fn start_on(database: Arc<TestDatabase>, config: Config, clock: Arc<ManualClock>) -> Self {
        let store =
            Store::open(&coder_store::Config::new(database.location.clone()), clock.now()).await.unwrap();
        let build = Build { compatible: "v2.30.0+0000000".to_owned(), product: "0.0.0-test".to_owned() };
        let app = context(config, Deps { store, clock: clock.clone(), build }).await.unwrap();
        Self { service: router::service(app.clone()), app, clock, database }
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.clock.advance(SignedDuration::from_secs(seconds));
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        Answer::read(self.service.clone().oneshot(request).await.unwrap()).await
    }

    /// The response before its body is read, for one that does not end.
    pub(crate) async fn open(&self, request: Request<Body>) -> Response<Body> {
        self.service.clone().oneshot(request).await.unwrap()
    }

    /// A request with a token and a JSON body.
    pub(crate) async fn ask(&self, token: &str, method: Method, path: &str, body: Value) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if !token.is_empty() {
            request = request.header("Coder-Session-Token", token);
        }
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        self.send(request.header("content-type", "application/json").body(body).unwrap()).await
    }

    pub(crate) async fn get(&self, token: &str, path: &str) -> Answer {
        self.ask(token, Method::GET, path, Value::Null).await
    }

    pub(crate) async fn post(&self, token: &str, path: &str, body: Value) -> Answer {
        self.ask(token, Method::POST, path, body).await
    }

    pub(crate) async fn put(&self, token: &str, path: &str, body: Value) -> Answer {
        self.ask(token, Method::PUT, path, body).await
    }

    pub(crate) async fn patch(&self, token: &str, path: &str, body: Value) -> Answer {
        self.ask(token, Method::PATCH, path, body).await
    }

    pub(crate) async fn delete(&self, token: &str, path: &str) -> Answer {
        self.ask(token, Method::DELETE, path, Value::Null).await
    }

    /// A user who owns the deployment, signed in.
    pub(crate) async fn owner(&self) -> String {
        self.insert("admin", &["owner"]).await
    }

    /// Inserts a user with [`PASSWORD`] and a session directly, because hashing takes seconds in a debug build.
    async fn insert(&self, name: &str, roles: &[&str]) -> String {
        let now = self.clock.now();
        let mut user = create::row(UserId::random(), &format!("{name}@example.com"), name, "", now);
        user.status = users::UserStatus::Active;
        user.password_hash = Some(Secret::new(PASSWORD_HASH));
        user.site_roles = roles.iter().map(|role| (*role).to_owned()).collect();
        let mut tx = self.app.store.begin().await.unwrap();
        users::insert(&mut tx, &user).await.unwrap();
        let member = create::membership(self.app.default_organization, user.id, now);
        organizations::insert_member(&mut tx, &member).await.unwrap();
        tx.commit().await.unwrap();
        let token = open_session(&self.app, &user, &Origin::default())
            .await
            .unwrap()
            .expect("the account is as it was read");
        token.expose().to_owned()
    }

    pub(crate) async fn login(&self, email: &str) -> String {
        let answer =
            self.post("", "/api/v2/users/login", json!({ "email": email, "password": PASSWORD })).await;
        answer.expect(201)["session_token"].as_str().unwrap().to_owned()
    }

    /// Another user with these site roles, signed in. `_owner` shows that there is one.
    pub(crate) async fn user(&self, _owner: &str, name: &str, roles: &[&str]) -> String {
        self.insert(name, roles).await
    }

    pub(crate) async fn user_id(&self, token: &str) -> UserId {
        self.get(token, "/api/v2/users/me").await.expect(200)["id"].as_str().unwrap().parse().unwrap()
    }

    pub(crate) async fn upload(&self, token: &str, kind: &str, bytes: Vec<u8>) -> Answer {
        let request = Request::post("/api/v2/files")
            .header("Coder-Session-Token", token)
            .header("content-type", kind)
            .body(Body::from(bytes))
            .unwrap();
        self.send(request).await
    }

    pub(crate) async fn file(&self, token: &str) -> FileId {
        let answer = self.upload(token, "application/x-tar", tar(&[("main.tf", "resource {}")])).await;
        assert!(answer.status.is_success(), "{answer:?}");
        answer.json()["hash"].as_str().unwrap().parse().unwrap()
    }

    /// Pushes a version whose import waits.
    pub(crate) async fn version(&self, token: &str, more: Value) -> (TemplateVersionId, JobId) {
        let mut request = json!({ "file_id": self.file(token).await, "storage_method": "file", "provisioner": "terraform" });
        request.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        let answer =
            self.post(token, "/api/v2/organizations/default/templateversions", request).await.expect(201);
        let id = |value: &Value| value.as_str().unwrap().to_owned();
        (id(&answer["id"]).parse().unwrap(), id(&answer["job"]["id"]).parse().unwrap())
    }

    /// Ends a job that no daemon holds: with success for an empty text, otherwise with this error.
    pub(crate) async fn finish(&self, job: JobId, error: &str) {
        let mut tx = self.app.store.single().await.unwrap();
        jobs::finish_unclaimed(&mut tx, job, error, self.clock.now()).await.unwrap();
    }

    /// A template with an imported version.
    pub(crate) async fn template(&self, token: &str, name: &str) -> (TemplateId, TemplateVersionId) {
        let (version, job) = self.version(token, json!({})).await;
        self.finish(job, "").await;
        let request = json!({ "name": name, "template_version_id": version });
        let answer = self.post(token, "/api/v2/organizations/default/templates", request).await.expect(201);
        (answer["id"].as_str().unwrap().parse().unwrap(), version)
    }

    /// A workspace whose first build waits: its id, its build's and its job's.
    pub(crate) async fn workspace(
        &self,
        token: &str,
        template: TemplateId,
        name: &str,
    ) -> (String, String, JobId) {
        let request = json!({ "template_id": template, "name": name });
        let answer = self.post(token, "/api/v2/users/me/workspaces", request).await.expect(201);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let build = &answer["latest_build"];
        (text(&answer["id"]), text(&build["id"]), text(&build["job"]["id"]).parse().unwrap())
    }
}

/// Settings without rate limits. Those have separate tests.
pub(crate) fn settings() -> Config {
    let mut config = Config::default();
    config.limits.rate_limits = false;
    config
}

pub(crate) fn tar(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap()
}

/// A response, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    async fn read(response: Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, 64 << 20).await.unwrap().to_vec();
        Self { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The JSON body of a response with this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// The name of the first field that was refused.
    #[track_caller]
    pub(crate) fn refused(self, status: u16) -> String {
        let body = self.expect(status);
        body["validations"][0]["field"].as_str().unwrap_or_default().to_owned()
    }
}

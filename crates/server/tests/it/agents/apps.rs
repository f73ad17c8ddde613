//! Apps of a workspace in the browser (agent 6): who may open them, what passes, and what the refusals say.

use axum::body::Body;
use coder_domain::apps::{PathAppRules, WildcardHost};
use coder_domain::ids::AppId;
use coder_server::Config;
use coder_store::workspaces::agents::{self, App, AppDefinition};
use http::{Method, Request};
use serde_json::json;

use super::overlay::{AgentNode, web_app};
use super::rig::Rig;
use crate::harness::{Answer, TestServer, settings};

/// What follows the label of an app's host.
const APPS: &str = "apps.coder.test";
/// The port of the app.
const PORT: u16 = 8000;

/// A connected agent with an app for each sharing level, and some that are special.
pub(super) struct Site {
    pub(super) rig: Rig,
}

pub(super) fn with_apps(rules: PathAppRules) -> Config {
    let mut config = settings();
    config.access_url = Some("http://coder.test".parse().unwrap());
    config.apps.wildcard = Some(WildcardHost::parse(&format!("*.{APPS}")).unwrap());
    config.apps.path_rules = rules;
    config
}

/// The host of an app.
pub(super) fn host(app: &str) -> String {
    format!("{app}--w--admin.{APPS}")
}

impl Site {
    pub(super) async fn start(config: Config) -> Self {
        let rig = Rig::new(TestServer::sqlite_with(config).await).await;
        let url = format!("http://localhost:{PORT}");
        let app = |slug: &str, level: &str, url: &str| App {
            id: AppId::random(),
            agent_id: rig.agent,
            position: 1,
            slug: slug.to_owned(),
            definition: AppDefinition {
                url: url.to_owned(),
                sharing_level: level.to_owned(),
                subdomain: true,
                ..AppDefinition::default()
            },
            health: "disabled".to_owned(),
            created_at: rig.server.app.now(),
        };
        let mut apps = vec![
            app("own", "owner", &url),
            app("org", "organization", &url),
            app("auth", "authenticated", &url),
            app("open", "public", &url),
            // Another host than loopback: its port is still opened in the workspace.
            app("far", "public", "http://169.254.169.254:8000"),
            app("base", "public", &format!("{url}/base/?folder=x")),
            app("low", "public", "http://localhost:8"),
            app("file", "public", "file:///etc/passwd"),
            app("closed", "public", "http://localhost:9"),
            app("ext", "public", "https://example.com"),
            app("cmd", "public", ""),
        ];
        apps[9].definition.external = true;
        apps[10].definition.command = "htop".to_owned();
        let mut tx = rig.server.app.store.begin().await.unwrap();
        agents::insert_apps(&mut tx, &apps).await.unwrap();
        tx.commit().await.unwrap();
        let site = Self { rig };
        site.contact(site.rig.server.app.now().as_microsecond()).await;
        site
    }

    /// The agent was heard of at this time.
    pub(super) async fn contact(&self, at: i64) {
        let agent = self.rig.agent;
        let script = format!(
            "delete from workspace_agent_connections; \
             insert into workspace_agent_connections (agent_id, connection, first_connected_us, last_connected_us) \
             values ('{agent}', 'test', {at}, {at})"
        );
        self.rig.server.execute(&script).await;
    }

    /// The agent's node, with the app.
    pub(super) fn node(&self) -> AgentNode {
        let mut node = AgentNode::join(&self.rig.server.app, self.rig.agent);
        node.serve(PORT, web_app);
        node
    }

    pub(super) async fn ask(
        &self,
        method: Method,
        host: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path).header("host", host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.rig.server.send(request.body(Body::empty()).unwrap()).await
    }

    /// `GET` with a session token, or without one.
    pub(super) async fn get(&self, token: &str, host: &str, path: &str) -> Answer {
        let headers = [("coder-session-token", token)];
        self.ask(Method::GET, host, path, if token.is_empty() { &[] } else { &headers }).await
    }
}

/// The lines of a head in a fixed order.
fn sorted(head: &str) -> Vec<String> {
    let mut lines: Vec<_> = head.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    lines[1..].sort();
    lines
}

fn header(answer: &Answer, name: &str) -> String {
    answer.headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
}

/// The cookie that an answer sets, as browsers return it, and its attributes.
fn cookie(answer: &Answer, name: &str) -> Option<(String, String)> {
    let lines = answer.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap());
    let (pair, attributes) =
        lines.filter_map(|line| line.split_once("; ")).find(|(pair, _)| pair.starts_with(name))?;
    Some((pair.to_owned(), attributes.to_owned()))
}

#[tokio::test]
async fn an_app_gets_the_request_without_credentials() {
    let site = Site::start(with_apps(PathAppRules::default())).await;
    let _node = site.node();
    let token = &site.rig.owner;
    let node = &site.rig.server.app.network.server_node;
    assert_eq!((node.agents(), node.connections()), (0, 0));
    let cookies = format!("a=1; coder_session_token={token}; coder_signed_app_token=x");
    let bearer = format!("Bearer {token}");
    let headers = [
        ("cookie", &*cookies),
        ("authorization", &*bearer),
        ("coder-session-token", &**token),
        ("x-forwarded-for", "10.9.9.9"),
        ("x-private", "1"),
        ("connection", "x-private"),
        ("x-kept", "yes"),
    ];
    let (by_path, other_host) = ("/@admin/w/apps/web", host("own"));
    for (host, base) in [(&*host("web"), ""), ("coder.test", by_path)] {
        let path = format!("{base}/a%2Fb/../c?x=%20&coder_session_token=q");
        let answer = site.ask(Method::GET, host, &path, &headers).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let want = [
            "GET /a%2Fb/../c?x=%20 HTTP/1.1".to_owned(),
            "Cookie: a=1".to_owned(),
            format!("Host: {host}"),
            "X-Forwarded-For: 127.0.0.1".to_owned(),
            "X-Forwarded-Proto: http".to_owned(),
            "X-Kept: yes".to_owned(),
        ];
        assert_eq!(sorted(&answer.text()), want);
        let (grant, attributes) = cookie(&answer, "coder_signed_app_token").unwrap();
        let path_of_cookie = if base.is_empty() { "/" } else { base };
        assert_eq!(attributes, format!("Path={path_of_cookie}; HttpOnly; SameSite=Lax; Max-Age=60"));
        // The next request needs nothing else, and gets no further token.
        let again = site.ask(Method::GET, host, &path, &[("cookie", &grant)]).await;
        assert_eq!((again.status.as_u16(), cookie(&again, "coder_signed_app_token")), (200, None));
        // The token is for this app alone.
        let other = path.replace("apps/web", "apps/own");
        let elsewhere = if base.is_empty() { &*other_host } else { host };
        assert_eq!(site.ask(Method::GET, elsewhere, &other, &[("cookie", &grant)]).await.status, 303);
    }
    assert_eq!((node.agents(), node.connections()), (1, 1), "one is kept for the next request");
}

#[tokio::test]
async fn answers_of_apps_lose_what_is_not_theirs_to_say() {
    let site = Site::start(with_apps(PathAppRules::default())).await;
    let _node = site.node();
    let on_host = site.get("", &host("open"), "/cookies").await;
    assert_eq!((on_host.status.as_u16(), &*on_host.text()), (201, "hi"));
    assert_eq!(cookie(&on_host, "coder_session_token"), None);
    let cookies: Vec<_> = on_host.headers.get_all("set-cookie").iter().collect();
    assert_eq!(cookies[0], "a=1");
    assert_eq!(header(&on_host, "service-worker-allowed"), "/", "the host is the app's own");
    let vary: Vec<_> = on_host.headers.get_all("vary").iter().collect();
    assert_eq!(vary, ["Accept", "Origin"]);
    for absent in ["keep-alive", "access-control-allow-origin", "x-content-type-options", "x-frame-options"] {
        assert!(!on_host.headers.contains_key(absent), "{absent}");
    }
    let on_path = site.get(&site.rig.owner, "coder.test", "/@admin/w/apps/open/cookies").await;
    assert_eq!(on_path.status, 201);
    assert!(!on_path.headers.contains_key("service-worker-allowed"));
    assert_eq!(
        header(&on_path, "access-control-allow-origin"),
        "*",
        "under a path the app answers for itself"
    );
}

#[tokio::test]
async fn apps_are_opened_by_those_with_whom_they_are_shared() {
    let alone = PathAppRules::default();
    let shared = PathAppRules { sharing: true, site_owner_access: true };
    for (rules, by_path) in [
        (alone, [[200, 404, 404, 404, 303]; 4]),
        (shared, [[200, 404, 404, 200, 303], [200, 200, 404, 200, 303], [200, 200, 200, 200, 303], [200; 5]]),
    ] {
        let site = Site::start(with_apps(rules)).await;
        let _node = site.node();
        let (rig, server) = (&site.rig, &site.rig.server);
        let mut visitors = vec![rig.owner.clone()];
        for (name, roles) in [("bob", &[][..]), ("eve", &[]), ("root", &["owner"])] {
            visitors.push(server.user(&rig.owner, name, roles).await);
        }
        visitors.push(String::new());
        server.delete(&rig.owner, "/api/v2/organizations/default/members/eve").await.expect(204);
        let on_host = [
            ("own", [200, 404, 404, 200, 303]),
            ("org", [200, 200, 404, 200, 303]),
            ("auth", [200, 200, 200, 200, 303]),
            ("open", [200; 5]),
        ];
        for ((slug, on_host), by_path) in on_host.into_iter().zip(by_path) {
            let (mut hosts, mut paths) = (Vec::new(), Vec::new());
            for visitor in &visitors {
                hosts.push(site.get(visitor, &host(slug), "/").await.status.as_u16());
                let path = format!("/@admin/w.main/apps/{slug}/");
                paths.push(site.get(visitor, "coder.test", &path).await.status.as_u16());
            }
            assert_eq!(hosts, on_host, "{slug} on its host");
            assert_eq!(paths, by_path, "{slug} under a path");
        }
    }
}

#[tokio::test]
async fn names_that_are_none_are_refused() {
    let site = Site::start(with_apps(PathAppRules::default())).await;
    let _node = site.node();
    let (owner, agent) = (&site.rig.owner, site.rig.agent);
    for (label, status) in [
        ("x".to_owned(), 400),
        ("web--w".to_owned(), 400),
        ("1--2--3--4--5".to_owned(), 400),
        ("8000--w--admin".to_owned(), 400),
        ("none--w--admin".to_owned(), 404),
        ("web--none--admin".to_owned(), 404),
        ("web--w--none".to_owned(), 404),
        // Old host names have an agent that does not count.
        ("web--other--w--admin".to_owned(), 200),
        ("web--main--w--admin".to_owned(), 200),
        ("8000--main--w--admin".to_owned(), 200),
        ("8000--MAIN--w--admin".to_owned(), 200),
        ("8000--other--w--admin".to_owned(), 404),
        ("8--main--w--admin".to_owned(), 400),
    ] {
        assert_eq!(site.get(owner, &format!("{label}.{APPS}"), "/").await.status, status, "{label}");
    }
    let user = site.rig.server.user_id(owner).await;
    let workspace = site.rig.workspace;
    for (path, status) in [
        ("/@me/w/apps/web/".to_owned(), 404),
        ("/@admin/w.other/apps/web/".to_owned(), 404),
        ("/@admin/w.MAIN/apps/web/".to_owned(), 200),
        (format!("/@{user}/{workspace}/apps/web/"), 200),
        (format!("/@admin/{workspace}/apps/web/"), 200),
        (format!("/@admin/{agent}/apps/web/"), 404),
        ("/@admin/w/apps/none/".to_owned(), 404),
        ("/@admin/w/apps/8000/".to_owned(), 404),
        ("/@admin/w".to_owned(), 404),
        ("/%40admin/w/apps/web/".to_owned(), 200),
    ] {
        assert_eq!(site.get(owner, "coder.test", &path).await.status, status, "{path}");
    }
    // The workspace of one owner is not found under the name of another.
    site.rig.server.user(owner, "bob", &[]).await;
    assert_eq!(site.get(owner, "coder.test", &format!("/@bob/{workspace}/apps/web/")).await.status, 404);
    let slash = site.get(owner, "coder.test", "/@admin/w/apps/web?a=1").await;
    assert_eq!(
        (slash.status.as_u16(), header(&slash, "location")),
        (307, "/@admin/w/apps/web/?a=1".to_owned())
    );
    let bare = site.get(owner, "coder.test", "/@admin/w/apps/web").await;
    assert_eq!(header(&bare, "location"), "/@admin/w/apps/web/");
    let with_key = "/@admin/w/apps/web/?coder_application_connect_api_key_35e783=x";
    let refused = site.get(owner, "coder.test", with_key).await.expect(400);
    assert_eq!(refused["message"], "This address is not that of an app's own host.");
}

#[tokio::test]
async fn apps_under_paths_can_be_turned_off() {
    let mut config = with_apps(PathAppRules::default());
    config.apps.disable_paths = true;
    let site = Site::start(config).await;
    let _node = site.node();
    let refused = site.get(&site.rig.owner, "coder.test", "/@admin/w/apps/web/").await.expect(403);
    assert_eq!(refused["message"], "Apps under paths are disabled on this server.");
    assert_eq!(site.get(&site.rig.owner, &host("web"), "/").await.status, 200);
}

#[tokio::test]
async fn addresses_of_the_template_stay_in_the_workspace() {
    let site = Site::start(with_apps(PathAppRules::default())).await;
    let mut node = site.node();
    node.serve(8022, async |mut io| {
        let _ = tokio::io::AsyncWriteExt::write_all(&mut io, b"SSH-2.0-x\r\n").await;
    });
    let owner = &site.rig.owner;
    assert_eq!(site.get("", &host("far"), "/").await.status, 200, "the workspace's port, whatever the host");
    let first = site.get("", &host("base"), "/").await;
    assert_eq!((first.status.as_u16(), header(&first, "location")), (307, "/?folder=x".to_owned()));
    let base = site.get("", &host("base"), "/?folder=x").await.text();
    assert!(base.starts_with("GET /base/?folder=x HTTP/1.1"), "{base}");
    let detail = async |host: &str, path: &str, status: u16| {
        let answer = site.get(owner, host, path).await.expect(status);
        format!("{}|{}", answer["message"].as_str().unwrap(), answer["detail"].as_str().unwrap_or_default())
    };
    for (host, path, status, want) in [
        (host("base"), "/%2e%2e/x", 400, "The path may not contain dot segments.|"),
        (
            host("low"),
            "/",
            400,
            "The address of this app is not valid.|Port 8 is lower than 9, which is the lowest that is served.",
        ),
        (
            host("file"),
            "/",
            400,
            "The address of this app is not valid.|It begins with file, but only http and https are served.",
        ),
        (host("ext"), "/", 404, "The app or workspace does not exist, or you may not open it.|"),
        (host("cmd"), "/", 404, "The app or workspace does not exist, or you may not open it.|"),
        (host("closed"), "/", 502, "The app cannot be reached.|nothing listens on port 9 in the workspace"),
        (
            host("web"),
            "/nothing",
            502,
            "The app cannot be reached.|It did not answer with HTTP, or ended the connection too early. Its log in the workspace may say why.",
        ),
        (
            format!("8022--main--w--admin.{APPS}"),
            "/",
            502,
            "The app cannot be reached.|It did not answer with HTTP. If it speaks HTTPS, open 8022s in the place of 8022.",
        ),
        (
            format!("8000s--main--w--admin.{APPS}"),
            "/",
            502,
            "The app cannot be reached.|It did not answer with HTTPS. If it speaks HTTP, open 8000 in the place of 8000s.",
        ),
    ] {
        assert_eq!(detail(&host, path, status).await, want, "{host}{path}");
    }
    let connect = site.ask(Method::CONNECT, &host("open"), "/", &[]).await;
    assert_eq!(connect.expect(405)["message"], "An app does not serve as a proxy: CONNECT is not allowed.");
}

#[tokio::test]
async fn what_keeps_a_workspace_from_being_reached_is_said_to_those_who_may_see_it() {
    let site = Site::start(with_apps(PathAppRules::default())).await;
    let (owner, now) = (&site.rig.owner, site.rig.server.app.now());
    let bob = site.rig.server.user(owner, "bob", &[]).await;
    let state = async |word: &str| {
        let answer = site.get(owner, &host("own"), "/").await.expect(404);
        assert_eq!(answer["message"], "The workspace is offline.");
        assert_eq!(answer["detail"], format!("The state of its agent \"main\" is \"{word}\"."));
    };
    site.rig.server.execute("delete from workspace_agent_connections").await;
    state("connecting").await;
    site.rig.server.advance(121);
    state("timed out").await;
    site.contact(now.as_microsecond() - 3_600_000_000).await;
    state("disconnected").await;
    assert_eq!(site.get(&bob, &host("own"), "/").await.status, 404);
    assert_eq!(site.get(&bob, &host("own"), "/").await.json()["detail"], json!(null));
    site.rig.build("stop").await;
    let stopped = site.get(owner, &host("own"), "/").await.expect(400);
    assert_eq!(stopped["message"], "The workspace is stopped.");
    assert_eq!(site.get(&bob, &host("own"), "/").await.status, 404);
    assert_eq!(site.get("", &host("own"), "/").await.status, 303);
}

#[tokio::test]
async fn pages_of_others_do_not_change_anything_in_a_private_app() {
    let site = Site::start(with_apps(PathAppRules::default())).await;
    let _node = site.node();
    let own = host("own");
    let session = ("coder-session-token", &*site.rig.owner);
    let (own_origin, friend) = (format!("http://{own}"), format!("http://{}", host("open")));
    let (other, evil) = (format!("http://own--w--eve.{APPS}"), "https://evil.test".to_owned());
    for (origin, is_foreign) in
        [(&own_origin, false), (&friend, false), (&other, true), (&evil, true), (&"null".to_owned(), true)]
    {
        let headers = [session, ("origin", &**origin)];
        let post = site.ask(Method::POST, &own, "/", &headers).await;
        assert_eq!(post.status, if is_foreign { 403 } else { 200 }, "{origin}");
        let upgrade = [session, ("origin", &**origin), ("upgrade", "websocket")];
        assert_eq!(
            site.ask(Method::GET, &own, "/", &upgrade).await.status,
            if is_foreign { 403 } else { 200 },
            "{origin}"
        );
        // Reading is allowed, but only friends are told what was read.
        let read = site.ask(Method::GET, &own, "/", &headers).await;
        let allowed = if is_foreign { String::new() } else { origin.clone() };
        assert_eq!(
            (read.status.as_u16(), header(&read, "access-control-allow-origin")),
            (200, allowed.clone())
        );
        assert_eq!(
            header(&read, "access-control-allow-credentials"),
            if is_foreign { "" } else { "true" },
            "{origin}"
        );
        let public = site.ask(Method::POST, &host("open"), "/", &headers[1..]).await;
        assert_eq!(public.status, 200, "a public app decides for itself");
        let ask = ("access-control-request-method", "PUT");
        let names = ("access-control-request-headers", "x-one");
        let preflight = site.ask(Method::OPTIONS, &host("open"), "/", &[headers[1], ask, names]).await;
        let said = [
            "access-control-allow-origin",
            "access-control-allow-methods",
            "access-control-allow-headers",
            "vary",
        ]
        .map(|name| header(&preflight, name));
        let methods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
        let want =
            if is_foreign { ["", "", "", "Origin"] } else { [allowed.as_str(), methods, "x-one", "Origin"] };
        assert_eq!(said, want.map(str::to_owned), "{origin}");
        assert_eq!(preflight.text(), "", "the app does not see it");
    }
    // Without both of its headers it is a request for the app.
    let ask = ("access-control-request-method", "PUT");
    for headers in [&[("origin", &*friend)][..], &[ask], &[]] {
        let answer = site.ask(Method::OPTIONS, &host("open"), "/", headers).await;
        assert!(answer.text().starts_with("OPTIONS / HTTP/1.1"), "{headers:?}");
    }
    // Under a path the origin is that of the server.
    let path = "/@admin/w/apps/own/";
    for (origin, status) in [("http://coder.test", 200), (&*friend, 403)] {
        let answer = site.ask(Method::POST, "coder.test", path, &[session, ("origin", origin)]).await;
        assert_eq!(answer.status, status, "{origin}");
    }
    // A template can leave such questions to its apps.
    let passes = "update templates set settings = replace(settings, '\"cors_behavior\":\"simple\"', '\"cors_behavior\":\"passthru\"')";
    site.rig.server.execute(passes).await;
    let headers = [session, ("origin", &*evil)];
    assert_eq!(site.ask(Method::POST, &own, "/", &headers).await.status, 200);
    let said = site.ask(Method::GET, &own, "/cookies", &headers).await;
    assert_eq!(header(&said, "access-control-allow-origin"), "*");
}

#[tokio::test]
async fn a_visitor_is_signed_in_on_the_host_of_an_app() {
    let site = Site::start(with_apps(PathAppRules::default())).await;
    let _node = site.node();
    let (own, server, owner) = (host("own"), &site.rig.server, &site.rig.owner);
    let first = site.get("", &own, "/page?a=1").await;
    let to_server = "/api/v2/applications/auth-redirect?redirect_uri=http%3A%2F%2Fown--w--admin.apps.coder.test%2Fpage%3Fa%3D1";
    assert_eq!(
        (first.status.as_u16(), header(&first, "location")),
        (303, format!("http://coder.test{to_server}"))
    );
    assert_eq!(header(&first, "cache-control"), "no-store");
    let login = site.get("", "coder.test", to_server).await;
    let encoded: String = url::form_urlencoded::byte_serialize(to_server.as_bytes()).collect();
    let message = "You+are+signed+out+or+your+session+has+expired.+Please+sign+in+again+to+continue.";
    assert_eq!(header(&login, "location"), format!("/login?message={message}&redirect={encoded}"));
    assert_eq!(
        header(&site.get("x-y", "coder.test", to_server).await, "location"),
        header(&login, "location")
    );
    let session = format!("coder_session_token={owner}");
    let back = site.ask(Method::GET, "coder.test", to_server, &[("cookie", &session)]).await;
    let with_key = header(&back, "location").strip_prefix(&format!("http://{own}")).unwrap().to_owned();
    assert!(with_key.starts_with("/page?a=1&coder_application_connect_api_key_35e783="), "{with_key}");
    let accepted = site.get("", &own, &with_key).await;
    assert_eq!(
        (accepted.status.as_u16(), header(&accepted, "location")),
        (303, format!("http://{own}/page?a=1"))
    );
    let (cookie, attributes) = cookie(&accepted, "coder_subdomain_app_session_token_").unwrap();
    assert_eq!(attributes, format!("Path=/; HttpOnly; SameSite=Lax; Domain={APPS}"));
    assert_eq!(site.ask(Method::GET, &own, "/", &[("cookie", &cookie)]).await.status, 200);
    // A request may have a bearer token for the app itself.
    let both = [("cookie", &*cookie), ("authorization", "Bearer of-the-app")];
    let seen = site.ask(Method::GET, &own, "/", &both).await.text();
    assert!(seen.contains("Authorization: Bearer of-the-app"), "{seen}");
    // The key opens apps and nothing else, and ends with its session.
    let key = cookie.split_once('=').unwrap().1;
    assert_eq!(server.get(key, "/api/v2/workspaces").await.expect(200)["count"], 0);
    assert_eq!(site.get(key, "coder.test", to_server).await.status, 403, "it makes no further keys");
    server.advance(61);
    let late = site.get("", &own, &with_key).await.expect(400);
    assert_eq!(late["message"], "The sign-in for this app has failed.");
    server.post(owner, "/api/v2/users/logout", json!({})).await.expect(200);
    assert_eq!(site.ask(Method::GET, &own, "/", &[("cookie", &cookie)]).await.status, 303);
}

#[tokio::test]
async fn keys_are_sent_to_hosts_of_apps_only() {
    let site = Site::start(with_apps(PathAppRules::default())).await;
    let ask = async |uri: &str| {
        let encoded: String = url::form_urlencoded::byte_serialize(uri.as_bytes()).collect();
        let path = format!("/api/v2/applications/auth-redirect?redirect_uri={encoded}");
        site.get(&site.rig.owner, "coder.test", &path).await
    };
    let good = header(&ask(&format!("https://{}/x", host("own"))).await, "location");
    assert!(good.starts_with(&format!("http://{}/x?", host("own"))), "the scheme of the access URL: {good}");
    for bad in [
        "",
        "https://evil.test/",
        "http://coder.test/",
        "http://apps.coder.test/",
        "http://own--w--admin.apps.coder.test.evil.test/",
        "http://own--w--admin.apps.coder.test:8080/",
        "http://user@own--w--admin.apps.coder.test/",
        "http://:secret@own--w--admin.apps.coder.test/",
        "http://w.apps.coder.test/",
        "ftp://own--w--admin.apps.coder.test/",
        "javascript:alert(1)",
    ] {
        assert_eq!(ask(bad).await.refused(400), "redirect_uri", "{bad}");
    }
    for forged in ["x", "a.b.c.d.e"] {
        let path = format!("/?coder_application_connect_api_key_35e783={forged}");
        assert_eq!(site.get("", &host("own"), &path).await.status, 400);
    }
    let logout = site.get("", &format!("coder-logout.{APPS}"), "/").await;
    assert_eq!((logout.status.as_u16(), header(&logout, "location")), (303, "http://coder.test/".to_owned()));
}

#[tokio::test]
async fn apps_on_hosts_need_an_access_url() {
    let mut config = with_apps(PathAppRules::default());
    config.access_url = None;
    let site = Site::start(config).await;
    for host in [host("own"), format!("coder-logout.{APPS}")] {
        let refused = site.get("", &host, "/").await.expect(503);
        assert_eq!(refused["message"], "The server does not know its own address.", "{host}");
    }
}

#[tokio::test]
async fn ports_are_opened_as_far_as_they_are_shared() {
    let site = Site::start(with_apps(PathAppRules::default())).await;
    let _node = site.node();
    let (server, owner) = (&site.rig.server, &site.rig.owner);
    let bob = server.user(owner, "bob", &[]).await;
    let here = format!("8000--main--w--admin.{APPS}");
    let statuses = async || {
        let mut statuses = Vec::new();
        for visitor in [owner.as_str(), &bob, ""] {
            statuses.push(site.get(visitor, &here, "/").await.status.as_u16());
        }
        statuses
    };
    assert_eq!(statuses().await, [200, 404, 303]);
    let path = coder_api::paths::workspace_port_share(site.rig.workspace);
    let share = async |port: u16, level: &str| {
        let body = json!({ "agent_name": "main", "port": port, "share_level": level, "protocol": "http" });
        server.post(owner, &path, body).await.expect(200);
    };
    share(8001, "public").await;
    assert_eq!(statuses().await, [200, 404, 303], "another port is shared");
    share(8000, "organization").await;
    assert_eq!(statuses().await, [200, 200, 303]);
    share(8000, "public").await;
    assert_eq!(statuses().await, [200; 3]);
    let template = coder_api::paths::template(site.rig.template);
    server.patch(owner, &template, json!({ "max_port_share_level": "organization" })).await.expect(200);
    assert_eq!(statuses().await, [200, 200, 303], "the template allows less now");
    // Apps of the template are not bound by that, those of sub-agents are.
    assert_eq!(site.get("", &host("open"), "/").await.status, 200);
    server.execute("update workspace_agents set parent_id = id").await;
    assert_eq!(site.get("", &host("open"), "/").await.status, 303);
    assert_eq!(site.get(&bob, &host("open"), "/").await.status, 200);
}

#[tokio::test]
async fn the_scheme_of_the_access_url_counts_for_apps() {
    let mut config = with_apps(PathAppRules::default());
    config.access_url = Some("https://coder.test".parse().unwrap());
    let site = Site::start(config).await;
    let _node = site.node();
    let seen = site.get(&site.rig.owner, &host("web"), "/").await;
    assert!(seen.text().contains("X-Forwarded-Proto: https"), "{}", seen.text());
    let (_, attributes) = cookie(&seen, "coder_signed_app_token").unwrap();
    assert_eq!(attributes, "Path=/; HttpOnly; Secure; SameSite=Lax; Max-Age=60");
    let away = header(&site.get("", &host("web"), "/a").await, "location");
    let back =
        "https://coder.test/api/v2/applications/auth-redirect?redirect_uri=https%3A%2F%2Fweb--w--admin";
    assert!(away.starts_with(back), "{away}");
}

#[tokio::test]
async fn ports_are_listed_that_are_no_apps_and_worth_opening() {
    let site = Site::start(with_apps(PathAppRules::default())).await;
    let mut node = site.node();
    let (server, owner) = (&site.rig.server, &site.rig.owner);
    let bob = server.user(owner, "bob", &[]).await;
    let path = coder_api::paths::agent_listening_ports(site.rig.agent);
    server.get(&bob, &path).await.expect(404);
    let silent = server.get(owner, &path).await.expect(502);
    assert_eq!(silent["detail"], "nothing listens on port 4 in the workspace");
    let port = |port: u16| json!({ "process_name": "x", "network": "tcp", "port": port });
    let ports = [8, 22, 443, 8000, 8080].map(port);
    let answers = std::sync::Mutex::new(vec![
        ("500 Internal Server Error", String::new()),
        ("200 OK", "{".to_owned()),
        ("200 OK", json!({ "ports": ports }).to_string()),
    ]);
    node.serve(4, move |mut io| {
        let (status, body) = answers.lock().unwrap().remove(0);
        async move {
            use tokio::io::AsyncWriteExt as _;
            let head = super::overlay::read_head(&mut io).await.unwrap();
            assert!(head.starts_with("GET /api/v0/listening-ports HTTP/1.1"), "{head}");
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            io.write_all(answer.as_bytes()).await.unwrap();
            io.flush().await.unwrap();
        }
    });
    for detail in [
        "the agent answered with status 500 Internal Server Error",
        "the agent's answer is not what was asked for",
    ] {
        let failed = server.get(owner, &path).await.expect(502);
        assert_eq!(failed["message"], "The ports of the workspace could not be listed.");
        assert_eq!(failed["detail"], detail);
    }
    let listed = server.get(owner, &path).await.expect(200);
    let ports: Vec<_> = listed["ports"].as_array().unwrap().iter().map(|port| port["port"].clone()).collect();
    assert_eq!(ports, [443, 8080], "8000 is an app, and an external app does not count");
    site.contact(server.app.now().as_microsecond() - 3_600_000_000).await;
    assert_eq!(server.get(owner, &path).await.expect(400)["message"], "The agent is not connected.");
}

//! Requests of the client, and how it reads normal responses.

use coder_api::client::{Client, DaemonFilter, Options, Proxies};
use coder_api::tokens::CreateTokenRequest;
use coder_domain::ids::OrganizationId;
use coder_domain::secret::Secret;

use super::server::{Authority, Server, json};
use super::{TOKEN, client, options, proxy, trusting};

const INFO: &str = r#"{"external_url":"","version":"v2.30.0+0123abc","provisioner_api_version":"1.14"}"#;

#[tokio::test]
async fn session_agent_and_extra_headers_go_with_every_request() {
    let server = Server::http(|_, _| json(200, INFO)).await;
    let options = Options {
        user_agent: "coder/9".to_owned(),
        headers: vec![("X-Gate".to_owned(), Secret::new("open"))],
        ..options()
    };
    let client = Client::new(&server.url(), Some(Secret::new(TOKEN)), options).unwrap();
    assert_eq!(client.server_version(), None);
    assert_eq!(client.build_info().await.unwrap().provisioner_api_version, "1.14");
    assert_eq!(client.server_version(), Some("v2.30.0+0123abc"));
    client.with_token(None).build_info().await.unwrap();
    let seen = server.seen();
    let sent =
        |index: usize| ["coder-session-token", "user-agent", "x-gate"].map(|name| seen[index].header(name));
    assert_eq!(sent(0), [Some(TOKEN), Some("coder/9"), Some("open")]);
    assert_eq!(sent(1), [None, Some("coder/9"), Some("open")]);
}

#[tokio::test]
async fn slashes_paths_and_users_in_the_url_are_dropped() {
    let server = Server::http(|_, _| json(200, INFO)).await;
    for suffix in ["", "/", "//", "/some/path/?query#fragment"] {
        client(&format!("{}{suffix}", server.url())).build_info().await.unwrap();
    }
    client(&server.url().replace("//", "//me:hunter2@")).build_info().await.unwrap();
    for seen in server.seen() {
        assert_eq!(seen.line, "GET /api/v2/buildinfo");
        assert_eq!(seen.header("authorization"), None);
    }
}

#[test]
fn unusable_addresses_and_headers_are_refused_before_anything_is_sent() {
    for url in ["", "coder.example", "ftp://coder.example", "file:///etc", "http://"] {
        let error = Client::new(url, None, options()).unwrap_err();
        assert!(error.to_string().contains("https://host"), "{url}: {error}");
    }
    let bad = |name: &str, value: &str| Options {
        headers: vec![(name.to_owned(), Secret::new(value))],
        ..options()
    };
    let error = Client::new("http://localhost", None, bad("a b", "c")).unwrap_err();
    assert!(error.to_string().contains("a b"));
    let error = Client::new("http://localhost", None, bad("X-Gate", "hunter2\n")).err();
    assert!(error.is_none(), "surrounding space is cut");
    let error = Client::new("http://localhost", None, bad("X-Gate", "hun\nter2")).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("ter2"));
}

#[tokio::test]
async fn names_are_escaped_and_queries_follow_the_official_client() {
    let server = Server::http(|_, _| json(200, "[]")).await;
    let client = client(&server.url());
    client.templates("exact_name:\"a\"").await.unwrap();
    let organization = OrganizationId::NIL;
    let filter = DaemonFilter {
        offline: true,
        status: vec!["idle".to_owned(), "busy".to_owned()],
        tags: [("a".to_owned(), "b".to_owned())].into(),
        ..DaemonFilter::default()
    };
    client.daemons(organization, &filter).await.unwrap();
    client.tokens(false).await.unwrap();
    let _ = client.template_by_name(organization, "a/b?c").await;
    let lines: Vec<_> = server.seen().into_iter().map(|seen| seen.line).collect();
    assert_eq!(lines[0], "GET /api/v2/templates?q=exact_name%3A%22a%22");
    let daemons = "limit=50&offline=true&status=idle%2Cbusy&tags=%7B%22a%22%3A%22b%22%7D";
    assert_eq!(lines[1], format!("GET /api/v2/organizations/{organization}/provisionerdaemons?{daemons}"));
    assert_eq!(lines[2], "GET /api/v2/users/me/keys/tokens?include_all=false");
    assert!(lines[3].ends_with("/templates/a%2Fb%3Fc"), "{}", lines[3]);
}

#[tokio::test]
async fn bodies_are_json_and_lists_may_be_null() {
    let server = Server::http(|seen, _| match seen.line.as_str() {
        "POST /api/v2/users/me/keys/tokens" => json(201, r#"{"key":"new-key"}"#),
        _ => json(200, "null"),
    })
    .await;
    let client = client(&server.url());
    assert!(client.tokens(true).await.unwrap().is_empty());
    let request = CreateTokenRequest { token_name: "ci".to_owned(), ..CreateTokenRequest::default() };
    assert_eq!(client.create_token(&request).await.unwrap().expose(), "new-key");
    let seen = server.seen().pop().unwrap();
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert_eq!(&seen.body[..], br#"{"lifetime":0,"token_name":"ci"}"#);
}

#[tokio::test]
async fn a_first_user_is_missing_only_if_a_coder_server_says_so() {
    let server = Server::http(|_, _| json(404, r#"{"message":"none"}"#)).await;
    assert!(!client(&server.url()).has_first_user().await.unwrap());
    let other = Server::http(|_, _| {
        let mut answer = json(404, "{}");
        answer.headers_mut().remove("x-coder-build-version");
        answer
    })
    .await;
    assert!(client(&other.url()).has_first_user().await.unwrap_err().is_not_found());
    let set_up = Server::http(|_, _| json(200, r#"{"message":"there"}"#)).await;
    assert!(client(&set_up.url()).has_first_user().await.unwrap());
}

#[tokio::test]
async fn a_provisioner_key_travels_in_its_header_alone() {
    let server = Server::http(|_, _| {
        json(
            200,
            r#"{"id":"00000000-0000-4000-8000-000000000001","created_at":"2026-01-02T03:04:05Z",
            "organization":"00000000-0000-4000-8000-000000000002","name":"k","tags":{"a":"b"}}"#,
        )
    })
    .await;
    let key = "K".repeat(43);
    let found = client(&server.url()).own_provisioner_key(&Secret::new(&*key)).await.unwrap();
    assert_eq!((found.name.as_str(), found.tags.get("a")), ("k", Some("b")));
    let seen = server.seen().pop().unwrap();
    assert_eq!(seen.header("coder-provisioner-daemon-key"), Some(key.as_str()));
    assert_eq!((seen.line.contains(&key), seen.header("coder-session-token")), (false, None));
}

#[tokio::test]
async fn private_authorities_are_trusted_when_named_and_only_then() {
    let authority = Authority::new();
    let server = Server::https(&authority, |_, _| json(200, INFO)).await;
    let url = format!("https://localhost:{}", server.address.port());
    let named = Client::new(&url, None, trusting(authority.file())).unwrap();
    named.build_info().await.unwrap();
    let unnamed = trusting(Authority::new().file());
    assert!(Client::new(&url, None, unnamed).is_err(), "a missing file is an error");
    let other = Authority::new();
    let stranger = Client::new(&url, None, Options { retries: 0, ..trusting(other.file()) }).unwrap();
    let error = stranger.build_info().await.unwrap_err();
    assert!(error.hint().unwrap().contains("SSL_CERT_FILE"), "{error:?}");
}

#[test]
fn authority_files_without_certificates_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty.pem");
    std::fs::write(&empty, "not a certificate").unwrap();
    for (file, wanted) in
        [(empty, "no usable certificate in"), (directory.path().join("gone"), "cannot read")]
    {
        let error = Client::new("https://localhost", None, trusting(file)).unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
    }
}

/// Runs this test again in a separate process, because the environment belongs to the process.
#[tokio::test]
async fn the_environment_names_authorities_and_proxies() {
    const MARK: &str = "CODER_API_TEST_CHILD";
    if std::env::var_os(MARK).is_some() {
        let client = Client::new("https://coder.test", None, Options::default()).unwrap();
        assert_eq!(client.build_info().await.unwrap().version, "v2.30.0+0123abc");
        return;
    }
    let authority = Authority::new();
    let server = Server::https(&authority, |_, _| json(200, INFO)).await;
    let (tunnel, heads) = Server::proxy(server.address).await;
    let status = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "client::calls::the_environment_names_authorities_and_proxies"])
        .envs([(MARK, "1"), ("HTTPS_PROXY", tunnel.url().as_str())])
        .env("SSL_CERT_FILE", authority.file())
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stdout));
    assert_eq!(heads.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn plain_calls_go_through_a_proxy_with_its_password() {
    let server = Server::http(|_, _| json(200, INFO)).await;
    let address = format!("http://me:hunter2@{}", server.address);
    let options = Options { proxies: proxy("HTTP_PROXY", address), ..options() };
    Client::new("http://coder.test", None, options).unwrap().build_info().await.unwrap();
    let seen = server.seen().pop().unwrap();
    assert_eq!(seen.line, "GET http://coder.test/api/v2/buildinfo");
    assert_eq!(seen.header("proxy-authorization"), Some("Basic bWU6aHVudGVyMg=="));
}

#[tokio::test]
async fn secure_calls_go_through_a_tunnel() {
    let authority = Authority::new();
    let server = Server::https(&authority, |_, _| json(200, INFO)).await;
    let (tunnel, heads) = Server::proxy(server.address).await;
    let options = Options { proxies: proxy("HTTPS_PROXY", tunnel.url()), ..trusting(authority.file()) };
    Client::new("https://coder.test", None, options).unwrap().build_info().await.unwrap();
    assert!(heads.lock().unwrap()[0].starts_with("CONNECT coder.test:443 HTTP/1.1\r\n"));
}

#[test]
fn debug_shows_no_credential() {
    let proxies = proxy("HTTP_PROXY", "http://me:hunter2@p".to_owned());
    let options = Options { headers: vec![("X".to_owned(), Secret::new("hunter2"))], proxies, ..options() };
    let text = format!("{options:?}");
    assert!(!text.contains("hunter2"), "{text}");
    let client = Client::new("http://me:hunter2@x.test", Some(Secret::new("hunter2")), options).unwrap();
    let text = format!(
        "{client:?} {:?}",
        client.follow_job_logs(coder_api::client::JobLogTarget::Build(Default::default()), 0)
    );
    assert!(!text.contains("hunter2"), "{text}");
    assert!(format!("{:?}", Proxies::none()).contains("false"));
}

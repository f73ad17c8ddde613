//! The sign-in on hosts of apps, as a browser goes through it.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn visitor_is_signed_in_on_the_host_of_an_app() {
    let site = Site::start(PathAppRules::default()).await;
    let own = host("own");
    let session = format!("coder_session_token={}", site.ann.token().unwrap().expose());
    let first = site.get(None, &own, "/page?a=1").await;
    assert_eq!(first.status, 303);
    let to_server = first.header("location").strip_prefix("http://coder.test").unwrap().to_owned();
    assert!(to_server.starts_with("/api/v2/applications/auth-redirect?redirect_uri="), "{to_server}");
    // Without a session it goes on at the sign-in.
    let login = site.get(None, "coder.test", &to_server).await;
    assert_eq!(login.status, 303);
    assert!(login.header("location").starts_with("/login?message="), "{login:?}");
    let back = site.ask("GET", "coder.test", &to_server, &[("Cookie", &session)]).await;
    assert_eq!(back.status, 303, "{back:?}");
    let with_key = back.header("location").strip_prefix(&format!("http://{own}")).unwrap().to_owned();
    assert!(with_key.starts_with("/page?a=1&coder_application_connect_api_key_35e783="), "{with_key}");
    assert_eq!(
        site.get(None, "coder.test", "/@ann/dev/apps/own/?coder_application_connect_api_key_35e783=x")
            .await
            .status,
        400
    );
    let accepted = site.get(None, &own, &with_key).await;
    assert_eq!((accepted.status, accepted.header("location")), (303, &*format!("http://{own}/page?a=1")));
    let (cookie, attributes) = accepted.cookie("coder_subdomain_app_session_token_").unwrap();
    assert!(
        attributes.contains("HttpOnly") && attributes.contains(&format!("Domain={APPS}")),
        "{attributes}"
    );
    let page = site.ask("GET", &own, "/page?a=1", &[("Cookie", &cookie)]).await;
    assert_eq!(page.status, 200, "{page:?}");
    assert!(!page.body.to_lowercase().contains("cookie"), "{}", page.body);
    // The key opens apps and nothing else.
    let key = cookie.split_once('=').unwrap().1.to_owned();
    let limited = site.ask("GET", "coder.test", "/api/v2/workspaces", &[("Coder-Session-Token", &key)]).await;
    assert!(!limited.body.contains("dev"), "{}", limited.body);
    let terminal = format!("/api/v2/workspaceagents/{}/pty?reconnect={}", site.agent, site.agent);
    assert_eq!(refusal(site.websocket("coder.test", &terminal, &[("Coder-Session-Token", &key)]).await), 404);
    let further = site.ask("GET", "coder.test", &to_server, &[("Coder-Session-Token", &key)]).await;
    assert_eq!(further.status, 403, "it makes no further keys");
    // It ends with the session that it came from.
    site.ann.logout().await.unwrap();
    assert_eq!(site.ask("GET", &own, "/", &[("Cookie", &cookie)]).await.status, 303);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_sent_to_hosts_of_apps_only() {
    let site = Site::start(PathAppRules::default()).await;
    let ask = async |uri: &str| {
        let encoded: String = url::form_urlencoded::byte_serialize(uri.as_bytes()).collect();
        let path = format!("/api/v2/applications/auth-redirect?redirect_uri={encoded}");
        site.get(Some(&site.ann), "coder.test", &path).await
    };
    let good = ask(&format!("https://{}/x", host("own"))).await;
    assert_eq!(good.status, 303);
    assert!(
        good.header("location").starts_with(&format!("http://{}/x?", host("own"))),
        "the access URL's scheme"
    );
    for bad in [
        "",
        "https://evil.test/",
        "http://coder.test/",
        "http://apps.coder.test/",
        "http://own--dev--ann.apps.coder.test.evil.test/",
        "http://own--dev--ann.apps.coder.test:8080/",
        "http://user@own--dev--ann.apps.coder.test/",
        "http://dev.apps.coder.test/",
        "http://a.own--dev--ann.apps.coder.test/",
        "ftp://own--dev--ann.apps.coder.test/",
        "//own--dev--ann.apps.coder.test/",
        "javascript:alert(1)",
    ] {
        assert_eq!(ask(bad).await.status, 400, "{bad}");
    }
    for forged in ["x", "a.b.c.d.e", &"x".repeat(10_000)] {
        let path = format!("/?coder_application_connect_api_key_35e783={forged}");
        assert_eq!(site.get(None, &host("own"), &path).await.status, 400);
    }
    let logout = site.get(None, &format!("coder-logout.{APPS}"), "/").await;
    assert_eq!((logout.status, logout.header("location")), (303, "http://coder.test/"));
}

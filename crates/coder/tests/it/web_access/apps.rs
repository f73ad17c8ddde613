//! What passes between browser and app.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn app_gets_the_request_without_credentials() {
    let site = Site::start(PathAppRules::default()).await;
    let token = site.ann.token().unwrap().expose().to_owned();
    let cookie = format!("a=1; coder_session_token={token}; coder_signed_app_token=x");
    let bearer = format!("Bearer {token}");
    let headers = [
        ("Cookie", &*cookie),
        ("Authorization", &*bearer),
        ("Coder-Session-Token", &*token),
        ("X-Forwarded-For", "10.9.9.9"),
        ("X-Private", "1"),
        ("Connection", "x-private"),
        ("X-Kept", "yes"),
    ];
    for (host, path) in [
        (host("own"), "/a%2Fb/../c?x=%20&coder_session_token=q".to_owned()),
        ("coder.test".to_owned(), "/@ann/dev/apps/own/a%2Fb/../c?x=%20&coder_session_token=q".to_owned()),
    ] {
        let answer = site.ask("GET", &host, &path, &headers).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let seen = &answer.body;
        assert!(seen.starts_with("GET /a%2Fb/../c?x=%20 HTTP/1.1\r\n"), "{seen}");
        assert!(seen.contains("\r\nX-Kept: yes\r\n"), "names are spelled as they were sent: {seen}");
        let lower = seen.to_lowercase();
        for line in [
            format!("\r\nhost: {host}\r\n"),
            "\r\ncookie: a=1\r\n".to_owned(),
            "\r\nx-forwarded-for: 127.0.0.1\r\n".to_owned(),
            "\r\nx-forwarded-proto: http\r\n".to_owned(),
            "\r\nx-kept: yes\r\n".to_owned(),
        ] {
            assert!(lower.contains(&line), "{line:?} is not in {seen}");
        }
        for absent in ["authorization", "coder-session-token", "x-private", "10.9.9.9", &token.to_lowercase()]
        {
            assert!(!lower.contains(absent), "{absent:?} is in {seen}");
        }
        let (cookie, attributes) = answer.cookie("coder_signed_app_token").unwrap();
        assert!(attributes.contains("HttpOnly") && attributes.contains("Max-Age=60"), "{attributes}");
        // The next request needs nothing else.
        let again = site.ask("GET", &host, &path, &[("Cookie", &cookie)]).await;
        assert_eq!(again.status, 200);
        assert!(again.cookie("coder_signed_app_token").is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_pass_unchanged_and_unbuffered() {
    let site = Site::start(PathAppRules::default()).await;
    let redirect = site.get(None, &host("open"), "/redirect").await;
    assert_eq!((redirect.status, redirect.header("location")), (302, "http://169.254.169.254/latest"));
    let cookies = site.get(None, &host("open"), "/cookies").await;
    assert_eq!(cookies.cookie("a").unwrap().0, "a=1");
    assert!(cookies.cookie("coder_session_token").is_none(), "{cookies:?}");
    for absent in ["keep-alive", "access-control-allow-origin", "x-content-type-options"] {
        assert!(!cookies.headers.contains_key(absent), "{absent}");
    }
    assert_eq!(cookies.header("service-worker-allowed"), "/", "the host is the app's own");
    let on_path = site.get(Some(&site.ann), "coder.test", "/@ann/dev/apps/open/cookies").await;
    assert!(!on_path.headers.contains_key("service-worker-allowed"));
    // The second half is sent when the first has arrived.
    let mut io = site.connect().await;
    let request = format!("GET /stream HTTP/1.1\r\nHost: {}\r\n\r\n", host("open"));
    io.write_all(request.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("one") {
        assert!(timeout(WAIT_LIMIT, io.read_buf(&mut seen)).await.unwrap().unwrap() > 0);
    }
    site.app.release();
    while !String::from_utf8_lossy(&seen).contains("two") {
        assert!(timeout(WAIT_LIMIT, io.read_buf(&mut seen)).await.unwrap().unwrap() > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websockets_pass_both_ways() {
    let site = Site::start(PathAppRules::default()).await;
    let token = site.ann.token().unwrap().expose().to_owned();
    let session = ("Coder-Session-Token", &*token);
    let own = host("own");
    for (host, path) in [(&*own, "/ws"), ("coder.test", "/@ann/dev/apps/own/ws")] {
        let mut socket = site.websocket(host, path, &[session]).await.unwrap();
        let sent: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
        let mut received = vec![0; sent.len()];
        for (sent, received) in sent.chunks(4000).zip(received.chunks_mut(4000)) {
            socket.write_all(sent).await.unwrap();
            socket.flush().await.unwrap();
            timeout(WAIT_LIMIT, socket.read_exact(received)).await.unwrap().unwrap();
        }
        assert!(sent == received);
        timeout(WAIT_LIMIT, socket.shutdown()).await.unwrap().unwrap();
    }
    // Pages of others do not reach a private app with the visitor's cookie.
    let (cookie, _) = site.get(Some(&site.ann), &own, "/").await.cookie("coder_signed_app_token").unwrap();
    for origin in ["https://evil.test", "null", &format!("http://own--dev--eve.{APPS}")] {
        let headers = [("Cookie", &*cookie), ("Origin", origin)];
        assert_eq!(refusal(site.websocket(&own, "/ws", &headers).await), 403, "{origin}");
        assert_eq!(site.ask("POST", &own, "/", &headers).await.status, 403, "{origin}");
    }
    let friendly = format!("http://{}", host("open"));
    site.websocket(&own, "/ws", &[("Cookie", &cookie), ("Origin", &friendly)]).await.unwrap();
    let answer = site.ask("GET", &own, "/", &[("Cookie", &cookie), ("Origin", &friendly)]).await;
    assert_eq!(answer.header("access-control-allow-origin"), friendly);
    let foreign = site.ask("GET", &own, "/", &[("Cookie", &cookie), ("Origin", "https://evil.test")]).await;
    assert!(!foreign.headers.contains_key("access-control-allow-origin"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_of_the_template_stay_in_the_workspace() {
    let site = Site::start(PathAppRules::default()).await;
    let far = site.get(None, &host("far"), "/x").await;
    assert_eq!(far.status, 200, "the port of the workspace is opened, whatever host the template names");
    let first = site.get(None, &host("base"), "/").await;
    assert_eq!((first.status, first.header("location")), (307, "/?folder=x"));
    let base = site.get(None, &host("base"), "/?folder=x").await;
    assert!(base.body.starts_with("GET /base/?folder=x HTTP/1.1"), "{}", base.body);
    assert_eq!(site.get(None, &host("base"), "/%2e%2e/private").await.status, 400);
    let slash = site.get(Some(&site.ann), "coder.test", "/@ann/dev/apps/own?a=1").await;
    assert_eq!((slash.status, slash.header("location")), (307, "/@ann/dev/apps/own/?a=1"));
    for (slug, status) in [("low", 400), ("file", 400), ("ext", 303), ("cmd", 303), ("closed", 502)] {
        assert_eq!(site.get(None, &host(slug), "/").await.status, status, "{slug}");
    }
}

//! Opening WebSockets: directly, through proxies, over TLS, and against servers that do not want to.

use std::time::Duration;

use coder_api::client::{
    Client, Credential, Error, Options, Proxies, ServeProvisionerDaemonRequest, Timeouts, UpgradedConnection,
};
use coder_domain::secret::Secret;
use hyper::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::server::{Authority, Server, accept, head};
use super::{TOKEN, options, proxy, trusting};

fn with_key() -> ServeProvisionerDaemonRequest {
    ServeProvisionerDaemonRequest::new(Credential::Key(Secret::new("K".repeat(43))), "d1", "v2.30.0+0123abc")
}

async fn dial(
    url: &str,
    options: Options,
    serve: &ServeProvisionerDaemonRequest,
) -> Result<UpgradedConnection, Error> {
    Client::new(url, Some(Secret::new(TOKEN)), options).unwrap().serve(serve).await
}

/// Accepts the upgrade and sends everything back; the first bytes travel with the 101.
async fn echo<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin>(mut stream: S) -> String {
    let head = head(&mut stream).await;
    let answer = format!("{}early", accept(&head));
    stream.write_all(answer.as_bytes()).await.unwrap();
    let (mut read, mut write) = tokio::io::split(&mut stream);
    // The client may leave at any time.
    let _ = tokio::io::copy(&mut read, &mut write).await;
    head
}

async fn assert_echo(mut upgraded: UpgradedConnection) {
    let mut early = [0; 5];
    upgraded.stream.read_exact(&mut early).await.unwrap();
    upgraded.stream.write_all(b"ping").await.unwrap();
    let mut back = [0; 4];
    upgraded.stream.read_exact(&mut back).await.unwrap();
    assert_eq!((&early, &back), (b"early", b"ping"));
}

#[tokio::test]
async fn a_connection_that_was_opened_before_is_taken() {
    let (sender, mut numbers) = tokio::sync::mpsc::channel(4);
    let server = Server::raw(move |stream, number| {
        let sender = sender.clone();
        async move {
            sender.send(number).await.unwrap();
            echo(stream).await;
        }
    })
    .await;
    let client = Client::new(&server.url(), Some(Secret::new(TOKEN)), options()).unwrap();
    client.preconnect(1);
    assert_eq!(numbers.recv().await, Some(0), "nothing was asked for");
    assert_echo(client.serve(&with_key()).await.unwrap()).await;
    assert!(numbers.try_recv().is_err(), "no other connection was opened");
    assert_echo(client.serve(&with_key()).await.unwrap()).await;
    assert_eq!(numbers.recv().await, Some(1), "each is taken once");
}

#[tokio::test]
async fn a_daemon_joins_with_what_the_protocol_asks_for() {
    let (sender, mut heads) = tokio::sync::mpsc::channel(4);
    let server = Server::raw(move |stream, _| {
        let sender = sender.clone();
        async move { sender.send(echo(stream).await).await.unwrap() }
    })
    .await;
    let mut serve = with_key();
    serve.extensions = Some("resume/1".to_owned());
    let options = || Options { headers: vec![("X-Gate".to_owned(), Secret::new("open"))], ..options() };
    assert_echo(dial(&format!("{}/", server.url()), options(), &serve).await.unwrap()).await;
    let head = heads.recv().await.unwrap();
    let line = "GET /api/v2/organizations/default/provisionerdaemons/serve?name=d1&provisioner=terraform&version=1.14 HTTP/1.1";
    assert_eq!(head.lines().next(), Some(line));
    let lower = head.to_lowercase();
    let key = format!("coder-provisioner-daemon-key: {}", "k".repeat(43));
    for wanted in [
        format!("host: {}", server.address).as_str(),
        "upgrade: websocket",
        "connection: upgrade",
        "sec-websocket-version: 13",
        "x-coder-build-version: v2.30.0+0123abc",
        "coder-provisioner-extensions: resume/1",
        "x-gate: open",
        &key,
    ] {
        assert!(lower.lines().any(|line| line == wanted), "{wanted} in {head}");
    }
    for unwanted in
        ["sec-websocket-protocol", "sec-websocket-extensions", "cookie", "session-token", "origin"]
    {
        assert!(!lower.contains(unwanted), "{unwanted} in {head}");
    }

    let mut serve = ServeProvisionerDaemonRequest::new(Credential::Session, "d2", "v2.30.0");
    serve.organization = "00000000-0000-4000-8000-000000000001".to_owned();
    serve.tags = [("zone".to_owned(), "e u".to_owned()), ("scope".to_owned(), "user".to_owned())].into();
    drop(dial(&server.url(), options(), &serve).await.unwrap());
    let head = heads.recv().await.unwrap();
    assert!(head.contains("&tag=scope%3Duser&tag=zone%3De+u&version=1.14"), "{head}");
    assert!(head.contains(&format!("cookie: coder_session_token={TOKEN}\r\n")), "{head}");

    let psk = ServeProvisionerDaemonRequest::new(Credential::Psk(Secret::new("p")), "d3", "v2.30.0");
    drop(dial(&server.url(), options(), &psk).await.unwrap());
    assert!(heads.recv().await.unwrap().contains("coder-provisioner-daemon-psk: p\r\n"));
}

/// Answers every connection with fixed bytes.
async fn answering(bytes: &'static str) -> Server {
    Server::raw(move |mut stream, _| async move {
        let head = head(&mut stream).await;
        let answer = bytes.replace("ACCEPT", &accept(&head));
        stream.write_all(answer.as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    })
    .await
}

#[tokio::test]
async fn a_refusal_keeps_its_status_and_message() {
    let body = r#"{"message":"no","detail":"not you"}"#;
    let answer = "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: 35\r\n\r\n";
    let server = answering(Box::leak(format!("{answer}{body}").into_boxed_str())).await;
    let error = dial(&server.url(), options(), &with_key()).await.unwrap_err();
    assert_eq!(
        (error.status(), error.body().unwrap().detail.as_str()),
        (Some(StatusCode::FORBIDDEN), "not you")
    );
    let text = format!("{error} {error:?}");
    assert!(!text.contains("KKK") && !text.contains("name=d1"), "{text}");

    let server = answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let error = dial(&server.url(), options(), &with_key()).await.unwrap_err();
    assert_eq!(error.status(), Some(StatusCode::OK), "anything but 101 is a refusal");
}

#[tokio::test]
async fn an_endless_refusal_is_cut() {
    let server = Server::raw(|mut stream, _| async move {
        head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\n").await.unwrap();
        // Ends when the client hangs up.
        while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
    })
    .await;
    let error = dial(&server.url(), options(), &with_key()).await.unwrap_err();
    assert_eq!(error.status(), Some(StatusCode::BAD_GATEWAY));
    assert!(error.is_retryable());
}

#[tokio::test]
async fn handshakes_that_break_the_rules_are_refused() {
    for (answer, wanted) in [
        (
            "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: bm8=\r\n\r\n",
            "does not match the request",
        ),
        ("HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", "does not match the request"),
        ("HTTP/1.1 101 X\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", "not a WebSocket"),
        ("ACCEPT", ""),
    ] {
        let server = answering(answer).await;
        match dial(&server.url(), options(), &with_key()).await {
            Ok(_) => assert_eq!(wanted, ""),
            Err(error) => assert!(error.to_string().contains(wanted) && !wanted.is_empty(), "{error}"),
        }
    }
    let server = Server::raw(|mut stream, _| async move {
        let head = head(&mut stream).await;
        let answer =
            accept(&head).replace("\r\n\r\n", "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
    })
    .await;
    let error = dial(&server.url(), options(), &with_key()).await.unwrap_err();
    assert!(error.to_string().contains("was not offered"), "{error}");
}

#[tokio::test]
async fn garbage_huge_headers_and_hang_ups_are_transport_errors() {
    let huge: &'static str =
        Box::leak(format!("HTTP/1.1 101 X\r\nA: {}\r\n", "x".repeat(1 << 20)).into_boxed_str());
    for answer in ["SSH-2.0-x\r\n\r\n", huge] {
        let server = Server::raw(move |mut stream, _| async move {
            head(&mut stream).await;
            // The client hangs up early.
            let _ = stream.write_all(answer.as_bytes()).await;
        })
        .await;
        let error = dial(&server.url(), options(), &with_key()).await.unwrap_err();
        assert!(matches!(error, Error::Transport { .. }), "{error:?}");
    }
    let server = Server::raw(|mut stream, _| async move { drop(head(&mut stream).await) }).await;
    let error = dial(&server.url(), options(), &with_key()).await.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }) && error.is_retryable(), "{error:?}");
}

#[tokio::test]
async fn silence_ends_in_a_timeout_at_every_step() {
    let silent = Server::raw(|stream, _| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let short = Timeouts {
        handshake: Duration::from_millis(50),
        connect: Duration::from_millis(60),
        ..Timeouts::default()
    };
    let error = dial(&silent.url(), Options { timeouts: short, ..options() }, &with_key()).await.unwrap_err();
    assert!(error.to_string().contains("50ms (waiting for the upgrade)"), "{error}");
    let proxies = proxy("HTTP_PROXY", silent.url());
    let through = Options { timeouts: short, proxies, ..options() };
    let error = dial("http://coder.test", through, &with_key()).await.unwrap_err();
    assert!(error.to_string().contains("60ms (connecting)"), "{error}");
    let authority = Authority::new();
    let secure = Options { timeouts: short, ..trusting(authority.file()) };
    let url = format!("https://localhost:{}", silent.address.port());
    let error = dial(&url, secure, &with_key()).await.unwrap_err();
    assert!(error.to_string().contains("60ms (connecting)"), "{error}");
}

#[tokio::test]
async fn through_a_proxy_with_a_password_and_over_tls_with_a_private_authority() {
    let authority = Authority::new();
    let acceptor = authority.acceptor();
    let server = Server::raw(move |stream, _| {
        let acceptor = acceptor.clone();
        async move {
            let stream = acceptor.accept(stream).await.unwrap();
            echo(stream).await;
        }
    })
    .await;
    let (tunnel, heads) = Server::proxy(server.address).await;
    let address = tunnel.url().replace("//", "//me:hun%40ter2@");
    let options = || Options { proxies: proxy("HTTPS_PROXY", address.clone()), ..trusting(authority.file()) };
    assert_echo(dial("https://coder.test:8443", options(), &with_key()).await.unwrap()).await;
    let head = heads.lock().unwrap()[0].clone();
    assert!(head.starts_with("CONNECT coder.test:8443 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("proxy-authorization: Basic bWU6aHVuQHRlcjI=\r\n"), "{head}");

    let error = dial("https://other.test", options(), &with_key()).await.unwrap_err();
    let said = std::error::Error::source(&error).unwrap().to_string();
    assert!(said.contains("is not for other.test but for ") && said.contains("coder.test"), "{said}");
}

/// Dials a server of the certificate, at a host, by a client that trusts another one's file.
async fn dial_tls(
    certificate: &Authority,
    trusted: &Authority,
    host: &str,
) -> (Server, Result<UpgradedConnection, Error>) {
    let acceptor = certificate.acceptor();
    let server = Server::raw(move |stream, _| {
        let acceptor = acceptor.clone();
        async move {
            // A client that does not trust us leaves.
            if let Ok(stream) = acceptor.accept(stream).await {
                echo(stream).await;
            }
        }
    })
    .await;
    let url = format!("https://{host}:{}", server.address.port());
    let dialled = dial(&url, trusting(trusted.file()), &with_key()).await;
    // It serves until it is dropped.
    (server, dialled)
}

#[tokio::test]
async fn a_trusted_self_signed_certificate_is_accepted_for_its_names_only() {
    let own = Authority::self_signed(|_| {});
    for host in ["localhost", "127.0.0.1"] {
        let (_server, dialled) = dial_tls(&own, &own, host).await;
        assert_echo(dialled.unwrap()).await;
    }
    let refused = async |certificate: &Authority, trusted: &Authority, words: &str, hint: &str| {
        let error = dial_tls(certificate, trusted, "127.0.0.1").await.1.unwrap_err();
        let said = std::error::Error::source(&error).unwrap().to_string();
        assert!(said.contains(words), "{said}");
        assert!(error.hint().unwrap().contains(hint), "{error:?}");
    };
    let of_other_name = Authority::self_signed(|params| {
        params.subject_alt_names = vec![rcgen::SanType::DnsName("other.test".try_into().unwrap())];
    });
    refused(&of_other_name, &of_other_name, "is not for 127.0.0.1 but for other.test", "subjectAltName")
        .await;
    let nameless = Authority::self_signed(|params| params.subject_alt_names.clear());
    refused(&nameless, &nameless, "it names no host", "subjectAltName=DNS:host").await;
    let old = Authority::self_signed(|params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    });
    refused(&old, &old, "has expired", "clocks").await;
    let early = Authority::self_signed(|params| params.not_before = rcgen::date_time_ymd(2999, 1, 1));
    refused(&early, &early, "is not valid yet", "clocks").await;
    // The same names and words, and another key: nothing but the very certificate is trusted.
    let twin = Authority::self_signed(|_| {});
    let words = "is that of an authority (basicConstraints CA:TRUE), and is not itself trusted here";
    refused(&twin, &own, words, "SSL_CERT_FILE").await;
    // One that a trusted authority signed is not itself trusted.
    let signed = Authority::with_authority_as_leaf();
    refused(&signed, &signed, words, "exactly this certificate").await;
    // Without the words of an authority it was always taken.
    let leaf = Authority::self_signed(|params| params.is_ca = rcgen::IsCa::NoCa);
    let (_server, dialled) = dial_tls(&leaf, &leaf, "localhost").await;
    assert_echo(dialled.unwrap()).await;
    refused(&leaf, &own, "is not signed by an authority", "SSL_CERT_FILE").await;
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let of_other_kind = Authority::self_signed_with(key, |params| params.is_ca = rcgen::IsCa::NoCa);
    refused(&of_other_kind, &own, "is not signed by an authority", "SSL_CERT_FILE").await;
}

#[tokio::test]
async fn the_proxy_is_left_out_where_no_proxy_says_so() {
    let server = Server::raw(|stream, _| async move { drop(echo(stream).await) }).await;
    let (tunnel, heads) = Server::proxy(server.address).await;
    let all = tunnel.url();
    let proxies = Proxies::from_lookup(move |name| match name {
        "ALL_PROXY" => Some(all.clone()),
        "NO_PROXY" => Some(".internal.test".to_owned()),
        _ => None,
    });
    let options = Options { proxies, ..options() };
    assert_echo(dial("http://coder.test", options.clone(), &with_key()).await.unwrap()).await;
    assert_eq!(heads.lock().unwrap().len(), 1);
    // This machine is never reached through a proxy.
    assert_echo(dial(&server.url(), options, &with_key()).await.unwrap()).await;
    assert_eq!(heads.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named() {
    for (answer, wanted) in [
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
            "the proxy requires a user and password",
        ),
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "CONNECT http://127.0.0.1:"),
    ] {
        let server = Server::raw(move |mut stream, _| async move {
            head(&mut stream).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
            std::future::pending::<()>().await;
        })
        .await;
        let address = server.url().replace("//", "//me:hunter2@");
        let options = Options { proxies: proxy("ALL_PROXY", address), ..options() };
        let error = dial("http://coder.test", options, &with_key()).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains(wanted) && !text.contains("hunter2"), "{text}");
    }
    let options = Options { proxies: proxy("ALL_PROXY", "socks5://127.0.0.1:1".to_owned()), ..options() };
    let error = Client::new("http://coder.test", None, options).err();
    assert!(error.is_some(), "unsupported kinds of proxy are refused at once");
}

#[tokio::test]
async fn an_unknown_authority_comes_with_a_hint() {
    let acceptor = Authority::new().acceptor();
    let server = Server::raw(move |stream, _| {
        let acceptor = acceptor.clone();
        // Fails, since the client does not trust it.
        async move { drop(acceptor.accept(stream).await) }
    })
    .await;
    let url = format!("https://localhost:{}", server.address.port());
    let other = Authority::new();
    let error = dial(&url, trusting(other.file()), &with_key()).await.unwrap_err();
    assert!(error.hint().unwrap().contains("SSL_CERT_FILE"), "{error:?}");
}

#[tokio::test]
async fn a_connection_cut_at_any_byte_of_the_answer_is_an_error_not_a_hang() {
    let whole = accept("sec-websocket-key: x\r\n").len();
    let server = Server::raw(move |mut stream, number| async move {
        let head = head(&mut stream).await;
        // The client may disconnect before everything was written.
        let _ = stream.write_all(&accept(&head).as_bytes()[..number]).await;
    })
    .await;
    for cut in 0..whole {
        let error = dial(&server.url(), options(), &with_key()).await.unwrap_err();
        assert!(matches!(error, Error::Transport { .. }), "after {cut} bytes: {error:?}");
    }
    dial(&server.url(), options(), &with_key()).await.unwrap();
}

#[tokio::test]
async fn a_refused_credential_says_which() {
    for (credential, wanted) in [
        (Credential::Key(Secret::new("K".repeat(43))), "provisioner keys create"),
        (Credential::Psk(Secret::new("p")), "pre-shared key"),
        (Credential::Session, "coder login"),
    ] {
        let server = answering("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n").await;
        let serve = ServeProvisionerDaemonRequest::new(credential, "d", "v2.30.0");
        let hint = dial(&server.url(), options(), &serve).await.unwrap_err().hint().unwrap();
        assert!(hint.contains(wanted), "{hint}");
    }
}

#[tokio::test]
async fn any_path_can_be_opened_with_headers_of_ones_own() {
    let (sender, mut heads) = tokio::sync::mpsc::channel(1);
    let server = Server::raw(move |stream, _| {
        let sender = sender.clone();
        async move { sender.send(echo(stream).await).await.unwrap() }
    })
    .await;
    let client = Client::new(&server.url(), Some(Secret::new(TOKEN)), options()).unwrap();
    let query = [("a", "b c".to_owned())];
    let upgraded = client.websocket("/x/y", &query, &[("X-Own", Secret::new("1"))]).await.unwrap();
    assert_echo(upgraded).await;
    let head = heads.recv().await.unwrap();
    assert!(head.starts_with("GET /x/y?a=b+c HTTP/1.1\r\n") && head.contains("x-own: 1\r\n"), "{head}");
    assert!(!head.contains(TOKEN), "{head}");
    let error = client.websocket("/x", &[], &[("X-Own", Secret::new("a\nb"))]).await.unwrap_err();
    assert!(matches!(error, Error::InvalidHeader(name) if name == "X-Own"));
}

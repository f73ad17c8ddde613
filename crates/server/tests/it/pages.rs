//! The HTML pages, our own executable, and the install script.

use axum::body::Body;
use coder_server::Config;
use http::Request;

use crate::harness::{Answer, PASSWORD, TestServer, settings};

async fn submit(server: &TestServer, path: &str, cookies: &str, form: &[(&str, &str)]) -> Answer {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let request = Request::post(path).header("cookie", cookies).body(Body::from(body)).unwrap();
    server.send(request).await
}

fn cookie(answer: &Answer, name: &str) -> String {
    let cookies = answer.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap());
    let found =
        cookies.filter_map(|line| line.split_once(';')?.0.split_once('=')).find(|(key, _)| *key == name);
    found.map(|(_, value)| value.to_owned()).unwrap_or_default()
}

#[tokio::test]
async fn cli_auth_shows_a_token_after_sign_in() {
    let server = TestServer::sqlite().await;
    server.owner().await;
    let turned_away = server.get("", "/cli-auth").await;
    assert_eq!(turned_away.headers["location"], "/login?redirect=%2Fcli-auth");
    let form = server.get("", "/login?redirect=/cli-auth").await;
    assert!(form.text().contains("value=\"/cli-auth\""));
    assert!(form.headers["content-security-policy"].to_str().unwrap().contains("frame-ancestors 'none'"));
    let csrf = cookie(&form, "csrf_token");
    let own = format!("csrf_token={csrf}");
    let fields = |password| {
        [
            ("csrf_token", csrf.as_str()),
            ("redirect", "/cli-auth"),
            ("email", "admin@example.com"),
            ("password", password),
        ]
    };
    assert_eq!(submit(&server, "/login", "", &fields(PASSWORD)).await.status, 400, "the cookie is missing");
    let wrong = submit(&server, "/login", &own, &fields("nope")).await;
    assert_eq!(wrong.status, 401);
    assert!(wrong.text().contains("Incorrect email or password.") && !wrong.text().contains("nope"));
    let signed = submit(&server, "/login", &own, &fields(PASSWORD)).await;
    assert_eq!(signed.headers["location"], "/cli-auth");
    let session = format!("{own}; coder_session_token={}", cookie(&signed, "coder_session_token"));
    let page =
        server.send(Request::get("/cli-auth").header("cookie", &session).body(Body::empty()).unwrap()).await;
    assert!(page.text().contains("admin"));
    for forged in ["x", &csrf] {
        assert_eq!(submit(&server, "/cli-auth", &session, &[("csrf_token", forged)]).await.status, 303);
    }
    let csrf = cookie(&signed, "csrf_token");
    let shown = submit(&server, "/cli-auth", &session, &[("csrf_token", &csrf)]).await.text();
    let token = shown
        .split("<code>")
        .find_map(|part| part.split_once("</code>").map(|(text, _)| text).filter(|text| text.len() == 33));
    server.get(token.unwrap(), "/api/v2/users/me").await.expect(200);
}

#[tokio::test]
async fn redirects_do_not_leave_the_server() {
    let server = TestServer::sqlite().await;
    for outside in
        ["https://evil.example", "%2F%09%2Fevil.example", "%2F.%2F%2Fevil.example", "%2F%5Cevil.example"]
    {
        let form = server.get("", &format!("/login?redirect={outside}")).await.text();
        assert!(!form.contains("evil"), "{outside}");
    }
    server.owner().await;
    for outside in ["/\t/evil.example", "/\n/evil.example", "/.//evil.example", "/\\evil.example"] {
        let fields = [
            ("csrf_token", "x"),
            ("redirect", outside),
            ("email", "admin@example.com"),
            ("password", PASSWORD),
        ];
        let signed = submit(&server, "/login", "csrf_token=x", &fields).await;
        assert_eq!(
            (signed.status.as_u16(), &signed.headers["location"]),
            (303, &"/".parse().unwrap()),
            "{outside:?}"
        );
    }
}

#[tokio::test]
async fn forms_belong_to_a_session_and_to_our_own_pages() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let make = async |cookies: &str, csrf: &str, headers: &[(&str, &str)]| {
        let mut request = Request::post("/cli-auth").header("host", "coder.test").header("cookie", cookies);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = server.send(request.body(format!("csrf_token={csrf}").into()).unwrap()).await;
        (answer.status.as_u16(), answer.text().contains("paste it into"))
    };
    let session = format!("coder_session_token={owner}");
    let page = Request::get("/cli-auth").header("cookie", &session).body(Body::empty()).unwrap();
    let csrf = cookie(&server.send(page).await, "csrf_token");
    assert_eq!(make(&session, &csrf, &[]).await, (200, true));
    assert_eq!(make(&session, &csrf, &[("origin", "https://coder.test")]).await, (200, true));
    let tossed = "x".repeat(32);
    assert_eq!(make(&format!("{session}; csrf_token={tossed}"), &tossed, &[]).await, (303, false));
    for foreign in [("origin", "https://sibling.test"), ("origin", "null"), ("sec-fetch-site", "same-site")] {
        assert_eq!(make(&session, &csrf, &[foreign]).await, (403, false), "{foreign:?}");
    }
}

#[tokio::test]
async fn cookies_are_secure_when_people_come_over_https() {
    let secure = async |config: Config| {
        let server = TestServer::sqlite_with(config).await;
        server.owner().await;
        let login = serde_json::json!({ "email": "admin@example.com", "password": PASSWORD });
        let answer = server.post("", "/api/v2/users/login", login).await;
        let form = server.get("", "/login").await;
        let cookies: Vec<_> = [&answer, &form]
            .iter()
            .flat_map(|answer| answer.headers.get_all("set-cookie"))
            .map(|line| line.to_str().unwrap().contains("; Secure"))
            .collect();
        assert!(cookies.len() >= 3);
        assert!(cookies.iter().all(|secure| *secure == cookies[0]), "{cookies:?}");
        cookies[0]
    };
    let with = |url: &str| Config { access_url: Some(url.parse().unwrap()), ..settings() };
    assert!(!secure(settings()).await);
    assert!(!secure(with("http://coder.test")).await);
    assert!(secure(with("https://coder.test")).await);
}

#[tokio::test]
async fn browsers_get_errors_as_pages_and_clients_as_json() {
    let server = TestServer::sqlite().await;
    let ask = async |method: http::Method, path: &str, accept: &str| {
        let request = Request::builder().method(method).uri(path).header("accept", accept);
        server.send(request.body(Body::empty()).unwrap()).await
    };
    let (get, browser) = (http::Method::GET, "text/html,application/xhtml+xml,*/*;q=0.8");
    for (method, path, status) in [
        (get.clone(), "/templates/nothing", 404),
        (get.clone(), "/bin/nothing", 404),
        (get.clone(), "/external-auth/nothing", 404),
        (http::Method::PUT, "/login", 405),
    ] {
        let page = ask(method.clone(), path, browser).await;
        assert_eq!(page.status, status, "{path}");
        assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
        assert!(page.headers["content-security-policy"].to_str().unwrap().contains("default-src 'none'"));
        let text = page.text();
        assert!(text.starts_with("<!doctype html>") && text.contains("href=\"/\""), "{path}: {text}");
        assert_eq!(page.headers.get("allow").is_some(), status == 405);
        for client in ["*/*", "application/json"] {
            let json = ask(method.clone(), path, client).await.expect(status);
            assert!(!json["message"].as_str().unwrap().is_empty(), "{path}");
        }
    }
    ask(get, "/api/v2/nothing", browser).await.expect(404);
}

#[tokio::test]
async fn browsers_are_redirected_to_the_access_url_when_configured() {
    let access_url = Some("https://coder.example.com".parse().unwrap());
    let config = Config { access_url, redirect_to_access_url: true, ..settings() };
    let server = TestServer::sqlite_with(config).await;
    let ask = async |path: &str, host: &str| {
        let answer = server.send(Request::get(path).header("host", host).body(Body::empty()).unwrap()).await;
        answer.headers.get("location").map(|to| to.to_str().unwrap().to_owned())
    };
    assert_eq!(
        ask("/login?redirect=/x", "other").await.unwrap(),
        "https://coder.example.com/login?redirect=/x"
    );
    assert_eq!(ask("/login", "coder.example.com").await, None);
    assert_eq!(ask("/api/v2/buildinfo", "other").await, None);
    let over = async |scheme: &str| {
        let request =
            Request::get("/login").header("host", "coder.example.com").header("x-forwarded-proto", scheme);
        let answer = server.send(request.body(Body::empty()).unwrap()).await;
        answer.headers.get("location").map(|to| to.to_str().unwrap().to_owned())
    };
    assert_eq!(over("http").await.as_deref(), Some("https://coder.example.com/login"));
    assert_eq!(over("https").await, None);
}

#[tokio::test]
async fn our_own_binary_and_the_script_that_installs_it() {
    let folder = tempfile::tempdir().unwrap();
    let executable = folder.path().join("coder");
    std::fs::write(&executable, b"binary").unwrap();
    let config = Config { executable: Some(executable), ..settings() };
    let server = TestServer::sqlite_with(config).await;
    let script = server.get("", "/install.sh").await;
    assert!(script.text().starts_with("#!/bin/sh\n"));
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let path = format!("/bin/coder-linux-{arch}");
    let answer = server.get("", &path).await;
    assert_eq!(answer.body, b"binary");
    // agent 1.3: SHA-1 of the file.
    assert_eq!(answer.headers["etag"], "\"7e57cfe843145135aee1f4d0d63ceb7842093712\"");
    assert_eq!(answer.headers["x-original-content-length"], "6");
    assert_eq!(server.get("", &path.replace('-', "_")).await.body, b"binary");
    let again =
        Request::get(&path).header("if-none-match", &answer.headers["etag"]).body(Body::empty()).unwrap();
    assert_eq!(server.send(again).await.status, 304);
    server.get("", "/bin/coder-plan9-mips").await.expect(404);
    // A slim build beside the executable is preferred, and builds for other platforms are served.
    std::fs::write(folder.path().join(format!("coder-linux-{arch}")), b"slim").unwrap();
    std::fs::write(folder.path().join("coder-darwin-arm64"), b"other").unwrap();
    assert_eq!(server.get("", &path).await.body, b"slim");
    assert_eq!(server.get("", "/bin/coder-darwin-arm64").await.body, b"other");
    assert_eq!(
        server.get("", "/bin/").await.text(),
        format!("coder-linux-{arch}\ncoder-darwin-arm64\ncoder-full-linux-{arch}\n")
    );
    server.get("", "/bin/..%2F..%2Fetc%2Fpasswd").await.expect(404);
    let home =
        server.send(Request::get("/").header("host", "evil\"><script>").body(Body::empty()).unwrap()).await;
    assert!(!home.text().contains("<script>"));
}

/// agent 1.3: programs are sent compressed to clients that take that, and as they are to all others.
#[tokio::test]
async fn programs_are_sent_compressed_to_those_who_take_that() {
    let folder = tempfile::tempdir().unwrap();
    let executable = folder.path().join("coder");
    let mut number = 1_u32;
    let digits = std::iter::repeat_with(|| {
        number = number.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        b'0' + (number >> 16) as u8 % 8
    });
    let program: Vec<u8> = digits.take(300 << 10).collect();
    std::fs::write(&executable, &program).unwrap();
    let config = Config { executable: Some(executable.clone()), ..settings() };
    let server = TestServer::sqlite_with(config).await;
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let ask = async |method: &str, header: &str, value: &str| {
        let request =
            Request::builder().method(method).uri(format!("/bin/coder-linux-{arch}")).header(header, value);
        server.send(request.body(Body::empty()).unwrap()).await
    };
    let original = program.len().to_string();

    let plain = ask("GET", "accept-encoding", "identity").await;
    assert!(plain.body == program && !plain.headers.contains_key("content-encoding"));
    assert_eq!(plain.headers["content-length"], original);

    let packed = ask("GET", "accept-encoding", "deflate, gzip").await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert_eq!(packed.headers["content-length"], packed.body.len().to_string());
    assert!(
        packed.body.len() > 64 << 10 && packed.body.len() < program.len(),
        "more than a chunk of the file"
    );
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(packed.body.as_slice()), &mut text).unwrap();
    assert!(text == program);
    for answer in [&plain, &packed] {
        assert_eq!(answer.headers["x-original-content-length"], original);
        assert_eq!(answer.headers["vary"], "accept-encoding");
        assert_eq!(answer.headers["etag"], plain.headers["etag"]);
    }

    let head = ask("HEAD", "accept-encoding", "gzip").await;
    assert!(head.body.is_empty() && head.headers["content-length"] == packed.headers["content-length"]);
    let part = ask("GET", "range", "bytes=5-9").await;
    assert!(part.status == 200 && part.body == program, "parts are not served");

    std::fs::write(&executable, b"the next version").unwrap();
    let next = ask("GET", "accept-encoding", "gzip").await;
    assert_eq!(next.headers["x-original-content-length"], "16");
}

/// Runs the script like `curl … | sh -s -- ARGUMENTS`.
fn install(script: &str, home: &std::path::Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut child = std::process::Command::new("sh")
        .args(["-s", "--"])
        .args(arguments)
        .env("HOME", home)
        .env_remove("PREFIX")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), script.as_bytes()).ok();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn the_install_script_heeds_its_arguments_or_refuses_them() {
    let folder = tempfile::tempdir().unwrap();
    let executable = folder.path().join("coder");
    std::fs::write(&executable, b"binary").unwrap();
    let config = Config { executable: Some(executable), ..settings() };
    let server = TestServer::sqlite_with(config).await;
    let script = server.get("", "/install.sh").await.text();
    let home = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| install(&script, home.path(), arguments);

    let (code, help, _) = run(&["--help"]);
    assert_eq!(code, Some(0));
    for flag in ["--prefix", "--binary-name", "--version", "--method", "--dry-run", "--help"] {
        assert!(help.contains(flag), "{help}");
    }
    let prefix = home.path().join("a b");
    let (code, _, said) = run(&["--dry-run", "--prefix", prefix.to_str().unwrap(), "--binary-name=c2"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("/bin/coder-") && said.contains("/a b/bin/c2"), "{said}");
    assert!(!prefix.exists(), "nothing was done");
    for version in ["v2.30.0", "2.30.0", "v2.30.0+0000000", "0.0.0-test"] {
        assert_eq!(
            run(&["--dry-run", "--stable", "--method", "detect", "--version", version]).0,
            Some(0),
            "{version}"
        );
    }
    let (code, _, said) = run(&["--version=2.29.0"]);
    assert_eq!((code, said.contains("no 2.29.0")), (Some(1), true), "{said}");
    for (wrong, why) in [
        (&["--with-terraform"][..], "this server has no Terraform"),
        (&["--net-admin"], "needs no CAP_NET_ADMIN"),
        (&["--rsh", "ssh", "me@host"], "on this machine only"),
        (&["me@host"], "on this machine only"),
        (&["--edge"], "unknown argument --edge"),
        (&["somewhere"], "unknown argument somewhere"),
        (&["--prefix"], "--prefix needs a value"),
        (&["--prefix="], "--prefix needs a value"),
        (&["--binary-name", "../x"], "without slashes"),
        (&["--method", "deb"], "unknown method deb"),
    ] {
        let (code, out, said) = run(wrong);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{wrong:?}: {said}");
        assert!(said.contains(why) && said.contains("--help"), "{wrong:?}: {said}");
    }
}

#[tokio::test]
async fn the_install_script_installs() {
    let folder = tempfile::tempdir().unwrap();
    let executable = folder.path().join("coder");
    std::fs::write(&executable, b"#!/bin/sh\necho it runs\n").unwrap();
    // A slim build has no provisioner daemon, so the script does not install it where there is a whole program.
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    std::fs::write(folder.path().join(format!("coder-linux-{arch}")), b"#!/bin/sh\necho slim\n").unwrap();
    let config = Config { executable: Some(executable), ..settings() };
    let server = TestServer::sqlite_with(config.clone()).await;
    let (address, stop) = server.listening_with(config).await;
    let request = Request::get("/install.sh").header("host", address.to_string());
    let script = server.send(request.body(Body::empty()).unwrap()).await.text();
    let here = folder.path().join("here").to_str().unwrap().to_owned();
    let run = async |script: &str| {
        let (script, home, prefix) = (script.to_owned(), folder.path().to_owned(), here.clone());
        let installed = tokio::task::spawn_blocking(move || install(&script, &home, &["--prefix", &prefix]));
        installed.await.unwrap()
    };
    // A machine for which the server has nothing, and a server that cannot be reached, which is not the same.
    let other = script.replace(&format!("arch={arch}"), "arch=other");
    let (code, _, said) = run(&other).await;
    assert!(code == Some(1) && said.contains("an administrator adds coder-linux-other there"), "{said}");
    let (code, _, said) = run(&script.replace(&address.to_string(), "127.0.0.1:1")).await;
    assert!(code == Some(1) && said.contains("/bin/coder-"), "{said}");
    let left = std::fs::read_dir(folder.path().join("here/bin")).unwrap().count();
    assert_eq!(left, 0, "nothing is installed");

    let (code, _, said) = run(&script).await;
    assert_eq!(code, Some(0), "{said}");
    let ran = std::process::Command::new(folder.path().join("here/bin/coder")).output().unwrap();
    assert_eq!(ran.stdout, b"it runs\n");
    stop.cancel();
}

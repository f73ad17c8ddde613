//! Error messages for the user: what failed, the cause, the next step.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use rcgen::{CertificateParams, KeyPair};

use crate::processes::{EMAIL, PASSWORD, Server, USER};
use crate::program::{Home, Outcome};

/// The error and its hint are on standard error, without the URL and the method of a call.
#[track_caller]
fn explained(outcome: Outcome, error: &str, hint: &str) -> String {
    let err = outcome.refused(error).err;
    assert!(err.contains("hint: ") && err.contains(hint), "{hint:?} is not in: {err}");
    assert!(!err.contains("/api/v2") && !err.contains("GET ") && !err.contains("POST "), "{err}");
    err
}

/// A web server that is not a Coder server and gives this response to every request.
fn web_server(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            let _ = connection.read(&mut [0; 4096]);
            let _ = connection.write_all(answer.as_bytes());
        }
    });
    url
}

#[test]
fn a_url_that_is_not_a_coder_server() {
    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 15\r\nConnection: close\r\n\r\n<html>hi</html>";
    let missing = "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno";
    for answer in [page, missing] {
        let url = web_server(answer);
        explained(Home::new().run(&["login", &url]), "is not a Coder server", "check the URL");
    }
    let bad = "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    explained(Home::new().run(&["login", &web_server(bad)]), "a proxy before", "behind the proxy");
}

#[test]
fn https_to_an_http_port_and_the_reverse() {
    let plain = Server::start(&[]);
    let url = plain.url.replace("http://", "https://");
    explained(Home::new().run(&["login", &url]), "does not use TLS on this port", &plain.url);

    let home = Home::new();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    std::fs::write(home.path().join("cert.pem"), certificate).unwrap();
    std::fs::write(home.path().join("key.pem"), key.serialize_pem()).unwrap();
    let flags =
        ["--tls-enable", "--tls-address=127.0.0.1:0", "--tls-cert-file=cert.pem", "--tls-key-file=key.pem"];
    let secure = Server::secure(home, &flags);
    let url = secure.url.replace("https://", "http://");
    explained(Home::new().run(&["login", &url]), "on this port", &secure.url);
    // The error of a server in Go.
    let go = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    let url = web_server(go);
    explained(Home::new().run(&["login", &url]), "does not accept plain HTTP", &url.replace("http", "https"));
    // A certificate that is its own issuer.
    let trusts_nobody = Home::new().run(&["login", &secure.url, "--token", "t"]);
    explained(trusts_nobody, "is not signed by an authority that is trusted here", "SSL_CERT_FILE");
}

#[test]
fn nothing_listens_and_no_such_host() {
    let url = format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    explained(Home::new().run(&["login", &url]), "nothing listens at 127.0.0.1:", "check the URL");
    let details = Home::new().run(&["login", &url, "--verbose"]).refused("details: ").err;
    assert!(details.contains("/api/v2/users/first"), "--verbose says it all: {details}");
}

#[test]
fn without_permission_the_roles_that_have_it_are_named() {
    let server = Server::start(&[]);
    let owner = server.first_user();
    owner.run(&["users", "create", "-u", "bob", "-e", "bob@example.com", "-p", PASSWORD]).success();
    let token = owner.run(&["tokens", "create", "--user", "bob"]).success().out;
    let mut bob = Home::new();
    bob.set("CODER_URL", &server.url).set("CODER_SESSION_TOKEN", token.trim());
    let err = explained(
        bob.run(&["provisioner", "keys", "create", "k"]),
        "you have no permission to create provisioner keys",
        "Template Admin",
    );
    assert!(err.contains("Owner") && err.contains("Organization Admin"), "{err}");
    explained(
        bob.run(&["users", "create", "-u", "x", "-e", "x@example.com", "-p", PASSWORD]),
        "you have no permission to create users",
        "User Admin",
    );
}

#[test]
fn a_misspelt_name_is_answered_with_the_near_one() {
    let server = Server::start(&[]);
    let home = server.first_user();
    home.run(&["provisioner", "keys", "create", "build-farm"]).success();
    home.run(&["provisioner", "keys", "delete", "biuld-farm", "-y"]).refused("did you mean \"build-farm\"?");
    home.run(&["provisioner", "keys", "list", "-c", "nmae"]).refused("did you mean \"name\"?");
    home.run(&["users", "show", "admni"]).refused(&format!("did you mean {USER:?}?"));
    home.run(&["templates", "delete", "absent", "-y"]).refused("there is no template \"absent\"");
}

#[test]
fn a_weak_first_password_is_refused_before_anything_else_is_asked() {
    let server = Server::start(&[]);
    let home = Home::new();
    home.run(&["login", &server.url, "--first-user-password", "weak"])
        .refused("--first-user-password: insecure");
    let answers = format!("{USER}\n\n{EMAIL}\nweak\n");
    home.answer(&["login", &server.url], &answers).refused("insecure password");
    assert!(!home.config().exists());
}

#[test]
fn a_full_disk_is_called_a_full_disk() {
    let home = Home::new();
    let mut command = home.command(&["completion", "bash"]);
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    command.stdin(std::process::Stdio::null()).stdout(full).stderr(std::process::Stdio::piped());
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("No space left on device") && err.contains("hint: the disk is full"), "{err}");
}

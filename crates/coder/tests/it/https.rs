//! Login, daemon and log following over HTTPS with a certificate of a private authority.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::processes::Server;
use crate::program::Home;

#[test]
fn a_private_authority() {
    let home = Home::new();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let save = |name: &str, text: &str| std::fs::write(home.path().join(name), text).unwrap();
    save("cert.pem", &certificate.pem());
    save("key.pem", &key.serialize_pem());
    let trusted = Home::new();
    let file = trusted.path().join("ca.pem");
    std::fs::write(&file, authority.pem()).unwrap();

    let flags =
        ["--tls-enable", "--tls-address=127.0.0.1:0", "--tls-cert-file=cert.pem", "--tls-key-file=key.pem"];
    let server = Server::secure(home, &flags);
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let outcome = Home::new().run(&["login", &server.url, "--token", "t"]).refused("cannot reach");
    assert!(outcome.err.contains("SSL_CERT_FILE"), "{}", outcome.err);

    let mut trusted = trusted;
    trusted.set("SSL_CERT_FILE", file.display().to_string());
    let home = server.first_user_from(trusted);
    let mut daemon = server.daemon(&home, "secure", &[]);
    let list = home.run(&["provisioner", "list"]).success().out;
    assert!(list.contains("secure"), "{list}");
    daemon.signal("TERM");
    assert!(daemon.end().success());
}

/// A certificate as `openssl req -x509` creates it by default.
#[test]
fn a_self_signed_certificate_of_an_authority() {
    let home = Home::new();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    let save = |name: &str, text: &str| std::fs::write(home.path().join(name), text).unwrap();
    save("cert.pem", &certificate);
    save("key.pem", &key.serialize_pem());
    let flags =
        ["--tls-enable", "--tls-address=127.0.0.1:0", "--tls-cert-file=cert.pem", "--tls-key-file=key.pem"];
    let server = Server::secure(home, &flags);
    let outcome = Home::new().run(&["login", &server.url, "--token", "t"]).refused("cannot reach");
    assert!(outcome.err.contains("basicConstraints CA:TRUE"), "{}", outcome.err);
    assert!(outcome.err.contains("SSL_CERT_FILE") && !outcome.err.contains("Other("), "{}", outcome.err);

    let mut trusted = Home::new();
    let file = trusted.path().join("cert.pem");
    std::fs::write(&file, certificate).unwrap();
    trusted.set("SSL_CERT_FILE", file.display().to_string());
    let home = server.first_user_from(trusted);
    let mut daemon = server.daemon(&home, "secure", &[]);
    assert!(home.run(&["provisioner", "list"]).success().out.contains("secure"));
    daemon.signal("TERM");
    assert!(daemon.end().success());
}

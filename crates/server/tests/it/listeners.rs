//! Real sockets: TLS, stalled peers, graceful stop.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use coder_domain::clock::ManualClock;
use coder_server::config::{CertificateFiles, ClientAuth, Https, TlsVersion};
use coder_server::{Build, Config, Deps, Handle, Server};
use coder_store::{Store, testing};
use coder_testkit::wait;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use crate::harness::{START, settings};

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

struct Running {
    handle: Handle,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    _database: testing::TestDatabase,
}

impl Running {
    async fn start(config: Config) -> Self {
        let database = testing::sqlite();
        let store = Store::open(&coder_store::Config::new(database.location.clone()), START).await.unwrap();
        let build = Build { compatible: "v2.30.0+0000000".to_owned(), product: "test".to_owned() };
        let deps = Deps { store, clock: Arc::new(ManualClock::new(START)), build };
        let server = Server::build(config, deps).await.unwrap();
        let (handle, stop) = (server.handle(), CancellationToken::new());
        let task = tokio::spawn({
            let stop = stop.clone();
            async move { server.run(stop).await.unwrap() }
        });
        Self { handle, stop, task, _database: database }
    }

    async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(20), self.task).await.unwrap().unwrap();
    }
}

fn plain() -> Config {
    let mut config = settings();
    config.listen.http = Some(ANY_PORT);
    config.provisioning.builtin_daemons = 0;
    config
}

async fn read_all(mut stream: impl tokio::io::AsyncRead + Unpin) -> String {
    let mut bytes = Vec::new();
    let read =
        tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut bytes)).await.expect("an end");
    // A peer whose connection is closed may see a reset instead of the end.
    drop(read);
    String::from_utf8_lossy(&bytes).into_owned()
}

const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn a_request_over_a_real_socket() {
    let server = Running::start(plain()).await;
    let mut stream = TcpStream::connect(server.handle.http.unwrap()).await.unwrap();
    stream.write_all(REQUEST).await.unwrap();
    let answer = read_all(stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("OK"), "{answer}");
    server.end().await;
}

#[tokio::test]
async fn stalled_heads_and_bodies_are_cut_off() {
    let mut config = plain();
    config.limits.head_timeout = Duration::from_millis(200);
    config.limits.stall_timeout = Duration::from_millis(200);
    let server = Running::start(config).await;
    let address = server.handle.http.unwrap();
    let mut half_a_head = TcpStream::connect(address).await.unwrap();
    half_a_head.write_all(b"GET / HTTP/1.1\r\nhost:").await.unwrap();
    let answer = read_all(half_a_head).await;
    assert!(answer.is_empty() || answer.contains(" 408 "), "{answer}");
    let mut half_a_body = TcpStream::connect(address).await.unwrap();
    half_a_body
        .write_all(b"POST /api/v2/users/login HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{\"email\":")
        .await
        .unwrap();
    let mut first = [0; 64];
    let read =
        tokio::time::timeout(Duration::from_secs(20), half_a_body.read(&mut first)).await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&first[..read]).starts_with("HTTP/1.1 408"));
    server.end().await;
}

/// The connection preface of HTTP/2, and a settings frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

#[tokio::test]
async fn connections_that_send_no_whole_request_are_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = plain();
    config.limits.head_timeout = Duration::from_millis(200);
    config.listen.https = Some(Https {
        address: ANY_PORT,
        certificates: vec![Authority::new().write(folder.path(), "one.test")],
        min_version: TlsVersion::Tls12,
        client_ca: None,
        client_auth: ClientAuth::None,
    });
    let server = Running::start(config).await;
    let (http, https) = (server.handle.http.unwrap(), server.handle.https.unwrap());
    // An HTTP/2 head that announces a continuation.
    let half_a_head = [PREFACE, SETTINGS, &[0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82]].concat();
    let mut opened = Vec::new();
    for (address, bytes) in [
        (http, &b""[..]),
        (http, b"G"),
        (http, b"P"),
        (http, &PREFACE[..12]),
        (http, PREFACE),
        (http, &[PREFACE, SETTINGS].concat()),
        (http, &half_a_head),
        (http, b"GET / HTTP/1.1\r\nhost: x\r\nx: y"),
        (https, b""),
        (https, b"\x16"),
        (https, b"\x16\x03\x01\x40\x00"),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        opened.push(stream);
    }
    for stream in opened {
        read_all(stream).await;
    }
    server.end().await;
}

#[tokio::test]
async fn kept_connections_end_when_they_are_idle_or_begin_a_head_without_end() {
    let mut config = plain();
    // The timer may start before the request arrives. It then checks again after this time.
    config.limits.head_timeout = Duration::from_secs(1);
    config.limits.idle_timeout = Duration::from_millis(200);
    let server = Running::start(config).await;
    let request = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut idle = TcpStream::connect(server.handle.http.unwrap()).await.unwrap();
    idle.write_all(request).await.unwrap();
    assert!(read_all(idle).await.contains("200 OK"));
    server.end().await;

    let mut config = plain();
    config.limits.head_timeout = Duration::from_millis(200);
    config.limits.idle_timeout = Duration::from_secs(3600);
    let server = Running::start(config).await;
    let mut half = TcpStream::connect(server.handle.http.unwrap()).await.unwrap();
    half.write_all(request).await.unwrap();
    let mut first = [0; 1024];
    assert_ne!(half.read(&mut first).await.unwrap(), 0);
    half.write_all(b"GET /").await.unwrap();
    read_all(half).await;
    server.end().await;
}

/// Connects from this loopback address and sends a request. Returns whether it was answered.
async fn is_answered(from: [u8; 4], to: SocketAddr) -> bool {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    let Ok(mut stream) = socket.connect(to).await else { return false };
    // A refused connection may already be closed.
    let _ = stream.write_all(REQUEST).await;
    read_all(stream).await.contains("200 OK")
}

#[tokio::test]
async fn one_address_leaves_connections_for_others() {
    let mut config = plain();
    config.limits.connections = 8;
    config.limits.head_timeout = Duration::from_secs(3600);
    let server = Running::start(config).await;
    let address = server.handle.http.unwrap();
    let mut held = Vec::new();
    for _ in 0..16 {
        held.push(TcpStream::connect(address).await.unwrap());
    }
    assert!(is_answered([127, 0, 0, 2], address).await);
    assert!(!is_answered([127, 0, 0, 1], address).await, "too many from this address");
    drop(held);
    wait::poll_until("a connection is free again", async || {
        is_answered([127, 0, 0, 1], address).await.then_some(())
    })
    .await;
    server.end().await;
}

#[tokio::test]
async fn trusted_proxies_may_have_all_connections() {
    let mut config = plain();
    config.limits.connections = 8;
    config.proxies.origins = vec!["127.0.0.1".parse().unwrap()];
    let server = Running::start(config).await;
    let address = server.handle.http.unwrap();
    let mut held = Vec::new();
    for _ in 0..7 {
        held.push(TcpStream::connect(address).await.unwrap());
    }
    assert!(is_answered([127, 0, 0, 1], address).await);
    server.end().await;
}

#[tokio::test]
async fn daemons_do_not_use_up_the_connections_of_their_address() {
    let mut config = plain();
    config.limits.connections = 8;
    config.limits.head_timeout = Duration::from_millis(500);
    config.limits.idle_timeout = Duration::from_millis(200);
    let psk = "a pre-shared key";
    config.provisioning.psk = Some(coder_domain::secret::Secret::new(psk));
    let server = Running::start(config).await;
    let address = server.handle.http.unwrap();
    let headers = http::HeaderMap::from_iter([(
        http::HeaderName::from_static("coder-provisioner-daemon-psk"),
        psk.parse().unwrap(),
    )]);
    let mut joined = Vec::new();
    for daemon in 0..20 {
        let path =
            "/api/v2/organizations/default/provisionerdaemons/serve?provisioner=terraform&version=1.14";
        let uri = format!("http://{address}{path}&name=d-{daemon}").parse().unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        joined.push(coder_wire::ws::handshake::client(stream, &uri, &headers).await.unwrap());
    }
    // A later silent connection is closed. The daemons, which are older and equally silent, stay connected.
    read_all(TcpStream::connect(address).await.unwrap()).await;
    assert_eq!(server.handle.app.scheduler.connected().len(), 20);
    server.end().await;
}

#[tokio::test]
async fn garbage_ends_the_connection_only() {
    let server = Running::start(plain()).await;
    let address = server.handle.http.unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&[0xff; 512]).await.unwrap();
    stream.shutdown().await.unwrap();
    read_all(stream).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(REQUEST).await.unwrap();
    assert!(read_all(stream).await.contains("200 OK"));
    server.end().await;
}

#[tokio::test]
async fn a_stop_lets_a_request_finish_and_closes_idle_connections() {
    let server = Running::start(plain()).await;
    let address = server.handle.http.unwrap();
    let idle = TcpStream::connect(address).await.unwrap();
    let mut busy = TcpStream::connect(address).await.unwrap();
    busy.write_all(b"POST /api/v2/users/first HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n")
        .await
        .unwrap();
    // When the third connection is answered, both others have been accepted.
    let mut third = TcpStream::connect(address).await.unwrap();
    third.write_all(REQUEST).await.unwrap();
    read_all(third).await;
    server.stop.cancel();
    assert_eq!(read_all(idle).await, "");
    busy.write_all(b"{}").await.unwrap();
    assert!(read_all(busy).await.starts_with("HTTP/1.1 400"));
    server.end().await;
}

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }

    fn issue(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        (certificate, key)
    }

    fn write(&self, folder: &Path, name: &str) -> CertificateFiles {
        let (certificate, key) = self.issue(name);
        let files = CertificateFiles {
            certificate: folder.join(format!("{name}.pem")),
            key: folder.join(format!("{name}.key")),
        };
        std::fs::write(&files.certificate, certificate.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }
}

async fn https(
    address: SocketAddr,
    config: ClientConfig,
    name: &'static str,
) -> std::io::Result<(String, Vec<u8>)> {
    let stream = TcpStream::connect(address).await?;
    let mut stream =
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name).unwrap(), stream).await?;
    let leaf = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
    stream.write_all(REQUEST).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok((String::from_utf8_lossy(&answer).into_owned(), leaf))
}

fn client(roots: RootCertStore) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    builder.with_root_certificates(roots).with_no_client_auth()
}

#[tokio::test]
async fn https_with_several_certificates_next_to_http() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let mut config = plain();
    config.listen.https = Some(Https {
        address: ANY_PORT,
        certificates: vec![
            authority.write(folder.path(), "one.test"),
            authority.write(folder.path(), "two.test"),
        ],
        min_version: TlsVersion::Tls13,
        client_ca: None,
        client_auth: ClientAuth::None,
    });
    config.listen.strict_transport_security = 60;
    let server = Running::start(config).await;
    let address = server.handle.https.unwrap();
    let (answer, one) = https(address, client(authority.roots()), "one.test").await.unwrap();
    assert!(
        answer.contains("200 OK") && answer.contains("strict-transport-security: max-age=60"),
        "{answer}"
    );
    let (_, two) = https(address, client(authority.roots()), "two.test").await.unwrap();
    assert_ne!(one, two);
    assert!(https(address, client(Authority::new().roots()), "one.test").await.is_err());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let old = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(authority.roots())
        .with_no_client_auth();
    assert!(https(address, old, "one.test").await.is_err());
    let mut stream = TcpStream::connect(server.handle.http.unwrap()).await.unwrap();
    stream.write_all(REQUEST).await.unwrap();
    assert!(!read_all(stream).await.contains("strict-transport-security"));
    server.end().await;
}

#[tokio::test]
async fn client_certificates_are_verified_when_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, clients) = (Authority::new(), Authority::new());
    let bundle = folder.path().join("clients.pem");
    std::fs::write(&bundle, clients.0.pem()).unwrap();
    let mut config = plain();
    config.listen.https = Some(Https {
        address: ANY_PORT,
        certificates: vec![authority.write(folder.path(), "one.test")],
        min_version: TlsVersion::Tls12,
        client_ca: Some(bundle),
        client_auth: ClientAuth::RequireAndVerify,
    });
    let server = Running::start(config).await;
    let address = server.handle.https.unwrap();
    assert!(https(address, client(authority.roots()), "one.test").await.is_err());
    let with = |issuer: &Authority| {
        let (certificate, key) = issuer.issue("client");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(authority.roots())
            .with_client_auth_cert(chain, key)
            .unwrap()
    };
    assert!(https(address, with(&clients), "one.test").await.unwrap().0.contains("200 OK"));
    assert!(https(address, with(&authority), "one.test").await.is_err());
    server.end().await;
}

#[tokio::test]
async fn unusable_settings_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let good = authority.write(folder.path(), "one.test");
    let other = authority.write(folder.path(), "two.test");
    let refuse = |certificates: Vec<CertificateFiles>, client_auth| {
        let https = Https {
            address: ANY_PORT,
            certificates,
            min_version: TlsVersion::Tls12,
            client_ca: None,
            client_auth,
        };
        coder_server::http::tls::acceptor(&https).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(refuse(vec![], ClientAuth::None).contains("--tls-cert-file"));
    let mixed = CertificateFiles { certificate: good.certificate.clone(), key: other.key.clone() };
    assert!(refuse(vec![mixed], ClientAuth::None).contains("do not work together"));
    let missing = CertificateFiles { certificate: folder.path().join("none"), key: other.key.clone() };
    assert!(refuse(vec![missing], ClientAuth::None).contains("cannot read certificates"));
    assert!(refuse(vec![good.clone()], ClientAuth::RequireAndVerify).contains("--tls-client-ca-file"));
    assert_eq!(refuse(vec![good], ClientAuth::RequireAny), "");
}

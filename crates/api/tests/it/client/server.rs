//! Small servers for tests: HTTP with canned answers, raw connections, TLS with a private authority, a CONNECT proxy.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

pub(super) type Answer = Response<Full<Bytes>>;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) line: String,
    pub(super) headers: hyper::HeaderMap,
    pub(super) body: Bytes,
}

impl Seen {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// A server that stops with the test.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Answers every request by a function of it and of how many came before.
    pub(super) async fn http(answer: impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static) -> Self {
        Self::start(None, answer).await
    }

    /// The same over TLS.
    pub(super) async fn https(
        authority: &Authority,
        answer: impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::start(Some(authority.acceptor()), answer).await
    }

    async fn start(
        tls: Option<TlsAcceptor>,
        answer: impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (record, answer) = (Arc::clone(&seen), Arc::new(answer));
        let (address, task) = listen(move |stream| {
            let (record, answer, tls) = (Arc::clone(&record), Arc::clone(&answer), tls.clone());
            async move {
                match tls {
                    None => serve(stream, record, answer).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            serve(stream, record, answer).await;
                        }
                    }
                }
            }
        })
        .await;
        Self { address, seen, task }
    }

    /// Hands every connection, and its number, to a function.
    pub(super) async fn raw<F>(handle: impl Fn(TcpStream, usize) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let count = Arc::new(Mutex::new(0));
        let (address, task) = listen(move |stream| {
            let number = {
                let mut count = count.lock().unwrap();
                *count += 1;
                *count - 1
            };
            handle(stream, number)
        })
        .await;
        Self { address, seen: Arc::default(), task }
    }

    /// A CONNECT proxy that always connects to `target` and records the requests.
    pub(super) async fn proxy(target: SocketAddr) -> (Self, Arc<Mutex<Vec<String>>>) {
        let heads = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&heads);
        let server = Self::raw(move |mut stream, _| {
            let record = Arc::clone(&record);
            async move {
                let head = head(&mut stream).await;
                record.lock().unwrap().push(head);
                stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
                let mut onward = TcpStream::connect(target).await.unwrap();
                // Either side may leave first.
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut onward).await;
            }
        })
        .await;
        (server, heads)
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

async fn listen<F>(handle: impl Fn(TcpStream) -> F + Send + Sync + 'static) -> (SocketAddr, JoinHandle<()>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(handle(stream));
        }
    });
    (address, task)
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    record: Arc<Mutex<Vec<Seen>>>,
    answer: Arc<impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static>,
) {
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (record, answer) = (Arc::clone(&record), Arc::clone(&answer));
        async move {
            let (parts, body) = request.into_parts();
            let line = format!("{} {}", parts.method, parts.uri);
            let body = body.collect().await?.to_bytes();
            let seen = Seen { line, headers: parts.headers, body };
            let before = record.lock().unwrap().len();
            record.lock().unwrap().push(seen.clone());
            Ok::<_, hyper::Error>(answer(&seen, before))
        }
    });
    // The server goes on when a client leaves.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// A JSON answer with the headers every server sends.
pub(super) fn json(status: u16, body: &str) -> Answer {
    Response::builder()
        .status(StatusCode::from_u16(status).unwrap())
        .header("Content-Type", "application/json; charset=utf-8")
        .header("X-Coder-Build-Version", "v2.30.0+0123abc")
        .body(Full::new(Bytes::from(body.to_owned())))
        .unwrap()
}

/// Reads the header of a request.
pub(super) async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { break };
        bytes.push(byte);
    }
    String::from_utf8(bytes).unwrap()
}

/// The answer that accepts the WebSocket upgrade in `head`.
pub(super) fn accept(head: &str) -> String {
    let key = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("sec-websocket-key").then(|| value.trim().to_owned())
    });
    let accept = tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.unwrap().as_bytes());
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    )
}

/// A private certificate authority, with a certificate for this machine.
pub(super) struct Authority {
    directory: tempfile::TempDir,
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Authority {
    pub(super) fn new() -> Self {
        let ca_key = rcgen::KeyPair::generate().unwrap();
        let mut ca = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca_certificate = ca.self_signed(&ca_key).unwrap();
        let issuer = rcgen::Issuer::new(ca, ca_key);
        let key = rcgen::KeyPair::generate().unwrap();
        let names = ["localhost", "127.0.0.1", "coder.test"].map(str::to_owned).to_vec();
        let leaf = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.pem"), ca_certificate.pem()).unwrap();
        Self { directory, certificate: leaf.der().clone(), key: key.serialize_der() }
    }

    /// A certificate as `openssl req -x509` makes it: signed by itself, and of an authority by its own words.
    pub(super) fn self_signed(edit: impl FnOnce(&mut rcgen::CertificateParams)) -> Self {
        Self::self_signed_with(rcgen::KeyPair::generate().unwrap(), edit)
    }

    pub(super) fn self_signed_with(
        key: rcgen::KeyPair,
        edit: impl FnOnce(&mut rcgen::CertificateParams),
    ) -> Self {
        let names = ["localhost", "127.0.0.1"].map(str::to_owned).to_vec();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        edit(&mut params);
        let certificate = params.self_signed(&key).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.pem"), certificate.pem()).unwrap();
        Self { directory, certificate: certificate.der().clone(), key: key.serialize_der() }
    }

    /// A server's certificate that claims to be an authority, signed by a trusted one.
    pub(super) fn with_authority_as_leaf() -> Self {
        let ca_key = rcgen::KeyPair::generate().unwrap();
        let mut ca = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca_certificate = ca.self_signed(&ca_key).unwrap();
        let issuer = rcgen::Issuer::new(ca, ca_key);
        let key = rcgen::KeyPair::generate().unwrap();
        let names = ["localhost", "127.0.0.1"].map(str::to_owned).to_vec();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let leaf = params.signed_by(&key, &issuer).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.pem"), ca_certificate.pem()).unwrap();
        Self { directory, certificate: leaf.der().clone(), key: key.serialize_der() }
    }

    pub(super) fn file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.key.clone()));
        let chain = vec![self.certificate.clone()];
        let config = builder.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

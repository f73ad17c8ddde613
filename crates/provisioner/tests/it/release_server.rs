//! A release server or mirror on loopback: files of a directory over HTTP or HTTPS, with counts and faults.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// What a file's readers get instead of it.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    Status(u16),
    Other(Vec<u8>),
    /// Half of it, then the end.
    Cut,
    /// Half of it, then silence.
    Hang,
    /// Silence at once.
    Silence,
}

#[derive(Clone)]
pub(crate) struct Remote(Arc<Inner>);

struct Inner {
    root: PathBuf,
    address: SocketAddr,
    scheme: &'static str,
    faults: Mutex<HashMap<String, Fault>>,
    requests: Mutex<Vec<String>>,
}

/// A certificate for 127.0.0.1 of a private authority.
pub(crate) struct Tls {
    acceptor: TlsAcceptor,
    /// The authority's certificate as PEM.
    pub(crate) authority: String,
}

impl Tls {
    pub(crate) fn new() -> Self {
        let ca_key = rcgen::KeyPair::generate().unwrap();
        let mut ca = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = ca.self_signed(&ca_key).unwrap().pem();
        let issuer = rcgen::Issuer::new(ca, ca_key);
        let key = rcgen::KeyPair::generate().unwrap();
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let leaf = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        let chain = vec![CertificateDer::from(leaf.der().to_vec())];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        Self { acceptor: TlsAcceptor::from(Arc::new(config)), authority }
    }
}

impl Remote {
    pub(crate) async fn start(root: impl Into<PathBuf>, tls: Option<&Tls>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let remote = Self(Arc::new(Inner {
            root: root.into(),
            address: listener.local_addr().unwrap(),
            scheme: if tls.is_some() { "https" } else { "http" },
            faults: Mutex::default(),
            requests: Mutex::default(),
        }));
        let (serving, acceptor) = (remote.clone(), tls.map(|tls| tls.acceptor.clone()));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (serving, acceptor) = (serving.clone(), acceptor.clone());
                tokio::spawn(async move {
                    match acceptor {
                        None => serving.answer(stream).await,
                        // A client that does not know the authority disconnects here.
                        Some(acceptor) => match acceptor.accept(stream).await {
                            Ok(stream) => serving.answer(stream).await,
                            Err(_) => None,
                        },
                    }
                });
            }
        });
        remote
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}/", self.0.scheme, self.0.address)
    }

    pub(crate) fn fail(&self, path: &str, fault: Fault) {
        self.0.faults.lock().unwrap().insert(path.to_owned(), fault);
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.0.requests.lock().unwrap().clone()
    }

    /// How often files with this suffix were downloaded.
    pub(crate) fn count(&self, ending: &str) -> usize {
        self.requests().iter().filter(|path| path.ends_with(ending)).count()
    }

    /// One request; the response ends the connection.
    async fn answer(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Option<()> {
        let mut request = Vec::new();
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            if stream.read_buf(&mut request).await.ok()? == 0 || request.len() > 64 * 1024 {
                return None;
            }
        }
        let line = String::from_utf8_lossy(&request).lines().next()?.to_owned();
        let path = line.split(' ').nth(1)?.trim_start_matches('/').to_owned();
        // Terraform asks for an archive's length before it downloads it.
        let wants_body = !line.starts_with("HEAD ");
        if wants_body {
            self.0.requests.lock().unwrap().push(path.clone());
        }
        let fault = self.0.faults.lock().unwrap().get(&path).cloned();
        let file = std::fs::read(self.0.root.join(Path::new(&path)));
        let (status, body) = match (&fault, file) {
            (Some(Fault::Status(status)), _) => (*status, Vec::new()),
            (Some(Fault::Other(body)), _) => (200, body.clone()),
            (_, Ok(body)) => (200, body),
            (_, Err(_)) => (404, Vec::new()),
        };
        if matches!(fault, Some(Fault::Silence)) {
            return std::future::pending().await;
        }
        let kind = if path.ends_with(".json") { "application/json" } else { "application/octet-stream" };
        let tag = hex::encode(Sha256::digest(&body));
        // A module registry names the source in a header.
        let location = match std::str::from_utf8(&body) {
            Ok(location) if path.ends_with("/download") => format!("x-terraform-get: {location}\r\n"),
            _ => String::new(),
        };
        let head = format!(
            "HTTP/1.1 {status} Said\r\ncontent-type: {kind}\r\ncontent-length: {}\r\netag: \"{tag}\"\r\n{location}connection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.ok()?;
        if !wants_body {
            return stream.shutdown().await.ok();
        }
        let half = matches!(fault, Some(Fault::Cut | Fault::Hang));
        stream.write_all(&body[..if half { body.len() / 2 } else { body.len() }]).await.ok()?;
        stream.flush().await.ok()?;
        if matches!(fault, Some(Fault::Hang)) {
            return std::future::pending().await;
        }
        stream.shutdown().await.ok()
    }
}

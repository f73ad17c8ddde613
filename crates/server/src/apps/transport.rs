//! HTTP/1.1 connections to ports of agents. Idle ones are kept for the next request, for each port of each agent apart, so a
//! connection never serves another workspace.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use coder_domain::ids::{AgentId, UserId};
use coder_wire::bytes::BoxedStream;
use http::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tower::Service;

use crate::network::server_node::ServerNode;

/// Idle connections of one port, and how long they are kept.
const IDLE_CONNECTIONS: usize = 6;
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Longest head of a response.
const MAX_HEAD_BYTES: usize = 256 << 10;
/// Time for a TLS handshake.
const TLS_TIMEOUT: Duration = Duration::from_secs(15);

/// Sends requests to agents. It follows no redirects.
pub(super) type Transport = Client<Connector, Body>;

/// A transport over the server's own node.
pub(super) fn new(node: Arc<ServerNode>) -> Transport {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .set_host(false)
        .http1_max_buf_size(MAX_HEAD_BYTES)
        // Some servers compare names of headers letter by letter, above all those of WebSockets.
        .http1_preserve_header_case(true)
        .http1_title_case_headers(true)
        .build(Connector { node, tls: TlsConnector::from(Arc::new(tls)) })
}

/// The address of a port, as the transport takes it. Its host is an agent's id and never a name that is looked up; its user is
/// the owner of the workspace.
pub(super) fn uri(
    owner: UserId,
    agent: AgentId,
    tls: bool,
    port: u16,
    path_and_query: &str,
) -> Result<Uri, http::Error> {
    let authority = format!("{owner}@{agent}:{port}");
    let scheme = if tls { "https" } else { "http" };
    Uri::builder().scheme(scheme).authority(authority).path_and_query(path_and_query).build()
}

/// Connects to ports of agents.
#[derive(Clone)]
pub(super) struct Connector {
    node: Arc<ServerNode>,
    tls: TlsConnector,
}

type ConnectError = Box<dyn std::error::Error + Send + Sync>;

impl Service<Uri> for Connector {
    type Response = TokioIo<AppStream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { this.connect(&to).await.map(|stream| TokioIo::new(AppStream(stream))) })
    }
}

impl Connector {
    async fn connect(&self, to: &Uri) -> Result<BoxedStream, ConnectError> {
        let agent: AgentId = to.host().unwrap_or_default().parse()?;
        let port = to.port_u16().ok_or("the address has no port")?;
        let owner = to.authority().and_then(|authority| authority.as_str().split_once('@'));
        let owner: UserId = owner.ok_or("the address has no owner")?.0.parse()?;
        let stream = self.node.dial(owner, agent, port).await?;
        if to.scheme_str() != Some("https") {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from("localhost").expect("it is a host name");
        let tls = tokio::time::timeout(TLS_TIMEOUT, self.tls.connect(name, stream)).await;
        Ok(Box::new(tls.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??))
    }
}

/// A connection to a port.
pub(super) struct AppStream(BoxedStream);

impl Connection for AppStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for AppStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for AppStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Accepts every certificate: apps make their own, and the tunnel has authenticated the agent already.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

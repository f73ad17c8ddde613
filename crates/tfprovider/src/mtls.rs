//! The plugin library's automatic mutual TLS: each side creates a certificate for one run and trusts only the other's.
//!
//! The client's certificate is in a variable, ours is in the handshake line (terraform 3.9).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, PeerIncompatible, ServerConfig,
    SignatureScheme,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, SignatureVerificationAlgorithm, UnixTime,
};
use tokio_rustls::TlsAcceptor;

use crate::p521::P521Sha512;

/// The name in the certificates of both sides.
const NAME: &str = "localhost";

static P521_ONLY: [&dyn SignatureVerificationAlgorithm; 1] = [&P521Sha512];

static P521: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &P521_ONLY,
    mapping: &[(SignatureScheme::ECDSA_NISTP521_SHA512, &P521_ONLY)],
};

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The variable contains no certificate.
    #[error("PLUGIN_CLIENT_CERT contains no certificate in PEM form")]
    Client(#[source] rustls_pki_types::pem::Error),
    /// Our own certificate cannot be created.
    #[error("the certificate of the terraform plugin cannot be created")]
    Own(#[source] rcgen::Error),
    /// The TLS library refuses our certificate.
    #[error("TLS for terraform cannot be set up")]
    Tls(#[source] rustls::Error),
}

/// TLS with one client certificate and one server certificate.
pub(crate) struct MutualTls {
    pub(crate) acceptor: TlsAcceptor,
    /// Our certificate as the handshake line carries it.
    pub(crate) certificate: String,
}

impl MutualTls {
    /// Creates a key and a certificate for the client with this certificate in PEM form.
    pub(crate) fn new(client: &str) -> Result<Self, Error> {
        let client = CertificateDer::from_pem_slice(client.as_bytes()).map_err(Error::Client)?;
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(Error::Own)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(PinnedClient { certificate: client, provider: provider.clone() });
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Error::Tls)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![cert.der().clone()], key)
            .map_err(Error::Tls)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        // One connection a run, so no session is resumed.
        config.send_tls13_tickets = 0;
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            certificate: STANDARD_NO_PAD.encode(cert.der()),
        })
    }
}

/// Trusts exactly one certificate from a peer that has its key.
#[derive(Debug)]
struct PinnedClient {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for PinnedClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        if *end_entity == self.certificate {
            Ok(ClientCertVerified::assertion())
        } else {
            Err(CertificateError::UnknownIssuer.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = match signature.scheme {
            SignatureScheme::ECDSA_NISTP521_SHA512 => &P521,
            _ => &self.provider.signature_verification_algorithms,
        };
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = P521.supported_schemes();
        schemes.extend(self.provider.signature_verification_algorithms.supported_schemes());
        schemes
    }
}

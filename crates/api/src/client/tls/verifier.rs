//! Verifies a server's certificate as usual, and accepts one more kind: the certificate of a trusted authority that the
//! server presents as its own. `openssl req -x509` creates such certificates, and programs in Go accept them.

use std::collections::HashSet;
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

/// SHA-256 of certificates.
pub(super) type Hashes = HashSet<[u8; 32]>;

pub(super) fn hash(certificate: &CertificateDer<'_>) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, certificate).as_ref());
    hash
}

/// The verifier that the module describes.
#[derive(Debug)]
pub(super) struct Verifier {
    chains: Arc<WebPkiServerVerifier>,
    /// The trusted certificates as they are.
    trusted: Hashes,
}

impl Verifier {
    /// None without any authority.
    pub(super) fn new(roots: RootCertStore, trusted: Hashes, provider: Arc<CryptoProvider>) -> Option<Self> {
        let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().ok()?;
        Some(Self { chains, trusted })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let checked =
            self.chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match checked {
            Err(error) if is_authority(&error) && self.trusted.contains(&hash(end_entity)) => {
                // Its dates were verified before this error. The owner of its key could sign any certificate that is
                // accepted here, so this adds no trust. Only the name is left to verify.
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// Whether nothing but this was found wrong so far: the certificate is one of an authority.
fn is_authority(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidCertificate(problem) if is_of_authority(problem))
}

/// Whether a server's own certificate is one of an authority, which only trusted ones may be.
pub(in crate::client) fn is_of_authority(problem: &CertificateError) -> bool {
    let CertificateError::Other(OtherError(cause)) = problem else { return false };
    matches!(cause.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

//! TLS of the listener: several certificates chosen by name, oldest version, client certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    ClientHello, NoClientAuth, ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme};
use tokio_rustls::TlsAcceptor;

use crate::config::{CertificateFiles, ClientAuth, Https, TlsVersion};

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No certificate given.
    #[error("TLS is on but no certificate was given: use --tls-cert-file and --tls-key-file")]
    NoCertificate,
    /// A file that cannot be read as PEM.
    #[error("cannot read {what} from {}", path.display())]
    Pem {
        /// What was expected.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Cause.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// A chain without certificates, or a bundle without authorities.
    #[error("{} holds no certificate", .0.display())]
    Empty(PathBuf),
    /// A pair that does not belong together, or a key of an unknown kind.
    #[error("certificate {} and key {} do not work together", certificate.display(), key.display())]
    Pair {
        certificate: PathBuf,
        key: PathBuf,
        /// Cause.
        #[source]
        source: rustls::Error,
    },
    /// Verification of clients needs authorities.
    #[error("verifying client certificates needs --tls-client-ca-file")]
    NoClientCa,
    /// The settings contradict each other.
    #[error("the TLS settings cannot be used")]
    Settings(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Builds an acceptor from the files named in the settings.
pub fn acceptor(https: &Https) -> Result<TlsAcceptor, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let resolver = Certificates::load(&https.certificates, &provider)?;
    let versions: &[_] = match https.min_version {
        TlsVersion::Tls12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
        TlsVersion::Tls13 => &[&rustls::version::TLS13],
    };
    let clients = client_verifier(https, &provider)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|error| Error::Settings(error.into()))?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The configured certificates. The first is used for names that no certificate has.
#[derive(Debug)]
struct Certificates(Vec<Arc<CertifiedKey>>);

impl Certificates {
    fn load(files: &[CertificateFiles], provider: &CryptoProvider) -> Result<Self, Error> {
        if files.is_empty() {
            return Err(Error::NoCertificate);
        }
        files.iter().map(|pair| load_pair(pair, provider).map(Arc::new)).collect::<Result<_, _>>().map(Self)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let requested = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
        let carries = |key: &&Arc<CertifiedKey>| {
            let leaf = key.end_entity_cert().ok().and_then(|leaf| ParsedCertificate::try_from(leaf).ok());
            match (&leaf, &requested) {
                (Some(leaf), Some(name)) => rustls::client::verify_server_name(leaf, name).is_ok(),
                _ => false,
            }
        };
        self.0.iter().find(carries).or_else(|| self.0.first()).cloned()
    }
}

fn load_pair(files: &CertificateFiles, provider: &CryptoProvider) -> Result<CertifiedKey, Error> {
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| Error::Pem {
        what: "a private key",
        path: files.key.clone(),
        source,
    })?;
    CertifiedKey::from_der(chain, key, provider).map_err(|source| Error::Pair {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        source,
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let refuse = |source| Error::Pem { what: "certificates", path: path.to_owned(), source };
    let chain: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(refuse)?.collect::<Result<_, _>>().map_err(refuse)?;
    if chain.is_empty() { Err(Error::Empty(path.to_owned())) } else { Ok(chain) }
}

fn client_verifier(
    https: &Https,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let unverified = |mandatory| Arc::new(AnyCertificate { mandatory, provider: Arc::clone(provider) });
    let (ClientAuth::VerifyIfGiven | ClientAuth::RequireAndVerify) = https.client_auth else {
        return Ok(match https.client_auth {
            ClientAuth::Request => unverified(false),
            ClientAuth::RequireAny => unverified(true),
            _ => Arc::new(NoClientAuth),
        });
    };
    let path = https.client_ca.as_ref().ok_or(Error::NoClientCa)?;
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        roots.add(authority).map_err(|error| Error::Settings(error.into()))?;
    }
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    if https.client_auth == ClientAuth::VerifyIfGiven {
        builder = builder.allow_unauthenticated();
    }
    let verifier = builder.build().map_err(|error| Error::Settings(error.into()))?;
    Ok(verifier)
}

/// Accepts any certificate, if the client holds its key.
#[derive(Debug)]
struct AnyCertificate {
    mandatory: bool,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

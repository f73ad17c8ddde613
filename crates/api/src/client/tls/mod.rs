//! Which certificate authorities are trusted: the system's, `SSL_CERT_FILE`, `SSL_CERT_DIR` and named PEM files.

pub(super) mod verifier;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use self::verifier::{Hashes, Verifier};

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A named file is missing or not PEM.
    #[error("cannot read certificate authorities from {path}")]
    CaFile {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// A named file has no usable certificate.
    #[error("no usable certificate in {0}; it must hold certificates in PEM form")]
    NoCertificate(PathBuf),
    /// There is nothing to check a server's certificate with.
    #[error(
        "no certificate authorities found on this system; install them or name a PEM file in SSL_CERT_FILE"
    )]
    NoRoots,
    /// The file that the environment names instead of the system's authorities has none.
    #[error("no certificate authority can be read from the file that SSL_CERT_FILE names ({path}): {reason}")]
    NamedFile {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// TLS for HTTP/1.1 with the system's authorities and those in `ca_files`; also for calls to other servers.
///
/// # Errors
/// A file cannot be read, or there is no authority at all.
pub fn config(ca_files: &[PathBuf]) -> Result<ClientConfig, Error> {
    let (mut roots, mut trusted) = (RootCertStore::empty(), Hashes::new());
    for path in ca_files {
        add_file(&mut roots, &mut trusted, path)?;
    }
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::debug!(%error, "skipped a certificate authority");
    }
    if native.certs.is_empty() {
        // The file takes the place of the system's authorities.
        no_named_file(&native.errors)?;
    }
    trusted.extend(native.certs.iter().map(verifier::hash));
    roots.add_parsable_certificates(native.certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Verifier::new(roots, trusted, Arc::clone(&provider)).ok_or(Error::NoRoots)?;
    let builder = builder(provider).dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    Ok(finish(builder))
}

fn no_named_file(errors: &[rustls_native_certs::Error]) -> Result<(), Error> {
    let Ok(path) = std::env::var("SSL_CERT_FILE") else { return Ok(()) };
    let reason = errors.first().map(ToString::to_string);
    let reason = reason.unwrap_or_else(|| "it has no certificate in PEM form".to_owned());
    if path.is_empty() { Ok(()) } else { Err(Error::NamedFile { path, reason }) }
}

/// TLS for clients that will not use it; loading the system's authorities takes milliseconds.
pub(super) fn without_roots() -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    finish(builder(provider).with_root_certificates(RootCertStore::empty()))
}

/// The same, offering HTTP/2 first.
pub(super) fn with_http2(mut config: ClientConfig) -> ClientConfig {
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

fn add_file(roots: &mut RootCertStore, trusted: &mut Hashes, path: &Path) -> Result<(), Error> {
    let unreadable = |source| Error::CaFile { path: path.to_owned(), source };
    let certificates = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(unreadable)?;
    trusted.extend(certificates.iter().map(verifier::hash));
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 { Err(Error::NoCertificate(path.to_owned())) } else { Ok(()) }
}

fn builder(provider: Arc<CryptoProvider>) -> ConfigBuilder<ClientConfig, WantsVerifier> {
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has cipher suites for the default versions")
}

fn finish(builder: ConfigBuilder<ClientConfig, WantsClientCert>) -> ClientConfig {
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}

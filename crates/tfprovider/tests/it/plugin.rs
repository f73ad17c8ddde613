//! The provider as a separate process: who may connect to it, and when it ends.
//!
//! The real Terraform, whose keys are of another kind, is in the tests of the program.

use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use coder_tfprovider::{Environment, PluginProcess, StartError};
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;

use crate::grpc::{DEADLINE, call_on, framed};

const COOKIE: (&str, &str) =
    ("TF_PLUGIN_MAGIC_COOKIE", "d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2");
const SHUTDOWN: &str = "/plugin.GRPCController/Shutdown";
const STDIO: &str = "/plugin.GRPCStdio/StreamStdio";

/// How to reach a plugin.
struct Reach {
    socket: PathBuf,
    certificate: Vec<u8>,
    _folder: TempDir,
}

fn start(variables: &[(&str, &str)]) -> (PluginProcess, Reach) {
    let folder = tempfile::tempdir().unwrap();
    let own = [COOKIE, ("PLUGIN_UNIX_SOCKET_DIR", folder.path().to_str().unwrap())];
    let environment: Environment = own.iter().chain(variables).copied().collect();
    let plugin = PluginProcess::start(environment).unwrap();
    let fields: Vec<_> = plugin.handshake().split('|').collect();
    assert_eq!(fields[..3], ["1", "5", "unix"]);
    assert_eq!((fields[4], fields.len()), ("grpc", 6));
    let socket = PathBuf::from(fields[3]);
    assert!(socket.starts_with(folder.path()));
    let certificate = STANDARD_NO_PAD.decode(fields[5]).unwrap();
    (plugin, Reach { socket, certificate, _folder: folder })
}

fn identity() -> CertifiedKey<KeyPair> {
    generate_simple_self_signed(["localhost".to_owned()]).unwrap()
}

/// The certificate that the client presents and the key that it signs with, which may not match.
fn shown(client: &CertifiedKey<KeyPair>) -> SingleCertAndKey {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(client.signing_key.serialize_der()));
    let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
    rustls::sign::CertifiedKey::new(vec![client.cert.der().clone()], key).into()
}

impl Reach {
    /// Calls over TLS as `client`; none when the connection is refused.
    async fn call(&self, client: Option<&CertifiedKey<KeyPair>>, path: &str) -> Option<(String, Bytes)> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(self.certificate.clone())).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots);
        let mut config = match client {
            Some(client) => config.with_client_cert_resolver(Arc::new(shown(client))),
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let stream = UnixStream::connect(&self.socket).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let work = async {
            let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
            call_on(stream, path, framed(&[]).into()).await
        };
        tokio::time::timeout(DEADLINE, work).await.unwrap()
    }
}

#[tokio::test]
async fn only_the_client_whose_certificate_was_given_may_talk_to_it() {
    let (client, other) = (identity(), identity());
    let (_plugin, reach) = start(&[("PLUGIN_CLIENT_CERT", &client.cert.pem())]);
    let health = "/grpc.health.v1.Health/Check";
    assert_eq!(reach.call(Some(&client), health).await.unwrap().0, "0");
    assert_eq!(reach.call(Some(&other), health).await, None);
    assert_eq!(reach.call(None, health).await, None);
    let thief = CertifiedKey { cert: client.cert.clone(), signing_key: other.signing_key };
    assert_eq!(reach.call(Some(&thief), health).await, None, "the certificate without its key");
    let plain = UnixStream::connect(&reach.socket).await.unwrap();
    let plain = call_on(plain, health, framed(&[]).into());
    assert_eq!(tokio::time::timeout(DEADLINE, plain).await.unwrap(), None);
    assert_eq!(reach.call(Some(&client), health).await.unwrap().0, "0");
}

#[tokio::test]
async fn plugin_ends_on_request_and_closes_open_streams() {
    let client = identity();
    let (plugin, reach) = start(&[("PLUGIN_CLIENT_CERT", &client.cert.pem())]);
    let ended = tokio::spawn(plugin.ended());
    let listener = reach.call(Some(&client), STDIO);
    let asker = async {
        // The stream is open when the one that was opened after it has an answer.
        reach.call(Some(&client), "/tfplugin5.Provider/GetSchema").await.unwrap();
        reach.call(Some(&client), SHUTDOWN).await.unwrap()
    };
    let (heard, (status, _)) = tokio::join!(listener, asker);
    assert_eq!(
        heard,
        Some(("0".to_owned(), Bytes::new())),
        "nothing is printed, and the end is not an error"
    );
    assert_eq!(status, "0");
    tokio::time::timeout(DEADLINE, ended).await.unwrap().unwrap();
    assert!(!reach.socket.exists());
}

#[tokio::test]
async fn without_a_certificate_there_is_no_tls() {
    let (plugin, reach) = start(&[]);
    assert_eq!(reach.certificate, b"");
    let ended = tokio::spawn(plugin.ended());
    let plain = UnixStream::connect(&reach.socket).await.unwrap();
    assert_eq!(call_on(plain, SHUTDOWN, framed(&[]).into()).await.unwrap().0, "0");
    tokio::time::timeout(DEADLINE, ended).await.unwrap().unwrap();
}

#[tokio::test]
async fn missing_parts_of_the_plugin_handshake_are_named() {
    let refused = |variables: &[(&str, &str)]| {
        PluginProcess::start(variables.iter().copied().collect()).err().expect("an error")
    };
    assert!(matches!(refused(&[]), StartError::ByHand));
    assert!(matches!(refused(&[("TF_PLUGIN_MAGIC_COOKIE", "no")]), StartError::ByHand));
    let newer = refused(&[COOKIE, ("PLUGIN_PROTOCOL_VERSIONS", "6,15")]);
    assert!(newer.to_string().contains("\"6,15\""), "{newer}");
    assert!(matches!(refused(&[COOKIE, ("PLUGIN_CLIENT_CERT", "x")]), StartError::Tls(_)));
    let folder = ("PLUGIN_UNIX_SOCKET_DIR", "/nowhere/at/all");
    assert!(refused(&[COOKIE, folder]).to_string().contains("/nowhere/at/all"));
}

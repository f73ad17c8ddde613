//! The proxy: what passes, and how a cut looks from both sides.

use std::io::ErrorKind;

use coder_testkit::proxy::{Disconnect, Proxy};
use coder_testkit::wait::WAIT_LIMIT;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Both ends of a connection through a proxy.
async fn connected() -> (Proxy, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap()).await.unwrap();
    let address = proxy.url().trim_start_matches("http://").to_owned();
    let client = TcpStream::connect(address).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    assert!(proxy.connected(WAIT_LIMIT).await);
    (proxy, client, server)
}

#[tokio::test]
async fn bytes_before_a_cut_are_counted_exactly() {
    let (proxy, mut client, mut server) = connected().await;
    client.write_all(b"hello").await.unwrap();
    let mut heard = [0; 5];
    server.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"hello");
    assert_eq!(proxy.disconnects(), 0);
    proxy.disconnect(Disconnect::Close, 3);
    client.write_all(b"and no more").await.unwrap();
    let mut rest = Vec::new();
    server.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"and");
    assert_eq!(client.read(&mut heard).await.unwrap_or_default(), 0);
    assert_eq!(proxy.disconnects(), 1);
}

#[tokio::test]
async fn a_reset_is_felt_as_one() {
    let (proxy, mut client, mut server) = connected().await;
    proxy.disconnect(Disconnect::Reset, 0);
    for end in [&mut client, &mut server] {
        assert_eq!(end.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}

//! Listening sockets and the accept loop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::connection::Shared;
use crate::lifecycle::Lifecycle;

/// A bound socket, with TLS or without.
pub struct Listener {
    socket: TcpListener,
    tls: Option<TlsAcceptor>,
}

impl Listener {
    /// Binds `address`; port 0 takes a free one.
    pub async fn bind(address: SocketAddr, tls: Option<TlsAcceptor>) -> io::Result<Self> {
        Ok(Self { socket: TcpListener::bind(address).await?, tls })
    }

    /// The address really bound.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Accepts connections until the soft stop. `slots` bounds how many are open at once.
    pub async fn run(self, shared: Arc<Shared>, slots: Arc<Semaphore>, life: Lifecycle) {
        loop {
            let next = async {
                let slot = slots.clone().acquire_owned().await;
                (slot, self.socket.accept().await)
            };
            let (slot, accepted) = tokio::select! {
                next = next => next,
                () = life.soft().cancelled() => return,
            };
            let Ok(slot) = slot else { return };
            match accepted {
                Ok((stream, from)) => {
                    let serve = Arc::clone(&shared).serve(stream, from, self.tls.clone());
                    life.spawn("connection", async move {
                        serve.await;
                        drop(slot);
                    });
                }
                // Out of file descriptors or a peer that was gone at once: give others time to end.
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

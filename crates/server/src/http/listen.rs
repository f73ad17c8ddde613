//! Listening sockets and the accept loop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::connection::ConnectionService;
use super::connection_limit::ConnectionLimit;
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

    /// Accepts connections until the soft stop. `limit` bounds how many are open at once. A connection above the limit is
    /// closed at once.
    pub async fn run(self, service: Arc<ConnectionService>, limit: Arc<ConnectionLimit>, life: Lifecycle) {
        let (mut refusals, mut failures) = (ThrottledWarning::default(), ThrottledWarning::default());
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                () = life.soft().cancelled() => return,
            };
            match accepted {
                Ok((stream, from)) => {
                    let Some(permit) = limit.admit(from.ip()) else {
                        if let Some(count) = refusals.due() {
                            tracing::warn!(
                                %from,
                                count,
                                "a client has too many open connections, new ones were closed"
                            );
                        }
                        continue;
                    };
                    let serve = Arc::clone(&service).serve(stream, from, self.tls.clone());
                    life.spawn("connection", async move {
                        serve.await;
                        drop(permit);
                    });
                }
                // No file descriptor is left, or the peer disconnected at once. Wait for other connections to end.
                Err(error) => {
                    if let Some(count) = failures.due() {
                        tracing::warn!(%error, count, "connections could not be accepted");
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

/// A warning that any client can cause. It is logged at most once a minute.
#[derive(Debug, Default)]
struct ThrottledWarning {
    written: Option<Instant>,
    count: u64,
}

impl ThrottledWarning {
    const WARNING_INTERVAL: Duration = Duration::from_secs(60);

    /// Counts a cause; `Some` is how many there were since the last warning, when another one is due.
    fn due(&mut self) -> Option<u64> {
        self.count += 1;
        if self.written.is_some_and(|written| written.elapsed() < Self::WARNING_INTERVAL) {
            return None;
        }
        self.written = Some(Instant::now());
        Some(std::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_warning_is_due_once_a_minute_with_the_number_of_its_causes() {
        let mut warning = ThrottledWarning::default();
        assert_eq!([warning.due(), warning.due(), warning.due()], [Some(1), None, None]);
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!([warning.due(), warning.due()], [Some(3), None]);
    }
}

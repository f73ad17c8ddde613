//! A proxy to a port of this machine that delays everything, to count round trips.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Result;

/// The delay of one round trip. A command computes for a much shorter time.
pub(super) const ROUND_TRIP_TIME: Duration = Duration::from_millis(100);

/// A proxy that delays what it carries. Its threads end with this program.
pub(super) struct SlowProxy {
    port: u16,
}

impl SlowProxy {
    /// Each round trip takes `round_trip` more, that of opening a connection too.
    pub(super) fn start(target: u16, round_trip: Duration) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                std::thread::spawn(move || carry(client, target, round_trip));
            }
        });
        Ok(Self { port })
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }
}

fn carry(client: TcpStream, target: u16, round_trip: Duration) {
    // The kernel has answered the client already: what it sends waits as long as the answer would have taken.
    std::thread::sleep(round_trip);
    let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { return };
    let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) else { return };
    delay(from_client, server, round_trip / 2);
    delay(from_server, client, round_trip / 2);
}

/// Copies one direction; every piece arrives `by` later than it was read.
fn delay(mut from: TcpStream, mut to: TcpStream, by: Duration) {
    // A connection without delayed small packets, like those of the programs under test.
    let _ = to.set_nodelay(true);
    let (sender, pieces) = mpsc::channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut buffer = [0; 64 << 10];
        while let Ok(count) = from.read(&mut buffer) {
            if sender.send((Instant::now() + by, buffer[..count].to_vec())).is_err() || count == 0 {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        for (due, piece) in pieces {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if piece.is_empty() || to.write_all(&piece).is_err() {
                break;
            }
        }
        // The other side may have closed already.
        let _ = to.shutdown(Shutdown::Write);
    });
}

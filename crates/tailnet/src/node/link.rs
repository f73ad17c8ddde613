//! The connection to the relay of one region: made, kept, and made again.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use coder_domain::backoff::Backoff;
use coder_wire::bytes::BoxedStream;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Shared;
use crate::derp::client::{self, Error};
use crate::derp::frame::{Decoder, Frame};
use crate::derp::read::read_some;

/// For connecting and for the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// A relay sends something every 65 s.
const READ_TIMEOUT: Duration = Duration::from_secs(150);
/// How long the relay may take nothing.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// The delays between two attempts.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(10);
/// Buffers up to this size are kept while nothing is sent.
const KEPT_BUFFER: usize = 4 << 10;

/// Keeps a connection until the future is dropped.
pub(super) async fn run(shared: Arc<Shared>, region: i32, wake: Arc<Notify>) {
    let mut backoff = Backoff::new(FIRST_DELAY, MAX_DELAY).with_jitter();
    loop {
        let began = Instant::now();
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, connect(&shared, region)).await;
        let result = match connected.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
        {
            Ok(io) => {
                tracing::debug!(region, "connected to the relay");
                shared.set_relay(region, true);
                let result = serve(&shared, region, &wake, io).await;
                shared.set_relay(region, false);
                result
            }
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            tracing::debug!(region, %error, "no connection to the relay");
        }
        if began.elapsed() > MAX_DELAY {
            backoff.reset();
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

async fn connect(shared: &Shared, region: i32) -> Result<BoxedStream, Error> {
    let mut io = shared.dialer.dial(region).await?;
    client::connect(&mut io, &shared.private).await?;
    Ok(io)
}

async fn serve(shared: &Shared, region: i32, wake: &Notify, io: BoxedStream) -> Result<(), Error> {
    let (reader, writer) = tokio::io::split(io);
    tokio::select! {
        result = read(shared, region, reader) => result,
        result = write(shared, region, wake, writer) => result,
    }
}

async fn read(shared: &Shared, region: i32, mut reader: impl AsyncRead + Unpin) -> Result<(), Error> {
    let mut decoder = Decoder::default();
    loop {
        let mut restart = None;
        let ended = read_some(&mut reader, |bytes| {
            let now = Instant::now();
            let mut engine = shared.lock();
            let result = decoder.decode(bytes, |frame| {
                match frame {
                    Frame::RecvPacket { from, packet } => engine.receive(region, from, packet, now),
                    Frame::Ping(data) => {
                        if let Some(region) = engine.regions.get_mut(&region)
                            && region.out.has_room()
                        {
                            Frame::Pong(data).encode(&mut region.out.frames);
                        }
                    }
                    Frame::Restarting { reconnect_in, .. } => restart = Some(reconnect_in),
                    Frame::SendPacket { .. } | Frame::ClientInfo { .. } => return Err(Error::Unexpected),
                    _ => {}
                }
                Ok(())
            });
            engine.flush_touched(now);
            result
        });
        let silent = |_| Error::Io(io::ErrorKind::TimedOut.into());
        if tokio::time::timeout(READ_TIMEOUT, ended).await.map_err(silent)?? {
            return Err(Error::Closed);
        }
        if let Some(reconnect_in) = restart {
            tokio::time::sleep(reconnect_in.min(MAX_DELAY)).await;
            return Err(Error::Closed);
        }
    }
}

async fn write(
    shared: &Shared,
    region: i32,
    wake: &Notify,
    mut writer: impl AsyncWrite + Unpin,
) -> Result<(), Error> {
    let mut spare = Vec::new();
    loop {
        {
            let mut engine = shared.lock();
            let Some(state) = engine.regions.get_mut(&region) else { return Ok(()) };
            std::mem::swap(&mut state.out.frames, &mut spare);
            if !spare.is_empty() {
                // The next frames are made while these are written.
                engine.unblock(region, Instant::now());
            }
        }
        if spare.is_empty() {
            if spare.capacity() > KEPT_BUFFER {
                spare = Vec::new();
            }
            wake.notified().await;
            continue;
        }
        let written = async {
            writer.write_all(&spare).await?;
            writer.flush().await
        };
        let stalled = |_| Error::Io(io::ErrorKind::TimedOut.into());
        tokio::time::timeout(WRITE_TIMEOUT, written).await.map_err(stalled)??;
        spare.clear();
    }
}

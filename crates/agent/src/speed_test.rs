//! The speed test of the overlay network: one JSON line each way, then bytes in one direction (agent 3.8).

use std::time::Duration;

use coder_tailnet::node::TcpStream;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The version of the protocol.
const PROTOCOL_VERSION: u32 = 2;
/// The client's direction in which it receives.
const DIRECTION_DOWNLOAD: u32 = 0;
/// Longest first line.
const MAX_LINE_BYTES: usize = 1024;
/// Bytes that are sent at once.
const BLOCK_BYTES: usize = 64 << 10;
/// Longest test.
const MAX_DURATION: Duration = Duration::from_secs(30);
/// How long a client may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Deserialize)]
struct Request {
    version: u32,
    /// Nanoseconds.
    #[serde(rename = "time")]
    duration: u64,
    direction: u32,
}

#[derive(Debug, Default, Serialize)]
struct Answer {
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
}

/// Serves one test.
pub(crate) async fn serve(mut stream: TcpStream) {
    if let Err(error) = run(&mut stream).await {
        tracing::debug!(%error, "a speed test ended");
    }
}

async fn run(stream: &mut TcpStream) -> std::io::Result<()> {
    let line = tokio::time::timeout(REQUEST_TIMEOUT, read_line(stream)).await??;
    let request = serde_json::from_slice::<Request>(&line).map_err(std::io::Error::other);
    let refusal = match &request {
        Ok(request) if request.version != PROTOCOL_VERSION => {
            format!("only version {PROTOCOL_VERSION} of the speed test is known")
        }
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    let mut answer = serde_json::to_vec(&Answer { error: refusal.clone() }).map_err(std::io::Error::other)?;
    answer.push(b'\n');
    stream.write_all(&answer).await?;
    let (true, Ok(request)) = (refusal.is_empty(), request) else { return stream.shutdown().await };
    let duration = Duration::from_nanos(request.duration).min(MAX_DURATION);
    if request.direction == DIRECTION_DOWNLOAD {
        let block = vec![0x5a; BLOCK_BYTES];
        let send = async {
            loop {
                stream.write_all(&block).await?;
            }
        };
        let _: Result<std::io::Result<()>, _> = tokio::time::timeout(duration, send).await;
        stream.shutdown().await
    } else {
        // The client ends the test.
        let mut block = vec![0; BLOCK_BYTES];
        let receive = async {
            while stream.read(&mut block).await? > 0 {}
            Ok(())
        };
        tokio::time::timeout(MAX_DURATION + REQUEST_TIMEOUT, receive).await?
    }
}

async fn read_line(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        if line.len() == MAX_LINE_BYTES {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        line.push(stream.read_u8().await?);
    }
    Ok(line)
}

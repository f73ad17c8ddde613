//! Keys typed into a web terminal.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use coder_api::headers::SESSION_TOKEN;
use coder_api::paths;
use coder_domain::ids::AgentId;
use coder_wire::ws::Socket;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use uuid::Uuid;

use super::{Latency, Target};

/// A fast typist's pause, so that each key is one message.
const KEY_INTERVAL: Duration = Duration::from_millis(10);
/// Keys in one line.
const LINE_KEYS: usize = 60;

impl Target {
    /// Types keys into a terminal as a browser does, over its WebSocket; measures from a key to its echo.
    ///
    /// # Errors
    /// When the terminal cannot be opened or ends.
    pub async fn terminal(&self, agent: AgentId, keys: usize) -> Result<Latency> {
        let query = [("reconnect", Uuid::new_v4().to_string()), ("command", "exec cat".to_owned())];
        let token = self.client.token().cloned().map(|token| (SESSION_TOKEN, token));
        let headers: Vec<_> = token.into_iter().collect();
        let upgraded = self.client.websocket(&paths::agent_pty(agent), &query, &headers).await?;
        let mut socket = Socket::client(upgraded.stream);
        // The program runs once a line comes back.
        press(&mut socket, "ready\r").await?;
        until(&mut socket, "ready\r\nready\r\n").await?;
        let mut times = Vec::with_capacity(keys);
        for number in 0..keys {
            tokio::time::sleep(KEY_INTERVAL).await;
            let begin = Instant::now();
            press(&mut socket, "k").await?;
            until(&mut socket, "k").await?;
            times.push(begin.elapsed());
            if number % LINE_KEYS == LINE_KEYS - 1 {
                press(&mut socket, "\r").await?;
                until(&mut socket, &format!("\r\n{}\r\n", "k".repeat(LINE_KEYS))).await?;
            }
        }
        Ok(Latency::of(times))
    }
}

async fn press<S>(socket: &mut Socket<S>, keys: &str) -> Result<()>
where
    Socket<S>: tokio::io::AsyncWrite + Unpin,
{
    socket.write_all(json!({ "data": keys }).to_string().as_bytes()).await?;
    Ok(socket.flush().await?)
}

/// Reads until the output ends so.
async fn until<S>(socket: &mut Socket<S>, wanted: &str) -> Result<()>
where
    Socket<S>: tokio::io::AsyncRead + Unpin,
{
    let mut seen = Vec::new();
    while !seen.ends_with(wanted.as_bytes()) {
        ensure!(socket.read_buf(&mut seen).await? > 0, "the terminal ended");
    }
    Ok(())
}

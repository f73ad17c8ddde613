//! The app of the tests: an HTTP server on loopback that shows what it receives.

use coder_wire::ws::{Socket, handshake};
use http::{HeaderMap, HeaderName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Ends with this value.
pub(super) struct LoopbackApp {
    port: u16,
    release: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl LoopbackApp {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let release = watch::Sender::new(false);
        let receiver = release.subscribe();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, receiver.clone()));
            }
        });
        Self { port, release, task }
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Lets `/stream` go on.
    pub(super) fn release(&self) {
        self.release.send_replace(true);
    }
}

impl Drop for LoopbackApp {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers requests: `/redirect`, `/cookies`, `/stream`, `/ws`; all others get their own head back.
async fn serve(mut io: TcpStream, mut release: watch::Receiver<bool>) {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match io.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let head = String::from_utf8(head).unwrap();
        let path = head.split(' ').nth(1).unwrap();
        let answer = match path.split('?').next().unwrap() {
            "/redirect" => "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest\r\nContent-Length: 0\r\n\r\n".to_owned(),
            "/cookies" => "HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: coder_session_token=evil\r\n\
                Service-Worker-Allowed: /\r\nAccess-Control-Allow-Origin: *\r\nKeep-Alive: timeout=9\r\nContent-Length: 0\r\n\r\n"
                .to_owned(),
            "/stream" => {
                let first = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n";
                io.write_all(first.as_bytes()).await.unwrap();
                release.wait_for(|released| *released).await.unwrap();
                "3\r\ntwo\r\n0\r\n\r\n".to_owned()
            }
            "/ws" => return echo(io, &head).await,
            _ => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len()),
        };
        if io.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// A WebSocket that sends back what it receives.
async fn echo(mut io: TcpStream, head: &str) {
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let headers: HeaderMap = lines
        .map(|(name, value)| (HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap()))
        .collect();
    let mut answer = "HTTP/1.1 101 Switching Protocols\r\n".to_owned();
    for (name, value) in &handshake::answer(&headers).unwrap() {
        answer.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
    }
    io.write_all(format!("{answer}\r\n").as_bytes()).await.unwrap();
    let mut socket = Socket::server(io);
    let mut buffer = vec![0; 4096];
    while let Ok(count @ 1..) = socket.read(&mut buffer).await {
        socket.write_all(&buffer[..count]).await.unwrap();
        socket.flush().await.unwrap();
    }
    let _ = socket.shutdown().await;
}

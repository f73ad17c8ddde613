//! `coder exp web-page`: one page over HTTP, for trying apps and forwarded ports of a workspace. The workspace of `coder quickstart` has it
//! as an app, because not every machine has a web server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::context::Context;
use crate::runtime;

/// Connections at once; further ones wait.
const MAX_CONNECTIONS: usize = 64;
/// Longest head of a request, and how long it may take.
const MAX_HEAD_BYTES: u64 = 16 << 10;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1:13337", value_name = "HOST:PORT")]
    address: SocketAddr,
}

pub(crate) fn run(ctx: &Context, args: &Args) -> anyhow::Result<()> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let page = page(&variable("CODER_WORKSPACE_NAME"), &variable("CODER_WORKSPACE_OWNER_NAME"));
    runtime::small()?.block_on(async {
        let listener = TcpListener::bind(args.address).await;
        let listener = listener.with_context(|| format!("listen on {}", args.address))?;
        ctx.printer.note(&format!("Serving a page on http://{}.", args.address));
        serve(listener, page).await
    })
}

async fn serve(listener: TcpListener, page: String) -> anyhow::Result<()> {
    let (page, permits) = (Arc::new(page), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
    loop {
        let permit = Arc::clone(&permits).acquire_owned().await.context("wait for a connection to end")?;
        let (stream, _) = listener.accept().await.context("accept a connection")?;
        let page = Arc::clone(&page);
        tokio::spawn(async move {
            if let Err(error) = answer(stream, &page).await {
                tracing::debug!(%error, "a request was not answered");
            }
            drop(permit);
        });
    }
}

/// Answers one request, whatever it asks for.
async fn answer(mut stream: TcpStream, page: &str) -> std::io::Result<()> {
    let mut head = Vec::new();
    let reading = async {
        let mut limited = (&mut stream).take(MAX_HEAD_BYTES);
        while !head.ends_with(b"\r\n\r\n") {
            if limited.read_buf(&mut head).await? == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
            }
        }
        Ok(())
    };
    tokio::time::timeout(HEAD_TIMEOUT, reading).await??;
    let body = if head.starts_with(b"HEAD ") { "" } else { page };
    let length = page.len();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

fn page(workspace: &str, owner: &str) -> String {
    let (workspace, owner) = (escape(workspace), escape(owner));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{workspace}</title></head>\n<body>\n\
         <h1>Hello from workspace {workspace}</h1>\n<p>It belongs to {owner}. This page is served inside the workspace.</p>\n\
         </body>\n</html>\n"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_request_gets_the_page() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(listener, page("dev", "<ann>")));
        for (method, has_page) in [("GET", true), ("HEAD", false)] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = format!("{method} /path HTTP/1.1\r\nhost: x\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
            assert_eq!(text.contains("Hello from workspace dev"), has_page, "{text}");
            assert_eq!(text.contains("&lt;ann&gt;"), has_page, "{text}");
        }
        server.abort();
    }
}

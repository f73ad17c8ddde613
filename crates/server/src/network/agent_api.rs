//! Calls of the HTTP API that an agent serves on the overlay network (agent 3.8).

use std::future::pending;

use bytes::Bytes;
use coder_api::agents::ListeningPorts;
use coder_domain::ids::{AgentId, UserId};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::server_node::{DialError, ServerNode};

/// The port of the API.
const PORT: u16 = 4;
/// Longest head and longest body of a response.
const MAX_HEAD_BYTES: usize = 16 << 10;
const MAX_BODY_BYTES: usize = 1 << 20;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("the connection to the agent broke")]
    Http(#[from] hyper::Error),
    #[error("the agent answered with status {0}")]
    Status(StatusCode),
    #[error("the agent's answer is not what was asked for")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The ports that programs of the workspace listen on. Time limits are the caller's.
///
/// # Errors
/// [`Error`].
pub async fn listening_ports(
    node: &ServerNode,
    owner: UserId,
    agent: AgentId,
) -> Result<ListeningPorts, Error> {
    let body = get(node, owner, agent, "/api/v0/listening-ports").await?;
    serde_json::from_slice(&body).map_err(|error| Error::Body(error.into()))
}

async fn get(node: &ServerNode, owner: UserId, agent: AgentId, path: &'static str) -> Result<Bytes, Error> {
    let stream = node.dial(owner, agent, PORT).await?;
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(MAX_HEAD_BYTES).handshake(TokioIo::new(stream)).await?;
    let request = Request::get(path).header(header::HOST, "agent").body(Empty::<Bytes>::new());
    let request = request.expect("the path is a literal");
    let exchange = async {
        let response = sender.send_request(request).await?;
        if response.status() != StatusCode::OK {
            return Err(Error::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), MAX_BODY_BYTES).collect().await;
        body.map(http_body_util::Collected::to_bytes).map_err(Error::Body)
    };
    let drive = async {
        // When it breaks, the exchange fails.
        let _ = connection.await;
        pending::<()>().await;
    };
    tokio::select! {
        outcome = exchange => outcome,
        () = drive => unreachable!("it never ends"),
    }
}

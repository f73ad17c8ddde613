//! The Tailnet service over DRPC: its calls for peers, and its answers for the server.
//!
//! The server serves these calls beside others on one session, so it finds the call by name and hands its stream over.

use bytes::Bytes;
use coder_wire::bytes::ByteStream;
use coder_wire::drpc::client::{Call, unary};
use coder_wire::drpc::server::{CallStream, Event};
use coder_wire::drpc::{Error, Status};
use prost::Message;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::coordinator::Authorization;
use crate::coordinator::hub::Hub;
use crate::derp::DerpMap;
use crate::messages::{
    CoordinateRequest, CoordinateResponse, DerpMap as DerpMapMessage, RefreshResumeTokenRequest,
    RefreshResumeTokenResponse, StreamDerpMapsRequest,
};

/// Names of the calls.
pub mod name {
    /// Peers announce themselves and learn of each other.
    pub const COORDINATE: &str = "/coder.tailnet.v2.Tailnet/Coordinate";
    /// The DERP map, at first and when it changes.
    pub const STREAM_DERP_MAPS: &str = "/coder.tailnet.v2.Tailnet/StreamDERPMaps";
    /// A token that keeps a client's peer id over a reconnect.
    pub const REFRESH_RESUME_TOKEN: &str = "/coder.tailnet.v2.Tailnet/RefreshResumeToken";
    /// Telemetry, which is dropped.
    pub const POST_TELEMETRY: &str = "/coder.tailnet.v2.Tailnet/PostTelemetry";
    /// Workspaces and agents of a user.
    pub const WORKSPACE_UPDATES: &str = "/coder.tailnet.v2.Tailnet/WorkspaceUpdates";
}

/// Longest request to the coordinator in bytes. A node has a few hundred.
const REQUEST: usize = 64 << 10;

/// The error that a peer gets when its rights end.
const REVOKED: &str = "the right to reach this workspace has ended";

fn decode<M: Message + Default>(data: Bytes, limit: usize) -> Result<M, Status> {
    if data.len() > limit {
        return Err(Status::new(format!("the message has {} bytes; {limit} are allowed", data.len())));
    }
    M::decode(data).map_err(|error| Status::new(format!("the message is malformed: {error}")))
}

/// Answers [`name::COORDINATE`] until either side ends it. `revoked` ends it because the peer may not take part any more.
///
/// # Errors
/// How the byte stream failed; the peer is lost then.
pub async fn serve_coordinate(
    stream: &mut CallStream,
    hub: &Hub,
    peer: Uuid,
    authorization: Authorization,
    revoked: &CancellationToken,
) -> Result<(), Error> {
    // A peer may say nothing for days.
    stream.set_read_timeout(None);
    let (connection, mut responses) = hub.connect(peer, authorization);
    let mut is_revoked = false;
    loop {
        tokio::select! {
            // Responses go first: the last one may be the reason why the stream ends.
            biased;
            response = responses.recv() => match response {
                Some(response) => {
                    stream.send(&response).await?;
                    stream.flush().await?;
                    connection.sent(&response);
                }
                None => return stream.close().await,
            },
            () = revoked.cancelled(), if !is_revoked => {
                is_revoked = true;
                connection.revoke(REVOKED);
            }
            event = stream.recv() => match event? {
                Event::Message(data) => {
                    match decode(data, REQUEST) {
                        Ok(request) => connection.request(request),
                        Err(status) => return stream.fail(&status).await,
                    }
                    stream.release();
                }
                Event::CloseSend | Event::Canceled => return stream.close().await,
            },
        }
    }
}

/// Answers [`name::STREAM_DERP_MAPS`] until either side ends it.
///
/// # Errors
/// How the byte stream failed.
pub async fn serve_derp_maps(
    stream: &mut CallStream,
    mut maps: watch::Receiver<DerpMap>,
) -> Result<(), Error> {
    stream.set_read_timeout(None);
    loop {
        let message = maps.borrow_and_update().to_message();
        stream.send(&message).await?;
        stream.flush().await?;
        loop {
            tokio::select! {
                changed = maps.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return stream.close_send().await,
                },
                event = stream.recv() => match event? {
                    // The request has nothing in it, and its end does not end the answer.
                    Event::Message(_) => stream.release(),
                    Event::CloseSend => {}
                    Event::Canceled => return Ok(()),
                },
            }
        }
    }
}

/// Makes [`name::COORDINATE`] over a stream of its own, for [`crate::controller::Controller::run`].
///
/// # Errors
/// How the call ended; nothing is wrong when the coordinator ended it.
pub async fn coordinate(
    io: impl ByteStream,
    mut requests: mpsc::Receiver<CoordinateRequest>,
    responses: mpsc::Sender<CoordinateResponse>,
) -> Result<(), Error> {
    let mut call = Call::new(io, name::COORDINATE);
    call.flush().await?;
    loop {
        tokio::select! {
            request = requests.recv() => match request {
                Some(request) => {
                    call.send(&request).await?;
                    call.flush().await?;
                }
                None => {
                    call.close().await;
                    return Ok(());
                }
            },
            response = call.recv() => {
                let Some(response) = response? else { return Ok(()) };
                if responses.send(response).await.is_err() {
                    call.close().await;
                    return Ok(());
                }
            }
        }
    }
}

/// Makes [`name::STREAM_DERP_MAPS`] over a stream of its own, and hands each map to `each`.
///
/// # Errors
/// How the call ended; nothing is wrong when the server ended it.
pub async fn derp_maps(io: impl ByteStream, mut each: impl FnMut(DerpMap)) -> Result<(), Error> {
    let mut call = Call::new(io, name::STREAM_DERP_MAPS);
    call.send(&StreamDerpMapsRequest {}).await?;
    call.close_send().await?;
    while let Some(map) = call.recv::<DerpMapMessage>().await? {
        each(DerpMap::from_message(map));
    }
    Ok(())
}

/// Makes [`name::REFRESH_RESUME_TOKEN`].
///
/// # Errors
/// How the call ended.
pub async fn refresh_resume_token(io: impl ByteStream) -> Result<RefreshResumeTokenResponse, Error> {
    unary(io, name::REFRESH_RESUME_TOKEN, &RefreshResumeTokenRequest {}).await
}

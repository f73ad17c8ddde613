//! The Tailnet service over DRPC, both sides.

use coder_tailnet::coordinator::Authorization;
use coder_tailnet::coordinator::hub::Hub;
use coder_tailnet::derp::DerpMap;
use coder_tailnet::derp::map::ServerUrl;
use coder_tailnet::messages::coordinate_request::{Disconnect, Tunnel, UpdateSelf};
use coder_tailnet::messages::coordinate_response::peer_update::Kind;
use coder_tailnet::messages::{CoordinateRequest, Node};
use coder_tailnet::rpc;
use coder_wire::drpc::Error;
use coder_wire::drpc::server::CallStream;
use tokio::io::DuplexStream;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::rig::paused;

const AGENT: Uuid = Uuid::from_u128(1);
const CLIENT: Uuid = Uuid::from_u128(2);

fn serve(io: DuplexStream, hub: Hub, peer: Uuid, authorization: Authorization) {
    serve_until(io, hub, peer, authorization, CancellationToken::new());
}

fn serve_until(
    io: DuplexStream,
    hub: Hub,
    peer: Uuid,
    authorization: Authorization,
    revoked: CancellationToken,
) {
    tokio::spawn(async move {
        let mut stream = CallStream::new(Box::new(io));
        assert_eq!(stream.next().await.unwrap().as_deref(), Some(rpc::name::COORDINATE));
        let _ = rpc::serve_coordinate(&mut stream, &hub, peer, authorization, &revoked).await;
    });
}

type Streams = (
    mpsc::Sender<CoordinateRequest>,
    mpsc::Receiver<coder_tailnet::messages::CoordinateResponse>,
    tokio::task::JoinHandle<Result<(), Error>>,
);

fn dial(hub: &Hub, peer: Uuid, authorization: Authorization) -> Streams {
    let (near, far) = tokio::io::duplex(1 << 16);
    serve(far, hub.clone(), peer, authorization);
    let (sender, requests) = mpsc::channel(32);
    let (responses, receiver) = mpsc::channel(32);
    (sender, receiver, tokio::spawn(rpc::coordinate(near, requests, responses)))
}

fn announce(id: i64) -> CoordinateRequest {
    let node = Node { id, preferred_derp: 999, ..Node::default() };
    CoordinateRequest { update_self: Some(UpdateSelf { node: Some(node) }), ..CoordinateRequest::default() }
}

#[test]
fn coordinate_reaches_both_peers_and_ends_with_a_disconnect() {
    paused(async {
        let hub = Hub::default();
        let (agent, mut agent_responses, agent_call) = dial(&hub, AGENT, Authorization::Agent(AGENT));
        let (client, mut client_responses, client_call) = dial(&hub, CLIENT, Authorization::Client(AGENT));
        agent.send(announce(1)).await.unwrap();
        let tunnel = Some(Tunnel { id: AGENT.as_bytes().to_vec() });
        client.send(CoordinateRequest { add_tunnel: tunnel, ..announce(2) }).await.unwrap();
        let response = client_responses.recv().await.unwrap();
        assert_eq!(response.peer_updates[0].node.as_ref().unwrap().id, 1);
        let response = agent_responses.recv().await.unwrap();
        assert_eq!(response.peer_updates[0].node.as_ref().unwrap().id, 2);
        let disconnect =
            CoordinateRequest { disconnect: Some(Disconnect {}), ..CoordinateRequest::default() };
        client.send(disconnect).await.unwrap();
        assert!(client_responses.recv().await.is_none());
        client_call.await.unwrap().unwrap();
        assert_eq!(agent_responses.recv().await.unwrap().peer_updates[0].kind(), Kind::Disconnected);
        drop(agent);
        agent_call.await.unwrap().unwrap();
        while hub.peers() > 0 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn violation_is_sent_before_the_stream_ends() {
    paused(async {
        let hub = Hub::default();
        let (client, mut responses, call) = dial(&hub, CLIENT, Authorization::Client(AGENT));
        let tunnel = Some(Tunnel { id: CLIENT.as_bytes().to_vec() });
        client.send(CoordinateRequest { add_tunnel: tunnel, ..CoordinateRequest::default() }).await.unwrap();
        assert!(responses.recv().await.unwrap().error.starts_with("authorization: "));
        assert!(responses.recv().await.is_none());
        call.await.unwrap().unwrap();
    });
}

#[test]
fn peer_whose_right_ends_is_told_and_its_partners_forget_it() {
    paused(async {
        let hub = Hub::default();
        let (agent, mut agent_responses, _agent_call) = dial(&hub, AGENT, Authorization::Agent(AGENT));
        let (near, far) = tokio::io::duplex(1 << 16);
        let revoked = CancellationToken::new();
        serve_until(far, hub.clone(), CLIENT, Authorization::Client(AGENT), revoked.clone());
        let (client, requests) = mpsc::channel(32);
        let (responses, mut client_responses) = mpsc::channel(32);
        let call = tokio::spawn(rpc::coordinate(near, requests, responses));
        agent.send(announce(1)).await.unwrap();
        let tunnel = Some(Tunnel { id: AGENT.as_bytes().to_vec() });
        client.send(CoordinateRequest { add_tunnel: tunnel, ..announce(2) }).await.unwrap();
        assert_eq!(agent_responses.recv().await.unwrap().peer_updates[0].kind(), Kind::Node);
        assert_eq!(client_responses.recv().await.unwrap().peer_updates[0].kind(), Kind::Node);
        revoked.cancel();
        assert!(client_responses.recv().await.unwrap().error.starts_with("authorization: "));
        assert!(client_responses.recv().await.is_none());
        call.await.unwrap().unwrap();
        // Not lost: a lost peer may go on for a while.
        assert_eq!(agent_responses.recv().await.unwrap().peer_updates[0].kind(), Kind::Disconnected);
    });
}

#[test]
fn request_over_the_limit_ends_the_call_with_an_error() {
    paused(async {
        let hub = Hub::default();
        let (client, _responses, call) = dial(&hub, CLIENT, Authorization::Client(AGENT));
        let mut long = announce(1);
        long.ready_for_handshake = vec![Default::default(); 40_000];
        client.send(long).await.unwrap();
        let error = call.await.unwrap().unwrap_err();
        assert!(matches!(&error, Error::Refused(status) if status.text.contains("65536")), "{error}");
        assert_eq!(hub.peers(), 0);
    });
}

#[test]
fn derp_maps_come_at_once_and_when_they_change() {
    paused(async {
        let server = |port| ServerUrl { host: "h".to_owned(), port, tls: true };
        let (maps, watched) = watch::channel(DerpMap::of_server(&server(1), &[]));
        let (near, far) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move {
            let mut stream = CallStream::new(Box::new(far));
            assert_eq!(stream.next().await.unwrap().as_deref(), Some(rpc::name::STREAM_DERP_MAPS));
            rpc::serve_derp_maps(&mut stream, watched).await.unwrap();
        });
        let (seen, mut received) = mpsc::channel(4);
        let call = tokio::spawn(rpc::derp_maps(near, move |map| seen.try_send(map).unwrap()));
        assert_eq!(received.recv().await, Some(maps.borrow().clone()));
        let second = DerpMap::of_server(&server(2), &["stun".to_owned()]);
        maps.send_replace(second.clone());
        assert_eq!(received.recv().await, Some(second));
        drop(maps);
        call.await.unwrap().unwrap();
    });
}

//! The Tailnet service of one connection: of an agent, beside the calls of its own service, or of a user.

use std::sync::Arc;
use std::time::Duration;

use coder_domain::ids::{AgentId, UserId};
use coder_tailnet::coordinator::Authorization;
use coder_tailnet::derp::DerpMap;
use coder_tailnet::messages::{RefreshResumeTokenResponse, TelemetryResponse};
use coder_tailnet::rpc::{self, name};
use coder_wire::bytes::ByteStream;
use coder_wire::drpc::server::{CallStream, Event};
use coder_wire::drpc::{Error, Status};
use coder_wire::mux;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::workspace_updates::{self, ReachableAgents};
use super::{derp_map, resume_token};
use crate::context::App;
use crate::http::AccessUrl;
use crate::memory::Holder;

/// The names of the calls begin with it.
pub const PREFIX: &str = "/coder.tailnet.v2.Tailnet/";
/// Calls that a user's connection may make at once; official clients make four.
const MAX_CALLS: usize = 16;
/// How long a caller may take to begin a call, and to read an answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long calls have to tell the peer why its connection ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// DRPC's code for a method that does not exist.
const UNIMPLEMENTED: u64 = 12;

/// A user's part of a connection.
struct User {
    id: UserId,
    /// What it may reach, when that is more than one agent.
    reachable: Option<ReachableAgents>,
}

/// Answers the calls of one connection.
pub struct TailnetService {
    app: App,
    peer: Uuid,
    authorization: Authorization,
    /// Kept, because the end of it would end the stream of DERP maps, and official agents then connect again.
    maps: watch::Sender<DerpMap>,
    user: Option<User>,
    revoked: CancellationToken,
}

impl TailnetService {
    /// The service of an agent that reaches the server at `url`.
    #[must_use]
    pub fn of_agent(app: App, agent: AgentId, url: &AccessUrl) -> Self {
        let maps = watch::Sender::new(derp_map::of(&app.config, url));
        let authorization = Authorization::Agent(agent.0);
        Self { app, peer: agent.0, authorization, maps, user: None, revoked: CancellationToken::new() }
    }

    /// The service of a user who may reach one agent.
    #[must_use]
    pub fn of_user(
        app: App,
        user: UserId,
        peer: Uuid,
        agent: AgentId,
        url: &AccessUrl,
        revoked: CancellationToken,
    ) -> Self {
        let maps = watch::Sender::new(derp_map::of(&app.config, url));
        let authorization = Authorization::Client(agent.0);
        Self { app, peer, authorization, maps, user: Some(User { id: user, reachable: None }), revoked }
    }

    /// The service of a user who may reach several agents.
    #[must_use]
    pub fn of_all_workspaces(
        app: App,
        user: UserId,
        peer: Uuid,
        reachable: ReachableAgents,
        url: &AccessUrl,
        revoked: CancellationToken,
    ) -> Self {
        let maps = watch::Sender::new(derp_map::of(&app.config, url));
        let authorization = reachable.authorization();
        let user = Some(User { id: user, reachable: Some(reachable) });
        Self { app, peer, authorization, maps, user, revoked }
    }

    /// Answers the call `name`, whose name `stream` has just read.
    ///
    /// # Errors
    /// How the byte stream failed.
    pub async fn serve(&self, name: &str, stream: &mut CallStream) -> Result<(), Error> {
        match (name, &self.user) {
            (name::COORDINATE, _) => {
                let (hub, authorization) = (&self.app.network.hub, self.authorization.clone());
                rpc::serve_coordinate(stream, hub, self.peer, authorization, &self.revoked).await
            }
            (name::STREAM_DERP_MAPS, _) => rpc::serve_derp_maps(stream, self.maps.subscribe()).await,
            (name::POST_TELEMETRY, _) => {
                if request(stream).await?.is_some() {
                    stream.send(&TelemetryResponse {}).await?;
                }
                stream.close_send().await
            }
            (name::REFRESH_RESUME_TOKEN, Some(user)) => {
                if request(stream).await?.is_some() {
                    stream.send(&self.resume_token(user.id)).await?;
                }
                stream.close_send().await
            }
            (name::WORKSPACE_UPDATES, Some(User { reachable: Some(reachable), .. })) => {
                workspace_updates::serve(&self.app, stream, reachable, &self.revoked).await
            }
            (other, _) => {
                let text = format!("the method {other} does not exist on this connection");
                stream.fail(&Status { code: UNIMPLEMENTED, text }).await
            }
        }
    }

    fn resume_token(&self, user: UserId) -> RefreshResumeTokenResponse {
        let now = self.app.now();
        let lifetime = resume_token::TOKEN_LIFETIME;
        let expires_at = now + lifetime;
        RefreshResumeTokenResponse {
            token: self.app.network.resume_tokens.issue(user, self.peer, now),
            refresh_in: Some(prost_types::Duration { seconds: lifetime.as_secs() / 2, nanos: 0 }),
            expires_at: Some(prost_types::Timestamp { seconds: expires_at.as_second(), nanos: 0 }),
        }
    }

    /// Serves a user's connection until either side ends it.
    pub async fn run(self: Arc<Self>, io: impl ByteStream, holder: &Holder) {
        let config =
            mux::Config { max_streams: 4 * MAX_CALLS, accept_backlog: MAX_CALLS, ..mux::Config::default() };
        let session = mux::Session::accounted(io, config, holder.memory().clone(), holder.unread());
        let mut calls = JoinSet::new();
        let soft = self.app.lifecycle.soft().clone();
        let reason = loop {
            tokio::select! {
                stream = session.accept() => match stream {
                    Ok(stream) => {
                        let this = (calls.len() < MAX_CALLS).then(|| Arc::clone(&self));
                        calls.spawn(serve_stream(this, CallStream::new(Box::new(stream))));
                    }
                    Err(error) => break error.to_string(),
                },
                Some(ended) = calls.join_next() => if let Err(error) = ended {
                    tracing::error!(%error, "a call of the Tailnet service panicked");
                },
                () = self.revoked.cancelled() => break "the right to connect has ended".to_owned(),
                () = soft.cancelled() => break "the server stops".to_owned(),
            }
        };
        tracing::debug!(peer_id = %self.peer, reason, "a user's connection to the coordinator ended");
        if self.revoked.is_cancelled() {
            // The calls tell the peer and its partners.
            let finished = async { while calls.join_next().await.is_some() {} };
            let _ = timeout(CLOSE_TIMEOUT, finished).await;
        }
        calls.shutdown().await;
        session.close().await;
    }
}

/// Serves the calls of one stream; without a service it refuses them.
async fn serve_stream(service: Option<Arc<TailnetService>>, mut stream: CallStream) {
    stream.set_write_timeout(Some(CALL_TIMEOUT));
    let Some(service) = service else {
        let status = Status::new("too many calls at once on this connection; wait for one to end");
        let _ = timeout(CALL_TIMEOUT, stream.refuse(&status)).await;
        return;
    };
    loop {
        stream.set_read_timeout(Some(CALL_TIMEOUT));
        let served = match stream.next().await {
            Ok(Some(name)) => service.serve(&name, &mut stream).await,
            Ok(None) => return,
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            return tracing::debug!(peer_id = %service.peer, %error, "a call of the Tailnet service failed");
        }
    }
}

/// Waits for the message of a unary call. None of these messages says anything that matters here.
async fn request(stream: &mut CallStream) -> Result<Option<()>, Error> {
    match stream.recv().await? {
        Event::Message(_) => {
            stream.release();
            Ok(Some(()))
        }
        Event::CloseSend | Event::Canceled => Ok(None),
    }
}

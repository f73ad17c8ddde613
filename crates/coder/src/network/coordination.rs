//! Keeps the connection to the coordinator: made, kept, and made again with the same peer id.

use std::time::Duration;

use coder_api::client::{Client, Error};
use coder_api::{headers, paths};
use coder_domain::backoff::Backoff;
use coder_domain::ids::AgentId;
use coder_domain::secret::Secret;
use coder_tailnet::controller::{self, Controller};
use coder_tailnet::node::Node;
use coder_tailnet::peer::Role;
use coder_tailnet::rpc;
use coder_wire::mux;
use coder_wire::ws::Socket;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// The version of the Tailnet service that this client needs.
const VERSION: &str = "2.0";
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(10);
/// Requests and responses that wait.
const QUEUED_REQUESTS: usize = 32;
const QUEUED_RESPONSES: usize = 512;
/// How long the server may take to answer a disconnect.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a resume token is kept when the server does not say.
const REFRESH_AFTER: Duration = Duration::from_secs(3600);
/// What the server says to a peer that may not take part.
const DENIED: &str = "authorization: ";

/// Runs until `stop`, or until the server refuses permanently. `refused` then gets its text.
pub(super) async fn run(
    client: Client,
    agent: AgentId,
    node: Node,
    stop: CancellationToken,
    refused: watch::Sender<Option<String>>,
) {
    let mut controller = Controller::new(node, Role::Client);
    controller.add_destination(agent.0);
    let mut resume_token = None;
    let mut backoff = Backoff::new(FIRST_DELAY, MAX_DELAY).with_jitter();
    loop {
        let began = Instant::now();
        let dialled = tokio::select! {
            dialled = dial(&client, agent, resume_token.as_ref()) => dialled,
            () = stop.cancelled() => return,
        };
        match dialled {
            Ok(session) => {
                let ended = follow(&mut controller, &session, &mut resume_token, &stop).await;
                session.close().await;
                match ended {
                    Ended::Stopped => return,
                    Ended::Refused(text) => {
                        refused.send_replace(Some(text));
                        return;
                    }
                    Ended::Lost => {}
                }
            }
            Err(error) if is_resume_refusal(&error) => resume_token = None,
            Err(error) if is_final(&error) => {
                let text = error.body().map_or_else(|| error.to_string(), |body| body.message.clone());
                refused.send_replace(Some(format!(
                    "the server refuses the connection to the workspace: {text}"
                )));
                return;
            }
            Err(error) => tracing::debug!(%error, "no connection to the coordinator"),
        }
        if began.elapsed() > MAX_DELAY {
            backoff.reset();
        }
        let pause = sleep(backoff.next_delay());
        tokio::pin!(pause);
        loop {
            let due = controller.tick();
            tokio::select! {
                () = &mut pause => break,
                () = stop.cancelled() => return,
                () = async { sleep_until(due.unwrap_or_else(Instant::now)).await }, if due.is_some() => {}
            }
        }
    }
}

/// How following ended.
enum Ended {
    Stopped,
    Refused(String),
    Lost,
}

async fn dial(client: &Client, agent: AgentId, resume: Option<&Secret>) -> Result<mux::Session, Error> {
    let mut query = vec![("version", VERSION.to_owned())];
    query.extend(resume.map(|token| ("resume_token", token.expose().to_owned())));
    let session = client.token().map(|token| (headers::SESSION_TOKEN, token.clone()));
    let headers: Vec<_> = session.into_iter().collect();
    let upgraded = client.websocket(&paths::agent_coordinate(agent), &query, &headers).await?;
    Ok(mux::Session::client(Socket::client(upgraded.stream), mux::Config::default()))
}

async fn follow(
    controller: &mut Controller,
    session: &mux::Session,
    resume_token: &mut Option<Secret>,
    stop: &CancellationToken,
) -> Ended {
    let Ok(stream) = session.open().await else { return Ended::Lost };
    let (requests, outgoing) = mpsc::channel(QUEUED_REQUESTS);
    let (incoming, mut responses) = mpsc::channel(QUEUED_RESPONSES);
    let call = tokio::spawn(rpc::coordinate(stream, outgoing, incoming));
    let ended = tokio::select! {
        result = controller.run(&requests, &mut responses) => match result {
            Err(controller::Error::Refused(text)) if text.starts_with(DENIED) => {
                Ended::Refused(format!("the server ended the connection to the workspace: {text}"))
            }
            result => {
                tracing::debug!(?result, "the connection to the coordinator ended");
                Ended::Lost
            }
        },
        () = keep_token(session, resume_token) => Ended::Lost,
        () = stop.cancelled() => Ended::Stopped,
    };
    if matches!(ended, Ended::Stopped) {
        let _ = timeout(DISCONNECT_TIMEOUT, controller.disconnect(&requests, &mut responses)).await;
    }
    call.abort();
    ended
}

/// Keeps the newest resume token. It never ends: without one the connection gets another peer id and still works.
async fn keep_token(session: &mux::Session, resume_token: &mut Option<Secret>) {
    loop {
        let refreshed = async {
            let stream = session.open().await.ok()?;
            rpc::refresh_resume_token(stream).await.ok()
        };
        let answer = refreshed.await;
        let refresh_in = answer.as_ref().and_then(|answer| answer.refresh_in);
        let refresh_in = refresh_in.and_then(|time| Duration::try_from(time).ok());
        if let Some(answer) = answer {
            *resume_token = Some(Secret::new(answer.token));
        }
        sleep(refresh_in.unwrap_or(REFRESH_AFTER).max(Duration::from_secs(60))).await;
    }
}

/// The server does not take the resume token.
fn is_resume_refusal(error: &Error) -> bool {
    let about_token = |error: &Error| {
        error.body().is_some_and(|body| body.validations.iter().any(|one| one.field == "resume_token"))
    };
    error.status().is_some_and(|status| status == 401) && about_token(error)
}

/// Statuses after which official clients do not try again, either (agent 3.7).
fn is_final(error: &Error) -> bool {
    error.status().is_some_and(|status| matches!(status.as_u16(), 400 | 401 | 403 | 404 | 409))
}

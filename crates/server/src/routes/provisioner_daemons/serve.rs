//! The endpoint at which daemons join. Authentication: `provisioning/session/authenticate.rs`; calls: `provisioning/session/serve.rs`.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use coder_api::paths;
use coder_store::daemons;
use coder_wire::ws::Socket;

use crate::context::App;
use crate::http::params::Names;
use crate::http::peer::Peer;
use crate::http::upgrade;
use crate::http::{AccessUrl, Error, Result};
use crate::provisioning::session::Session;
use crate::provisioning::session::authenticate;

/// `GET /organizations/{organization}/provisionerdaemons/serve`: the daemon's row is written before the upgrade is
/// looked at (scheduling-and-auth 4.1). All error bodies stay below 1 KiB (wire-protocol 1.7).
pub async fn serve(State(app): State<App>, names: Names, request: Request) -> Response {
    join(app, names, request).await.unwrap_or_else(|error| error.compact().into_response())
}

async fn join(app: App, names: Names, request: Request) -> Result<Response> {
    let [organization] = names.take()?;
    let peer = Peer::of(&request, &app.config.proxies);
    let (parts, body) = request.into_parts();
    let authenticated = authenticate::authenticate(&app, &organization, &parts, peer).await?;
    let permit = authenticated.user.map(|user| app.websockets.admit(user)).transpose()?;
    // The URL at which the daemon reached the server. Workspaces get the same.
    let AccessUrl(address) = AccessUrl::of(&app.config, &parts.headers, &parts.extensions);
    let mut request = Request::from_parts(parts, body);
    let join = &authenticated.join;
    let mut tx = app.store.single().await?;
    let joined =
        daemons::join(&mut tx, join, &authenticated.as_arrival(app.events.outbox().own()), app.now()).await;
    drop(tx);
    let joined = joined.map_err(|error| match error {
        // Its key was deleted meanwhile.
        coder_store::Error::Reference(_) => Error::unauthorized(authenticate::UNAUTHENTICATED),
        error => Error::internal("Internal error writing provisioner daemon.", error),
    })?;
    let daemon = joined.id;
    let mut upgrade = match upgrade::check(&mut request) {
        Ok(upgrade) => upgrade,
        Err(refused) => {
            // There is no connection.
            let mut tx = app.store.single().await?;
            daemons::update_disconnected(&mut tx, daemon, &joined.connection, app.now()).await?;
            return Ok(refused.into_response());
        }
    };
    upgrade.grant(authenticated.extensions);
    let session = Session::authenticated(app.clone(), daemon, &authenticated, address).joined(&joined);
    // The key or the user may have ended meanwhile. From here on, their end closes the session.
    let drain_changes = session.drain_changes();
    let mut tx = app.store.reader().await?;
    let Some(row) = daemons::find(&mut tx, daemon).await? else {
        return Err(Error::unauthorized(authenticate::UNAUTHENTICATED));
    };
    session.set_drained(row.draining, drain_changes);
    if !session.is_key_valid(&mut tx).await? {
        return Err(Error::unauthorized(authenticate::UNAUTHENTICATED));
    }
    drop(tx);
    app.metrics.joined(row.last_seen_at.is_some_and(|seen| row.created_at < seen));
    tracing::info!(daemon_id = %daemon, daemon_name = join.name, tags = %join.tags, version = join.version, "provisioner daemon joined");
    let (response, connection) = upgrade.accept();
    let counted = app.metrics.socket(paths::SERVE);
    app.lifecycle.spawn("daemon session", async move {
        let _open = (counted, permit);
        match connection.await {
            Ok(connection) => session.run(Socket::server(connection)).await,
            Err(error) => {
                tracing::debug!(%error, daemon_id = %daemon, "the daemon disconnected before the session began");
                session.note_left().await;
            }
        }
    });
    Ok(response)
}

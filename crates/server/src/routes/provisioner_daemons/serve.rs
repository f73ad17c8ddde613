//! Where daemons join. Who may: `provisioning/session/admit.rs`; what they can call: `provisioning/session/serve.rs`.

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
use crate::provisioning::session::admit;

/// `GET /organizations/{organization}/provisionerdaemons/serve`: the daemon's row is written before the upgrade is
/// looked at (scheduling-and-auth 4.1). All error bodies stay below 1 KiB (wire-protocol 1.7).
pub async fn serve(State(app): State<App>, names: Names, request: Request) -> Response {
    join(app, names, request).await.unwrap_or_else(|error| error.compact().into_response())
}

async fn join(app: App, names: Names, request: Request) -> Result<Response> {
    let [organization] = names.take()?;
    let peer = Peer::of(&request, &app.config.proxies);
    let (parts, body) = request.into_parts();
    let admitted = admit::admit(&app, &organization, &parts, peer).await?;
    // Under which URL the daemon reached us; workspaces are told the same.
    let AccessUrl(address) = AccessUrl::of(&app.config, &parts.headers, &parts.extensions);
    let mut request = Request::from_parts(parts, body);
    let join = &admitted.join;
    let mut tx = app.store.single().await?;
    let joined = daemons::join(&mut tx, join, &admitted.arrival(app.events.outbox().own()), app.now()).await;
    drop(tx);
    let joined = joined.map_err(|error| match error {
        // Its key was deleted a moment ago.
        coder_store::Error::Reference(_) => Error::unauthorized(admit::NOBODY),
        error => Error::internal("Internal error writing provisioner daemon.", error),
    })?;
    let daemon = joined.id;
    let mut upgrade = match upgrade::check(&mut request) {
        Ok(upgrade) => upgrade,
        Err(refused) => {
            // Nobody is there.
            let mut tx = app.store.single().await?;
            daemons::update_disconnected(&mut tx, daemon, &joined.connection, app.now()).await?;
            return Ok(refused.into_response());
        }
    };
    upgrade.grant(admitted.extensions);
    let session = Session::admitted(app.clone(), daemon, &admitted, address).joined(&joined);
    // The key or the user may have ended meanwhile; from here on their end closes the session.
    let heard = session.drains_heard();
    let mut tx = app.store.reader().await?;
    let Some(row) = daemons::find(&mut tx, daemon).await? else {
        return Err(Error::unauthorized(admit::NOBODY));
    };
    session.set_drained(row.draining, heard);
    if !session.is_key_valid(&mut tx).await? {
        return Err(Error::unauthorized(admit::NOBODY));
    }
    drop(tx);
    app.metrics.joined(row.last_seen_at.is_some_and(|seen| row.created_at < seen));
    tracing::info!(%daemon, name = join.name, tags = %join.tags, version = join.version, "provisioner daemon joined");
    let (response, connection) = upgrade.accept();
    let counted = app.metrics.socket(paths::SERVE);
    app.lifecycle.spawn("daemon session", async move {
        let _counted = counted;
        match connection.await {
            Ok(connection) => session.run(Socket::server(connection)).await,
            Err(error) => {
                tracing::debug!(%error, %daemon, "the connection was gone before the session began");
                session.note_left().await;
            }
        }
    });
    Ok(response)
}

//! Uploading an archive. Zips are kept as tars; the same bytes of the same user are kept once.

use axum::extract::{Request, State};
use axum::response::Response;
use coder_api::files::{TAR, UploadResponse, ZIP, ZIP_ALIAS};
use coder_domain::rbac::{Action, Object, Resource};
use coder_store::files;
use http::{StatusCode, header};

use super::archive;
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::{Caller, Error, Result, body};

/// `POST /files`
pub async fn upload(State(app): State<App>, caller: Caller, request: Request) -> Result<Response> {
    caller.require(Action::Create, Object::site(Resource::File).owned_by(caller.user.id))?;
    let limit = app.config.limits.upload_bytes;
    let kind =
        request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is_zip = match kind {
        TAR => false,
        ZIP | ZIP_ALIAS => true,
        other => {
            return Err(Error::bad_request(format!("Unsupported content type header {other:?}."))
                .detail(format!("Send {TAR} or {ZIP}.")));
        }
    };
    let declared =
        request.headers().get(header::CONTENT_LENGTH).and_then(|n| n.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|bytes| bytes > limit as u64) {
        return Err(body::too_large(limit));
    }
    let bytes = body::read(request.into_body(), limit).await?;
    let prepare = move || -> std::result::Result<_, archive::Error> {
        let data = if is_zip { archive::zip_to_tar(&bytes, limit)? } else { bytes.into() };
        Ok((files::hash(&data), data))
    };
    let prepared =
        tokio::task::spawn_blocking(prepare).await.map_err(|e| Error::internal("Internal error.", e))?;
    let (hash, data) = prepared.map_err(|e| Error::bad_request("The archive cannot be used.").detail(e))?;

    let owner = caller.user.id;
    if let Some(known) = files::find_by_hash(&mut app.store.reader().await?, &hash, owner).await? {
        return Ok(body::json(StatusCode::OK, &UploadResponse { id: known.id }));
    }
    let (now, bytes) = (app.now(), data.len());
    // Not one that is repeated, which would need a second copy of the archive: nothing can be in the way of new rows.
    let mut tx = app.store.begin().await?;
    let (file, is_new) = files::insert(&mut tx, &hash, owner, TAR, data, now).await?;
    if is_new {
        let event = Event::new(Verb::Create, Kind::File, file.id.0, hash.as_str());
        event.note("bytes", bytes).by(&mut tx, &caller, now).await?;
    }
    tx.commit().await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(body::json(status, &UploadResponse { id: file.id }))
}

//! Uploads an archive. Zips are stored as tars. Equal content of one user is stored once.

use axum::extract::{Request, State};
use axum::response::Response;
use coder_api::files::{TAR, UploadResponse, ZIP, ZIP_ALIAS};
use coder_domain::Timestamp;
use coder_domain::ids::UserId;
use coder_domain::rbac::{Action, Object, Resource};
use coder_store::{Tx, files};
use http::{StatusCode, header};

use super::archive;
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::{Caller, Error, Result, body};
use crate::memory::{self, Holder};
use crate::spool::Spool;
use crate::tasks::purge_files::UNUSED_FOR;

/// `POST /files`: to the disk as it arrives, and from there into the database.
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
    let owner = caller.user.id;
    check_quota(&app, &mut app.store.reader().await?, owner, declared.unwrap_or_default()).await?;
    let holder = memory::of(&request).cloned().unwrap_or_else(|| app.memory.holder(owner.0.as_u128()));
    let spool = receive(&app, &holder, request, limit).await?;
    let mut spool = prepare(&app, &holder, spool, is_zip, limit).await?;

    let (now, bytes, hash) = (app.now(), spool.size(), spool.hash());
    if let Some(known) = files::touch(&mut app.store.single().await?, &hash, owner, now).await? {
        return Ok(body::json(StatusCode::OK, &UploadResponse { id: known.id }));
    }
    let new = files::NewFile { hash, size: bytes as u64, created_by: owner, mimetype: TAR };
    let mut tx = app.store.begin().await?;
    check_quota(&app, &mut tx, owner, new.size).await?;
    let content = spool.read().map_err(disk)?;
    let (file, is_new) = files::insert(&mut tx, &new, content, now).await?;
    if is_new {
        let event = Event::new(Verb::Create, Kind::File, file.id.0, new.hash.as_str());
        event.note("bytes", bytes).by(&mut tx, &caller, now).await?;
    }
    tx.commit().await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(body::json(status, &UploadResponse { id: file.id }))
}

async fn receive(app: &App, holder: &Holder, request: Request, limit: usize) -> Result<Spool> {
    let mut spool = Spool::new(holder, &app.memory);
    let mut frames = body::Frames::new(request.into_body(), limit);
    while let Some(data) = frames.next().await? {
        memory::wait(spool.reserve(spool_size(&spool, &data))).await?;
        spool.append(&data).await.map_err(disk)?;
    }
    Ok(spool)
}

fn spool_size(spool: &Spool, data: &[u8]) -> usize {
    spool.size() + data.len()
}

/// The archive as it is stored: a tar within bounds.
async fn prepare(app: &App, holder: &Holder, mut spool: Spool, is_zip: bool, limit: usize) -> Result<Spool> {
    let mut tar = is_zip.then(|| Spool::new(holder, &app.memory));
    if let Some(tar) = &mut tar {
        memory::wait(tar.reserve(limit)).await?;
    }
    let _place = archive::place().await;
    let prepare = move || -> std::result::Result<_, archive::Error> {
        let Some(mut tar) = tar else {
            archive::check_tar(spool.read()?)?;
            return Ok(spool);
        };
        let size = spool.size() as u64;
        archive::zip_to_tar(spool.read()?, size, limit, &mut tar)?;
        Ok(tar)
    };
    let prepared =
        tokio::task::spawn_blocking(prepare).await.map_err(|e| Error::internal("Internal error.", e))?;
    prepared.map_err(|e| Error::bad_request("The archive cannot be used.").detail(e))
}

/// 403 when the unused files of a user, with `more` bytes, exceed the quota.
async fn check_quota(app: &App, tx: &mut Tx, owner: UserId, more: u64) -> Result<()> {
    let limit = app.config.limits.unused_upload_bytes;
    let since = app.now().checked_sub(UNUSED_FOR).unwrap_or(Timestamp::UNIX_EPOCH);
    let used = u64::try_from(files::unreferenced_bytes(tx, owner, since).await?).unwrap_or_default();
    if used.saturating_add(more) <= limit {
        return Ok(());
    }
    let text = "Your uploaded files that no template version uses take up too much space.";
    Err(Error::new(StatusCode::FORBIDDEN, text).detail(format!(
        "They have {used} bytes, and the limit is {limit} bytes. They are removed {} hours after their upload; make template versions of them, or wait.",
        UNUSED_FOR.as_hours()
    )))
}

pub(super) fn disk(error: std::io::Error) -> Error {
    Error::internal("The server could not use its folder for temporary files.", error)
}

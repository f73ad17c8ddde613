//! Downloading an archive.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use coder_api::files::{TAR, ZIP};
use coder_domain::ids::FileId;
use coder_store::files;
use http::header::{self, HeaderValue};

use super::upload::disk;
use super::{archive, find};
use crate::context::App;
use crate::http::params::{Id, Query};
use crate::http::{Caller, Error, Result};
use crate::memory;
use crate::spool::Spool;
use crate::stored_file::{self, StoredFile};

/// `GET /files/{file}`: for the uploader, and for users who may read the files of an organization that uses it.
pub async fn download(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<FileId>,
    query: Query,
) -> Result<Response> {
    let as_zip = match query.text("format") {
        "" => false,
        "zip" => true,
        other => return Err(Error::bad_request(format!("Unsupported conversion format {other:?}."))),
    };
    let mut tx = app.store.reader().await?;
    let file = find::readable(&mut tx, &caller, id).await?.ok_or_else(Error::not_found)?;
    drop(tx);
    let mimetype = file.mimetype.clone();
    if !as_zip || mimetype == ZIP {
        let length = HeaderValue::from(u64::try_from(file.size_bytes).unwrap_or_default());
        let mut response = ([(header::CONTENT_TYPE, mimetype)], body(&app, file).await?).into_response();
        response.headers_mut().insert(header::CONTENT_LENGTH, length);
        return Ok(response);
    }
    if file.mimetype != TAR {
        return Err(Error::bad_request(format!("A file of type {:?} cannot be converted.", file.mimetype)));
    }
    let limit = app.config.limits.upload_bytes;
    let mut spool = Spool::new(&app.memory.holder(caller.user.id.0.as_u128()), &app.memory);
    memory::wait(spool.reserve(limit)).await?;
    let place = archive::place().await;
    let size = u64::try_from(file.size_bytes).unwrap_or_default();
    let convert = move |tar| archive::tar_to_zip(tar, size, limit, spool.file()).map(|()| spool);
    let zip = stored_file::read(&app.store, &file, convert).await;
    drop(place);
    let zip = zip?;
    let zip = zip.map_err(|e| Error::bad_request("The archive cannot be converted.").detail(e))?;
    Ok(([(header::CONTENT_TYPE, ZIP)], zip.into_body().map_err(disk)?).into_response())
}

/// The stored content: in one piece when it is short, otherwise part by part as the peer reads.
async fn body(app: &App, file: files::FileInfo) -> Result<Body> {
    if file.size_bytes <= files::PART_BYTES as i64 {
        return Ok(files::get_data(&mut app.store.reader().await?, file.id).await?.into());
    }
    Ok(StoredFile::new(app.store.clone(), file).into_body())
}

//! Downloading an archive.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use coder_api::files::{TAR, ZIP};
use coder_domain::ids::FileId;
use coder_store::files;
use http::header;

use super::{archive, find};
use crate::context::App;
use crate::http::params::{Id, Query};
use crate::http::{Caller, Error, Result};

/// `GET /files/{file}`: for the uploader, and for whoever may read the files of an organization that uses it.
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
    let data = files::get_data(&mut tx, id).await?;
    drop(tx);
    if !as_zip || file.mimetype == ZIP {
        return Ok(([(header::CONTENT_TYPE, file.mimetype)], data).into_response());
    }
    if file.mimetype != TAR {
        return Err(Error::bad_request(format!("A file of type {:?} cannot be converted.", file.mimetype)));
    }
    let limit = app.config.limits.upload_bytes;
    let zip = tokio::task::spawn_blocking(move || archive::tar_to_zip(&data, limit)).await;
    let zip = zip.map_err(|e| Error::internal("Internal error.", e))?;
    let zip = zip.map_err(|e| Error::bad_request("The archive cannot be converted.").detail(e))?;
    Ok(([(header::CONTENT_TYPE, ZIP)], zip).into_response())
}

//! Downloading an archive.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use coder_api::files::{TAR, ZIP};
use coder_domain::ids::FileId;
use coder_domain::rbac::{Action, Object, Resource};
use coder_store::{Tx, files};
use http::header;

use super::archive;
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
    let file = files::find(&mut tx, id).await?.ok_or_else(Error::not_found)?;
    if !visible(&mut tx, &caller, &file).await? {
        return Err(Error::not_found());
    }
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

async fn visible(tx: &mut Tx, caller: &Caller, file: &files::Info) -> Result<bool> {
    if caller.may(Action::Read, Object::site(Resource::File).owned_by(file.created_by)) {
        return Ok(true);
    }
    let organizations = files::list_organizations(tx, file.id).await?;
    Ok(organizations
        .into_iter()
        .any(|id| caller.may(Action::Read, Object::in_organization(Resource::File, id))))
}

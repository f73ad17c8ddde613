//! Archives of Terraform modules: daemons upload them after an import and download them before a build
//! (wire-protocol 5.9).

use bytes::Bytes;
use coder_domain::Timestamp;
use coder_domain::ids::{FileId, UserId};
use coder_store::{Tx, files, transaction};
use coder_wire::file::File;
use coder_wire::messages::provisioner::DataUploadType;
use coder_wire::messages::provisionerd::FileRequest;

use super::refuse::Refusal;
use super::serve::Session;

const TAR: &str = "application/x-tar";

/// Module archives belong to the system: no person uploaded them, and no person can name them as a template's source.
const SYSTEM: UserId = UserId::PREBUILDS;

/// Stores an archive that arrived whole and with the announced hash; an equal one that is there already is fine.
pub async fn upload(session: &Session, file: &File) -> Result<(), Refusal> {
    let (hash, now) = (hex(&file.hash)?, session.app.now());
    transaction!(session.app.store, Refusal, |tx| { Ok(store(tx, &hash, file.data.to_vec(), now).await?) })?;
    Ok(())
}

/// The text form of a hash, as files are keyed by it.
pub fn hex(hash: &[u8]) -> Result<String, Refusal> {
    if hash.len() != 32 {
        return Err(Refusal::invalid("the hash of an upload has 32 bytes"));
    }
    Ok(hash.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Stores an archive of modules.
pub async fn store(
    tx: &mut Tx,
    hash: &str,
    data: Vec<u8>,
    now: Timestamp,
) -> Result<FileId, coder_store::Error> {
    files::insert(tx, hash, SYSTEM, TAR, data, now).await.map(|(file, _)| file.id)
}

/// Finds an archive of modules by its hash.
pub async fn find(tx: &mut Tx, hash: &str) -> Result<Option<FileId>, coder_store::Error> {
    Ok(files::find_by_hash(tx, hash, SYSTEM).await?.map(|file| file.id))
}

/// The archive a daemon asks for, whole; only module archives can be had this way.
pub async fn download(session: &Session, request: &FileRequest) -> Result<Bytes, Refusal> {
    if request.upload_type != DataUploadType::UploadTypeModuleFiles as i32 {
        return Err(Refusal::invalid(format!("unknown upload type {}", request.upload_type)));
    }
    let id: FileId = request.file_id.parse().map_err(|_| Refusal::invalid("the file id is not a UUID"))?;
    let mut tx = session.app.store.reader().await?;
    let file =
        files::find(&mut tx, id).await?.filter(|file| file.created_by == SYSTEM && file.mimetype == TAR);
    match file {
        Some(file) => Ok(files::get_data(&mut tx, file.id).await?.into()),
        None => Err(Refusal::invalid("file not found")),
    }
}

//! Archives of Terraform modules: daemons upload them after an import and download them before a build
//! (wire-protocol 5.9).

use bytes::Bytes;
use coder_domain::Timestamp;
use coder_domain::ids::{FileId, UserId};
use coder_domain::job::Type;
use coder_store::jobs::{self, Job};
use coder_store::{Tx, files, job_uploads, transaction, version_details};
use coder_wire::file::File;
use coder_wire::messages::provisioner::DataUploadType;
use coder_wire::messages::provisionerd::FileRequest;

use super::refuse::{self, Refusal};
use super::serve::Session;

const TAR: &str = "application/x-tar";

/// Module archives belong to the system: no person uploaded them, and no person can name them as a template's source.
pub const SYSTEM: UserId = UserId::PREBUILDS;

/// Stores an archive that arrived whole and with the announced hash, if the daemon has an import in hand, and notes for
/// which; an equal one that is there already is fine. The message names no job, so it is for each import in hand.
pub async fn upload(session: &Session, file: &File) -> Result<(), Refusal> {
    let (hash, now) = (hex(&file.hash)?, session.app.now());
    transaction!(session.app.store, Refusal, |tx| {
        let mut imports = in_hand(tx, session).await?;
        imports.retain(|job| job.kind == Type::TemplateVersionImport);
        if imports.is_empty() {
            return Err(Refusal::invalid("only an import has files to upload, and none is in hand"));
        }
        let id = store(tx, &hash, file.data.to_vec(), now).await?;
        let mut has_room = false;
        for import in imports {
            has_room |= job_uploads::insert(tx, import.id, id).await?;
        }
        if !has_room {
            let most = job_uploads::MOST;
            return Err(Refusal::invalid(format!("at most {most} archives of modules are kept for one job")));
        }
        Ok(())
    })
}

/// The jobs about which this connection may speak.
async fn in_hand(tx: &mut Tx, session: &Session) -> Result<Vec<Job>, coder_store::Error> {
    let open = jobs::list_owned(tx, session.daemon).await?;
    let mut open = jobs::find_many(tx, &open).await?;
    open.retain(|job| refuse::require(job, session.holder(job.id)).is_ok());
    Ok(open)
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

/// Finds an archive of modules by its hash, whoever uploaded it: only for content that the server has in its hand.
pub async fn find(tx: &mut Tx, hash: &str) -> Result<Option<FileId>, coder_store::Error> {
    Ok(files::find_by_hash(tx, hash, SYSTEM).await?.map(|file| file.id))
}

/// The archive a daemon asks for, whole; only the module archive of a job in hand can be had.
pub async fn download(session: &Session, request: &FileRequest) -> Result<Bytes, Refusal> {
    if request.upload_type != DataUploadType::UploadTypeModuleFiles as i32 {
        return Err(Refusal::invalid(format!("unknown upload type {}", request.upload_type)));
    }
    let id: FileId = request.file_id.parse().map_err(|_| Refusal::invalid("the file id is not a UUID"))?;
    let mut tx = session.app.store.reader().await?;
    let not_found = || Refusal::invalid("file not found");
    let mut is_needed = false;
    for job in in_hand(&mut tx, session).await? {
        let Some(version) = job.template_version_id else { continue };
        is_needed |= version_details::find_module_file(&mut tx, version).await? == Some(id);
    }
    if !is_needed {
        return Err(not_found());
    }
    let file = files::find(&mut tx, id).await?;
    let file = file.filter(|file| file.created_by == SYSTEM && file.mimetype == TAR).ok_or_else(not_found)?;
    Ok(files::get_data(&mut tx, file.id).await?.into())
}

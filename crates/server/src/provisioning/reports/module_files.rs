//! Archives of Terraform modules: daemons upload them after an import and download them before a build
//! (wire-protocol 5.9).

use std::io::Read;

use coder_domain::Timestamp;
use coder_domain::ids::{FileId, UserId};
use coder_domain::job::Type;
use coder_store::jobs::{self, Job};
use coder_store::templates::version_details;
use coder_store::{Tx, files, transaction};
use coder_wire::file::FileHeader;
use coder_wire::messages::provisioner::DataUploadType;
use coder_wire::messages::provisionerd::FileRequest;

use super::refusal::{self, Refusal};
use crate::provisioning::session::Session;
use crate::spool::Spool;
use crate::stored_file::StoredFile;

const TAR: &str = "application/x-tar";

/// The owner of module archives. They belong to the system, so that nobody can use them as a template's source.
pub const SYSTEM: UserId = UserId::PREBUILDS;

/// Whether the daemon may upload a file: it holds an import with room for one more archive. It is checked before the file is
/// read.
pub async fn begin_upload(session: &Session, header: &FileHeader) -> Result<Spool, Refusal> {
    if header.kind != DataUploadType::UploadTypeModuleFiles {
        return Err(Refusal::invalid("only archives of modules are taken"));
    }
    let hash = text_of_hash(&header.hash)?;
    let mut tx = session.app.store.reader().await?;
    let imports = held_imports(&mut tx, session).await?;
    let mut has_room = false;
    for import in &imports {
        has_room |= jobs::uploads::has_room(&mut tx, import.id, &hash).await?;
    }
    if has_room { Ok(Spool::new(&session.holds, &session.app.memory)) } else { Err(full()) }
}

/// Stores a complete archive with the announced hash for each import that the daemon holds: the message names no job. An equal
/// archive is stored once.
pub async fn upload(session: &Session, header: &FileHeader, file: &mut Spool) -> Result<(), Refusal> {
    let (hash, size, now) = (text_of_hash(&header.hash)?, header.size as u64, session.app.now());
    let new = files::NewFile { hash, size, created_by: SYSTEM, mimetype: TAR };
    transaction!(session.app.store, Refusal, |tx| {
        let imports = held_imports(tx, session).await?;
        let content = file.read().map_err(disk)?;
        let (file, _) = files::insert(tx, &new, content, now).await?;
        let mut has_room = false;
        for import in imports {
            has_room |= jobs::uploads::insert(tx, import.id, file.id).await?;
        }
        if has_room { Ok(()) } else { Err(full()) }
    })
}

fn full() -> Refusal {
    Refusal::invalid(format!(
        "at most {} archives of modules are kept for one job",
        jobs::uploads::MAX_UPLOADS
    ))
}

/// The temporary file cannot be written or read.
pub(crate) fn disk(error: std::io::Error) -> Refusal {
    tracing::error!(%error, "cannot use the folder for temporary files");
    Refusal::invalid("the server could not use its folder for temporary files, see its log")
}

async fn held_imports(tx: &mut Tx, session: &Session) -> Result<Vec<Job>, Refusal> {
    let mut imports = held_jobs(tx, session).await?;
    imports.retain(|job| job.kind == Type::TemplateVersionImport);
    if imports.is_empty() {
        return Err(Refusal::invalid("only imports upload files, and the daemon holds no import"));
    }
    Ok(imports)
}

/// The jobs on which this connection may report.
async fn held_jobs(tx: &mut Tx, session: &Session) -> Result<Vec<Job>, coder_store::Error> {
    let open = jobs::list_of_daemon(tx, session.daemon).await?;
    let mut open = jobs::find_many(tx, &open).await?;
    open.retain(|job| refusal::require(job, session.holder(job.id)).is_ok());
    Ok(open)
}

/// The text form of a hash, which is the key of files.
pub fn text_of_hash(hash: &[u8]) -> Result<String, Refusal> {
    if hash.len() != 32 {
        return Err(Refusal::invalid("the hash of an upload has 32 bytes"));
    }
    Ok(hex::encode(hash))
}

/// Stores an archive of modules.
pub async fn store(
    tx: &mut Tx,
    hash: String,
    size: u64,
    content: &mut (dyn Read + Send),
    now: Timestamp,
) -> Result<FileId, coder_store::Error> {
    let new = files::NewFile { hash, size, created_by: SYSTEM, mimetype: TAR };
    files::insert(tx, &new, content, now).await.map(|(file, _)| file.id)
}

/// Finds an archive of modules by its hash, and protects it from being purged. Only for content that the server itself has
/// read.
pub async fn find(tx: &mut Tx, hash: &str, now: Timestamp) -> Result<Option<FileId>, coder_store::Error> {
    Ok(files::touch(tx, hash, SYSTEM, now).await?.map(|file| file.id))
}

/// The requested archive, with its length and hash. A daemon can only download the module archives of jobs that it holds.
pub async fn download(
    session: &Session,
    request: &FileRequest,
) -> Result<(usize, [u8; 32], StoredFile), Refusal> {
    if request.upload_type != DataUploadType::UploadTypeModuleFiles as i32 {
        return Err(Refusal::invalid(format!("unknown upload type {}", request.upload_type)));
    }
    let id: FileId = request.file_id.parse().map_err(|_| Refusal::invalid("the file id is not a UUID"))?;
    let mut tx = session.app.store.reader().await?;
    let not_found = || Refusal::invalid("file not found");
    let mut is_needed = false;
    for job in held_jobs(&mut tx, session).await? {
        let Some(version) = job.template_version_id else { continue };
        is_needed |= version_details::find_module_file(&mut tx, version).await? == Some(id);
    }
    if !is_needed {
        return Err(not_found());
    }
    let file = files::find(&mut tx, id).await?;
    let file = file.filter(|file| file.created_by == SYSTEM && file.mimetype == TAR).ok_or_else(not_found)?;
    let corrupt = || Refusal::invalid("the file's length or hash is not what was stored");
    let size = usize::try_from(file.size_bytes).map_err(|_| corrupt())?;
    let mut hash = [0; 32];
    hex::decode_to_slice(&file.hash, &mut hash).map_err(|_| corrupt())?;
    Ok((size, hash, StoredFile::new(session.app.store.clone(), file)))
}

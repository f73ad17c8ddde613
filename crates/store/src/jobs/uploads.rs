//! The module archives that a job's daemon uploaded for the job. A result may refer only to these.

use coder_domain::ids::{FileId, JobId};
use jiff::Timestamp;

use crate::Result;
use crate::engine::{Tx, sql, statements, values};

/// The maximum number of archives for one job. An import has one.
pub const MAX_UPLOADS: i64 = 8;

statements! { "provisioner_job_uploads";
    /// Nothing is added beyond the bound. An archive that is already recorded is accepted.
    INSERT = sql("insert into provisioner_job_uploads (job_id, file_id)
        select cast($1 as text), cast($2 as text)
        where (select count(*) from provisioner_job_uploads where job_id = $1 and file_id <> $2) < $3
        on conflict (job_id, file_id) do update set file_id = excluded.file_id");
    HAS_ROOM = sql("select count(*) < $3 as has_room from provisioner_job_uploads as upload
        join files as file on file.id = upload.file_id where upload.job_id = $1 and file.hash <> $2");
    FIND = sql("select file.id from provisioner_job_uploads as upload join files as file on file.id = upload.file_id
        where upload.job_id = $1 and file.hash = $2");
    PURGE = sql("delete from provisioner_job_uploads where job_id in (
        select id from provisioner_jobs where completed_us < $1 and id in (select job_id from provisioner_job_uploads))");
}

/// Records that the daemon of a job uploaded a file for it. Returns false when the bound is reached. First check that
/// the daemon holds the job.
///
/// # Errors
/// [`crate::Error::Reference`] when the job or the file does not exist.
pub async fn insert(tx: &mut Tx, job: JobId, file: FileId) -> Result<bool> {
    Ok(tx.execute(&INSERT, values![job, file, MAX_UPLOADS]).await? > 0)
}

/// Whether another file may be uploaded for a job.
pub async fn has_room(tx: &mut Tx, job: JobId, hash: &str) -> Result<bool> {
    tx.fetch_one(&HAS_ROOM, values![job, hash.to_owned(), MAX_UPLOADS]).await?.get("has_room")
}

/// The file with this content that was uploaded for a job.
pub async fn find(tx: &mut Tx, job: JobId, hash: &str) -> Result<Option<FileId>> {
    tx.fetch_opt(&FIND, values![job, hash.to_owned()]).await?.map(|row| row.get("id")).transpose()
}

/// Deletes the records for jobs that ended before `before`. The files stay.
pub async fn purge(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    tx.execute(&PURGE, values![before]).await
}

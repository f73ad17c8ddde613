//! Uploaded archives.

use coder_domain::ids::FileId;
use serde::{Deserialize, Serialize};

/// Media type of a tar archive, in uploads and downloads, without parameters.
pub const TAR: &str = "application/x-tar";
/// Media type of a zip archive.
pub const ZIP: &str = "application/zip";
/// The other media type accepted for zip uploads.
pub const ZIP_ALIAS: &str = "application/x-zip-compressed";
/// Largest upload in bytes (http-api 6.1).
pub const MAX_UPLOAD: usize = 100 << 20;

/// The answer to an upload: 201 when new, 200 when the same user uploaded the same bytes before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadResponse {
    /// The file's id; it is called a hash for historical reasons.
    #[serde(rename = "hash")]
    pub id: FileId,
}

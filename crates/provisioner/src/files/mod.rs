//! Files of the daemon: its cache directory, archives, and files in directories of jobs.

pub(crate) mod archive;
pub(crate) mod cache_dir;
pub(crate) mod file_cache;
pub(crate) mod job_file;
pub(crate) mod keyed_mutex;

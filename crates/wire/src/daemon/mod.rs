//! The calls between a daemon and its server, typed: service `provisionerd.ProvisionerDaemon`.

pub(crate) mod call;
mod client;
mod permit;
pub(crate) mod serve;
mod service;

pub use self::client::{Client, Error};
pub use self::serve::{Limits, serve, serve_extended, serve_stream};
pub use self::service::{Acquire, CloseReason, Service};

/// Names of the calls on the wire.
pub mod rpc {
    /// The old way to wait for a job; unused by current daemons.
    pub const ACQUIRE_JOB: &str = "/provisionerd.ProvisionerDaemon/AcquireJob";
    /// Waits for a job.
    pub const ACQUIRE_JOB_WITH_CANCEL: &str = "/provisionerd.ProvisionerDaemon/AcquireJobWithCancel";
    /// Checks the cost of a build against the quota.
    pub const COMMIT_QUOTA: &str = "/provisionerd.ProvisionerDaemon/CommitQuota";
    /// Heartbeat, logs, and results of parsing.
    pub const UPDATE_JOB: &str = "/provisionerd.ProvisionerDaemon/UpdateJob";
    /// Ends a job with an error.
    pub const FAIL_JOB: &str = "/provisionerd.ProvisionerDaemon/FailJob";
    /// Ends a job with its results.
    pub const COMPLETE_JOB: &str = "/provisionerd.ProvisionerDaemon/CompleteJob";
    /// Sends a file to the server.
    pub const UPLOAD_FILE: &str = "/provisionerd.ProvisionerDaemon/UploadFile";
    /// Gets a file from the server.
    pub const DOWNLOAD_FILE: &str = "/provisionerd.ProvisionerDaemon/DownloadFile";
}

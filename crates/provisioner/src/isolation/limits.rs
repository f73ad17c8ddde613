//! How much of the machine a job may use, as far as the kernel offers it.

/// What one job may use; none for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Processes and threads at once.
    pub processes: Option<u64>,
    /// Processors, also parts of one.
    pub processors: Option<f64>,
}

/// How the limits are kept on this machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Applied {
    pub(crate) groups: Vec<std::path::PathBuf>,
}

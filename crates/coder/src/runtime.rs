//! The asynchronous runtime and the TLS provider, made only by commands that need them.

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};

/// One thread: commands that ask a server.
pub(crate) fn small() -> anyhow::Result<Runtime> {
    install_tls();
    Builder::new_current_thread().enable_all().build().context("start the runtime")
}

/// `threads` threads: a daemon. Each costs memory, and a daemon mostly waits for Terraform.
#[cfg(feature = "server")]
pub(crate) fn daemon(threads: usize) -> anyhow::Result<Runtime> {
    install_tls();
    Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(16)
        .enable_all()
        .build()
        .context("start the runtime")
}

/// A thread per core: the server.
#[cfg(feature = "server")]
pub(crate) fn server() -> anyhow::Result<Runtime> {
    install_tls();
    Builder::new_multi_thread().max_blocking_threads(64).enable_all().build().context("start the runtime")
}

fn install_tls() {
    // Fails only when it is installed already, with the same provider.
    drop(rustls::crypto::ring::default_provider().install_default());
}

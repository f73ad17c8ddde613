//! The asynchronous runtime and the TLS provider, which only some commands need.

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};

/// One thread: commands that ask a server.
pub(crate) fn small() -> anyhow::Result<Runtime> {
    install_tls();
    return_large_blocks();
    Builder::new_current_thread().enable_all().build().context("start the runtime")
}

/// `threads` threads: a daemon or an agent. Each costs memory, and both mostly wait.
pub(crate) fn daemon(threads: usize) -> anyhow::Result<Runtime> {
    install_tls();
    return_large_blocks();
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
    keep_freed_memory();
    Builder::new_multi_thread().max_blocking_threads(64).enable_all().build().context("start the runtime")
}

/// Blocks from this size on are returned to the system at once.
#[cfg(target_env = "gnu")]
const LARGE_BLOCK: libc::c_int = 128 << 10;

/// By default the allocator keeps blocks of a size once one of that size was freed, and fills them with zeros before they are used
/// again. The buffers of connections are large and hardly used: 200 sessions at once left 400 MiB in an agent.
#[cfg(target_env = "gnu")]
fn return_large_blocks() {
    // SAFETY: it sets a number of the allocator and touches no memory of ours; no other thread runs yet.
    #[expect(unsafe_code, reason = "the allocator's settings have no safe binding")]
    let done = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BLOCK) };
    debug_assert_eq!(done, 1, "the allocator knows this setting");
}

#[cfg(not(target_env = "gnu"))]
const fn return_large_blocks() {}

/// The free bytes that the allocator keeps.
#[cfg(all(feature = "server", target_env = "gnu"))]
const KEPT_BYTES: libc::c_int = 32 << 20;

/// By default the allocator returns memory to the system and requests it again many times in each request, because
/// SQLite frees its pages whenever the file has changed. A server spent a third of its time on that.
#[cfg(all(feature = "server", target_env = "gnu"))]
fn keep_freed_memory() {
    // SAFETY: it sets a number of the allocator and touches no memory of ours; no other thread runs yet.
    #[expect(unsafe_code, reason = "the allocator's settings have no safe binding")]
    let done = unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES) };
    debug_assert_eq!(done, 1, "the allocator knows this setting");
}

#[cfg(all(feature = "server", not(target_env = "gnu")))]
const fn keep_freed_memory() {}

/// Returns free memory to the system. Otherwise the allocator keeps memory that a large request freed in small pieces.
#[cfg(target_env = "gnu")]
pub(crate) fn release_memory() {
    // SAFETY: it looks at free memory only, and takes the allocator's own locks.
    #[expect(unsafe_code, reason = "the allocator has no safe binding")]
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(not(target_env = "gnu"))]
pub(crate) const fn release_memory() {}

fn install_tls() {
    // Fails only when it is installed already, with the same provider.
    drop(rustls::crypto::ring::default_provider().install_default());
}

//! Opens addresses with the desktop's own program.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A program that fails does so at once.
const FAILS_WITHIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);

fn start(address: &str) -> std::io::Result<std::process::Child> {
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(opener);
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn()
}

/// Tries to open an address, and does not wait for what comes of it.
pub(crate) fn try_open(address: &str) {
    drop(start(address));
}

/// Opens an address; whether that worked. Other users see the address in the list of processes.
pub(crate) fn open(address: &str) -> bool {
    let Ok(mut opener) = start(address) else { return false };
    let since = Instant::now();
    while since.elapsed() < FAILS_WITHIN {
        match opener.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => std::thread::sleep(LOOK_EVERY),
            Err(_) => return false,
        }
    }
    // It runs as long as what it opened.
    true
}

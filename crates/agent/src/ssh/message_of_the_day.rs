//! What a user is shown before the shell (agent 4.2).

use std::path::Path;

use crate::expand;
use crate::manifest::Manifest;
use crate::state::AgentState;

/// Bytes of the file that are shown.
const MAX_BYTES: u64 = 64 << 10;
/// A file in the home directory that keeps the message away.
const QUIET_FILE: &str = ".hushlogin";

/// The announcement banners and the message, with the line ends of a terminal.
pub(super) fn text(state: &AgentState, manifest: &Manifest) -> Vec<u8> {
    let mut text = String::new();
    for banner in state.banners().into_iter().filter(|banner| banner.enabled) {
        text.push_str(banner.message.trim_end());
        text.push_str("\n\n");
    }
    let home = &state.config.user.home;
    let path = expand::path(&manifest.motd_path, home, home, |name| state.config.variable(name));
    if let Some(path) = path
        && !home.join(QUIET_FILE).exists()
    {
        text.push_str(&read(&path));
    }
    text.replace("\r\n", "\n").replace('\n', "\r\n").into_bytes()
}

fn read(path: &Path) -> String {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    if let Err(error) = read {
        tracing::debug!(path = %path.display(), %error, "the message of the day cannot be read");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

//! The account of the user that this process runs as.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// More than any entry of an account has.
const ENTRY_BYTES: usize = 64 * 1024;

/// The home directory of the account, which programs such as OpenSSH use whatever `HOME` says.
pub(super) fn home() -> Option<PathBuf> {
    let mut buffer = vec![0; ENTRY_BYTES];
    let mut found = std::ptr::null_mut();
    let user = rustix::process::geteuid().as_raw();
    #[expect(unsafe_code, reason = "no library offers the call")]
    // SAFETY: the entry is plain data for which all zeros are valid, and the call writes no more than the buffer's length.
    let path = unsafe {
        let mut entry: libc::passwd = std::mem::zeroed();
        let code = libc::getpwuid_r(user, &raw mut entry, buffer.as_mut_ptr(), buffer.len(), &raw mut found);
        if code != 0 || found.is_null() || entry.pw_dir.is_null() {
            return None;
        }
        PathBuf::from(OsStr::from_bytes(CStr::from_ptr(entry.pw_dir).to_bytes()))
    };
    path.is_absolute().then_some(path)
}

//! The account of the user that this process runs as.
//!
//! It is read from the file instead of through the C library: that loads further libraries for users that the
//! file does not contain, which aborts a statically linked program. Containers often run as such a user.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

const ACCOUNTS: &str = "/etc/passwd";

/// More than any machine's account file has.
const MAX_BYTES: u64 = 16 << 20;

/// The home directory of the account, which programs such as OpenSSH use whatever `HOME` says. `None` for users
/// of other account sources, such as a directory service, or without an account.
pub(super) fn home() -> Option<PathBuf> {
    let mut accounts = Vec::new();
    File::open(ACCOUNTS).ok()?.take(MAX_BYTES).read_to_end(&mut accounts).ok()?;
    home_of(rustix::process::geteuid().as_raw(), &accounts)
}

/// The sixth field of the first line whose third field is this user (passwd(5)).
fn home_of(user: u32, accounts: &[u8]) -> Option<PathBuf> {
    let wanted = user.to_string();
    let mut lines = accounts.split(|byte| *byte == b'\n').map(|line| line.split(|byte| *byte == b':'));
    let mut fields = lines.find(|fields| fields.clone().nth(2) == Some(wanted.as_bytes()))?;
    let home = Path::new(std::ffi::OsStr::from_bytes(fields.nth(5)?));
    home.is_absolute().then(|| home.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_is_that_of_the_user_by_number() {
        let accounts = b"root:x:0:0:root:/root:/bin/bash\nbroken\n\n1000:x:5:5::/not/this:/bin/sh\n\
            build:x:1000:1000:Build,,,:/srv/build:/bin/sh\nagain:x:1000:1000::/srv/again:/bin/sh\nrel:x:7:7::home:/bin/sh";
        let home = |user| home_of(user, accounts);
        assert_eq!(home(0), Some("/root".into()));
        assert_eq!(home(1000), Some("/srv/build".into()));
        assert_eq!([home(7), home(54321), home_of(0, b"")], [None, None, None]);
    }
}

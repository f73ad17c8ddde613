//! The user that the agent runs as: name, home directory and shell. `/etc/passwd` is read as a file, because a static
//! program has no other way to it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Shells that are tried when neither the user's entry nor `SHELL` names one that can run.
const SHELLS: [&str; 3] = ["/bin/bash", "/bin/sh", "/busybox/sh"];
/// Shells that only say that nobody may log in. An agent's user may be a service account.
const REFUSING: [&str; 2] = ["nologin", "false"];

/// The user that the agent runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name; the number when there is none.
    pub name: String,
    /// The home directory. It need not exist.
    pub home: PathBuf,
    /// The login shell.
    pub shell: PathBuf,
}

impl User {
    /// The user of this process.
    #[must_use]
    pub fn current(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
        let uid = rustix::process::getuid().as_raw();
        let can_run = |path: &Path| access(path, Access::EXEC_OK).is_ok();
        Self::find(&String::from_utf8_lossy(&passwd), uid, variable, can_run)
    }

    fn find(
        passwd: &str,
        uid: u32,
        variable: impl Fn(&str) -> Option<OsString>,
        can_run: impl Fn(&Path) -> bool,
    ) -> Self {
        let variable = |name| variable(name).filter(|value| !value.is_empty());
        let uid = uid.to_string();
        let entry = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let entry = entry.into_iter().find(|fields| fields.len() == 7 && fields[2] == uid);
        let field = |index: usize| entry.as_ref().map(|fields| fields[index]).filter(|text| !text.is_empty());
        let home = variable("HOME").map(PathBuf::from).or_else(|| field(5).map(PathBuf::from));
        let accepts = |shell: &Path| {
            !REFUSING.iter().any(|name| shell.file_name().is_some_and(|file| file == *name)) && can_run(shell)
        };
        let shell = field(6).map(PathBuf::from).filter(|shell| accepts(shell));
        let shell = shell.or_else(|| variable("SHELL").map(PathBuf::from).filter(|shell| accepts(shell)));
        let shell = shell.or_else(|| SHELLS.iter().map(PathBuf::from).find(|shell| can_run(shell)));
        Self {
            name: field(0).map_or(uid, str::to_owned),
            home: home.unwrap_or_else(|| PathBuf::from("/")),
            shell: shell.unwrap_or_else(|| PathBuf::from("/bin/sh")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nbroken:line\ndaemon:x:1:1::/usr/sbin:/usr/sbin/nologin\n\
                          ann:x:1000:1000:Ann,,,:/home/ann:/usr/bin/fish\nno:x:7:7:::\n";

    fn check(uid: u32, variables: &[(&str, &str)], missing: &[&str], want: (&str, &str, &str)) {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        };
        let can_run = |path: &Path| !missing.iter().any(|missing| path == Path::new(missing));
        let user = User::find(PASSWD, uid, variable, can_run);
        assert_eq!((user.name.as_str(), user.home.to_str(), user.shell.to_str()), {
            let (name, home, shell) = want;
            (name, Some(home), Some(shell))
        });
    }

    /// agent 4.2.
    #[test]
    fn shell_is_that_of_the_entry_and_then_of_the_variable() {
        check(1000, &[("SHELL", "/bin/zsh")], &[], ("ann", "/home/ann", "/usr/bin/fish"));
        check(1000, &[("SHELL", "/bin/zsh")], &["/usr/bin/fish"], ("ann", "/home/ann", "/bin/zsh"));
        check(1000, &[("HOME", "/tmp/h"), ("SHELL", "")], &["/usr/bin/fish"], ("ann", "/tmp/h", "/bin/bash"));
    }

    #[test]
    fn user_without_entry_or_shell_gets_one_that_exists() {
        check(1, &[], &[], ("daemon", "/usr/sbin", "/bin/bash"));
        check(7, &[], &["/bin/bash"], ("no", "/", "/bin/sh"));
        check(4242, &[], &["/bin/bash", "/bin/sh"], ("4242", "/", "/busybox/sh"));
        check(4242, &[], &["/bin/bash", "/bin/sh", "/busybox/sh"], ("4242", "/", "/bin/sh"));
    }
}

//! How a command line becomes a program with arguments: the user's shell, or the interpreter that the text itself names.

use std::ffi::OsString;
use std::path::Path;

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invocation {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
}

/// Runs `text` with the shell, or with the interpreter of its first line (`#!`).
pub(crate) fn command(shell: &Path, text: &str) -> Invocation {
    let first = text.trim_start().strip_prefix("#!").and_then(|rest| rest.lines().next());
    let mut words = first.unwrap_or_default().split_whitespace().map(OsString::from);
    match words.next() {
        Some(program) => Invocation { program, arguments: words.chain(["-c".into(), text.into()]).collect() },
        None => Invocation { program: shell.into(), arguments: vec!["-c".into(), text.into()] },
    }
}

/// A login shell.
pub(crate) fn login(shell: &Path) -> Invocation {
    Invocation { program: shell.into(), arguments: vec!["-l".into()] }
}

/// The last part of the path of a command's first word.
pub(crate) fn program_name(text: &str) -> &str {
    let word = text.split_whitespace().next().unwrap_or_default();
    word.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// agent 2.6, 4.2.
    #[test]
    fn first_line_names_the_interpreter() {
        let check = |text: &str, want: &[&str]| {
            let invocation = command(Path::new("/bin/bash"), text);
            let words: Vec<_> = std::iter::once(invocation.program).chain(invocation.arguments).collect();
            assert_eq!(words, want, "{text}");
        };
        check("echo a", &["/bin/bash", "-c", "echo a"]);
        check("#!/bin/sh\necho a", &["/bin/sh", "-c", "#!/bin/sh\necho a"]);
        check(
            "\n  #!/usr/bin/env  python3\nx",
            &["/usr/bin/env", "python3", "-c", "\n  #!/usr/bin/env  python3\nx"],
        );
        check("#!", &["/bin/bash", "-c", "#!"]);
        check("", &["/bin/bash", "-c", ""]);
    }

    #[test]
    fn program_names_have_no_path() {
        assert_eq!(program_name("/usr/bin/rsync --server ."), "rsync");
        assert_eq!(program_name("  scp -t x"), "scp");
        assert_eq!(program_name(""), "");
    }
}

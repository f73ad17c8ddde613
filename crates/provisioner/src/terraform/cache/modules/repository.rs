//! Resolves branches and tags of git repositories.

use std::path::Path;

use crate::files::job_file::JobFile;
use crate::terraform::template::modules::MODULES;

/// Git's file for the checked-out commit.
const HEAD: &str = "HEAD";
const MAX_HEAD_BYTES: u64 = 4096;

/// The names to ask `git ls-remote` for.
pub(crate) fn names(reference: Option<&str>) -> Vec<String> {
    match reference {
        None => vec![HEAD.to_owned()],
        Some(name) => {
            vec![format!("refs/heads/{name}"), format!("refs/tags/{name}"), format!("refs/tags/{name}^{{}}")]
        }
    }
}

/// The commit in the output of `git ls-remote`; `None` when a branch and a tag share the name.
pub(crate) fn resolved_commit(output: &str) -> Option<String> {
    let lines: Vec<(&str, &str)> = output.lines().filter_map(|line| line.split_once('\t')).collect();
    let commit = match lines[..] {
        [(commit, _)] => commit,
        // An annotated tag, and its commit.
        [(_, tag), (commit, put_on)] if put_on.strip_suffix("^{}") == Some(tag) => commit,
        _ => return None,
    };
    is_commit(commit).then(|| commit.to_owned())
}

/// Whether a name can only be a commit.
pub(crate) fn is_commit(name: &str) -> bool {
    name.len() == 40 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The commit that is checked out where Terraform has put the module `key`.
pub(crate) fn checked_out(dir: &Path, key: &str) -> Option<String> {
    let git = Path::new(MODULES).join(key).join(".git");
    let read = |name: &str| {
        let text = JobFile::new(dir, git.join(name)).read(MAX_HEAD_BYTES).ok()?;
        String::from_utf8(text).ok().map(|text| text.trim().to_owned())
    };
    let head = read(HEAD)?;
    match head.strip_prefix("ref: ") {
        Some(branch) => read(branch),
        None => Some(head),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_and_tags_resolve_to_commits() {
        let (one, two) = ("a".repeat(40), "b".repeat(40));
        for (output, wanted) in [
            (format!("{one}\tHEAD\n"), Some(&one)),
            (format!("{one}\trefs/tags/v1\n{two}\trefs/tags/v1^{{}}\n"), Some(&two)),
            (format!("{one}\trefs/heads/v1\n{two}\trefs/tags/v1\n"), None),
            (format!("{one}\trefs/heads/v1\n{one}\trefs/tags/v1\n{two}\trefs/tags/v1^{{}}\n"), None),
            ("abc\tHEAD\n".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(resolved_commit(&output).as_ref(), wanted, "{output}");
        }
    }
}

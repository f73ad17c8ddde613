//! `coder dotfiles`: clones a repository and installs it, by its script or by links into a directory.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::context::Context;
use crate::env;
use crate::terminal::prompt;

/// Scripts that install a repository, the first one found.
const SCRIPTS: [&str; 8] = [
    "install.sh",
    "install",
    "bootstrap.sh",
    "bootstrap",
    "setup.sh",
    "setup",
    "script/install.sh",
    "script/setup",
];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// URL of the Git repository.
    repository: String,
    /// Directory below the home directory's configuration in which the clone is kept.
    #[arg(long, env = env::DOTFILES_REPO_DIR, default_value = "dotfiles", value_name = "DIR")]
    repo_dir: String,
    /// Directory to link into; default the home directory.
    #[arg(long, env = env::SYMLINK_DIR, value_name = "DIR")]
    symlink_dir: Option<PathBuf>,
    /// Branch to check out; default the repository's own.
    #[arg(short, long, value_name = "NAME")]
    branch: Option<String>,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
}

pub(crate) fn run(ctx: &Context, args: &Args) -> anyhow::Result<()> {
    let links = args.symlink_dir.clone().or_else(std::env::home_dir);
    let links =
        links.context("the home directory to install into is not known: set HOME, or pass --symlink-dir")?;
    let configuration = ctx
        .directory
        .path()
        .context("the directory for the clone is not known: set HOME or CODER_CONFIG_DIR")?;
    let clone = configuration.join(&args.repo_dir);
    let exists = clone.join(".git").exists();
    let question = if exists {
        format!("Update the clone in {} and install it?", clone.display())
    } else {
        format!("Clone {} to {} and install it?", args.repository, clone.display())
    };
    if !args.yes {
        prompt::confirm(&ctx.printer, &question, "pass --yes")?;
    }
    if exists {
        git(&["-C", &text(&clone)?, "pull", "--ff-only"])?;
    } else {
        ensure!(
            !clone.exists(),
            "{} exists and is not a clone: remove it, or use --repo-dir",
            clone.display()
        );
        fs::create_dir_all(configuration)?;
        git(&["clone", "--", &args.repository, &text(&clone)?])?;
    }
    if let Some(branch) = &args.branch {
        git(&["-C", &text(&clone)?, "checkout", branch, "--"])?;
    }
    match script(&clone) {
        Some(script) => {
            ctx.printer.note(&format!("Running {}", script.display()));
            let status = Command::new(&script).current_dir(&clone).status();
            let status = status.with_context(|| format!("run {}", script.display()))?;
            ensure!(status.success(), "{} failed: {status}", script.display());
        }
        None => link_all(ctx, &clone, &links)?,
    }
    ctx.printer.note("The dotfiles are installed.");
    Ok(())
}

fn text(path: &Path) -> anyhow::Result<String> {
    path.to_str().map(str::to_owned).with_context(|| format!("{} is not valid UTF-8", path.display()))
}

fn git(arguments: &[&str]) -> anyhow::Result<()> {
    // A passphrase or an unknown host would be asked for where nobody answers.
    let status = Command::new("git").args(arguments).env("GIT_TERMINAL_PROMPT", "0").status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => bail!("`git {}` failed: {status}", arguments.join(" ")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("`git` is not installed: install it in the workspace's image")
        }
        Err(error) => Err(error).context("run git"),
    }
}

/// The script that installs a clone.
fn script(clone: &Path) -> Option<PathBuf> {
    let runs = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    SCRIPTS.iter().map(|name| clone.join(name)).find(runs)
}

/// Links every dotfile of the clone into a directory. What is there already is kept as a backup.
fn link_all(ctx: &Context, clone: &Path, directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    for entry in fs::read_dir(clone).with_context(|| format!("list {}", clone.display()))? {
        let name = entry?.file_name();
        let is_dotfile =
            name.to_str().is_some_and(|name| name.starts_with('.') && name != ".git" && name != ".gitignore");
        if is_dotfile {
            let link = directory.join(&name);
            link_one(&clone.join(&name), &link).with_context(|| format!("link {}", link.display()))?;
            ctx.printer.note(&format!("Linked {}", link.display()));
        }
    }
    Ok(())
}

fn link_one(target: &Path, link: &Path) -> io::Result<()> {
    match fs::symlink_metadata(link) {
        Ok(found) if found.is_symlink() => fs::remove_file(link)?,
        Ok(_) => {
            let mut backup = link.as_os_str().to_owned();
            backup.push(".bak");
            // A backup that exists is older and would be lost.
            if Path::new(&backup).symlink_metadata().is_ok() {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "it exists, and so does its backup",
                ));
            }
            fs::rename(link, backup)?;
        }
        Err(_) => {}
    }
    std::os::unix::fs::symlink(target, link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_the_way_are_kept() {
        let home = tempfile::tempdir().unwrap();
        let (target, link) = (home.path().join("target"), home.path().join(".bashrc"));
        fs::write(&target, "new").unwrap();
        fs::write(&link, "old").unwrap();
        link_one(&target, &link).unwrap();
        link_one(&target, &link).unwrap();
        assert_eq!(fs::read_to_string(&link).unwrap(), "new");
        assert_eq!(fs::read_to_string(home.path().join(".bashrc.bak")).unwrap(), "old");
        fs::remove_file(&link).unwrap();
        fs::write(&link, "newer").unwrap();
        assert!(link_one(&target, &link).is_err());
        assert_eq!(fs::read_to_string(&link).unwrap(), "newer");
    }

    #[test]
    fn only_scripts_that_can_run_install() {
        let clone = tempfile::tempdir().unwrap();
        let path = clone.path().join("setup.sh");
        fs::write(&path, "#!/bin/sh\n").unwrap();
        assert_eq!(script(clone.path()), None);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(script(clone.path()), Some(path));
    }
}

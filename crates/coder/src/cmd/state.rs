//! Reads and replaces the Terraform state of a workspace: `coder state pull|push`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use coder_api::builds::{CreateWorkspaceBuildRequest, WorkspaceBuild};
use coder_api::client::Client;
use coder_api::json::Blob;
use coder_api::workspaces::Workspace;
use serde::de::IgnoredAny;

use super::build;
use crate::context::Context;
use crate::remote;

/// Largest state that is read from a file or standard input.
const MAX_STATE_BYTES: u64 = 64 << 20;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Write a workspace's Terraform state to a file or standard output.
    Pull(PullArgs),
    /// Replace a workspace's Terraform state.
    Push(PushArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct PullArgs {
    /// Workspace, as name or owner/name.
    workspace: String,
    /// File to write; default standard output.
    file: Option<PathBuf>,
    #[command(flatten)]
    build: Number,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PushArgs {
    /// Workspace, as name or owner/name.
    workspace: String,
    /// File to read; `-` is standard input.
    file: PathBuf,
    /// Change the stored state only, without a build.
    #[arg(short, long)]
    no_build: bool,
    #[command(flatten)]
    build: Number,
}

/// Which build.
#[derive(Debug, clap::Args)]
struct Number {
    /// Number of the build; default the last one.
    #[arg(short = 'b', long = "build", default_value_t = 0, value_name = "NUMBER")]
    number: i64,
}

pub(crate) async fn run(ctx: &Context, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Pull(args) => pull(ctx, args).await,
        Command::Push(args) => push(ctx, args).await,
    }
}

async fn find(client: &Client, workspace: &Workspace, number: &Number) -> anyhow::Result<WorkspaceBuild> {
    if number.number == 0 {
        return Ok(workspace.latest_build.clone());
    }
    remote::build(client, workspace, number.number).await
}

async fn pull(ctx: &Context, args: PullArgs) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let workspace = remote::workspace(&client, &args.workspace).await?;
    let build = find(&client, &workspace, &args.build).await?;
    let Blob(state) = client.build_state(build.id).await?;
    match args.file {
        None => ctx.printer.raw(&state)?,
        Some(path) => keep(&path, &state).with_context(|| format!("write {}", path.display()))?,
    }
    Ok(())
}

/// Atomically writes a file that only its owner can read, because a state contains secrets.
fn keep(path: &Path, state: &[u8]) -> io::Result<()> {
    let special = fs::metadata(path).is_ok_and(|found| !found.is_file());
    if special {
        return fs::OpenOptions::new().write(true).open(path)?.write_all(state);
    }
    // The target of a link is replaced, not the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::metadata(folder)?;
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    new.write_all(state)?;
    new.persist(&path).map(drop).map_err(|error| error.error)
}

async fn push(ctx: &Context, args: PushArgs) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let state = read(&args.file).with_context(|| format!("read the state from {}", args.file.display()))?;
    // A build request with an empty state would keep the present state.
    ensure!(args.no_build || !state.is_empty(), "the state is empty: pass --no-build to store none");
    let workspace = remote::workspace(&client, &args.workspace).await?;
    let build = find(&client, &workspace, &args.build).await?;
    if args.no_build {
        client.set_build_state(build.id, Blob(state)).await?;
        ctx.printer.note("The state is replaced.");
        return Ok(());
    }
    let mut request = CreateWorkspaceBuildRequest::new(build.transition);
    request.template_version_id = Some(build.template_version_id);
    request.provisioner_state = Blob(state);
    let build = build::request(&client, workspace.id, &request).await?;
    build::finish(ctx, &client, &build).await
}

fn read(path: &PathBuf) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        io::stdin().lock().take(MAX_STATE_BYTES + 1).read_to_end(&mut bytes)?;
    } else {
        fs::File::open(path)?.take(MAX_STATE_BYTES + 1).read_to_end(&mut bytes)?;
    }
    ensure!(bytes.len() as u64 <= MAX_STATE_BYTES, "it is larger than 64 MiB");
    // A build cannot use anything else. An empty state means that there are no resources.
    if !bytes.is_empty() {
        let state: Result<BTreeMap<String, IgnoredAny>, _> = serde_json::from_slice(&bytes);
        state.context("it is not a Terraform state as `coder state pull` writes it")?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_state_is_for_its_owner_alone_wherever_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let (new, old, link) =
            (folder.path().join("new"), folder.path().join("old"), folder.path().join("link"));
        fs::write(&old, "before").unwrap();
        fs::set_permissions(&old, fs::Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink("old", &link).unwrap();
        for path in [&new, &old, &link] {
            keep(path, b"{}").unwrap();
            assert_eq!(fs::read(path).unwrap(), b"{}");
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
        }
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        keep(Path::new("/dev/null"), b"{}").unwrap();
        let error = keep(&folder.path().join("absent/x"), b"{}").unwrap_err().to_string();
        assert_eq!(error, "No such file or directory (os error 2)");
    }

    #[test]
    fn text_that_is_not_a_state_is_not_pushed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        for (text, is_state) in [
            ("{\"version\":4}", true),
            ("", true),
            ("garbage", false),
            ("{\"version\":4", false),
            ("[]", false),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(read(&path).is_ok(), is_state, "{text}");
        }
    }
}

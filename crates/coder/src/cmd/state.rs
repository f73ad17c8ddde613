//! `coder state pull|push`

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use coder_api::builds::{CreateWorkspaceBuildRequest, WorkspaceBuild};
use coder_api::client::Client;
use coder_api::json::Blob;
use coder_api::workspaces::Workspace;

use super::build;
use crate::context::Context;
use crate::remote;

/// Largest state that is read from a file or standard input.
const LARGEST: u64 = 64 << 20;

/// Sub-commands.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Write a workspace's Terraform state to a file or standard output.
    Pull(PullArgs),
    /// Replace a workspace's Terraform state.
    Push(PushArgs),
}

/// Arguments of `pull`.
#[derive(Debug, clap::Args)]
pub(crate) struct PullArgs {
    /// Workspace, as name or owner/name.
    workspace: String,
    /// File to write; default standard output.
    file: Option<PathBuf>,
    #[command(flatten)]
    build: Number,
}

/// Arguments of `push`.
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
    Ok(client.build_by_number(&workspace.owner_name, &workspace.name, number.number).await?)
}

async fn pull(ctx: &Context, args: PullArgs) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let workspace = remote::workspace(&client, &args.workspace).await?;
    let build = find(&client, &workspace, &args.build).await?;
    let Blob(state) = client.build_state(build.id).await?;
    match args.file {
        None => ctx.printer.raw(&state)?,
        Some(path) => {
            // State holds secrets, so nobody else may read it.
            let write = || {
                fs::OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .mode(0o600)
                    .open(&path)?
                    .write_all(&state)
            };
            write().with_context(|| format!("write {}", path.display()))?;
        }
    }
    Ok(())
}

async fn push(ctx: &Context, args: PushArgs) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let state = read(&args.file).with_context(|| format!("read the state from {}", args.file.display()))?;
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
    let build = build::request(ctx, &client, workspace.id, &request).await?;
    build::finish(ctx, &client, &build).await
}

fn read(path: &PathBuf) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin().lock().take(LARGEST + 1).read_to_end(&mut bytes)?;
    } else {
        fs::File::open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    }
    anyhow::ensure!(bytes.len() as u64 <= LARGEST, "it is larger than 64 MiB");
    Ok(bytes)
}

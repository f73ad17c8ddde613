//! `coder templates pull`: the source of a version, into a directory or as an archive.

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use coder_api::files;
use tar::EntryType;

use crate::context::Context;
use crate::template::pack::MAX_DEPTH;
use crate::terminal::{prompt, spinner};
use crate::{args, remote};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the template.
    template: String,
    /// Directory to write; default one with the template's name.
    destination: Option<PathBuf>,
    /// Version to pull, by name, or `active` or `latest`.
    #[arg(long, default_value = "active", value_name = "NAME")]
    version: String,
    /// Write a tar archive to standard output.
    #[arg(long, conflicts_with_all = ["zip", "destination"])]
    tar: bool,
    /// Write a zip archive to standard output.
    #[arg(long, conflicts_with = "destination")]
    zip: bool,
    /// Do not ask before files are overwritten.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    organization: args::Organization,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let template = remote::template(&client, &organization, &args.template).await?;
    let version = match args.version.as_str() {
        "active" => client.version(template.active_version_id).await?,
        "latest" => {
            let versions = client.template_versions(template.id, false).await?;
            let newest = versions.into_iter().max_by_key(|version| version.created_at);
            newest.with_context(|| format!("template {} has no versions", template.name))?
        }
        name => remote::version(&client, &template, name).await?,
    };
    let download =
        async { client.download(version.job.file_id, args.zip).await?.bytes(files::MAX_UPLOAD).await };
    let archive = spinner::waiting(&ctx.printer, "Downloading the template", download).await?;
    if args.tar || args.zip {
        ctx.printer.raw(&archive)?;
        return Ok(());
    }
    let directory = args.destination.unwrap_or_else(|| PathBuf::from(&template.name));
    let is_in_use = fs::read_dir(&directory).is_ok_and(|mut entries| entries.next().is_some());
    if is_in_use && !args.yes {
        let question = format!("{} is not empty. Overwrite files in it?", directory.display());
        prompt::confirm(&ctx.printer, &question, "pass --yes, or name another directory")?;
    }
    for name in unpack(&archive, &directory)? {
        ctx.printer
            .warn(&format!("{name:?} was left out: it is a link or a special file, or belongs to git"));
    }
    ctx.printer.note(&format!(
        "Version {} of template {} is in {}.",
        version.name,
        template.name,
        directory.display()
    ));
    Ok(())
}

/// Writes the files of an archive below `directory`, and never outside of it. The names of entries that are left out: links, which
/// could lead an editor elsewhere, other special files, and `.git`, which names programs that git runs.
fn unpack(archive: &[u8], directory: &Path) -> anyhow::Result<Vec<String>> {
    fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
    let mut left_out = Vec::new();
    let mut archive = tar::Archive::new(archive);
    for entry in archive.entries().context("read the archive")? {
        let mut entry = entry.context("read the archive")?;
        let path = entry.path().context("read the archive")?.into_owned();
        let name = path.display().to_string();
        ensure!(
            path.components().count() <= MAX_DEPTH,
            "the archive has a file more than {MAX_DEPTH} folders deep"
        );
        let is_git = |part: Component<'_>| part.as_os_str().eq_ignore_ascii_case(".git");
        if !is_plain(entry.header().entry_type()) || path.components().any(is_git) {
            left_out.push(name);
            continue;
        }
        let is_written = entry.unpack_in(directory).with_context(|| format!("write {name}"))?;
        if !is_written {
            bail!("the archive has a file outside of the template: {name:?}");
        }
    }
    Ok(left_out)
}

const fn is_plain(kind: EntryType) -> bool {
    matches!(
        kind,
        EntryType::Regular | EntryType::Continuous | EntryType::Directory | EntryType::XGlobalHeader
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(name: &str, kind: EntryType) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(if kind == EntryType::Regular { 4 } else { 0 });
        header.set_mode(0o644);
        header.set_link_name("/etc/passwd").unwrap();
        // The library refuses to write such names.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        tar.append(&header, if kind == EntryType::Regular { &b"text"[..] } else { b"" }).unwrap();
        tar.into_inner().unwrap()
    }

    #[test]
    fn nothing_is_written_outside_of_the_directory() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("template");
        let left_out = unpack(&archive("modules/main.tf", EntryType::Regular), &directory).unwrap();
        assert_eq!(left_out, [""; 0]);
        assert_eq!(fs::read_to_string(directory.join("modules/main.tf")).unwrap(), "text");
        unpack(&archive("../outside", EntryType::Regular), &directory).unwrap_err();
        assert!(!parent.path().join("outside").exists());
    }

    #[test]
    fn links_special_files_and_files_of_git_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        for (name, kind) in [
            ("main.tf", EntryType::Symlink),
            ("main.tf", EntryType::Link),
            ("main.tf", EntryType::Fifo),
            ("main.tf", EntryType::Char),
            (".git/config", EntryType::Regular),
            ("modules/.GIT/config", EntryType::Regular),
        ] {
            let left_out = unpack(&archive(name, kind), directory.path()).unwrap();
            assert_eq!(left_out, [name], "{kind:?}");
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn folders_are_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let name = |depth: usize| "d/".repeat(depth - 1) + "x";
        let unpack_at = |depth: usize| {
            let mut tar = tar::Builder::new(Vec::new());
            let mut header = tar::Header::new_gnu();
            header.set_size(0);
            header.set_mode(0o644);
            tar.append_data(&mut header, name(depth), &b""[..]).unwrap();
            unpack(&tar.into_inner().unwrap(), directory.path())
        };
        unpack_at(MAX_DEPTH).unwrap();
        unpack_at(MAX_DEPTH + 1).unwrap_err();
    }
}

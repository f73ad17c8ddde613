//! `coder templates push`: pack, upload, import, activate (http-api 6.4).

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use coder_api::client::Client;
use coder_api::files;
use coder_api::organizations::Organization;
use coder_api::templates::{CreateTemplateRequest, Template};
use coder_api::versions::{CreateTemplateVersionRequest, TemplateVersion};
use coder_domain::ids::{FileId, TemplateId};
use coder_domain::names;

use super::import;
use crate::cmd::provisioner::keys;
use crate::context::Context;
use crate::template::{lockfile, pack, variables};
use crate::terminal::output::Style;
use crate::terminal::{output, prompt, spinner};
use crate::{args, remote};

/// The default message.
const MESSAGE: &str = "Uploaded from the CLI";
/// The largest archive that is read from standard input. Servers accept no larger one.
const MAX_ARCHIVE_BYTES: u64 = files::MAX_UPLOAD as u64;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the template; default the directory's name.
    template: Option<String>,
    /// Directory with the template, or a tar or zip archive of one, as `coder templates bundle` writes it; `-` reads it from standard input.
    #[arg(short, long, default_value = ".", value_name = "DIR")]
    directory: PathBuf,
    /// Name of the version; default a generated one.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// What changed.
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    /// Whether workspaces use the new version from now on.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true,
        default_missing_value = "true", value_name = "BOOL")]
    activate: bool,
    /// Value of a Terraform variable as name=value; may be repeated.
    #[arg(long = "variable", alias = "var", value_name = "NAME=VALUE")]
    variables: Vec<String>,
    /// YAML file with values of Terraform variables.
    #[arg(long, alias = "values-file", value_name = "FILE")]
    variables_file: Option<PathBuf>,
    /// Tag that a daemon must have to run this template's jobs, as key=value; may be repeated. `-` removes all tags.
    #[arg(long = "provisioner-tag", value_delimiter = ',', value_name = "KEY=VALUE")]
    provisioner_tags: Vec<String>,
    /// Do not warn about a missing lock file.
    #[arg(long)]
    ignore_lockfile: bool,
    /// Accepted for compatibility: push creates a template that does not exist.
    #[arg(long, hide = true)]
    create: bool,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    organization: args::Organization,
}

impl Args {
    /// The requested organization.
    pub(crate) fn organization(&self) -> Option<&str> {
        self.organization.org.as_deref()
    }

    fn is_stdin(&self) -> bool {
        self.directory.as_os_str() == "-"
    }

    /// The template's name: given, or the directory's.
    pub(crate) fn name(&self) -> anyhow::Result<String> {
        let name = match &self.template {
            Some(name) => name.clone(),
            None if self.is_stdin() => bail!("name the template: coder templates push <name> -d -"),
            None => {
                let path = self.directory.canonicalize();
                let path = path.with_context(|| format!("find {}", self.directory.display()))?;
                let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
                let name = name.and_then(|name| name.to_str()).map(str::to_owned);
                name.context("name the template: coder templates push <name>")?
            }
        };
        names::name(&name)
            .map_err(|error| anyhow::anyhow!("the template name {name:?} {error}: pass another one"))?;
        Ok(name)
    }

    fn archive(&self, ctx: &Context) -> anyhow::Result<Vec<u8>> {
        if self.is_stdin() {
            return archive(Ok(std::io::stdin().lock()), "standard input");
        }
        if self.directory.is_file() {
            return archive(std::fs::File::open(&self.directory), &self.directory.display().to_string());
        }
        let archive = pack::directory(&self.directory)?;
        let unpinned = lockfile::unpinned(&self.directory);
        if !unpinned.is_empty() && !self.ignore_lockfile {
            ctx.printer.warn(&format!(
                "the template has no .terraform.lock.hcl, so each import may get other versions of {}\n      make one with \
                 `terraform init` and push again, or pass --ignore-lockfile",
                unpinned.join(", ")
            ));
        }
        for path in &archive.skipped {
            ctx.printer.warn(&format!("{path} is neither a file nor a directory and was left out"));
        }
        Ok(archive.bytes)
    }
}

/// Reads a whole archive.
fn archive(source: std::io::Result<impl std::io::Read>, name: &str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let describe = || format!("read the template from {name}");
    source
        .with_context(describe)?
        .take(MAX_ARCHIVE_BYTES + 1)
        .read_to_end(&mut bytes)
        .with_context(describe)?;
    anyhow::ensure!(
        bytes.len() as u64 <= MAX_ARCHIVE_BYTES,
        "the archive in {name} is larger than 100 MiB, and servers take no larger one"
    );
    if !is_zip(&bytes) {
        whole(&bytes).with_context(|| {
            format!("{name} is neither a directory nor a whole tar or zip archive of a template")
        })?;
    }
    Ok(bytes)
}

fn is_zip(archive: &[u8]) -> bool {
    archive.starts_with(b"PK\x03\x04")
}

/// Checks that the whole file is a valid tar archive.
fn whole(archive: &[u8]) -> anyhow::Result<()> {
    anyhow::ensure!(
        !archive.starts_with(&[0x1f, 0x8b]),
        "it is compressed: unpack it with gunzip and push the result"
    );
    let mut tar = tar::Archive::new(archive);
    let mut entries = 0;
    for entry in tar.entries()? {
        let entry = entry.map_err(|error| {
            anyhow::anyhow!(
                "it is damaged or cut off behind entry {entries}: {}",
                output::strip_control(&error.to_string())
            )
        })?;
        drop(entry);
        entries += 1;
    }
    anyhow::ensure!(entries > 0, "it is empty");
    Ok(())
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let name = args.name()?;
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization()).await?;
    let settings = CreateTemplateRequest { name, ..CreateTemplateRequest::default() };
    into(ctx, &client, &organization, settings, args).await
}

/// Pushes into an organization. A new template gets these settings.
pub(crate) async fn into(
    ctx: &Context,
    client: &Client,
    organization: &Organization,
    settings: CreateTemplateRequest,
    args: Args,
) -> anyhow::Result<()> {
    let name = settings.name.as_str();
    let existing = remote::found(client.template_by_name(organization.id, name).await)?;
    // All local errors are found before any question or request.
    let archive = args.archive(ctx)?;
    let root: Option<&Path> = args.directory.is_dir().then_some(&args.directory);
    let flags: Vec<_> = args
        .variables
        .iter()
        .map(|text| variables::pair(text))
        .collect::<Result<_, _>>()
        .map_err(anyhow::Error::msg)?;
    let values = variables::collect(root, args.variables_file.as_deref(), &flags)?;
    let tags = tags(client, existing.as_ref(), &args.provisioner_tags).await?;
    if !args.yes && !args.is_stdin() {
        let what = if existing.is_some() { "a new version of" } else { "the new template" };
        let directory = args.directory.display().to_string();
        let from = if directory == "." { "this directory" } else { &directory };
        let question = format!("Push {from} as {what} {name:?}?");
        prompt::confirm_or_enter(&ctx.printer, &question, "pass --yes")?;
    }
    let kind = if is_zip(&archive) { files::ZIP } else { files::TAR };
    let upload = client.upload(kind, archive.into());
    let file = spinner::waiting(&ctx.printer, "Uploading the template", upload).await?;
    let source = import::Source {
        organization: organization.id,
        request: request(&args, existing.as_ref().map(|template| template.id), file, tags),
        may_ask: prompt::is_interactive() && !args.yes,
    };
    let version = import::run(ctx, client, source, values).await?;
    publish(ctx, client, organization, settings, existing, &version, args.activate).await
}

fn request(
    args: &Args,
    template_id: Option<TemplateId>,
    file: FileId,
    tags: BTreeMap<String, String>,
) -> CreateTemplateVersionRequest {
    CreateTemplateVersionRequest {
        name: args.name.clone().unwrap_or_default(),
        message: args.message.clone().unwrap_or_else(|| MESSAGE.to_owned()),
        template_id,
        file_id: Some(file),
        tags,
        ..CreateTemplateVersionRequest::default()
    }
}

/// The given tags, or else those of the active version. `-` alone means no tags (http-api 5.6).
async fn tags(
    client: &Client,
    existing: Option<&Template>,
    given: &[String],
) -> anyhow::Result<BTreeMap<String, String>> {
    if given == ["-"] {
        return Ok(BTreeMap::new());
    }
    if !given.is_empty() {
        return keys::tags(given);
    }
    let Some(template) = existing else { return Ok(BTreeMap::new()) };
    let active = client.version(template.active_version_id).await?;
    Ok(active.job.tags.as_map().clone())
}

async fn publish(
    ctx: &Context,
    client: &Client,
    organization: &Organization,
    settings: CreateTemplateRequest,
    existing: Option<Template>,
    version: &TemplateVersion,
    activate: bool,
) -> anyhow::Result<()> {
    let bold = |text: &str| ctx.printer.paint(Style::Bold, text);
    match existing {
        None => {
            let request = CreateTemplateRequest { version_id: Some(version.id), ..settings };
            client.create_template(organization.id, &request).await?;
            let name = &request.name;
            let next = ctx.printer.paint(Style::Code, &format!("coder create --template={name}"));
            ctx.printer.note(&format!(
                "Template {} is made, with version {}. Next: {next}",
                bold(name),
                version.name
            ));
        }
        Some(template) if activate => {
            client.set_active_version(template.id, version.id).await?;
            ctx.printer.note(&format!(
                "Version {} of template {} is active.",
                version.name,
                bold(&template.name)
            ));
        }
        Some(template) => ctx.printer.note(&format!(
            "Version {} of template {} is stored, not active.",
            version.name,
            bold(&template.name)
        )),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar(names: &[&str]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for name in names {
            let mut header = tar::Header::new_gnu();
            header.set_size(700);
            tar.append_data(&mut header, name, [b'x'; 700].as_slice()).unwrap();
        }
        tar.into_inner().unwrap()
    }

    fn refused(bytes: &[u8]) -> String {
        format!("{:#}", archive(Ok(bytes), "x.tar").unwrap_err())
    }

    #[test]
    fn only_whole_archives_are_sent() {
        let good = tar(&["main.tf", "other.tf"]);
        assert_eq!(archive(Ok(good.as_slice()), "x").unwrap(), good);
        assert!(archive(Ok(b"PK\x03\x04rest".as_slice()), "x").is_ok(), "the server unpacks it");
        for (bytes, words) in [
            (&b""[..], "it is empty"),
            (&b"\x1f\x8b\x08"[..], "gunzip"),
            (&[b'x'; 600], "behind entry 0"),
            (&good[..2000], "behind entry 1"),
        ] {
            let said = refused(bytes);
            assert!(
                said.starts_with("x.tar is neither a directory nor a whole tar") && said.contains(words),
                "{said}"
            );
        }
    }
}

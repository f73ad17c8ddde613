//! `coder templates bundle`: a template with its modules and providers in one file, for daemons without a network.

mod lock;
mod providers;
mod terraform;
mod write;

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use coder_api::files::MAX_UPLOAD;
use coder_provisioner::platform;

use self::terraform::BundleTerraform;
use crate::context::Context;
use crate::template::pack;
use crate::terminal::output::Style;
use crate::terminal::spinner::waiting;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory with the template.
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// File to write; `coder templates push -d - < FILE` pushes it.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Platform that the providers are for, as os_arch; may be repeated. Default this machine's.
    #[arg(long = "platform", value_name = "OS_ARCH", value_parser = named_platform)]
    platforms: Vec<String>,
    /// Terraform or OpenTofu to work with; default the first of terraform and tofu in PATH.
    #[arg(long, value_name = "FILE")]
    terraform_path: Option<PathBuf>,
}

fn named_platform(text: &str) -> Result<String, String> {
    let is_word =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    match text.split_once('_') {
        Some((os, arch)) if is_word(os) && is_word(arch) => Ok(text.to_owned()),
        _ => Err("a platform has the form os_arch, such as linux_amd64".to_owned()),
    }
}

pub(crate) async fn run(ctx: &Context, mut args: Args) -> anyhow::Result<()> {
    if args.platforms.is_empty() {
        args.platforms.push(platform());
    }
    args.platforms.sort();
    args.platforms.dedup();
    write::has_place(&args.output)?;
    let archive = pack::directory(&args.directory)?;
    for path in &archive.skipped {
        ctx.printer.warn(&format!("{path} is neither a file nor a directory and was left out"));
    }
    let staging = tempfile::tempdir().context("make a directory to work in")?;
    let template = staging.path().join("template");
    tar::Archive::new(archive.bytes.as_slice()).unpack(&template).context("unpack the template")?;

    let terraform = BundleTerraform::find(args.terraform_path.as_deref(), &template, staging.path())?;
    let init = terraform.run(&["init", "-backend=false", "-input=false", "-no-color"], &template);
    waiting(&ctx.printer, "Fetching modules and providers…", init).await?;
    let locked = lock::read(&template)?;
    let packing = providers::collect(&terraform, &locked, &args.platforms, &template, staging.path());
    waiting(&ctx.printer, "Packing providers…", packing).await?;
    lock::complete(&terraform, &locked, &args.platforms, &template).await?;

    let bundle = write::archive(&archive.bytes, &template, &args.platforms, &locked)?;
    let size = bundle.len() as u64;
    ensure!(
        bundle.len() <= MAX_UPLOAD,
        "the bundle would be {} long, and servers take {} at most: bundle fewer platforms at a time, or give the \
         daemons a provider mirror instead",
        megabytes(size),
        megabytes(MAX_UPLOAD as u64)
    );
    write::file(&args.output, &bundle)?;

    let shown = args.output.display();
    ctx.printer.note(&format!(
        "{shown} holds the template for {} ({}).",
        args.platforms.join(", "),
        megabytes(size)
    ));
    for provider in &locked {
        ctx.printer.note(&format!("  {} {}", provider.address, provider.version));
    }
    let next = ctx.printer.paint(Style::Code, &format!("coder templates push NAME -d - < {shown}"));
    ctx.printer.note(&format!("Next: {next}"));
    Ok(())
}

fn megabytes(bytes: u64) -> String {
    let tenths = (bytes * 10).div_ceil(1 << 20);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_are_checked_and_sizes_are_short() {
        assert_eq!(named_platform("linux_amd64").as_deref(), Ok("linux_amd64"));
        for bad in ["", "linux", "linux_", "_amd64", "linux/amd64", "linux_../x", "Linux_amd64"] {
            assert!(named_platform(bad).is_err(), "{bad}");
        }
        assert_eq!(
            (megabytes(1), megabytes(1 << 20), megabytes(100 << 20)),
            ("0.1 MiB".into(), "1.0 MiB".into(), "100.0 MiB".into())
        );
    }
}

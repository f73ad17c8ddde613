//! Makes a mirror that offers the built-in provider: `coder provider install`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::plugin;
use crate::terminal::output::Printer;

/// The addresses of the provider with Terraform and with OpenTofu.
const ADDRESSES: [&str; 2] = ["registry.terraform.io/coder/coder", "registry.opentofu.org/coder/coder"];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the mirror; created if it does not exist.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Version to offer the provider as, for templates that ask for another one; may be repeated.
    #[arg(long, value_name = "VERSION", default_value = coder_tfprovider::VERSION, value_parser = version)]
    provider_version: Vec<String>,
}

/// Terraform finds directories by their names, so a version must have the format of a version.
fn version(text: &str) -> Result<String, String> {
    let numbers = text.split(['-', '+']).next().unwrap_or_default();
    let parts: Vec<_> = numbers.split('.').collect();
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+');
    if parts.len() == 3 && parts.iter().all(is_number) && text.chars().all(is_plain) {
        Ok(text.to_owned())
    } else {
        Err(format!("a version has three numbers, such as {}", coder_tfprovider::VERSION))
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("find this program's own file")?;
    fs::create_dir_all(&args.directory).with_context(|| format!("make {}", args.directory.display()))?;
    let mirror = fs::canonicalize(&args.directory)
        .with_context(|| format!("find the full path of {}", args.directory.display()))?;
    let printer = Printer::detect(false);
    let mut first = None;
    for version in &args.provider_version {
        for address in ADDRESSES {
            let folder = mirror.join(address).join(version).join(platform());
            let file = folder.join(format!("{}_v{version}", plugin::NAME));
            fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
            place(first.as_deref().unwrap_or(&program), &file, first.is_some())
                .with_context(|| format!("write {}", file.display()))?;
            first.get_or_insert(file);
        }
    }
    let versions = args.provider_version.join(", ");
    printer.note(&format!("{} holds the provider coder/coder as version {versions}.", mirror.display()));
    printer.note("Put this into ~/.terraformrc, ~/.tofurc or the file that TF_CLI_CONFIG_FILE names:");
    printer.data(&settings(&mirror));
    Ok(())
}

/// The platform as Terraform names it.
fn platform() -> String {
    let os = if std::env::consts::OS == "macos" { "darwin" } else { std::env::consts::OS };
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    };
    format!("{os}_{arch}")
}

/// Atomically puts `from` at `to`, and replaces an existing file.
///
/// The program is copied: Terraform records the provider's checksum in each directory it initialized, and a link would
/// change with an update of the program. Within the mirror, links are used.
fn place(from: &Path, to: &Path, link: bool) -> std::io::Result<()> {
    let beside = to.with_file_name(format!(".{}-{}", plugin::NAME, std::process::id()));
    let done = if link { fs::hard_link(from, &beside) } else { Err(ErrorKind::Unsupported.into()) };
    let done = done.or_else(|_| fs::copy(from, &beside).map(drop)).and_then(|()| fs::rename(&beside, to));
    // Renaming a link over another link to the same file leaves both. After an error the incomplete file must be
    // removed.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != ErrorKind::NotFound => done.and(Err(error)),
        _ => done,
    }
}

fn settings(mirror: &Path) -> String {
    let path = mirror.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
    let addresses = ADDRESSES.map(|address| format!("{address:?}")).join(", ");
    format!(
        "provider_installation {{\n  filesystem_mirror {{\n    path    = \"{path}\"\n    include = [{addresses}]\n  }}\n  \
         direct {{\n    exclude = [{addresses}]\n  }}\n}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_three_numbers() {
        for fine in ["2.13.1", "10.0.0-rc.1", "1.2.3+build"] {
            assert_eq!(version(fine).as_deref(), Ok(fine));
        }
        for wrong in ["", "2.13", "v2.13.1", "2.13.x", "1.2.3/../..", "1..3"] {
            assert!(version(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_is_replaced_in_one_step_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::write(&from, "new").unwrap();
        fs::write(&to, "old").unwrap();
        for link in [false, true, true] {
            place(&from, &to, link).unwrap();
            assert_eq!(fs::read_to_string(&to).unwrap(), "new");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        }
    }
}

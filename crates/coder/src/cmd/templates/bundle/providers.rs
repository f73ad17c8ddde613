//! The packages of providers for each platform, in the layout that daemons expect.
//!
//! For this machine's platform, `init` has installed them as the user configured. For other platforms they come from
//! the same filesystem mirrors, or else from the provider's registry.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use coder_provisioner::{Bundle, platform};

use super::lock::Locked;
use super::terraform::BundleTerraform;

/// Fills the template's mirror with every provider for every platform.
pub(super) async fn collect(
    terraform: &BundleTerraform,
    locked: &[Locked],
    platforms: &[String],
    template: &Path,
    staging: &Path,
) -> anyhow::Result<()> {
    let mirrors = mirrors();
    for provider in locked {
        for wanted in platforms {
            let package = package(template, provider, wanted);
            let folder = package.parent().context("a package lies in a folder")?;
            fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
            if *wanted == platform() {
                let installed = installed(template, provider, wanted);
                zip_folder(&installed, &package).with_context(|| format!("pack {}", provider.address))?;
            } else if !from_mirrors(&mirrors, provider, wanted, &package)? {
                from_registry(terraform, provider, wanted, &package, staging).await?;
            }
        }
    }
    Ok(())
}

fn file_name(provider: &Locked, platform: &str) -> String {
    format!("terraform-provider-{}_{}_{platform}.zip", provider.kind(), provider.version)
}

fn package(template: &Path, provider: &Locked, platform: &str) -> PathBuf {
    template.join(Bundle::PROVIDERS).join(&provider.address).join(file_name(provider, platform))
}

fn installed(template: &Path, provider: &Locked, platform: &str) -> PathBuf {
    template.join(".terraform/providers").join(&provider.address).join(&provider.version).join(platform)
}

/// Packs a directory in a fixed order and with fixed times, so that the same provider produces the same bundle.
fn zip_folder(folder: &Path, target: &Path) -> anyhow::Result<()> {
    let folder = folder.canonicalize().with_context(|| format!("find {}", folder.display()))?;
    let mut zip = zip::ZipWriter::new(fs::File::create(target)?);
    let mut open = vec![folder.clone()];
    let mut files = Vec::new();
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(&path)? {
            let path = entry?.path();
            // Providers in a mirror may be links.
            let kind = fs::metadata(&path)?;
            if kind.is_dir() { open.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    for path in files {
        let name = path.strip_prefix(&folder)?.to_str().context("the name of a file is not text")?.to_owned();
        let mut file = fs::File::open(&path)?;
        let options = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Deflated)
            .last_modified_time(zip::DateTime::default())
            .unix_permissions(file.metadata()?.permissions().mode() & 0o777)
            .large_file(file.metadata()?.len() >= u64::from(u32::MAX));
        zip.start_file(name, options)?;
        let mut piece = vec![0; 1 << 16];
        loop {
            let length = file.read(&mut piece)?;
            if length == 0 {
                break;
            }
            zip.write_all(&piece[..length])?;
        }
    }
    zip.finish()?;
    Ok(())
}

/// Searches filesystem mirrors, packed and unpacked.
fn from_mirrors(
    mirrors: &[PathBuf],
    provider: &Locked,
    platform: &str,
    target: &Path,
) -> anyhow::Result<bool> {
    for mirror in mirrors {
        let folder = mirror.join(&provider.address);
        let packed = folder.join(file_name(provider, platform));
        if packed.is_file() {
            fs::copy(&packed, target).with_context(|| format!("copy {}", packed.display()))?;
            return Ok(true);
        }
        let unpacked = folder.join(&provider.version).join(platform);
        if unpacked.is_dir() {
            zip_folder(&unpacked, target)?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// The filesystem mirrors of the user's configuration, and those that Terraform uses by default.
fn mirrors() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let config = std::env::var_os("TF_CLI_CONFIG_FILE").filter(|file| !file.is_empty()).map(PathBuf::from);
    let config = config.unwrap_or_else(|| home.join(".terraformrc"));
    let text = fs::read_to_string(config).unwrap_or_default();
    let mut mirrors = configured(&text);
    if mirrors.is_empty() {
        mirrors.push(home.join(".terraform.d/plugins"));
    }
    mirrors
}

/// The paths of `filesystem_mirror` blocks. Unknown syntax is ignored, which costs a download.
fn configured(text: &str) -> Vec<PathBuf> {
    let Ok(block) = regex::Regex::new(r#"filesystem_mirror\s*\{[^}]*?\bpath\s*=\s*"((?:[^"\\]|\\.)*)""#)
    else {
        return Vec::new();
    };
    let path =
        |found: regex::Captures<'_>| PathBuf::from(found[1].replace("\\\"", "\"").replace("\\\\", "\\"));
    block.captures_iter(text).map(path).collect()
}

/// Lets Terraform download it from its registry, its only source for other platforms.
async fn from_registry(
    terraform: &BundleTerraform,
    provider: &Locked,
    platform: &str,
    target: &Path,
    staging: &Path,
) -> anyhow::Result<()> {
    let stub = tempfile::tempdir_in(staging)?;
    let text = format!(
        "terraform {{\n  required_providers {{\n    wanted = {{\n      source  = \"{}\"\n      version = \"{}\"\n    }}\n  }}\n}}\n",
        provider.address, provider.version
    );
    fs::write(stub.path().join("main.tf"), text)?;
    let args = ["providers", "mirror", "-no-color", &format!("-platform={platform}"), "mirror"];
    terraform.run(&args, stub.path()).await.with_context(|| {
        format!("fetch {} {} for {platform}: no filesystem mirror has it", provider.address, provider.version)
    })?;
    let found = stub.path().join("mirror").join(&provider.address).join(file_name(provider, platform));
    ensure!(found.is_file(), "{} {} for {platform} was not fetched", provider.address, provider.version);
    if fs::rename(&found, target).is_err() {
        bail!("{} cannot be moved to {}", found.display(), target.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider() -> Locked {
        Locked { address: "example.com/acme/two".to_owned(), version: "1.0.0".to_owned() }
    }

    #[test]
    fn mirrors_of_a_configuration() {
        let text = "plugin_cache_dir = \"/c\"\nprovider_installation {\n filesystem_mirror {\n  include = [\"a/*\"]\n  \
                    path = \"/m \\\"1\\\"\"\n }\n  filesystem_mirror { path=\"/n\" }\n network_mirror { url = \"https://x/\" }\n}";
        assert_eq!(configured(text), [PathBuf::from("/m \"1\""), PathBuf::from("/n")]);
        assert!(configured("").is_empty());
    }

    #[test]
    fn packages_come_out_of_packed_and_unpacked_mirrors() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("example.com/acme/two");
        let unpacked = folder.join("1.0.0/plan9_mips");
        fs::create_dir_all(unpacked.join("docs")).unwrap();
        fs::write(unpacked.join("terraform-provider-two_v1.0.0"), "program").unwrap();
        fs::set_permissions(
            unpacked.join("terraform-provider-two_v1.0.0"),
            fs::Permissions::from_mode(0o755),
        )
        .unwrap();
        fs::write(unpacked.join("docs/README"), "words").unwrap();
        fs::write(folder.join(file_name(&provider(), "plan9_vax")), "a zip").unwrap();
        let target = dir.path().join("out.zip");
        let mirrors = [dir.path().join("none"), dir.path().to_owned()];
        assert!(from_mirrors(&mirrors, &provider(), "plan9_vax", &target).unwrap());
        assert_eq!(fs::read(&target).unwrap(), b"a zip");
        assert!(!from_mirrors(&mirrors, &provider(), "plan9_386", &target).unwrap());
        assert!(from_mirrors(&mirrors, &provider(), "plan9_mips", &target).unwrap());
        let first = fs::read(&target).unwrap();
        let mut zip = zip::ZipArchive::new(std::io::Cursor::new(first.clone())).unwrap();
        assert_eq!(zip.len(), 2);
        assert_eq!(zip.by_name("terraform-provider-two_v1.0.0").unwrap().unix_mode().unwrap() & 0o777, 0o755);
        assert!(from_mirrors(&mirrors, &provider(), "plan9_mips", &target).unwrap());
        assert_eq!(fs::read(&target).unwrap(), first, "the same folder gives the same package");
    }
}

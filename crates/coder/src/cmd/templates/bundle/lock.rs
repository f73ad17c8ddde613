//! The lock file: which providers a template uses, and the checksums of their packages for other platforms.

use std::path::Path;

use anyhow::Context as _;
use coder_provisioner::Bundle;

use super::terraform::BundleTerraform;

/// The name of the file in a template's directory.
pub(super) const FILE: &str = ".terraform.lock.hcl";

/// Providers that are built into every daemon.
const BUILT_IN_PROVIDERS: [&str; 2] =
    ["registry.terraform.io/coder/coder", "registry.opentofu.org/coder/coder"];

/// A provider in the chosen version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Locked {
    /// `host/namespace/type`.
    pub(super) address: String,
    pub(super) version: String,
}

impl Locked {
    /// The last part of the address.
    pub(super) fn kind(&self) -> &str {
        self.address.rsplit('/').next().unwrap_or_default()
    }
}

/// The providers that `init` chose, without the built-in ones. Without providers there is no lock file.
pub(super) fn read(template: &Path) -> anyhow::Result<Vec<Locked>> {
    match std::fs::read_to_string(template.join(FILE)) {
        Ok(text) => parse(&text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).context("read the lock file"),
    }
}

fn parse(text: &str) -> anyhow::Result<Vec<Locked>> {
    let block =
        regex::Regex::new(r#"(?m)^provider "([^"/]+/[^"/]+/[^"/]+)" \{\s*^\s*version\s*=\s*"([^"]+)""#)?;
    let locked = block
        .captures_iter(text)
        .map(|found| Locked { address: found[1].to_owned(), version: found[2].to_owned() });
    Ok(locked.filter(|locked| !BUILT_IN_PROVIDERS.contains(&locked.address.as_str())).collect())
}

/// Adds the checksums of all collected packages.
pub(super) async fn complete(
    terraform: &BundleTerraform,
    locked: &[Locked],
    platforms: &[String],
    template: &Path,
) -> anyhow::Result<()> {
    if locked.is_empty() {
        return Ok(());
    }
    let mut args = ["providers", "lock", "-no-color"].map(str::to_owned).to_vec();
    args.push(format!("-fs-mirror={}", template.join(Bundle::PROVIDERS).display()));
    args.extend(platforms.iter().map(|platform| format!("-platform={platform}")));
    args.extend(locked.iter().map(|provider| provider.address.clone()));
    terraform.run(&args, template).await.context("write the checksums of the providers into the lock file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_of_a_lock_file() {
        let text = r#"
# This file is maintained automatically by "terraform init".
provider "registry.terraform.io/coder/coder" {
  version = "2.13.1"
}

provider "registry.terraform.io/hashicorp/null" {
  version     = "3.2.4"
  constraints = "~> 3.0"
  hashes = [
    "h1:x",
  ]
}
provider "example.com/acme/two" {
  version = "1.0.0-rc1"
}
"#;
        let locked = parse(text).unwrap();
        let seen: Vec<_> =
            locked.iter().map(|l| (l.address.as_str(), l.version.as_str(), l.kind())).collect();
        let wanted = [
            ("registry.terraform.io/hashicorp/null", "3.2.4", "null"),
            ("example.com/acme/two", "1.0.0-rc1", "two"),
        ];
        assert_eq!(seen, wanted);
    }
}

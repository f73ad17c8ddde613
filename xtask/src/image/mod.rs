//! The container images of `deploy/images/` as OCI archives, written without a container engine.

mod debian;
mod layer;
mod oci;
mod recipe;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use self::layer::{Entry, Layer};
use self::recipe::Recipe;
use crate::dist;
use crate::run::{root, target};

const HELP: &str = "\
usage: cargo xtask image [OPTIONS] [IMAGE…]

Writes the images of deploy/images/ (coder, coder-provisioner; both without an argument) as OCI archives, which docker load,
podman load and ctr images import read.

  --version VERSION        tag of the images, with a v before it (the version of the workspace)
  --registry REGISTRY      before the names of the images (localhost)
  --binary FILE            the program (built by cargo xtask dist)
  --ca-certificates FILE   certificate authorities of the image without Debian (/etc/ssl/certs/ca-certificates.crt)
  --debian DIRECTORY       the root directory of a minimal Debian with the packages of the recipe. Without it debootstrap makes
                           one in target/images, which needs root and the package archive
  --terraform FILE         the Terraform for provisioners (the first one in the PATH)
  --output DIRECTORY       where the archives are written (target/images)";

/// The user of every image, which is not root.
const USER: u32 = 1000;
const HOME: &str = "/home/coder";

/// What the images are made of.
pub(crate) struct Parts {
    pub(crate) version: String,
    pub(crate) registry: String,
    pub(crate) binary: PathBuf,
    pub(crate) authorities: PathBuf,
    pub(crate) debian: Option<PathBuf>,
    pub(crate) terraform: Option<PathBuf>,
    pub(crate) output: PathBuf,
}

/// `cargo xtask image`.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut parts = Parts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        registry: "localhost".to_owned(),
        binary: PathBuf::new(),
        authorities: PathBuf::from("/etc/ssl/certs/ca-certificates.crt"),
        debian: None,
        terraform: None,
        output: target().join("images"),
    };
    let mut images = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--help" {
            println!("{HELP}");
            return Ok(());
        }
        if !argument.starts_with("--") {
            images.push(argument.clone());
            continue;
        }
        let Some(value) = arguments.next().filter(|value| !value.is_empty()) else {
            bail!("{argument} needs a value\n{HELP}");
        };
        match argument.as_str() {
            "--version" => parts.version.clone_from(value),
            "--registry" => parts.registry = value.trim_end_matches('/').to_owned(),
            "--binary" => parts.binary = PathBuf::from(value),
            "--ca-certificates" => parts.authorities = PathBuf::from(value),
            "--debian" => parts.debian = Some(PathBuf::from(value)),
            "--terraform" => parts.terraform = Some(PathBuf::from(value)),
            "--output" => parts.output = PathBuf::from(value),
            _ => bail!("unknown argument {argument}\n{HELP}"),
        }
    }
    if images.is_empty() {
        images = vec!["coder".to_owned(), "coder-provisioner".to_owned()];
    }
    if parts.binary.as_os_str().is_empty() {
        parts.binary = dist::run()?;
    }
    for image in images {
        let recipe = Recipe::read(&root().join("deploy/images").join(format!("{image}.json")))?;
        println!("{}", write(&recipe, &parts)?.display());
    }
    Ok(())
}

/// Writes the archive of one image and returns its path.
pub(crate) fn write(recipe: &Recipe, parts: &Parts) -> Result<PathBuf> {
    let binary = std::fs::read(&parts.binary)
        .with_context(|| format!("cannot read the program {}", parts.binary.display()))?;
    let architecture = dist::architecture(&binary).with_context(|| {
        format!("{} is not a program of Linux for x86-64 or ARM64", parts.binary.display())
    })?;
    ensure!(
        recipe.debian.is_some() || !dist::has_interpreter(&binary),
        "{} is dynamically linked, and the image {} has no libraries: cargo xtask dist builds a static one",
        parts.binary.display(),
        recipe.name
    );
    let mut layers = Vec::new();
    let mut users = Users::default();
    if let Some(debian) = &recipe.debian {
        let directory = match &parts.debian {
            Some(directory) => directory.clone(),
            None => debian::bootstrap(debian)?,
        };
        users = Users::read(&directory)?;
        layers.push(debian::layer(&directory)?);
    }
    if recipe.terraform {
        let terraform = match &parts.terraform {
            Some(path) => path.clone(),
            None => {
                find_program("terraform").context("no terraform in the PATH: name one with --terraform")?
            }
        };
        let mut layer = Layer::default();
        layer.add("usr/local/bin/terraform", Entry::program(terraform));
        layers.push(layer);
    }
    layers.push(own_layer(recipe, parts, &users));
    let reference = format!("{}/{}:v{}", parts.registry, recipe.name, parts.version);
    std::fs::create_dir_all(&parts.output)
        .with_context(|| format!("cannot make {}", parts.output.display()))?;
    let path = parts.output.join(format!("{}-v{}-{architecture}.tar", recipe.name, parts.version));
    oci::write(&path, &reference, &recipe.config(&parts.version, architecture), &layers)?;
    Ok(path)
}

/// The program, the user and the directories that it may write to.
fn own_layer(recipe: &Recipe, parts: &Parts, users: &Users) -> Layer {
    let mut layer = Layer::default();
    layer.add("opt/coder", Entry::program(parts.binary.clone()));
    layer.add("usr/local/bin/coder", Entry::link("/opt/coder"));
    layer.add("etc/passwd", Entry::text(format!("{}coder:x:{USER}:{USER}::{HOME}:/bin/sh\n", users.passwd)));
    layer.add("etc/group", Entry::text(format!("{}coder:x:{USER}:\n", users.group)));
    layer.add("tmp", Entry::directory(0o1777, 0));
    layer.add("home/coder", Entry::directory(0o755, USER));
    // Writable for everybody: a container may run as any user, and engines copy the mode to volumes, but not always the owner.
    for path in ["var/lib/coder", "var/cache/coder"] {
        layer.add(path, Entry::directory(0o1777, USER));
    }
    if recipe.debian.is_none() {
        layer.add("etc/ssl/certs/ca-certificates.crt", Entry::file(parts.authorities.clone()));
        // The server hands the slim builds beside its program out to workspaces.
        for name in ["coder-linux-amd64", "coder-linux-arm64"] {
            let slim = parts.binary.with_file_name(name);
            if slim.is_file() {
                layer.add(Path::new("opt").join(name), Entry::program(slim));
            }
        }
    }
    layer
}

/// The accounts of the system below ours.
struct Users {
    passwd: String,
    group: String,
}

impl Default for Users {
    fn default() -> Self {
        Self { passwd: "root:x:0:0:root:/:/sbin/nologin\n".to_owned(), group: "root:x:0:\n".to_owned() }
    }
}

impl Users {
    fn read(directory: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = directory.join("etc").join(name);
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        Ok(Self { passwd: read("passwd")?, group: read("group")? })
    }
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|candidate| candidate.is_file())
}

//! What an image consists of: a file in `deploy/images/`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{HOME, USER};

/// One image.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recipe {
    pub(crate) name: String,
    description: String,
    /// What is below the program; nothing without it.
    pub(crate) debian: Option<Debian>,
    /// Whether it has Terraform.
    #[serde(default)]
    pub(crate) terraform: bool,
    entrypoint: Vec<String>,
    #[serde(default)]
    command: Vec<String>,
    environment: BTreeMap<String, String>,
    ports: Vec<u16>,
}

/// A minimal Debian.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Debian {
    pub(crate) suite: String,
    pub(crate) packages: Vec<String>,
}

impl Recipe {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("no image has this recipe: cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is not a recipe", path.display()))
    }

    /// The configuration of the image, without its layers.
    pub(super) fn config(&self, version: &str, architecture: &str) -> Value {
        let mut environment = self.environment.clone();
        environment.insert("HOME".to_owned(), HOME.to_owned());
        environment.insert(
            "PATH".to_owned(),
            // The operator starts `coder`, as the official one does.
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt".to_owned(),
        );
        let environment: Vec<_> = environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let ports: BTreeMap<_, _> =
            self.ports.iter().map(|port| (format!("{port}/tcp"), json!({}))).collect();
        json!({
            "created": "1970-01-01T00:00:00Z",
            "architecture": architecture,
            "os": "linux",
            "config": {
                // As numbers, so that Kubernetes can tell that it is not root.
                "User": format!("{USER}:{USER}"),
                "WorkingDir": HOME,
                "Env": environment,
                "Entrypoint": self.entrypoint,
                "Cmd": self.command,
                "ExposedPorts": ports,
                "Labels": {
                    "org.opencontainers.image.title": self.name,
                    "org.opencontainers.image.description": self.description,
                    "org.opencontainers.image.version": version,
                },
            },
        })
    }
}

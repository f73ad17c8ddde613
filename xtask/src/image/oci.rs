//! An image as an OCI archive. `manifest.json` is for engines that only read Docker's archives.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

use super::layer::Layer;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Writes the archive of an image with one name (`registry/name:tag`).
pub(super) fn write(path: &Path, reference: &str, config: &Value, layers: &[Layer]) -> Result<()> {
    let directory = path.parent().context("an archive without a directory")?;
    let scratch = tempfile::tempdir_in(directory).context("a directory for the layers")?;
    let mut written = Vec::new();
    for (number, layer) in layers.iter().enumerate() {
        let file = scratch.path().join(format!("layer-{number}"));
        written.push((layer.write(&file)?, file));
    }
    let mut config = config.clone();
    let differences: Vec<_> = written.iter().map(|(layer, _)| &layer.diff).collect();
    config["rootfs"] = json!({ "type": "layers", "diff_ids": differences });
    let config = serde_json::to_vec(&config)?;
    let descriptors: Vec<_> = written
        .iter()
        .map(|(layer, _)| json!({ "mediaType": LAYER, "digest": layer.digest, "size": layer.size }))
        .collect();
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": { "mediaType": CONFIG, "digest": digest(&config), "size": config.len() },
        "layers": descriptors,
    }))?;
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{
            "mediaType": MANIFEST,
            "digest": digest(&manifest),
            "size": manifest.len(),
            "annotations": {
                // The first is the tag, for OCI tools; the second the whole name, for containerd.
                "org.opencontainers.image.ref.name": reference.rsplit(':').next(),
                "io.containerd.image.name": reference,
            },
        }],
    });
    let blobs: Vec<_> = written.iter().map(|(layer, _)| blob(&layer.digest)).collect();
    let docker = json!([{ "Config": blob(&digest(&config)), "RepoTags": [reference], "Layers": blobs }]);

    // Written to the side and renamed: an interrupted run leaves no broken archive.
    let fresh = scratch.path().join("archive");
    let mut archive = Archive(Builder::new(File::create(&fresh)?));
    archive.bytes("oci-layout", &serde_json::to_vec(&json!({ "imageLayoutVersion": "1.0.0" }))?)?;
    archive.bytes("index.json", &serde_json::to_vec(&index)?)?;
    archive.bytes("manifest.json", &serde_json::to_vec(&docker)?)?;
    archive.bytes(&blob(&digest(&config)), &config)?;
    archive.bytes(&blob(&digest(&manifest)), &manifest)?;
    let mut names: Vec<&str> = Vec::new();
    for (layer, file) in &written {
        if !names.contains(&layer.digest.as_str()) {
            names.push(&layer.digest);
            archive.add(&blob(&layer.digest), layer.size, File::open(file)?)?;
        }
    }
    archive.0.into_inner()?.sync_all()?;
    std::fs::rename(&fresh, path).with_context(|| format!("cannot write {}", path.display()))
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// The place of a blob in the archive.
fn blob(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}

struct Archive(Builder<File>);

impl Archive {
    fn bytes(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.add(name, bytes.len() as u64, bytes)
    }

    fn add(&mut self, name: &str, size: u64, content: impl std::io::Read) -> Result<()> {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_size(size);
        header.set_mtime(0);
        self.0.append_data(&mut header, name, content).with_context(|| format!("adding {name}"))
    }
}

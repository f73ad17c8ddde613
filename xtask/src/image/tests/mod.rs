//! Layers and archives; and the images started by podman.

mod containers;

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::recipe::Recipe;
use super::{Parts, debian, write};
use crate::run::root;

fn recipe(name: &str) -> Recipe {
    Recipe::read(&root().join("deploy/images").join(format!("{name}.json"))).unwrap()
}

/// Parts in a directory: the program is one that an image can have, if it cannot be started.
fn parts(directory: &Path) -> Parts {
    let file = |name: &str, bytes: &[u8]| {
        let path = directory.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let mut elf = vec![0_u8; 64];
    elf[..4].copy_from_slice(b"\x7fELF");
    elf[18] = 62;
    let debian = directory.join("debian");
    std::fs::create_dir_all(debian.join("etc")).unwrap();
    std::fs::write(debian.join("etc/passwd"), "root:x:0:0:root:/root:/bin/bash\n").unwrap();
    std::fs::write(debian.join("etc/group"), "root:x:0:\n").unwrap();
    Parts {
        version: "1.2.3".to_owned(),
        registry: "registry.example.com".to_owned(),
        binary: file("coder", &elf),
        authorities: file("authorities", b"authorities"),
        debian: Some(debian),
        terraform: Some(file("terraform", b"terraform")),
        output: directory.join("output"),
    }
}

/// The files of an archive.
fn unpack(bytes: impl std::io::Read) -> BTreeMap<PathBuf, (tar::Header, Vec<u8>)> {
    let mut archive = tar::Archive::new(bytes);
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (entry.path().unwrap().into_owned(), (entry.header().clone(), content))
    });
    entries.collect()
}

/// An archive whose digests were checked: the configuration, and the files of all layers.
fn open(path: &Path) -> (Value, BTreeMap<PathBuf, (tar::Header, Vec<u8>)>) {
    let files = unpack(std::fs::File::open(path).unwrap());
    let parse = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap();
        let (_, content) = &files[Path::new(&format!("blobs/{}", digest.replace(':', "/")))];
        assert_eq!(digest, format!("sha256:{}", hex::encode(Sha256::digest(content))));
        assert_eq!(descriptor["size"], content.len());
        content
    };
    assert_eq!(parse(&files[Path::new("oci-layout")].1), json!({ "imageLayoutVersion": "1.0.0" }));
    let index = parse(&files[Path::new("index.json")].1);
    let manifest = parse(blob(&index["manifests"][0]));
    let config = parse(blob(&manifest["config"]));
    let docker = parse(&files[Path::new("manifest.json")].1);
    assert_eq!(docker[0]["RepoTags"][0], index["manifests"][0]["annotations"]["io.containerd.image.name"]);
    let mut all = BTreeMap::new();
    let layers = manifest["layers"].as_array().unwrap();
    assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), layers.len());
    for (layer, difference) in layers.iter().zip(config["rootfs"]["diff_ids"].as_array().unwrap()) {
        let mut plain = Vec::new();
        GzDecoder::new(blob(layer).as_slice()).read_to_end(&mut plain).unwrap();
        assert_eq!(difference, &json!(format!("sha256:{}", hex::encode(Sha256::digest(&plain)))));
        all.extend(unpack(plain.as_slice()));
    }
    (config, all)
}

#[test]
fn equal_parts_make_equal_archives() {
    for name in ["coder", "coder-provisioner"] {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let paths = [&one, &two].map(|directory| write(&recipe(name), &parts(directory.path())).unwrap());
        assert_eq!(paths[0].file_name(), paths[1].file_name());
        assert!(paths[0].ends_with(format!("{name}-v1.2.3-amd64.tar")));
        let [one, two] = paths.map(|path| std::fs::read(path).unwrap());
        assert!(one == two, "{name}");
    }
}

#[test]
fn the_image_of_the_server_has_the_program_and_a_user() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("coder-linux-arm64"), "slim").unwrap();
    let (config, files) = open(&write(&recipe("coder"), &parts(directory.path())).unwrap());
    assert_eq!(files[Path::new("opt/coder-linux-arm64")].1, b"slim", "for workspaces");
    assert!(!files.contains_key(Path::new("opt/coder-linux-amd64")), "only what was built");
    let config = &config["config"];
    assert_eq!(config["User"], "1000:1000");
    assert_eq!(config["Entrypoint"], json!(["/opt/coder", "server"]));
    let environment = config["Env"].as_array().unwrap();
    assert!(environment.contains(&json!("HOME=/home/coder")), "{environment:?}");
    let mode = |path: &str| files[Path::new(path)].0.mode().unwrap();
    let owner = |path: &str| files[Path::new(path)].0.uid().unwrap();
    assert_eq!((mode("opt/coder"), owner("opt/coder")), (0o755, 0));
    assert_eq!((mode("tmp"), owner("tmp")), (0o1777, 0));
    for (path, wanted) in [("home/coder", 0o755), ("var/lib/coder", 0o1777), ("var/cache/coder", 0o1777)] {
        assert_eq!((owner(path), mode(path)), (1000, wanted), "{path}");
    }
    assert_eq!(files[Path::new("etc/ssl/certs/ca-certificates.crt")].1, b"authorities");
    let users = String::from_utf8(files[Path::new("etc/passwd")].1.clone()).unwrap();
    assert!(users.contains("\ncoder:x:1000:1000::/home/coder:/bin/sh\n"), "{users}");
    assert!(!files.contains_key(Path::new("usr/local/bin/terraform")));
}

#[test]
fn the_image_of_provisioners_has_terraform_above_debian() {
    let directory = tempfile::tempdir().unwrap();
    let (config, files) = open(&write(&recipe("coder-provisioner"), &parts(directory.path())).unwrap());
    assert_eq!(config["config"]["Entrypoint"], json!(["/opt/coder"]));
    assert_eq!(config["config"]["Cmd"], json!(["provisioner", "start"]));
    assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), 3);
    assert_eq!(files[Path::new("usr/local/bin/terraform")].1, b"terraform");
    assert_eq!(files[Path::new("usr/local/bin/terraform")].0.mode().unwrap(), 0o755);
    let users = String::from_utf8(files[Path::new("etc/passwd")].1.clone()).unwrap();
    assert_eq!(users, "root:x:0:0:root:/root:/bin/bash\ncoder:x:1000:1000::/home/coder:/bin/sh\n");
    assert!(!files.contains_key(Path::new("etc/ssl/certs/ca-certificates.crt")), "Debian has its own");
}

#[test]
fn a_debian_layer_has_what_a_container_needs_of_a_root_directory() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    for folder in ["usr/bin", "usr/share/man/man1", "dev", "var/log", "etc"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    for file in
        ["usr/bin/perl", "usr/bin/su", "usr/share/man/man1/su.1", "var/log/bootstrap.log", "etc/machine-id"]
    {
        std::fs::write(root.join(file), file).unwrap();
    }
    std::fs::hard_link(root.join("usr/bin/perl"), root.join("usr/bin/perl5")).unwrap();
    std::fs::set_permissions(root.join("usr/bin/su"), Permissions::from_mode(0o4755)).unwrap();
    std::os::unix::fs::symlink("usr/bin", root.join("bin")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(root.join("etc/socket")).unwrap();

    let file = directory.path().join("var/log/layer");
    debian::layer(root).unwrap().write(&file).unwrap();
    let files = unpack(GzDecoder::new(std::fs::File::open(&file).unwrap()));
    let names: Vec<_> = files.keys().map(|path| path.to_str().unwrap().trim_end_matches('/')).collect();
    assert_eq!(
        names,
        [
            "bin",
            "dev",
            "etc",
            "usr",
            "usr/bin",
            "usr/bin/perl",
            "usr/bin/perl5",
            "usr/bin/su",
            "usr/share",
            "usr/share/man",
            "var",
            "var/log"
        ]
    );
    let header = |path: &str| &files[Path::new(path)].0;
    assert_eq!(header("usr/bin/su").mode().unwrap(), 0o755, "no program changes the user");
    assert_eq!(header("bin").link_name().unwrap().unwrap(), Path::new("usr/bin"));
    assert_eq!(header("usr/bin/perl5").entry_type(), tar::EntryType::Link);
    assert_eq!(header("usr/bin/perl5").link_name().unwrap().unwrap(), Path::new("usr/bin/perl"));
    assert_eq!(header("usr/bin/perl").mtime().unwrap(), 0);
}

#[test]
fn unusable_parts_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut parts = parts(directory.path());
    parts.binary = std::env::current_exe().unwrap();
    let error = write(&recipe("coder"), &parts).unwrap_err();
    assert!(format!("{error:#}").contains("is dynamically linked"), "{error:#}");
    parts.binary = directory.path().join("authorities");
    let error = write(&recipe("coder"), &parts).unwrap_err();
    assert!(format!("{error:#}").contains("not a program of Linux"), "{error:#}");
    let error = Recipe::read(Path::new("/nowhere/x.json")).err().unwrap();
    assert!(format!("{error:#}").contains("no image has this recipe"), "{error:#}");
    for wrong in [&["--version"][..], &["--version="], &["--colour", "red"]] {
        let arguments: Vec<_> = wrong.iter().map(|&word| word.to_owned()).collect();
        let error = super::run(&arguments).unwrap_err();
        assert!(error.to_string().contains("usage: cargo xtask image"), "{wrong:?}: {error}");
    }
}

#[test]
fn the_compose_file_starts_the_images_of_this_version_hardened() {
    let text = std::fs::read_to_string(root().join("deploy/compose/compose.yaml")).unwrap();
    let file: Value = serde_saphyr::from_str(&text).unwrap();
    for (service, image) in [("server", "coder"), ("provisioner", "coder-provisioner")] {
        let service = &file["services"][service];
        let version = env!("CARGO_PKG_VERSION");
        let wanted = format!("${{CODER_REGISTRY:-localhost}}/{image}:${{CODER_VERSION:-v{version}}}");
        assert_eq!(service["image"], wanted.as_str());
        assert_eq!(service["read_only"], true);
        assert_eq!(service["cap_drop"], json!(["ALL"]));
        assert_eq!(service["security_opt"], json!(["no-new-privileges"]));
        // What the image writes to is writable nevertheless.
        let places = service["tmpfs"]
            .as_array()
            .unwrap()
            .iter()
            .chain(service["volumes"].as_array().into_iter().flatten());
        let places: Vec<_> = places.map(|place| place.as_str().unwrap()).collect();
        for directory in ["/tmp", "/var/cache/coder"] {
            assert!(places.iter().any(|place| place.split(':').any(|part| part == directory)), "{places:?}");
        }
    }
    assert_eq!(file["services"]["server"]["depends_on"]["database"]["condition"], "service_healthy");
}

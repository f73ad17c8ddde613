//! Providers from mirrors in Terraform's configuration: over HTTPS with a private authority, and from a
//! directory.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::daemon_process::{Child, SLOTS, listen};
use crate::fake_server::{Record, Server};
use crate::fixture::{PLAIN, start, tar};
use crate::hostile_templates::{NEEDS_ONE, packed_mirror};
use crate::release_server::{Remote, Tls};

const PROVIDERS: [&str; 3] = ["one", "two", "three"];

/// What a successful `init` logs.
const READY: &str = "has been successfully initialized";

/// Installing needs only a program of the right name; the next plan would need one that works.
pub(crate) const PROGRAM: &str = "#!/bin/sh\nexit 1\n";

pub(crate) fn platform() -> &'static str {
    if cfg!(target_arch = "aarch64") { "linux_arm64" } else { "linux_amd64" }
}

/// A template that needs all providers.
fn template(number: usize) -> String {
    let providers =
        PROVIDERS.map(|name| format!("    {name} = {{ source = \"example.test/acme/{name}\" }}\n"));
    format!("# {number}\nterraform {{\n  required_providers {{\n{}  }}\n}}\n{PLAIN}", providers.concat())
}

/// Creates a mirror as Terraform reads it over the network.
fn network_mirror(root: &Path) {
    for name in PROVIDERS {
        let dir = root.join("providers/example.test/acme").join(name);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("index.json"), r#"{"versions":{"1.0.0":{}}}"#).unwrap();
        let archives = format!(r#"{{"archives":{{"{}":{{"url":"{name}.zip"}}}}}}"#, platform());
        std::fs::write(dir.join("1.0.0.json"), archives).unwrap();
        let mut zip = zip::ZipWriter::new(std::fs::File::create(dir.join(format!("{name}.zip"))).unwrap());
        let options = zip::write::SimpleFileOptions::default().unix_permissions(0o755);
        zip.start_file(format!("terraform-provider-{name}_v1.0.0"), options).unwrap();
        zip.write_all(PROGRAM.as_bytes()).unwrap();
        zip.finish().unwrap();
    }
}

pub(crate) fn configuration(dir: &Path, installation: &str) -> PathBuf {
    let path = dir.join("terraform.rc");
    std::fs::write(&path, format!("provider_installation {{\n  {installation}\n}}\n")).unwrap();
    path
}

pub(crate) async fn ended(server: &Server, jobs: usize) -> Record {
    // One job initializes after the other, on machines of any speed.
    let read_timeout = Duration::from_secs(60 + 5 * jobs as u64);
    let over = |record: &Record| record.completed.len() + record.failed.len() == jobs;
    server.wait_for_long("the jobs", read_timeout, over).await
}

/// How many of the jobs finished their `init`.
fn initialised(record: &Record) -> usize {
    let ready = record.lines().filter(|line| line.output.contains(READY)).count();
    for failed in &record.failed {
        assert!(!failed.error.contains("initialize terraform"), "{}", failed.error);
    }
    ready
}

/// `CODER_TEST_COLD_STARTS` sets the number; the default is 8.
#[tokio::test(flavor = "multi_thread")]
async fn parallel_cold_starts_download_each_provider_once() {
    coder_requirements::require!(Terraform);
    let count = std::env::var("CODER_TEST_COLD_STARTS").map_or(8, |count| count.parse().unwrap());
    let (server, dir, tls) = (Server::new(), tempfile::tempdir().unwrap(), Tls::new());
    network_mirror(&dir.path().join("mirror"));
    let remote = Remote::start(dir.path().join("mirror"), Some(&tls)).await;
    let authority = dir.path().join("authority.pem");
    std::fs::write(&authority, &tls.authority).unwrap();
    let installation = format!("network_mirror {{ url = \"{}providers/\" }}", remote.url());
    let rc = configuration(dir.path(), &installation);
    let socket = dir.path().join("socket");
    listen(&server, &socket);
    let slots = Path::new("8");
    let variables =
        [("TF_CLI_CONFIG_FILE", rc.as_path()), ("SSL_CERT_FILE", authority.as_path()), (SLOTS, slots)];
    // Two processes that share one cache.
    let cache = dir.path().join("cache");
    let children = [(); 2].map(|()| Child::start(&socket, &cache, &variables));
    for number in 0..count {
        server.give(start(tar(&[("main.tf", &template(number))])));
    }
    assert_eq!(initialised(&ended(&server, count).await), count);
    for name in PROVIDERS {
        assert_eq!(remote.count(&format!("/{name}.zip")), 1, "{:?}", remote.requests());
    }
    // A daemon that starts later downloads nothing either.
    drop(children);
    let before = server.record().acquires;
    let _child = Child::start(&socket, &cache, &variables);
    // Otherwise the job could go to one that was just killed.
    server.wait_for("the new daemon", |record| record.acquires > before).await;
    server.give(start(tar(&[("main.tf", &template(count))])));
    assert_eq!(initialised(&ended(&server, count + 1).await), count + 1);
    assert_eq!(remote.count(".zip"), PROVIDERS.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_in_a_folder_needs_no_network() {
    use std::os::unix::fs::PermissionsExt as _;
    coder_requirements::require!(Terraform);
    let (server, dir) = (Server::new(), tempfile::tempdir().unwrap());
    for name in PROVIDERS {
        let package = dir.path().join("mirror/example.test/acme").join(name).join("1.0.0").join(platform());
        std::fs::create_dir_all(&package).unwrap();
        let program = package.join(format!("terraform-provider-{name}_v1.0.0"));
        std::fs::write(&program, PROGRAM).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mirror = dir.path().join("mirror");
    let rc = configuration(dir.path(), &format!("filesystem_mirror {{ path = \"{}\" }}", mirror.display()));
    let socket = dir.path().join("socket");
    listen(&server, &socket);
    let _child = Child::start(&socket, &dir.path().join("cache"), &[("TF_CLI_CONFIG_FILE", &rc)]);
    server.give(start(tar(&[("main.tf", &template(0))])));
    let record = ended(&server, 1).await;
    assert_eq!(initialised(&record), 1);
    let shown = format!("TF_CLI_CONFIG_FILE={}", rc.display());
    assert!(record.has_line(&shown), "a job says which configuration it uses");
}

/// A lock file made on another platform lists archive hashes of all platforms, and unpacked ones of that
/// platform only.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_another_platform_is_good_for_the_second_template_too() {
    use sha2::Digest as _;
    coder_requirements::require!(Terraform);
    let (server, dir) = (Server::new(), tempfile::tempdir().unwrap());
    let zip = packed_mirror(&dir.path().join("mirror"));
    let sum: String =
        sha2::Sha256::digest(std::fs::read(zip).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect();
    let mirror = format!("filesystem_mirror {{ path = \"{}\" }}", dir.path().join("mirror").display());
    let rc = configuration(dir.path(), &mirror);
    let socket = dir.path().join("socket");
    listen(&server, &socket);
    let _child = Child::start(&socket, &dir.path().join("cache"), &[("TF_CLI_CONFIG_FILE", &rc)]);
    let lock = format!(
        "provider \"example.test/acme/one\" {{\n  version = \"1.0.0\"\n  hashes = [\n    \"h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\",\n    \"zh:{sum}\",\n  ]\n}}\n"
    );
    for count in 1..=2 {
        let main = format!("# {count}\n{NEEDS_ONE}");
        server.give(start(tar(&[("main.tf", &main), (".terraform.lock.hcl", &lock)])));
        assert_eq!(initialised(&ended(&server, count).await), count);
    }
}

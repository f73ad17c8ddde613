//! Modules are fetched once per machine, and always the requested version.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use coder_wire::messages::provisionerd::completed_job::Type;

use crate::daemon_process::{Child, SLOTS, listen};
use crate::fake_server::{Record, Server};
use crate::fixture::{PLAIN, Running, edit_build, import, start, tar};
use crate::provider_mirrors::ended;
use crate::release_server::{Fault, Remote, Tls};

fn zip(path: &Path, text: &str) {
    let mut zip = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    zip.start_file("main.tf", zip::write::SimpleFileOptions::default()).unwrap();
    zip.write_all(text.as_bytes()).unwrap();
    zip.finish().unwrap();
}

fn resource(name: &str) -> String {
    PLAIN.replace("\"a\"", &format!("\"{name}\""))
}

/// A registry with these versions of one module; the newest one calls another module of it.
fn registry(root: &Path, versions: &[&str]) {
    let dir = |name: &str| root.join("modules/acme").join(name).join("test");
    std::fs::create_dir_all(root.join(".well-known")).unwrap();
    std::fs::write(root.join(".well-known/terraform.json"), r#"{"modules.v1":"/modules/"}"#).unwrap();
    for (name, versions) in [("one", versions), ("inner", &["3.0.0"])] {
        let listed: Vec<String> =
            versions.iter().map(|version| format!("{{\"version\":\"{version}\"}}")).collect();
        std::fs::create_dir_all(dir(name)).unwrap();
        let text = format!("{{\"modules\":[{{\"versions\":[{}]}}]}}", listed.join(","));
        std::fs::write(dir(name).join("versions"), text).unwrap();
        for version in versions {
            let place = dir(name).join(version);
            std::fs::create_dir_all(&place).unwrap();
            std::fs::write(place.join("download"), format!("../{version}.zip")).unwrap();
            zip(
                &dir(name).join(format!("{version}.zip")),
                &resource(&format!("v{}", version.replace('.', "_"))),
            );
        }
    }
}

fn call(name: &str, source: &str, version: Option<&str>) -> String {
    let version = version.map(|version| format!("  version = \"{version}\"\n")).unwrap_or_default();
    format!("module \"{name}\" {{\n  source = \"{source}\"\n{version}}}\n")
}

/// The addresses of all resources of the imports, in the order of completion.
fn resources(record: &Record) -> Vec<Vec<String>> {
    assert!(record.failed.is_empty(), "{:?}", record.failed);
    let of = |kind: &Option<Type>| {
        let Some(Type::TemplateImport(import)) = kind else { panic!("no import") };
        let mut names: Vec<String> =
            import.start_resources.iter().map(|one| format!("{}.{}", one.module_path, one.name)).collect();
        names.sort();
        names
    };
    record.completed.iter().map(|completed| of(&completed.r#type)).collect()
}

/// `CODER_TEST_COLD_STARTS` sets the number; the default is 8.
#[tokio::test(flavor = "multi_thread")]
async fn parallel_cold_starts_download_each_module_once() {
    coder_requirements::require!(Terraform);
    let count = std::env::var("CODER_TEST_COLD_STARTS").map_or(8, |count| count.parse().unwrap());
    let (server, dir, tls) = (Server::new(), tempfile::tempdir().unwrap(), Tls::new());
    let root = dir.path().join("remote");
    registry(&root, &["1.0.0", "1.2.0", "2.0.0-rc1"]);
    zip(&root.join("archive.zip"), &resource("archived"));
    let remote = Remote::start(&root, Some(&tls)).await;
    let host = remote.url().replace("https://", "").trim_end_matches('/').to_owned();
    let authority = dir.path().join("authority.pem");
    std::fs::write(&authority, &tls.authority).unwrap();
    let nested = call("inner", &format!("{host}/acme/inner/test"), Some("3.0.0"));
    zip(&root.join("modules/acme/one/test/1.2.0.zip"), &format!("{}{nested}", resource("v1_2_0")));
    let socket = dir.path().join("socket");
    listen(&server, &socket);
    let nothing = Path::new("/dev/null");
    let variables =
        [("TF_CLI_CONFIG_FILE", nothing), ("SSL_CERT_FILE", authority.as_path()), (SLOTS, Path::new("8"))];
    let cache = dir.path().join("cache");
    let children = [(); 2].map(|()| Child::start(&socket, &cache, &variables));
    let template = |number: usize| {
        let one = format!("{host}/acme/one/test");
        let calls = [
            call("exact", &one, Some("1.0.0")),
            call("range", &one, Some("~> 1.0")),
            call("newest", &one, None),
            call("archive", &format!("https://{host}/archive.zip"), None),
            call("beside", "./beside", None),
        ];
        let beside = call("far", &one, Some("= 1.0.0"));
        tar(&[("main.tf", &format!("# {number}\n{}", calls.concat())), ("beside/main.tf", &beside)])
    };
    for number in 0..count {
        server.give(import(template(number), &[]));
    }
    let wanted = [
        "module.archive.archived",
        "module.beside.module.far.v1_0_0",
        "module.exact.v1_0_0",
        "module.newest.module.inner.v3_0_0",
        "module.newest.v1_2_0",
        "module.range.module.inner.v3_0_0",
        "module.range.v1_2_0",
    ];
    assert_eq!(resources(&ended(&server, count).await), vec![wanted; count]);
    let counts = || ["/1.0.0.zip", "/1.2.0.zip", "/3.0.0.zip", "archive.zip"].map(|name| remote.count(name));
    assert_eq!(counts(), [1; 4], "{:?}", remote.requests());

    // A later daemon downloads only what is new.
    drop(children);
    registry(&root, &["1.0.0", "1.2.0", "1.3.0"]);
    let before = server.record().acquires;
    let _child = Child::start(&socket, &cache, &variables);
    server.wait_for("the new daemon", |record| record.acquires > before).await;
    server.give(import(template(count), &[]));
    let found = resources(&ended(&server, count + 1).await).pop().unwrap();
    assert!(
        found.contains(&"module.range.v1_3_0".to_owned())
            && found.contains(&"module.newest.v1_3_0".to_owned())
    );
    assert!(found.contains(&"module.exact.v1_0_0".to_owned()), "{found:?}");
    assert_eq!((counts(), remote.count("/1.3.0.zip")), ([1; 4], 1), "{:?}", remote.requests());

    // An exact version needs no registry.
    remote.fail(".well-known/terraform.json", Fault::Status(503));
    let exact = call("m", &format!("{host}/acme/one/test"), Some("1.2.0"));
    server.give(import(tar(&[("main.tf", &exact)]), &[]));
    let found = resources(&ended(&server, count + 2).await).pop().unwrap();
    assert_eq!(found, ["module.m.module.inner.v3_0_0", "module.m.v1_2_0"]);
}

/// A module that did not fit into the server's archive is fetched again by a build on another machine, in the
/// imported version and not in the newest.
#[tokio::test(flavor = "multi_thread")]
async fn a_build_fetches_the_version_that_was_imported() {
    coder_requirements::require!(Terraform);
    let (server, dir, tls) = (Server::new(), tempfile::tempdir().unwrap(), Tls::new());
    let root = dir.path().join("remote");
    registry(&root, &["1.0.0", "1.2.0"]);
    let remote = Remote::start(&root, Some(&tls)).await;
    let source = format!("{}acme/one/test", remote.url().replace("https://", ""));
    let authority = dir.path().join("authority.pem");
    std::fs::write(&authority, &tls.authority).unwrap();
    let entry = format!(
        "{{\"Key\":\"m\",\"Source\":\"{source}\",\"Version\":\"1.0.0\",\"Dir\":\".terraform/modules/m\"}}"
    );
    let manifest = format!("{{\"Modules\":[{{\"Key\":\"\",\"Source\":\"\",\"Dir\":\".\"}},{entry}]}}");
    server.set_module_files(tar(&[(".terraform/modules/modules.json", &manifest)]));
    let mut job = start(tar(&[("main.tf", &call("m", &source, Some(">= 1.0")))]));
    edit_build(&mut job, |build| {
        let metadata = build.metadata.as_mut().unwrap();
        metadata.template_version_modules_file = uuid::Uuid::new_v4().to_string();
    });
    let socket = dir.path().join("socket");
    listen(&server, &socket);
    let variables = [("TF_CLI_CONFIG_FILE", Path::new("/dev/null")), ("SSL_CERT_FILE", authority.as_path())];
    let _child = Child::start(&socket, &dir.path().join("cache"), &variables);
    server.give(job);
    let (_, result) = server.completed().await;
    let Type::WorkspaceBuild(result) = result else { panic!("no build") };
    assert_eq!(result.resources[0].name, "v1_0_0");
    assert_eq!(result.modules[0].version, "1.0.0");
    assert_eq!((remote.count("/1.0.0.zip"), remote.count("/1.2.0.zip")), (1, 0));
}

struct Repository {
    dir: PathBuf,
}

impl Repository {
    fn git(&self, args: &[&str]) -> bool {
        let identity =
            ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"];
        let mut command = Command::new("git");
        command.current_dir(&self.dir).args(identity).args(args);
        command.output().is_ok_and(|output| output.status.success())
    }

    fn commit(&self, name: &str) {
        std::fs::write(self.dir.join("main.tf"), resource(name)).unwrap();
        assert!(self.git(&["add", "main.tf"]) && self.git(&["commit", "-m", name]));
    }
}

/// A branch or tag is resolved each time; its commit is fetched once.
#[tokio::test(flavor = "multi_thread")]
async fn a_repository_is_fetched_again_for_a_new_commit() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    let running = Running::start(&server);
    let repository = Repository { dir: running.dir.path().join("repository") };
    std::fs::create_dir(&repository.dir).unwrap();
    coder_requirements::require!(Git);
    assert!(repository.git(&["init"]));
    repository.commit("first");
    assert!(repository.git(&["tag", "-a", "v1", "-m", "one"]));
    let source = format!("git::file://{}", repository.dir.display());
    let main = format!("{}{}", call("branch", &source, None), call("tag", &format!("{source}?ref=v1"), None));
    let import_number = async |number: usize| {
        server.give(import(tar(&[("main.tf", &format!("# {number}\n{main}"))]), &[]));
        let record = server
            .wait_for("an import", |record| record.completed.len() + record.failed.len() == number)
            .await;
        let lines = record.lines().filter(|line| line.output.contains("Downloading git::")).count();
        (resources(&record).pop().unwrap(), lines)
    };
    let both = ["module.branch.first", "module.tag.first"];
    assert_eq!(import_number(1).await, (both.map(str::to_owned).to_vec(), 2));
    assert_eq!(import_number(2).await, (both.map(str::to_owned).to_vec(), 2), "nothing is new");
    repository.commit("second");
    let mixed = ["module.branch.second", "module.tag.first"];
    assert_eq!(import_number(3).await, (mixed.map(str::to_owned).to_vec(), 3), "the branch is");
    // Terraform reports a server that cannot be reached.
    std::fs::rename(&repository.dir, running.dir.path().join("away")).unwrap();
    server.give(import(tar(&[("main.tf", &format!("# 4\n{main}"))]), &[]));
    let record = server.wait_for("the last import", |record| !record.failed.is_empty()).await;
    assert!(record.failed[0].error.contains("Failed to download module"), "{}", record.failed[0].error);
}

//! Hostile templates: links in their directory, and bundled providers.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use coder_provisioner::IsolationLevel;
use coder_wire::messages::provisionerd as pb;
use pb::completed_job::Type;

use crate::daemon_process::{Child, TERRAFORM, listen};
use crate::fake_server::{Record, Server};
use crate::fixture::{PLAIN, Running, import, stand_in, start, tar};
use crate::provider_mirrors::{PROGRAM, configuration, ended, platform};

const SECRET: &str = "SECRET-OF-ANOTHER-JOB";

/// A state of another job, where the daemon can read it.
fn secret(dir: &Path) -> PathBuf {
    let path = dir.join("other.tfstate");
    let state = format!(
        r#"{{"version":4,"terraform_version":"1.11.4","serial":99,"lineage":"x","outputs":{{}},"resources":[],"check_results":null,"x":"{SECRET}"}}"#
    );
    std::fs::write(&path, state).unwrap();
    path
}

/// Everything that the daemon sent to the server.
fn told(record: &Record) -> String {
    let mut text = format!("{:?} {:?}", record.completed, record.failed);
    for journal in record.journals.iter().chain(&record.salvages) {
        text.push_str(&String::from_utf8_lossy(&journal.state));
    }
    let lines: Vec<&str> = record.lines().map(|line| line.output.as_str()).collect();
    text + &lines.join("\n")
}

fn local_exec(script: &str) -> bytes::Bytes {
    let main = format!(
        "resource \"terraform_data\" \"a\" {{\n  provisioner \"local-exec\" {{\n    command = <<-EOT\n{script}\n    EOT\n  }}\n}}\n"
    );
    tar(&[("main.tf", &main)])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_a_job_makes_a_link_of_is_not_read() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    server.extended().grant(coder_wire::extension::Extensions::ALL);
    let running = Running::start(&server);
    let other = secret(running.dir.path());
    for (count, script) in [
        format!("rm -f terraform.tfstate*; ln -s {} terraform.tfstate; sleep 0.3", other.display()),
        format!(
            "cd ..; mv template moved; mkdir ../.. 2>/dev/null; ln -s {} template; ln -s {} {}/terraform.tfstate; sleep 0.3",
            running.dir.path().display(),
            other.display(),
            running.dir.path().display()
        ),
        "rm -f terraform.tfstate*; mkdir terraform.tfstate; sleep 0.3".to_owned(),
        "rm -f terraform.tfstate*; truncate -s 100G terraform.tfstate; sleep 0.3".to_owned(),
    ]
    .iter()
    .enumerate()
    {
        server.give(start(local_exec(script)));
        let over = |record: &Record| record.completed.len() + record.failed.len() == count + 1;
        let record = server.wait_for("the end of the job", over).await;
        assert!(!told(&record).contains(SECRET), "{script}");
        let failed = record.failed.last().map(|failed| failed.error.as_str()).unwrap_or_default();
        assert_eq!(record.failed.len(), count + 1, "{script}");
        assert!(failed.contains("statefile"), "{script}: {failed}");
    }
    // The daemon survives, and the next job works.
    server.give(start(tar(&[("main.tf", PLAIN)])));
    let record = server.wait_for("a build", |record| !record.completed.is_empty()).await;
    assert!(!told(&record).contains(SECRET));
    assert!(other.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn links_made_by_init_are_not_followed() {
    let real = coder_requirements::require!(program Terraform);
    let server = Server::new();
    let running = Running::with(&server, |config, dir| {
        let other = secret(dir);
        let script = format!(
            "if [ \"$1\" = init ]; then\n\"$REAL\" \"$@\" || exit 1\nln -s {other} README.md\nrm -rf .terraform\n\
             mkdir {dir}/modules\nmkdir {dir}/modules/m\ncp {other} {dir}/modules/m/main.tf\n\
             echo '{{\"Modules\":[{{\"Key\":\"m\",\"Source\":\"git::x\",\"Dir\":\".terraform/modules/m\"}}]}}' > {dir}/modules/modules.json\n\
             ln -s {dir} .terraform\nexit 0\nfi\nexec \"$REAL\" \"$@\"",
            other = other.display(),
            dir = dir.display()
        );
        config.terraform = coder_provisioner::TerraformSource::File(stand_in(dir, &real, &script));
    });
    server.give(import(tar(&[("main.tf", PLAIN)]), &[]));
    let (record, result) = server.completed().await;
    let Type::TemplateImport(result) = result else { panic!("no import") };
    assert!(result.module_files.is_empty(), "{result:?}");
    assert!(record.updates.iter().all(|update| update.readme.is_empty()));
    let uploaded = String::from_utf8_lossy(&result.module_files).into_owned();
    assert!(!told(&record).contains(SECRET) && !uploaded.contains(SECRET));
    let kept = running.dir.path().join("cache/init").read_dir().unwrap().flatten();
    assert_eq!(kept.filter(|entry| entry.path().is_dir()).count(), 0, "nothing is kept for the next job");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_place_of_the_template_directory_is_not_followed() {
    let real = coder_requirements::require!(program Terraform);
    let server = Server::new();
    let _running = Running::with(&server, |config, dir| {
        let elsewhere = dir.join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::write(
            elsewhere.join("main.tf"),
            format!("variable \"v\" {{\n  default = \"{SECRET}\"\n}}\n"),
        )
        .unwrap();
        let script = format!(
            "if [ \"$1\" = init ]; then\n\"$REAL\" \"$@\" || exit 1\nmv ../template ../moved; ln -s {} ../template\nexit 0\nfi\nexec \"$REAL\" \"$@\"",
            elsewhere.display()
        );
        config.terraform = coder_provisioner::TerraformSource::File(stand_in(dir, &real, &script));
    });
    server.give(import(tar(&[("main.tf", PLAIN)]), &[]));
    let (record, failed) = server.failed().await;
    assert!(failed.error.contains("directory was moved"), "{}", failed.error);
    let told = format!("{} {:?}", told(&record), record.updates);
    assert!(!told.contains(SECRET));
}

pub(crate) const NEEDS_ONE: &str =
    "terraform {\n  required_providers {\n    one = { source = \"example.test/acme/one\" }\n  }\n}\n";

const PACKAGE: &str = "example.test/acme/one/1.0.0";
const NAME: &str = "terraform-provider-one_v1.0.0";

/// Provider programs in the shared cache.
fn for_all(cache: &Path) -> Vec<String> {
    let place = cache.join("plugins").join(PACKAGE).join(platform()).join(NAME);
    std::fs::read_to_string(place).into_iter().collect()
}

/// A filesystem mirror with a packed provider is unpacked into the cache like one from the network.
pub(crate) fn packed_mirror(root: &Path) -> PathBuf {
    use std::io::Write as _;
    let dir = root.join("example.test/acme/one");
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join(format!("terraform-provider-one_1.0.0_{}.zip", platform()));
    let mut zip = zip::ZipWriter::new(std::fs::File::create(&path).unwrap());
    let options = zip::write::SimpleFileOptions::default().unix_permissions(0o755);
    zip.start_file(NAME, options).unwrap();
    zip.write_all(PROGRAM.as_bytes()).unwrap();
    zip.finish().unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_a_template_brings_serves_no_other() {
    coder_requirements::require!(Terraform);
    let (server, dir) = (Server::new(), tempfile::tempdir().unwrap());
    let (socket, cache) = (dir.path().join("socket"), dir.path().join("cache"));
    listen(&server, &socket);
    let hostile = format!("terraform.d/plugins/{PACKAGE}/{}/{NAME}", platform());
    // Terraform searches there by default.
    let empty = dir.path().join("empty.rc");
    std::fs::write(&empty, "").unwrap();
    let daemon = Child::start(&socket, &cache, &[("TF_CLI_CONFIG_FILE", &empty)]);
    server.give(start(tar(&[("main.tf", NEEDS_ONE), (&hostile, "#!/bin/sh\necho hostile\n")])));
    let record = ended(&server, 1).await;
    let failed = record.failed.first().map(|failed| failed.error.clone()).unwrap_or_default();
    assert!(!failed.contains("initialize terraform"), "{failed}");
    assert_eq!(for_all(&cache), Vec::<String>::new());
    drop(daemon);

    packed_mirror(&dir.path().join("mirror"));
    let mirror = format!("filesystem_mirror {{ path = \"{}\" }}", dir.path().join("mirror").display());
    let rc = configuration(dir.path(), &mirror);
    let before = server.record().acquires;
    let _daemon = Child::start(&socket, &cache, &[("TF_CLI_CONFIG_FILE", &rc)]);
    // Otherwise the job could go to the daemon that was just killed.
    server.wait_for("the new daemon", |record| record.acquires > before).await;
    server.give(start(tar(&[("main.tf", NEEDS_ONE)])));
    ended(&server, 2).await;
    assert_eq!(for_all(&cache), [PROGRAM]);
}

/// Git and its programs run before the providers are installed; whatever they leave, the providers are those of
/// the mirror.
#[tokio::test(flavor = "multi_thread")]
async fn a_module_that_is_fetched_has_no_hand_in_providers() {
    let real = coder_requirements::require!(program Terraform);
    let (server, dir) = (Server::new(), tempfile::tempdir().unwrap());
    let (socket, cache) = (dir.path().join("socket"), dir.path().join("cache"));
    listen(&server, &socket);
    packed_mirror(&dir.path().join("mirror"));
    let mirror = format!("filesystem_mirror {{ path = \"{}\" }}", dir.path().join("mirror").display());
    let rc = configuration(dir.path(), &mirror);
    let link = format!(".terraform/providers/{PACKAGE}/{}", platform());
    let shared = cache.join("plugins").join(PACKAGE).join(platform());
    // The stand-in for Terraform does what git would do.
    let script = format!(
        "if [ \"$1\" = get ]; then\n\"$REAL\" \"$@\" || exit 1\n\
         mkdir -p {link} ${{TF_PLUGIN_CACHE_DIR:-{link}}} {shared} 2>/dev/null\n\
         echo hostile > {link}/{NAME}; echo hostile > {shared}/{NAME}\n\
         echo '{{\"version\":3,\"backend\":{{\"type\":\"local\",\"config\":{{\"path\":\"/forged\"}}}}}}' > .terraform/terraform.tfstate\n\
         fi\nexec \"$REAL\" \"$@\"",
        shared = shared.display()
    );
    let program = stand_in(dir.path(), &real, &script);
    assert_eq!(program.metadata().unwrap().permissions().mode() & 0o111, 0o111);
    let variables = [("TF_CLI_CONFIG_FILE", rc.as_path()), (TERRAFORM, program.as_path())];
    let _daemon = Child::start(&socket, &cache, &variables);
    let main = format!("{NEEDS_ONE}module \"m\" {{\n  source = \"./m\"\n}}\n");
    server.give(start(tar(&[("main.tf", &main), ("m/main.tf", PLAIN)])));
    let record = ended(&server, 1).await;
    if Running::start(&Server::new()).status.get().isolation == IsolationLevel::Directories {
        // A fetched program may still run there: it affects its own template only.
        assert_eq!(for_all(&cache), Vec::<String>::new());
        return;
    }
    let failed = record.failed.first().map(|failed| failed.error.clone()).unwrap_or_default();
    assert!(!failed.contains("initialize terraform"), "{failed}");
    assert!(
        record.has_line("Initializing modules...") && record.has_line("has been successfully initialized")
    );
    assert_eq!(for_all(&cache), [PROGRAM]);
}

//! A full disk in every phase of a job: the job fails with an error that says so, and the next one works.

use std::path::Path;

use coder_wire::extension::Extensions;
use coder_wire::messages::provisionerd as pb;

use crate::daemon_process::{Child, TERRAFORM, listen};
use crate::fake_server::Server;
use crate::fixture::{PLAIN, stand_in, start, tar};
use crate::provider_mirrors::{configuration, ended, platform};

/// Less than a message may have, so that a template can fill it.
const DISK_MIB: u32 = 3;

/// Fills the disk in the phase that the template names, before Terraform starts, or during an apply.
const FILLS: &str = "if [ \"$1\" = \"$(cat phase 2>/dev/null)\" ]; then cat /dev/zero > fill 2>/dev/null; fi\nexec \"$REAL\" \"$@\"";

/// The message of a full disk from any program.
fn says_so(text: &str) -> bool {
    let text = text.to_lowercase();
    text.contains("no space left on device") || text.contains("disk is full")
}

fn entries(path: &Path) -> Vec<String> {
    let entries = path.read_dir().into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// A packed provider that does not fit.
fn large_provider(root: &Path) {
    use std::io::Write as _;
    let dir = root.join("example.test/acme/large");
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join(format!("terraform-provider-large_1.0.0_{}.zip", platform()));
    let mut zip = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    let options = zip::write::SimpleFileOptions::default().unix_permissions(0o755);
    zip.start_file("terraform-provider-large_v1.0.0", options).unwrap();
    zip.write_all(&vec![0; (DISK_MIB as usize + 2) << 20]).unwrap();
    zip.finish().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_fails_the_job_and_not_the_daemon() {
    let real = coder_requirements::require!(program Terraform);
    let (server, dir) = (Server::new(), tempfile::tempdir().unwrap());
    server.extended().grant(Extensions::ALL);
    let (socket, cache) = (dir.path().join("socket"), dir.path().join("cache"));
    listen(&server, &socket);
    large_provider(&dir.path().join("mirror"));
    let mirror = format!("filesystem_mirror {{ path = \"{}\" }}", dir.path().join("mirror").display());
    let rc = configuration(dir.path(), &mirror);
    let program = stand_in(dir.path(), &real, FILLS);
    let variables = [(TERRAFORM, program.as_path()), ("TF_CLI_CONFIG_FILE", rc.as_path())];
    coder_requirements::require!(Namespaces);
    let daemon = Child::on_small_disk(&socket, &cache, &variables, DISK_MIB);

    let large = "x".repeat((DISK_MIB as usize * 1024 + 512) << 10);
    let needs =
        "terraform {\n  required_providers {\n    large = { source = \"example.test/acme/large\" }\n  }\n}\n";
    // The first resource is created before the disk is full.
    let in_apply = "resource \"terraform_data\" \"a\" {\n  input = \"made\"\n}\nresource \"terraform_data\" \"b\" {\n  \
        depends_on = [terraform_data.a]\n  input = join(\"\", [for i in range(1000) : \"a text that is long, and longer than what is left of the disk\"])\n  provisioner \"local-exec\" { command = \"sleep 0.5; cat /dev/zero > fill; true\" }\n}\n";
    let cases = [
        ("the template", tar(&[("main.tf", PLAIN), ("large", &large)])),
        ("init", tar(&[("main.tf", PLAIN), ("phase", "init")])),
        ("a provider", tar(&[("main.tf", needs)])),
        ("plan", tar(&[("main.tf", PLAIN), ("phase", "plan")])),
        ("apply", tar(&[("main.tf", in_apply)])),
    ];
    let mut jobs = 0;
    for (phase, archive) in cases {
        server.give(start(archive));
        jobs += 1;
        let record = ended(&server, jobs).await;
        let failures = record.failed.len();
        let failed = record.failed.last().map(|failed| failed.error.clone()).unwrap_or_default();
        assert!(failures > jobs / 2, "{phase}: the job did not fail");
        assert!(says_so(&failed), "{phase}: {failed}");
        if phase == "apply"
            && let Some(pb::failed_job::Type::WorkspaceBuild(build)) = &record.failed[failures - 1].r#type
        {
            let state = String::from_utf8_lossy(&build.state);
            assert!(state.contains("\"made\""), "what was made is not forgotten: {state}");
        }
        // A different template each time, so that nothing is cached.
        server.give(start(tar(&[("main.tf", &format!("# {phase}\n{PLAIN}"))])));
        jobs += 1;
        let record = ended(&server, jobs).await;
        assert_eq!(record.failed.len(), failures, "after {phase}: {:?}", record.failed.last());
        let left = entries(&daemon.seen(&cache.join("installing")));
        assert!(left.is_empty(), "after {phase}: {left:?}");
        assert!(!daemon.seen(&cache.join("plugins/example.test")).exists(), "after {phase}");
    }
}

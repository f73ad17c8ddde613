//! Mistakes of templates, servers and providers: each fails with an error that names it, and nothing is lost.

use coder_requirements::Requirement;
use std::time::Duration;

use bytes::Bytes;
use coder_provisioner::{Bundle, TerraformSource, platform};
use coder_wire::messages::provisioner::{DataUploadType, RichParameterValue, WorkspaceTransition};
use coder_wire::messages::provisionerd as pb;

use crate::fake_server::{Answer, Server};
use crate::fixture::{
    HELLO, PLAIN, Running, build, edit_build, import, run_one, runs_with, stand_in, start, tar,
};

async fn error_of(job: pb::AcquiredJob) -> pb::FailedJob {
    let (server, _running) = run_one(job).await;
    server.failed().await.1
}

/// An agent on a resource, with additional lines.
fn with_agent(lines: &str) -> Bytes {
    tar(&[(
        "main.tf",
        &format!(
            "terraform {{\n  required_providers {{\n    coder = {{ source = \"coder/coder\" }}\n  }}\n}}\n\
             resource \"coder_agent\" \"main\" {{\n  os = \"linux\"\n  arch = \"amd64\"\n}}\n\
             resource \"terraform_data\" \"machine\" {{\n  input = coder_agent.main.id\n}}\n{lines}\n"
        ),
    )])
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_in_a_template_are_named() {
    coder_requirements::require!(Terraform);
    let app = |name: &str, slug: &str| {
        format!(
            "resource \"coder_app\" \"{name}\" {{\n  agent_id = coder_agent.main.id\n  slug = \"{slug}\"\n}}\n"
        )
    };
    let metadata = |name: &str| {
        format!(
            "resource \"coder_metadata\" \"{name}\" {{\n  resource_id = terraform_data.machine.id\n  daily_cost = 1\n}}\n"
        )
    };
    let parameter = |label: &str| {
        format!("data \"coder_parameter\" \"{label}\" {{\n  name = \"same\"\n  default = \"x\"\n}}\n")
    };
    let cases = [
        ("variable \"needed\" {}".to_owned(), "required template variables"),
        ("resource \"terraform_data\" \"a\" {\n  input = terraform_data.b.id\n}\nresource \"terraform_data\" \"b\" {\n  input = terraform_data.a.id\n}".to_owned(), "Cycle"),
        (app("a", "same") + &app("b", "same"), "duplicate app slug"),
        (app("a", "no_good"), "no_good"),
        (metadata("a") + &metadata("b"), "duplicate metadata resource: terraform_data.machine"),
        (parameter("a") + &parameter("b"), "\"same\" appears multiple times"),
        ("resource \"coder_agent\" \"bad_name\" {\n  os = \"linux\"\n  arch = \"amd64\"\n}".to_owned(), "bad_name"),
        ("resource \"terraform_data\" \"x\" {\n  input = var.nowhere\n}".to_owned(), "main.tf line"),
        ("resource \"terraform_data\" {\n}".to_owned(), "main.tf line"),
    ];
    let server = Server::new();
    let _running = Running::with(&server, |config, _| config.slots = 2);
    for (at, (lines, wanted)) in cases.iter().enumerate() {
        server.give(import(with_agent(lines), &[]));
        let record = server.wait_for("the end of the job", |record| record.failed.len() == at + 1).await;
        let error = &record.failed[at].error;
        assert!(error.contains(wanted), "{wanted:?} is not in {error:?}");
    }
    let record = server.wait_for("all", |_| true).await;
    assert_eq!(record.completed.len(), 0);
    let times = |words: &str| record.lines().filter(|line| line.output.contains(words)).count();
    assert_eq!(times("Cycle: "), 1, "what the plan says the graph does not say again");
    assert_eq!(times("\u{1b}"), 0, "a log has no colours of Terraform's");
    let broken = &record.failed.last().unwrap().error;
    assert!(!broken.contains("encountered problems"), "{broken}");
}

/// Buffered lines of a plan are all logged, even if there are many.
#[tokio::test(flavor = "multi_thread")]
async fn a_graph_that_fails_alone_says_why() {
    let real = coder_requirements::require!(program Terraform);
    for lines in [1, 1000] {
        let script = format!(
            "if test \"$1\" = graph; then i=0; while test $i -lt {lines}; do echo \"trouble $i\" >&2; i=$((i+1)); done; exit 4; fi; \
             exec \"$REAL\" \"$@\""
        );
        let server = Server::new();
        let _running = Running::with_stand_in(&server, &real, &script);
        server.give(start(tar(&[("main.tf", PLAIN)])));
        let (record, failed) = server.failed().await;
        assert!(failed.error.starts_with("generate graph: exit status 4: trouble 0"), "{}", failed.error);
        let said = record.lines().filter(|line| line.output.starts_with("trouble ")).count();
        assert_eq!(said, lines);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_agents_of_one_resource_are_fine() {
    coder_requirements::require!(Terraform);
    let second = "resource \"coder_agent\" \"second\" {\n  os = \"linux\"\n  arch = \"arm64\"\n}\n\
                  resource \"terraform_data\" \"both\" {\n  input = [coder_agent.main.id, coder_agent.second.id]\n}";
    let archive = with_agent(second);
    let (server, _running) = run_one(start(archive)).await;
    let (_, completed) = server.completed().await;
    let pb::completed_job::Type::WorkspaceBuild(built) = completed else { panic!("no arm") };
    let both = built.resources.iter().find(|resource| resource.name == "both").unwrap();
    assert_eq!(both.agents.len(), 2, "both are nearest to the resource that has the smaller name");
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_a_parameter_does_not_take_are_named() {
    coder_requirements::require!(Terraform);
    let mut job = start(tar(&[("main.tf", HELLO)]));
    edit_build(&mut job, |build| {
        build.rich_parameter_values =
            vec![RichParameterValue { name: "region".into(), value: "mars".into() }];
    });
    let failed = error_of(job).await;
    assert!(failed.error.starts_with("terraform plan: "), "{}", failed.error);
    assert!(failed.error.contains("mars"), "{}", failed.error);
}

/// A provider in its template, as a shell script.
fn with_provider(script: &str) -> Bytes {
    let file = format!(
        "{}/example.com/acme/odd/1.0.0/{}/terraform-provider-odd_v1.0.0",
        Bundle::PROVIDERS,
        platform()
    );
    let marker = format!("{{\"format\":1,\"platforms\":[{:?}]}}", platform());
    let main = "terraform {\n  required_providers {\n    odd = { source = \"example.com/acme/odd\" }\n  }\n}\n\
                resource \"odd_thing\" \"x\" {}\n";
    let mut archive = tar::Builder::new(Vec::new());
    let mut files = vec![("main.tf", main, 0o644), (Bundle::MARKER, marker.as_str(), 0o644)];
    if !script.is_empty() {
        files.push((&file, script, 0o755));
    }
    for (name, text, mode) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(mode);
        header.set_entry_type(tar::EntryType::Regular);
        archive.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    Bytes::from(archive.into_inner().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn providers_that_are_not_there_or_crash_are_named() {
    coder_requirements::require!(Terraform);
    let (server, _running) = run_one(import(with_provider(""), &[])).await;
    let (record, unknown) = server.failed().await;
    assert!(unknown.error.starts_with("template import init error: "), "{}", unknown.error);
    assert!(unknown.error.contains("provider"), "{}", unknown.error);
    assert!(record.has_line("acme/odd"), "the log says which");

    let script = "#!/bin/sh\necho provider-is-broken >&2\nexit 7\n";
    let (server, _running) = run_one(start(with_provider(script))).await;
    let (record, crash) = server.failed().await;
    assert!(crash.error.starts_with("terraform plan: "), "{}", crash.error);
    assert!(record.has_line("acme/odd"), "the log says which");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_hangs_can_be_canceled() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    let marker = format!("hangs-{}", uuid::Uuid::new_v4().simple());
    let dir = tempfile::tempdir().unwrap();
    let started = dir.path().join("started");
    let _running = Running::with(&server, |config, _| config.exit_timeout = Duration::from_millis(300));
    let script = format!("#!/bin/sh\n: > '{}'\nexec sh -c 'sleep 1000; : {marker}'\n", started.display());
    // A provider that hangs prints nothing, so the cancel arrives with the next heartbeat.
    let seen = started.clone();
    server.script(move |_| seen.exists().then(Answer::canceled));
    server.give(start(with_provider(&script)));
    let (_, failed) = server.failed().await;
    assert!(failed.error.contains("terraform plan"), "{}", failed.error);
    assert!(!runs_with(&marker), "the provider was ended with its job");
}

/// The state of a running workspace.
async fn state_of(archive: &Bytes) -> Bytes {
    let (server, _running) = run_one(start(archive.clone())).await;
    let (_, completed) = server.completed().await;
    let pb::completed_job::Type::WorkspaceBuild(built) = completed else { panic!("no arm") };
    built.state
}

/// The state that a failed build reports; empty when the server keeps its own.
fn handed(failed: &pb::FailedJob) -> &[u8] {
    let Some(pb::failed_job::Type::WorkspaceBuild(build)) = &failed.r#type else { panic!("no arm") };
    &build.state
}

#[tokio::test(flavor = "multi_thread")]
async fn states_that_cannot_be_used_are_left_alone() {
    coder_requirements::require!(Terraform);
    let archive = with_agent("");
    let state = state_of(&archive).await;
    let text = String::from_utf8(state.to_vec()).unwrap();
    assert!(text.contains("\"schema_version\": 1"), "{text}");
    for (state, wanted) in [
        (
            "this is not a state".to_owned(),
            "not a Terraform state (expected ident at line 1 column 2): replace it with",
        ),
        (text.get(..text.len() / 2).unwrap().to_owned(), "not a Terraform state (EOF while parsing"),
        (text.replace("\"version\": 4", "\"version\": 5"), "version"),
        (text.replace("\"schema_version\": 1", "\"schema_version\": 99"), "coder_agent.main"),
    ] {
        for transition in [WorkspaceTransition::Stop, WorkspaceTransition::Destroy] {
            let failed = error_of(build(archive.clone(), transition, Bytes::from(state.clone()))).await;
            assert!(failed.error.starts_with("terraform plan: "), "{}", failed.error);
            assert!(failed.error.contains(wanted), "{wanted:?} is not in {:?}", failed.error);
            let handed = handed(&failed);
            assert!(handed.is_empty() || handed == state.as_bytes(), "the server's state is not replaced");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_is_stale_changes_nothing() {
    let real = coder_requirements::require!(program Terraform);
    let archive = tar(&[("main.tf", &PLAIN.replace("\"x\"", "timestamp()"))]);
    let state = state_of(&archive).await;
    // Another program writes the state between plan and apply.
    let script = "if test \"$1\" = apply; then sed -i 's/\"serial\": [0-9]*/\"serial\": 77/' terraform.tfstate; fi; exec \"$REAL\" \"$@\"";
    let server = Server::new();
    let _running = Running::with_stand_in(&server, &real, script);
    server.give(build(archive, WorkspaceTransition::Start, state.clone()));
    let (_, failed) = server.failed().await;
    assert!(failed.error.starts_with("terraform apply: "), "{}", failed.error);
    assert!(failed.error.contains("stale"), "{}", failed.error);
    let before: serde_json::Value = serde_json::from_slice(&state).unwrap();
    let after: serde_json::Value = serde_json::from_slice(handed(&failed)).unwrap();
    assert_eq!(after["resources"], before["resources"]);
    assert_eq!(after["lineage"], before["lineage"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_need_no_entries() {
    coder_requirements::require!(Terraform);
    let archive = tar(&[
        ("deep/er/mod/main.tf", "output \"x\" {\n  value = \"from-below\"\n}\n"),
        (
            "main.tf",
            "module \"m\" {\n  source = \"./deep/er/mod\"\n}\nresource \"terraform_data\" \"a\" {\n  input = module.m.x\n}\n",
        ),
    ]);
    let state = state_of(&archive).await;
    assert!(String::from_utf8(state.to_vec()).unwrap().contains("from-below"));
}

#[tokio::test(flavor = "multi_thread")]
async fn module_archives_are_what_was_announced_or_refused() {
    use coder_wire::messages::provisioner::file_upload::Type;
    coder_requirements::require!(Terraform);
    let files = tar(&[(".terraform/modules/modules.json", "{\"Modules\":[]}")]);
    type Spoil = fn(&mut Type);
    let cases: [(Spoil, &str); 4] = [
        (
            |part| match part {
                Type::DataUpload(header) => header.data_hash = vec![7; 32].into(),
                Type::ChunkPiece(piece) => piece.full_data_hash = vec![7; 32].into(),
                _ => {}
            },
            "hash",
        ),
        (
            |part| {
                if let Type::DataUpload(header) = part {
                    header.file_size += 1
                }
            },
            "bytes",
        ),
        (
            |part| {
                if let Type::DataUpload(header) = part {
                    header.file_size = i64::MAX
                }
            },
            "is refused",
        ),
        (
            |part| {
                if let Type::ChunkPiece(piece) = part {
                    piece.data = vec![0; 9].into()
                }
            },
            "bytes",
        ),
    ];
    for (spoil, wanted) in cases {
        let server = Server::new();
        let _running = Running::start(&server);
        let mut pieces: Vec<_> =
            coder_wire::file::to_messages(DataUploadType::UploadTypeModuleFiles, files.clone())
                .unwrap()
                .collect();
        pieces.iter_mut().filter_map(|piece| piece.r#type.as_mut()).for_each(spoil);
        server.set_module_pieces(pieces);
        let mut job = start(tar(&[("main.tf", PLAIN)]));
        edit_build(&mut job, |build| {
            let metadata = build.metadata.as_mut().unwrap();
            metadata.template_version_modules_file = uuid::Uuid::new_v4().to_string();
        });
        server.give(job);
        let (_, failed) = server.failed().await;
        assert!(failed.error.starts_with("download the template's modules: "), "{}", failed.error);
        assert!(failed.error.contains(wanted), "{wanted:?} is not in {:?}", failed.error);
    }
}

/// A small file system.
struct Disk(tempfile::TempDir);

impl Disk {
    /// `None` where mounting is not permitted; the test is then skipped.
    #[track_caller]
    fn new() -> Option<Self> {
        if !coder_requirements::has(Requirement::Mounts) {
            return None;
        }
        let disk = Self(tempfile::tempdir().unwrap());
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=3m", "tmpfs"])
            .arg(disk.0.path())
            .status();
        assert!(mount.unwrap().success(), "the probe could mount");
        Some(disk)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

/// A stand-in fills the disk when one of Terraform's commands starts.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_named_in_every_phase_and_states_survive() {
    let real = coder_requirements::require!(program Terraform);
    let Some(Disk(disk)) = &Disk::new() else { return };
    let archive = tar(&[("main.tf", PLAIN), ("modules/a/main.tf", "output \"x\" {\n  value = 1\n}\n")]);
    let state = state_of(&archive).await;
    for phase in ["unpacking", "init", "plan", "apply"] {
        let full = disk.path().join("full");
        let fill = format!("cat /dev/zero > '{}' 2> /dev/null", full.display());
        let script = format!("if test \"$1\" = {phase}; then {fill}; fi; exec \"$REAL\" \"$@\"");
        let dir = tempfile::tempdir().unwrap();
        let program = stand_in(dir.path(), &real, &script);
        let server = Server::new();
        let cache = disk.path().join(format!("cache-{phase}"));
        let running = Running::with(&server, |config, _| {
            config.cache_dir = cache.clone();
            config.terraform = TerraformSource::File(program);
        });
        // Planning a new resource writes more than an empty plan.
        let archive = tar(&[("main.tf", &PLAIN.replace("\"x\"", "timestamp()"))]);
        let mut job = build(archive, WorkspaceTransition::Start, state.clone());
        if phase == "unpacking" {
            // Longer than the disk, but short enough for a message.
            let big = "x".repeat(3_600_000);
            job.template_source_archive = tar(&[("main.tf", PLAIN), ("big", &big)]);
        }
        server.give(job);
        let (_, failed) = server.failed().await;
        let error = failed.error.to_lowercase();
        assert!(error.contains("no space left on device"), "{phase}: {}", failed.error);
        let handed = handed(&failed);
        assert!(
            handed.is_empty() || String::from_utf8_lossy(handed).contains("terraform_data"),
            "{phase}: the state has what was there"
        );
        drop(running);
        let _ = std::fs::remove_file(full);
        let _ = std::fs::remove_dir_all(cache);
    }
}

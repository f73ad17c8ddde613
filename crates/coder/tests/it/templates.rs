//! Invalid templates with a real server and a real daemon: each import fails with a helpful error, and the next one
//! works.

use coder_api::workspaces::CreateWorkspaceRequest;
use tar::EntryType as Kind;

use crate::crash_recovery::{
    ANSWER_LIMIT, Api, SMALL_TEMPLATE, order_as, processes_of_jobs, refused, wait_for_file,
    wait_for_status_of,
};
use crate::durability::archive;
use crate::end_to_end::json;
use crate::processes::Server;
use crate::program::until;

/// One entry, written by hand, because the library refuses invalid names.
fn entry(tar: &mut tar::Builder<Vec<u8>>, name: &str, kind: Kind, bytes: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    if matches!(kind, Kind::Symlink | Kind::Link) {
        header.set_link_name("/etc/passwd").unwrap();
    }
    header.set_cksum();
    tar.append(&header, bytes).unwrap();
}

/// A valid template with one more entry.
fn with(name: &str, kind: Kind) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    entry(&mut tar, "main.tf", Kind::Regular, SMALL_TEMPLATE.as_bytes());
    entry(&mut tar, name, kind, b"");
    tar.into_inner().unwrap()
}

fn many(count: usize) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    entry(&mut tar, "main.tf", Kind::Regular, SMALL_TEMPLATE.as_bytes());
    for number in 0..count {
        entry(&mut tar, &format!("f{number}"), Kind::Regular, b"");
    }
    tar.into_inner().unwrap()
}

fn named(name: &str, text: &str) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    entry(&mut tar, name, Kind::Regular, text.as_bytes());
    tar.into_inner().unwrap()
}

#[test]
fn archives_and_templates_that_cannot_work() {
    const NO_STATE: &str = r#"data "terraform_remote_state" "x" {
  backend = "local"
  config  = { path = "nowhere/terraform.tfstate" }
}
"#;
    coder_requirements::require!(Terraform);
    let server = Server::start(&[]);
    let home = server.first_user();
    let api = Api::new(&server, &home);
    let daemon = server.daemon(&home, "steady", &[]);
    // An entry with a declared length of a tebibyte and no content.
    let mut announced = tar::Header::new_gnu();
    announced.set_path("main.tf").unwrap();
    announced.set_size(1 << 40);
    announced.set_cksum();
    let cases: [(&str, Vec<u8>, &str); 11] = [
        (
            "not a tar",
            b"this is not an archive, however long one looks at it".repeat(20),
            "the archive cannot be read",
        ),
        ("cut short", archive(SMALL_TEMPLATE)[..520].to_vec(), "archive"),
        ("empty", Vec::new(), "no Terraform file"),
        ("no .tf file", named("README.md", "hello"), "no Terraform file"),
        ("leaves the folder", with("../out.tf", Kind::Regular), "must not contain `..`"),
        ("an absolute name", with("/etc/cron.d/x", Kind::Regular), "has an absolute name"),
        ("6,000 files", many(6_000), "more than 5000 entries"),
        ("10,000 files", many(10_000), "more than 10000 entries"),
        ("a huge announced file", announced.as_bytes().to_vec(), "the archive cannot be read"),
        ("invalid HCL", archive("resource \"a\" {\n"), "main.tf line 1"),
        ("a failing provider", archive(NO_STATE), "Unable to find remote state"),
    ];
    for (what, archive, words) in cases {
        // The server refuses a file that is not an archive. The daemon finds the other errors.
        let error = match api.try_import(archive, &[]) {
            Ok(version) => {
                let ended = api.ended(&version);
                assert_eq!(format!("{:?}", ended.job.status), "Failed", "{what}");
                ended.job.error
            }
            Err(refusal) => {
                assert_eq!(refusal.status().map(|status| status.as_u16()), Some(400), "{what}: {refusal}");
                let body = refusal.body().unwrap();
                body.validations.iter().map(|validation| validation.detail.as_str()).collect()
            }
        };
        assert!(error.contains(words), "{what}: {error}");
    }
    assert_eq!(api.ended(&api.import_of(archive(SMALL_TEMPLATE), &[])).job.error, "", "the daemon continues");
    for kind in [Kind::Symlink, Kind::Link, Kind::Char, Kind::Block, Kind::Fifo] {
        // The target of the link is not a configuration, so following the link would be an error.
        let version = api.import_of(with("main2.tf", kind), &[]);
        assert_eq!(api.ended(&version).job.error, "", "{kind:?} is skipped");
    }
    assert!(!home.path().join("cache-steady/work/out.tf").exists());
    server.home().run(&["server", "check"]).success();
    drop(daemon);
}

#[test]
fn an_endless_command_ends_with_its_cancel() {
    coder_requirements::require!(Terraform);
    let server = Server::start(&[]);
    let home = server.first_user();
    let api = Api::new(&server, &home);
    let daemon = server.daemon(&home, "steady", &[]);
    let begun = home.path().join("begun");
    order_as(&home, "w", &format!(": > {}; while :; do sleep 0.05; done", begun.display()));
    wait_for_file(&begun);
    let cache = home.path().join("cache-steady");
    let endless = || processes_of_jobs(&cache).iter().any(|line| line.contains("while :"));
    assert!(endless());
    let build = json(&home, &["list"])[0]["latest_build"]["id"].as_str().unwrap().parse().unwrap();
    api.run(async |client| client.cancel_build(build, None).await).unwrap();
    refused(api.run(async |client| client.cancel_build(build, None).await), 400, "cancel");
    // A canceled job whose Terraform was interrupted has an error, so it counts as failed (http-api 5.4).
    let ended = wait_for_status_of(&home, "w", "failed");
    assert!(ended["job"]["canceled_at"].is_string(), "{ended}");
    assert!(until(ANSWER_LIMIT, || (!endless()).then_some(())).is_some(), "the command still runs");
    // The daemon and the workspace work as before.
    let request = CreateWorkspaceRequest {
        template_id: Some(api.run(async |client| client.templates("").await).unwrap()[0].id),
        name: "w".to_owned(),
        ..CreateWorkspaceRequest::default()
    };
    refused(api.run(async |client| client.create_workspace("me", &request).await), 409, "w");
    home.run(&["delete", "w", "-y"]).success();
    assert_eq!(json(&home, &["list"]), serde_json::json!([]));
    server.home().run(&["server", "check"]).success();
    drop(daemon);
}

//! Templates that were initialized before.

use std::path::Path;

use coder_provisioner::IsolationLevel;

use crate::fake_server::Server;
use crate::fixture::{HELLO, PLAIN, Running, import, stand_in, start, tar};

/// Records each command, then execs Terraform.
const NOTED: &str = "echo \"$1\" >> \"$(dirname \"$0\")/commands\"; exec \"$REAL\" \"$@\"";

fn commands(dir: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join("commands")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_job_of_a_template_starts_without_init_and_as_few_programs_as_can_be() {
    let real = coder_requirements::require!(program Terraform);
    let server = Server::new();
    let running = Running::with_stand_in(&server, &real, NOTED);
    let archive = tar(&[("main.tf", HELLO)]);
    for (count, wanted) in [
        (1, vec!["version", "init", "graph", "plan", "apply"]),
        (2, vec!["graph", "plan", "apply"]),
        (3, vec!["graph", "plan", "apply"]),
    ] {
        server.give(start(archive.clone()));
        let record = server.wait_for("a build", |record| record.completed.len() == count).await;
        assert!(record.failed.is_empty());
        let mut found = commands(running.dir.path());
        // Plan and graph run in parallel.
        found.sort_by_key(|command| {
            ["version", "init", "graph", "plan", "apply"].iter().position(|known| known == command)
        });
        assert_eq!(found, wanted, "build {count}");
        std::fs::remove_file(running.dir.path().join("commands")).unwrap();
    }
    assert!(server.record().has_line("has been initialized with this template before"));
    // An import of the same archive fetches nothing either, because there was nothing to fetch.
    server.give(import(archive, &[]));
    server.wait_for("the import", |record| record.completed.len() == 4).await;
    assert!(!commands(running.dir.path()).contains(&"init".to_owned()));
}

/// Modules come before providers, and a backend after them, each in its own process; all others need only one.
#[tokio::test(flavor = "multi_thread")]
async fn init_is_taken_apart_where_a_template_has_modules_or_a_backend() {
    let real = coder_requirements::require!(program Terraform);
    let noted = "case \"$1\" in get|init) echo \"$*\" >> \"$(dirname \"$0\")/commands\";; esac; exec \"$REAL\" \"$@\"";
    let module = "module \"m\" {\n  source = \"./m\"\n}\n";
    let backend = "terraform {\n  backend \"local\" {}\n}\n";
    let init = "init -no-color -input=false -json";
    let apart = |backend: bool| if backend { format!("{init} -backend=false") } else { init.to_owned() };
    for (main, wanted) in [
        (PLAIN.to_owned(), vec![apart(false)]),
        (module.to_owned(), vec!["get -no-color".to_owned(), format!("{init} -get=false -backend=false")]),
        (format!("{backend}{PLAIN}"), vec![apart(true), init.to_owned()]),
        (
            format!("{backend}{module}"),
            vec!["get -no-color".to_owned(), format!("{init} -get=false -backend=false"), init.to_owned()],
        ),
    ] {
        let server = Server::new();
        let running = Running::with_stand_in(&server, &real, noted);
        server.give(start(tar(&[("main.tf", &main), ("m/main.tf", PLAIN)])));
        let record = server.wait_for("a build", crate::fake_server::Record::is_over).await;
        assert!(record.failed.is_empty(), "{main}: {:?}", record.failed);
        if running.status.get().isolation == IsolationLevel::Directories && main.contains("module") {
            // A fetched program may still run there, so providers are this template's own and come with the
            // rest.
            assert_eq!(commands(running.dir.path()), ["get -no-color", init], "{main}");
        } else {
            assert_eq!(commands(running.dir.path()), wanted, "{main}");
        }
        // An official daemon reports the same timings.
        let state = record.completed[0].r#type.clone();
        let Some(coder_wire::messages::provisionerd::completed_job::Type::WorkspaceBuild(build)) = state
        else {
            panic!("no build")
        };
        let loads: Vec<&str> = ["backend", "modules", "provider plugins"]
            .into_iter()
            .filter(|wanted| build.timings.iter().any(|timing| timing.resource == *wanted))
            .collect();
        let has_modules = main.contains("module");
        assert_eq!(loads.contains(&"modules"), has_modules, "{main}: {loads:?}");
        assert!(loads.contains(&"provider plugins") && loads.contains(&"backend"), "{main}: {loads:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_to_a_jobs_directory_do_not_reach_other_jobs() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    let _running = Running::start(&server);
    let module = "resource \"terraform_data\" \"m\" {\n  input = \"clean\"\n}\n";
    let main = "module \"m\" {\n  source = \"./m\"\n}\nresource \"terraform_data\" \"a\" {\n  depends_on = [module.m]\n  \
        provisioner \"local-exec\" { command = \"ls .terraform; echo spoilt > .terraform/modules/modules.json; rm -rf .terraform/providers; echo spoilt > .terraform/new\" }\n}\n";
    let archive = tar(&[("main.tf", main), ("m/main.tf", module)]);
    for count in 1..=3 {
        server.give(start(archive.clone()));
        let record =
            server.wait_for("a build", |record| record.completed.len() + record.failed.len() == count).await;
        assert!(record.failed.is_empty(), "build {count}: {:?}", record.failed);
    }
    assert!(!server.record().has_line("(local-exec): new"));
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_cold_starts_of_two_daemons_run_one_init() {
    let real = coder_requirements::require!(program Terraform);
    let server = Server::new();
    let dir = tempfile::tempdir().unwrap();
    let program = stand_in(dir.path(), &real, NOTED);
    let cache = dir.path().join("cache");
    let daemon = || {
        Running::with(&server, |config, _| {
            config.terraform = coder_provisioner::TerraformSource::File(program.clone());
            config.cache_dir = cache.clone();
            config.registry = Some(dir.path().join("registry"));
            config.slots = 8;
        })
    };
    let _running = [daemon(), daemon()];
    let archive = tar(&[("main.tf", PLAIN)]);
    for _ in 0..16 {
        server.give(start(archive.clone()));
    }
    let record =
        server.wait_for("all builds", |record| record.completed.len() + record.failed.len() == 16).await;
    assert!(record.failed.is_empty(), "{:?}", record.failed);
    let inits = commands(dir.path()).iter().filter(|command| *command == "init").count();
    assert_eq!(inits, 1);
}

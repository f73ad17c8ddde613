//! The home directory of jobs.

use std::path::Path;

use coder_provisioner::IsolationLevel;

use crate::daemon_process::{self, Child, ISOLATION, JOB_HOME};
use crate::fake_server::Server;
use crate::fixture::terraform;
use crate::isolation::{has, kernel_level, output_of};

/// A typical home directory.
fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    for (name, text) in [
        // Terraform would fail with it.
        (".terraformrc", "no configuration of Terraform {"),
        (".aws/credentials", "LISTED"),
        (".kube/config", "NAMED-BY-A-VARIABLE"),
        (".ssh/config", "NOT-FOR-JOBS"),
    ] {
        let file = home.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    home
}

async fn each_job_has_its_own(isolation: &str, level: IsolationLevel) {
    let (home, dir) = (home(), tempfile::tempdir().unwrap());
    let (socket, server) = (dir.path().join("socket"), Server::new());
    daemon_process::listen(&server, &socket);
    let kubeconfig = home.path().join(".kube/config");
    let variables: [(&str, &Path); 6] = [
        ("HOME", home.path()),
        ("KUBECONFIG", &kubeconfig),
        ("XDG_CONFIG_HOME", &dir.path().join("xdg")),
        ("TF_CLI_CONFIG_FILE", Path::new("")),
        (JOB_HOME, Path::new(".aws")),
        (ISOLATION, Path::new(isolation)),
    ];
    let _daemon = Child::start(&socket, &dir.path().join("cache"), &variables);
    let real = home.path().display();
    let script = |name: &str| {
        format!(
            "echo {name} has $(ls -A ~ | tr '\\n' ' ').\n\
             cat ~/.aws/credentials $KUBECONFIG\n\
             echo hostile > ~/.aws/credentials && echo {name} wrote what is listed\n\
             cat {real}/.ssh/config && echo {name} reached the real home\n\
             echo {name} configures $XDG_CONFIG_HOME.\n\
             for file in .terraformrc .gitconfig .netrc; do echo hostile > ~/$file && echo {name} wrote; done\n\
             mkdir -p ~/.ssh ~/.terraform.d && echo hostile > ~/.ssh/config\n\
             echo end"
        )
    };
    for name in ["first", "second"] {
        let lines = output_of(&server, &script(name)).await;
        let is_said = |words: &str| has(&lines, &format!("local-exec): {words}"));
        assert!(is_said("end") && is_said(&format!("{name} wrote")), "{lines:#?}");
        assert!(is_said("LISTED") && has(&lines, "NAMED-BY-A-VARIABLE"), "{lines:#?}");
        assert!(is_said(&format!("{name} configures .")), "{lines:#?}");
        // Cache directories of programs may exist; nothing of an earlier job or of the real home may.
        let listing = if level == IsolationLevel::None { ".aws" } else { ".aws .kube" };
        assert!(is_said(&format!("{name} has {listing} .")), "{lines:#?}");
        if level != IsolationLevel::None {
            assert!(!is_said(&format!("{name} wrote what is listed")), "{lines:#?}");
            assert!(!is_said("NOT-FOR-JOBS"), "{lines:#?}");
            let text = std::fs::read_to_string(home.path().join(".aws/credentials")).unwrap();
            assert_eq!(text, "LISTED");
        } else {
            std::fs::write(home.path().join(".aws/credentials"), "LISTED").unwrap();
        }
    }
    assert!(!home.path().join(".gitconfig").exists() && !home.path().join(".netrc").exists());
    assert_eq!(std::fs::read_to_string(home.path().join(".ssh/config")).unwrap(), "NOT-FOR-JOBS");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_job_has_an_empty_home_of_its_own() {
    if terraform().is_some() {
        each_job_has_its_own("auto", kernel_level()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_job_has_an_empty_home_of_its_own_without_isolation() {
    if terraform().is_some() {
        each_job_has_its_own("none", IsolationLevel::None).await;
    }
}

//! The packages and the index of `cargo xtask charts`, served to Helm as the repository `coder-v2`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use coder_requirements::require;
use serde_json::Value;

use super::render::Rendered;
use crate::charts::{Release, write};
use crate::run::root;

fn release() -> Release {
    Release { version: "1.2.3".to_owned(), registry: "registry.example.com/tools".to_owned() }
}

fn charts() -> (tempfile::TempDir, Vec<PathBuf>) {
    let directory = tempfile::tempdir().unwrap();
    let files = write(&root().join("deploy/helm"), &release(), directory.path()).unwrap();
    (directory, files)
}

#[test]
fn equal_sources_make_equal_packages() {
    let ((_first, one), (_second, two)) = (charts(), charts());
    assert_eq!(one.len(), two.len());
    for (one, two) in one.iter().zip(&two) {
        assert_eq!(std::fs::read(one).unwrap(), std::fs::read(two).unwrap(), "{}", one.display());
    }
}

#[test]
fn the_index_names_each_package_and_its_digest() {
    use sha2::Digest as _;
    let (directory, _files) = charts();
    let index: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(directory.path().join("index.yaml")).unwrap())
            .unwrap();
    for chart in super::super::CHARTS {
        let entry = &index["entries"][*chart][0];
        let file = entry["urls"][0].as_str().unwrap();
        assert_eq!(file, format!("{chart}-1.2.3.tgz"));
        assert_eq!((&entry["version"], &entry["appVersion"]), (&"1.2.3".into(), &"1.2.3".into()));
        let digest = hex::encode(sha2::Sha256::digest(std::fs::read(directory.path().join(file)).unwrap()));
        assert_eq!(entry["digest"], digest.as_str());
    }
}

#[test]
fn a_chart_without_the_placeholders_is_refused() {
    let source = tempfile::tempdir().unwrap();
    for chart in super::super::CHARTS {
        let folder = source.path().join(chart);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("Chart.yaml"), "name: x\nversion: 1.0.0\n").unwrap();
    }
    let output = tempfile::tempdir().unwrap();
    let error = write(source.path(), &release(), output.path()).unwrap_err();
    assert!(format!("{error:#}").contains("Chart.yaml does not have 0.0.0-dev"), "{error:#}");
}

/// The commands of the documentation, with a repository on loopback. `helm template` renders what `helm install` would send.
#[test]
fn the_documented_commands_install_the_released_charts() {
    let helm = require!(program Helm);
    let (directory, _files) = charts();
    let address = serve(directory.path().to_owned());
    let home = tempfile::tempdir().unwrap();
    let values = home.path().join("provisioner-values.yaml");
    std::fs::copy(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("testdata/charts/coder-provisioner/documented_psk.values.yaml"),
        &values,
    )
    .unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&helm);
        for (name, folder) in [("CONFIG", "config"), ("CACHE", "cache"), ("DATA", "data")] {
            command.env(format!("HELM_{name}_HOME"), home.path().join(folder));
        }
        for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"] {
            command.env_remove(name);
        }
        let output = command.args(arguments).current_dir(home.path()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["repo", "add", "coder-v2", &format!("http://{address}")]);
    assert!(run(&["search", "repo", "coder-v2/"]).contains("coder-v2/coder-provisioner"));
    let provisioner = ["coder-v2/coder-provisioner", "--namespace", "coder", "--version", "1.2.3"];
    let text = run(&[
        &["template", "coder-provisioner"],
        &provisioner[..],
        &["--values", "provisioner-values.yaml"],
    ]
    .concat());
    let rendered = Rendered::parse(&text);
    assert_eq!(rendered.container()["image"], "registry.example.com/tools/coder-provisioner:latest");
    assert_eq!(rendered.deployment()["spec"]["replicas"], 10);
    // Without a tag in the values the image is the one of the release.
    let text = run(&["template", "coder", "coder-v2/coder", "--namespace", "coder", "--version", "1.2.3"]);
    let rendered = Rendered::parse(&text);
    assert_eq!(rendered.container()["image"], "registry.example.com/tools/coder:v1.2.3");
    let labels = &rendered.deployment()["metadata"]["labels"];
    assert_eq!(labels["helm.sh/chart"], "coder-1.2.3");
    assert_eq!(labels["app.kubernetes.io/version"], "1.2.3");
    // A chart that was pulled renders the same without the repository.
    run(&["pull", "coder-v2/coder", "--version", "1.2.3", "--untar"]);
    assert_eq!(text, run(&["template", "coder", "./coder", "--namespace", "coder"]));
}

/// Serves the files of a directory until the process ends.
fn serve(directory: PathBuf) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            answer(stream.unwrap(), &directory);
        }
    });
    address
}

/// Answers one request for a file and closes the connection.
fn answer(mut stream: TcpStream, directory: &Path) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(request) = lines.next() else { return };
    // The rest of the head is read, so that closing does not reset the connection.
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let name = request.split_whitespace().nth(1).unwrap_or_default().trim_start_matches('/');
    let (status, body) = match std::fs::read(directory.join(name)) {
        Ok(body) if !name.contains("..") => ("200 OK", body),
        _ => ("404 Not Found", Vec::new()),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    // Helm may have gone away.
    let _gone = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
}

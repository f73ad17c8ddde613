//! The life of a job's socket.

use std::os::unix::fs::PermissionsExt;

use coder_tfprovider::{Environment, ProviderServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

#[tokio::test]
async fn the_socket_is_private_and_goes_with_its_job() {
    let folder = tempfile::tempdir().unwrap();
    let listening =
        ProviderServer::new().listen(folder.path(), folder.path(), Environment::default()).unwrap();
    let socket = listening.socket().to_owned();
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let mut connection = UnixStream::connect(&socket).await.unwrap();
    listening.stop().await;
    assert!(!socket.exists());
    let mut rest = Vec::new();
    connection.read_to_end(&mut rest).await.ok();
    assert!(UnixStream::connect(&socket).await.is_err());
}

/// The jobs of other daemons see the temporary directory, so no socket is created there.
#[tokio::test]
async fn a_socket_with_a_long_path_is_in_its_folder_and_has_a_relative_address() {
    let folder = tempfile::tempdir().unwrap();
    let (sockets, run_dir) = (
        folder.path().join("x".repeat(100)).join("private"),
        folder.path().join("x".repeat(100)).join("template"),
    );
    std::fs::create_dir_all(&sockets).unwrap();
    std::fs::create_dir_all(&run_dir).unwrap();
    let listening = ProviderServer::new().listen(&sockets, &run_dir, Environment::default()).unwrap();
    let socket = listening.socket().to_owned();
    assert_eq!(socket.parent(), Some(&*sockets));
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let reattach = listening.reattach();
    let address = reattach["registry.terraform.io/coder/coder"]["Addr"]["String"].as_str().unwrap();
    assert_eq!(address, format!("../private/{}", socket.file_name().unwrap().to_str().unwrap()));
    let mut connect = tokio::process::Command::new("sh");
    let script = format!("test -S {address}");
    assert!(connect.args(["-c", &script]).current_dir(&run_dir).status().await.unwrap().success());
    drop(listening);
    assert!(!socket.exists());
}

#[tokio::test]
async fn a_socket_that_terraform_cannot_reach_is_an_error() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), std::path::Path::new("/usr"));
    let long = folder.path().join("x".repeat(100));
    std::fs::create_dir(&long).unwrap();
    let error = ProviderServer::new().listen(&long, elsewhere, Environment::default()).err().unwrap();
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("too long"), "{error}");
    assert_eq!(long.read_dir().unwrap().count(), 0);
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let gone = folder.path().join("gone");
    let error = ProviderServer::new().listen(&gone, folder.path(), Environment::default()).err().unwrap();
    assert!(error.to_string().contains(gone.to_str().unwrap()));
}

#[tokio::test]
async fn two_jobs_in_one_folder_have_two_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let provider = ProviderServer::new();
    let first = provider.listen(folder.path(), folder.path(), Environment::default()).unwrap();
    let second = provider.listen(folder.path(), folder.path(), Environment::default()).unwrap();
    assert_ne!(first.socket(), second.socket());
    let reattach = first.reattach();
    for address in ["registry.terraform.io/coder/coder", "registry.opentofu.org/coder/coder"] {
        assert_eq!(reattach[address]["Addr"]["String"], first.socket().to_str().unwrap());
        assert_eq!(reattach[address]["Test"], true, "Terraform must not end this process");
    }
}

#[tokio::test]
async fn bytes_that_are_no_http_end_one_connection_only() {
    let folder = tempfile::tempdir().unwrap();
    let listening =
        ProviderServer::new().listen(folder.path(), folder.path(), Environment::default()).unwrap();
    let mut garbage = UnixStream::connect(listening.socket()).await.unwrap();
    garbage.write_all(&[0xff; 4096]).await.unwrap();
    let mut answer = Vec::new();
    garbage.read_to_end(&mut answer).await.ok();
    UnixStream::connect(listening.socket()).await.unwrap();
}

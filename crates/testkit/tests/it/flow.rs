//! The main flow over real sockets: push a template, import it on a daemon, build a workspace, follow the log.

use std::time::Duration;

use coder_api::client::{Client, JobLogTarget};
use coder_api::jobs::Status;
use coder_api::templates::CreateTemplateRequest;
use coder_api::versions::{CreateTemplateVersionRequest, TemplateVersion};
use coder_api::workspaces::CreateWorkspaceRequest;
use coder_domain::ids::OrganizationId;
use coder_testkit::daemon::{FakeDaemon, build_result, import_result, import_update};
use coder_testkit::load::{Target, archive};
use coder_testkit::server::TestServer;
use coder_wire::messages::provisioner::Resource;
use coder_wire::messages::provisionerd::acquired_job::Type;

const WAIT_LIMIT: Duration = Duration::from_secs(20);

async fn organization(client: &Client) -> OrganizationId {
    client.my_organizations().await.unwrap()[0].id
}

pub(crate) async fn push(client: &Client) -> TemplateVersion {
    let file = client.upload("application/x-tar", archive().unwrap()).await.unwrap();
    let request =
        CreateTemplateVersionRequest { file_id: Some(file), ..CreateTemplateVersionRequest::default() };
    client.create_version(organization(client).await, &request).await.unwrap()
}

#[tokio::test]
async fn a_template_is_imported_and_a_workspace_built() {
    let server = TestServer::start().await.unwrap();
    let client = &server.owner;
    let daemon = FakeDaemon::join_with_session(client, "first").await.unwrap();

    let version = push(client).await;
    let mut log = client.follow_job_logs(JobLogTarget::Version(version.id), 0);
    let job = tokio::time::timeout(WAIT_LIMIT, daemon.acquire()).await.unwrap().unwrap();
    assert_eq!(job.job_id, version.job.id.to_string());
    assert_eq!(job.user_name, "admin");
    assert_eq!(job.provisioner, "terraform");
    assert_eq!(job.template_source_archive, archive().unwrap());
    let Some(Type::TemplateImport(import)) = &job.r#type else { panic!("{job:?}") };
    assert_eq!(import.metadata.as_ref().unwrap().coder_url, server.url());
    let answer = daemon.calls.update_job(&import_update(&job.job_id, 25, 3)).await.unwrap();
    assert!(!answer.canceled);
    assert_eq!(answer.variable_values.len(), 3);
    assert_eq!(answer.variable_values[0].value, "default");
    for number in 1..=25 {
        let line = tokio::time::timeout(WAIT_LIMIT, log.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(line.id, number);
    }
    daemon.calls.complete_job(&import_result(&job.job_id)).await.unwrap();
    assert!(
        tokio::time::timeout(WAIT_LIMIT, log.next()).await.unwrap().unwrap().is_none(),
        "the log ends with the job"
    );
    let version = client.version(version.id).await.unwrap();
    assert_eq!(version.job.status, Status::Succeeded);
    assert_eq!(client.version_resources(version.id).await.unwrap().len(), 2);
    assert_eq!(client.rich_parameters(version.id).await.unwrap().len(), 1);

    let request = CreateTemplateRequest {
        name: "example".to_owned(),
        version_id: Some(version.id),
        ..CreateTemplateRequest::default()
    };
    let template = client.create_template(organization(client).await, &request).await.unwrap();
    let request = CreateWorkspaceRequest {
        template_id: Some(template.id),
        name: "dev".to_owned(),
        ..CreateWorkspaceRequest::default()
    };
    let workspace = client.create_workspace("me", &request).await.unwrap();
    let job = tokio::time::timeout(WAIT_LIMIT, daemon.acquire()).await.unwrap().unwrap();
    let Some(Type::WorkspaceBuild(build)) = &job.r#type else { panic!("{job:?}") };
    let metadata = build.metadata.as_ref().unwrap();
    assert_eq!(metadata.workspace_name, "dev");
    assert_eq!(metadata.template_name, "example");
    let as_workspace = client
        .with_token(Some(coder_domain::secret::Secret::new(metadata.workspace_owner_session_token.clone())));
    assert_eq!(as_workspace.user("me").await.unwrap().username, "admin", "the token works");
    let resource =
        Resource { name: "main".to_owned(), r#type: "terraform_data".to_owned(), ..Resource::default() };
    daemon.calls.complete_job(&build_result(&job.job_id, b"state", vec![resource])).await.unwrap();
    let build = client.build(workspace.latest_build.id).await.unwrap();
    assert_eq!(build.job.status, Status::Succeeded);
    assert_eq!(build.resources.len(), 1);
    daemon.leave().await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn the_load_driver_runs_against_a_server() {
    let server = TestServer::start().await.unwrap();
    let token = server.owner.create_session_key().await.unwrap();
    let target = Target::new(&server.url(), token).await.unwrap();
    let latency = target.latency(5).await.unwrap();
    assert!(latency.p50 <= latency.p99);
    assert!(target.throughput(3, 2, Duration::from_millis(300)).await.unwrap() > 0.0);
    target.idle(5, Duration::from_millis(50)).await.unwrap();
    server.stop().await.unwrap();
}

//! External authentication in templates: the providers that an import may name, and the tokens that a build gets.

use coder_domain::ids::TemplateId;
use coder_store::templates::version_details::{self, ExternalAuth};
use coder_wire::messages::provisioner::ExternalAuthProviderResource;
use coder_wire::messages::provisionerd::acquired_job;

use super::*;
use crate::external_auth::{Behavior, Browser, Provider};

/// A template that requires an account at `corp` and optionally one at `gone`.
async fn template(server: &TestServer, owner: &str, optional: bool) -> TemplateId {
    let (template, version) = server.template(owner, "hello").await;
    let asked = ["corp", "gone"]
        .map(|id| ExternalAuth { provider_id: id.to_owned(), optional: optional || id == "gone" });
    let mut tx = server.app.store.begin().await.unwrap();
    version_details::insert_external_auth(&mut tx, version, &asked).await.unwrap();
    tx.commit().await.unwrap();
    template
}

/// The accounts in the message of a job.
fn accounts(acquired: AcquiredJob) -> Vec<(String, String)> {
    let Some(acquired_job::Type::WorkspaceBuild(build)) = acquired.r#type else { panic!("no build") };
    build.external_auth_providers.into_iter().map(|one| (one.id, one.access_token)).collect()
}

#[tokio::test]
async fn a_build_gets_the_tokens_of_its_owner_that_work() {
    let provider = Provider::start().await;
    let server = TestServer::sqlite_with(provider.config(&[])).await;
    let owner = server.owner().await;
    let template = template(&server, &owner, false).await;
    let daemon = Daemon::untagged(&server, "d").await;
    server.workspace(&owner, template, "before").await;
    assert_eq!(accounts(daemon.acquire().await), []);
    Browser::new(&server, &owner).connect().await;
    let (_, _, posted) = server.workspace(&owner, template, "after").await;
    assert_eq!(accounts(daemon.acquire().await), [("corp".to_owned(), "access-1".to_owned())]);
    assert!(
        !job(&server, posted).await.input.0.to_string().contains("access-"),
        "it stays out of the job's row"
    );
    server.advance(3600);
    server.workspace(&owner, template, "later").await;
    assert_eq!(accounts(daemon.acquire().await), [("corp".to_owned(), "access-2".to_owned())]);
    let member = server.user(&owner, "dev", &[]).await;
    server.workspace(&member, template, "other").await;
    assert_eq!(accounts(daemon.acquire().await), []);
}

#[tokio::test]
async fn a_provider_that_is_away_fails_only_builds_that_need_it() {
    let provider = Provider::start().await;
    let server = TestServer::sqlite_with(provider.config(&[])).await;
    let owner = server.owner().await;
    Browser::new(&server, &owner).connect().await;
    server.advance(3600);
    provider.is(Behavior::Slow);
    let needs = template(&server, &owner, false).await;
    let (_, _, posted) = server.workspace(&owner, needs, "w").await;
    let daemon = Daemon::untagged(&server, "d").await;
    let waiting = daemon.calls.acquire(std::future::pending());
    assert!(tokio::time::timeout(WAIT_LIMIT, waiting).await.unwrap().is_err());
    let failed = until(&server, posted, |job| job.completed_at.is_some()).await;
    assert!(failed.error.contains("\"corp\" cannot be refreshed"), "{}", failed.error);
    provider.is(Behavior::Refuses);
    server.workspace(&owner, needs, "x").await;
    assert_eq!(accounts(daemon.acquire().await), [], "a token that was refused is left out");
}

#[tokio::test]
async fn an_import_may_ask_for_accounts_at_providers_that_are_configured() {
    let provider = Provider::start().await;
    let server = TestServer::sqlite_with(provider.config(&[])).await;
    let owner = server.owner().await;
    let daemon = Daemon::untagged(&server, "d").await;
    for (asked, error) in [("corp", ""), ("gone", "\"gone\" is not configured")] {
        let posted = import(&server, &owner, json!({})).await.1;
        daemon.take(posted).await;
        let ask = |id: &str| ExternalAuthProviderResource { id: id.to_owned(), optional: true };
        let found = completed_job::TemplateImport {
            external_auth_providers: vec![ask("corp"), ask(asked)]
                .into_iter()
                .skip(usize::from(asked == "corp"))
                .collect(),
            ..completed_job::TemplateImport::default()
        };
        let arm = Some(completed_job::Type::TemplateImport(found));
        daemon.calls.complete_job(&CompletedJob { job_id: posted.to_string(), r#type: arm }).await.unwrap();
        let ended = job(&server, posted).await;
        assert_eq!(status(&ended), if error.is_empty() { Status::Succeeded } else { Status::Failed });
        assert!(ended.error.contains(error), "{}", ended.error);
    }
}

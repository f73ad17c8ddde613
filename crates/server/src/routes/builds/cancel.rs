//! Stopping a build.

use axum::extract::State;
use coder_api::error::Message;
use coder_domain::ids::BuildId;
use coder_domain::rbac::Action;
use coder_store::templates;
use http::StatusCode;

use super::find;
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::params::{Id, Query};
use crate::http::{Caller, Error, Json, Result, body};
use crate::routes::jobs::{self, ExpectedStatus};
use crate::routes::{announce, workspaces};

/// `PATCH /workspacebuilds/{build}/cancel`; the order of checks is scheduling-and-auth 3.5.
pub async fn cancel(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<BuildId>,
    query: Query,
) -> Result<Json<Message>> {
    let expected = match query.text("expect_status") {
        "" => None,
        "pending" => Some(ExpectedStatus::Pending),
        "running" => Some(ExpectedStatus::Running),
        other => {
            return Err(Error::bad_request(format!(
                "Invalid expect_status {other:?}. Only \"running\" or \"pending\" are allowed."
            )));
        }
    };
    let mut tx = app.store.reader().await?;
    let (build, workspace) = find::by_id(&mut tx, &caller, id, Action::Read).await?;
    let template = templates::find(&mut tx, workspace.template_id).await?.ok_or_else(Error::not_found)?;
    drop(tx);
    let allowed = caller.is_owner()
        || template.settings.allow_user_cancel_workspace_jobs
        || expected == Some(ExpectedStatus::Pending);
    if !allowed {
        return Err(Error::new(
            StatusCode::FORBIDDEN,
            "User is not allowed to cancel workspace builds. Owner role is required.",
        ));
    }
    caller.require(Action::Update, workspaces::find::object(&workspace))?;
    let event = Event::new(Verb::Write, Kind::WorkspaceBuild, build.id.0, workspace.name.as_str())
        .in_organization(workspace.organization_id)
        .change("canceled", false, true)
        .note("workspace_id", workspace.id.to_string())
        .note("build_number", build.build_number.to_string())
        .note("build_reason", build.reason.as_str());
    jobs::cancel(&app, &caller, build.job_id, expected, event).await?;
    announce::workspace_changed(&app, workspace.id);
    Ok(body::message("Job has been marked as canceled..."))
}

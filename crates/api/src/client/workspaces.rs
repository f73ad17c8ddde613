//! Calls about workspaces and their builds.

use coder_domain::Timestamp;
use coder_domain::ids::{BuildId, WorkspaceId};
use http::Method;

use super::{Client, Error};
use crate::builds::{
    CreateWorkspaceBuildRequest, UpdateBuildStateRequest, WorkspaceBuild, WorkspaceBuildParameter,
};
use crate::json::Blob;
use crate::paths;
use crate::resources::WorkspaceResource;
use crate::workspaces::{
    AutomaticUpdates, CreateWorkspaceRequest, ExtendWorkspaceRequest, UpdateAutomaticUpdatesRequest,
    UpdateAutostartRequest, UpdateTtlRequest, UpdateWorkspaceRequest, Workspace, WorkspacesResponse,
};

/// Every method fails with what [`Error`] describes.
#[expect(clippy::missing_errors_doc, reason = "documented once for the block")]
impl Client {
    /// Workspaces that match a search string (http-api 1.11).
    pub async fn workspaces(&self, search: &str) -> Result<WorkspacesResponse, Error> {
        self.get(paths::WORKSPACES, &[("q", search)]).await
    }

    /// A workspace by its owner (`me` for the caller) and name; a 404 when there is none.
    pub async fn workspace_by_name(&self, owner: &str, name: &str) -> Result<Workspace, Error> {
        self.get(&paths::user_workspace(owner, name), &[("include_deleted", "false")]).await
    }

    /// A workspace by id; a 410 when it was deleted.
    pub async fn workspace(&self, workspace: WorkspaceId) -> Result<Workspace, Error> {
        self.get(&paths::workspace(workspace), &[]).await
    }

    /// Creates a workspace for a user and starts its first build.
    pub async fn create_workspace(
        &self,
        owner: &str,
        request: &CreateWorkspaceRequest,
    ) -> Result<Workspace, Error> {
        self.send(Method::POST, &paths::user_workspaces(owner), request).await
    }

    /// Renames a workspace.
    pub async fn rename_workspace(&self, workspace: WorkspaceId, name: &str) -> Result<(), Error> {
        let request = UpdateWorkspaceRequest { name: name.to_owned() };
        self.send_without_answer(Method::PATCH, &paths::workspace(workspace), &request).await
    }

    /// Sets the autostart schedule, or none.
    pub async fn set_autostart(&self, workspace: WorkspaceId, schedule: Option<&str>) -> Result<(), Error> {
        let request = UpdateAutostartRequest { schedule: schedule.map(str::to_owned) };
        self.send_without_answer(Method::PUT, &paths::workspace_autostart(workspace), &request).await
    }

    /// Sets the time to live in milliseconds, or none.
    pub async fn set_ttl(&self, workspace: WorkspaceId, ttl_ms: Option<i64>) -> Result<(), Error> {
        let request = UpdateTtlRequest { ttl_ms };
        self.send_without_answer(Method::PUT, &paths::workspace_ttl(workspace), &request).await
    }

    /// Sets the deadline of a started workspace.
    pub async fn extend_workspace(&self, workspace: WorkspaceId, deadline: Timestamp) -> Result<(), Error> {
        let request = ExtendWorkspaceRequest { deadline };
        self.send_without_answer(Method::PUT, &paths::workspace_extend(workspace), &request).await
    }

    /// Chooses whether starts take the active version.
    pub async fn set_automatic_updates(
        &self,
        workspace: WorkspaceId,
        automatic_updates: AutomaticUpdates,
    ) -> Result<(), Error> {
        let request = UpdateAutomaticUpdatesRequest { automatic_updates };
        self.send_without_answer(Method::PUT, &paths::workspace_autoupdates(workspace), &request).await
    }

    /// Marks a workspace as a favorite of its owner, or not.
    pub async fn set_favorite(&self, workspace: WorkspaceId, favorite: bool) -> Result<(), Error> {
        let path = paths::workspace_favorite(workspace);
        let method = if favorite { Method::PUT } else { Method::DELETE };
        self.command(method, &path).await
    }

    /// A workspace's builds, newest first.
    pub async fn builds(&self, workspace: WorkspaceId) -> Result<Vec<WorkspaceBuild>, Error> {
        self.list(&paths::workspace_builds(workspace), &[]).await
    }

    /// Starts a build.
    pub async fn create_build(
        &self,
        workspace: WorkspaceId,
        request: &CreateWorkspaceBuildRequest,
    ) -> Result<WorkspaceBuild, Error> {
        self.send(Method::POST, &paths::workspace_builds(workspace), request).await
    }

    pub async fn build(&self, build: BuildId) -> Result<WorkspaceBuild, Error> {
        self.get(&paths::build(build), &[]).await
    }

    /// A build by its workspace and number.
    pub async fn build_by_number(
        &self,
        owner: &str,
        workspace: &str,
        number: i64,
    ) -> Result<WorkspaceBuild, Error> {
        self.get(&paths::user_workspace_build(owner, workspace, number), &[]).await
    }

    /// Cancels a build; with `only_in` (`pending`, `running`) a 412 when it is in another state.
    pub async fn cancel_build(&self, build: BuildId, only_in: Option<&str>) -> Result<(), Error> {
        let condition = only_in.map(|status| ("expect_status", status));
        let query: Vec<_> = condition.into_iter().collect();
        self.send_empty::<serde_json::Value>(Method::PATCH, &paths::build_cancel(build), &query)
            .await
            .map(drop)
    }

    /// The values a build ran with.
    pub async fn build_parameters(&self, build: BuildId) -> Result<Vec<WorkspaceBuildParameter>, Error> {
        self.list(&paths::build_parameters(build), &[]).await
    }

    /// The resources of a build.
    pub async fn build_resources(&self, build: BuildId) -> Result<Vec<WorkspaceResource>, Error> {
        self.list(&paths::build_resources(build), &[]).await
    }

    /// The Terraform state a build left, empty when it left none.
    pub async fn build_state(&self, build: BuildId) -> Result<Blob, Error> {
        self.bytes(&paths::build_state(build)).await.map(Blob)
    }

    /// Replaces a build's Terraform state without building.
    pub async fn set_build_state(&self, build: BuildId, state: Blob) -> Result<(), Error> {
        self.send_without_answer(Method::PUT, &paths::build_state(build), &UpdateBuildStateRequest { state })
            .await
    }
}

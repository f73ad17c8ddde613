//! Calls about templates, their versions and dry runs.

use coder_domain::ids::{JobId, OrganizationId, TemplateId, TemplateVersionId};
use http::Method;

use super::{Client, Error};
use crate::daemons::MatchedProvisioners;
use crate::jobs::ProvisionerJob;
use crate::paths;
use crate::resources::WorkspaceResource;
use crate::templates::{
    ArchiveVersionsRequest, ArchiveVersionsResponse, CreateTemplateRequest, Template,
    UpdateActiveVersionRequest, UpdateTemplateRequest,
};
use crate::versions::{
    CreateDryRunRequest, CreateTemplateVersionRequest, Preset, TemplateVersion, TemplateVersionExternalAuth,
    TemplateVersionParameter, TemplateVersionVariable,
};

/// Every method fails with what [`Error`] describes.
#[expect(clippy::missing_errors_doc, reason = "documented once for the block")]
impl Client {
    /// Templates that match a search string (http-api 1.11), in all organizations the caller sees.
    pub async fn templates(&self, search: &str) -> Result<Vec<Template>, Error> {
        self.list(paths::TEMPLATES, &[("q", search)]).await
    }

    /// A template by name; a 404 when there is none.
    pub async fn template_by_name(
        &self,
        organization: OrganizationId,
        name: &str,
    ) -> Result<Template, Error> {
        self.get(&paths::organization_template(organization, name), &[]).await
    }

    pub async fn template(&self, template: TemplateId) -> Result<Template, Error> {
        self.get(&paths::template(template), &[]).await
    }

    /// Creates a template from a version.
    pub async fn create_template(
        &self,
        organization: OrganizationId,
        request: &CreateTemplateRequest,
    ) -> Result<Template, Error> {
        self.send(Method::POST, &paths::organization_templates(organization), request).await
    }

    /// Changes a template.
    pub async fn update_template(
        &self,
        template: TemplateId,
        request: &UpdateTemplateRequest,
    ) -> Result<Template, Error> {
        self.send(Method::PATCH, &paths::template(template), request).await
    }

    /// Deletes a template that no workspace uses.
    pub async fn delete_template(&self, template: TemplateId) -> Result<(), Error> {
        self.command(Method::DELETE, &paths::template(template)).await
    }

    /// A template's versions, oldest first.
    pub async fn template_versions(
        &self,
        template: TemplateId,
        archived: bool,
    ) -> Result<Vec<TemplateVersion>, Error> {
        let query: &[(&str, &str)] = if archived { &[("include_archived", "true")] } else { &[] };
        self.list(&paths::template_versions(template), query).await
    }

    pub async fn version_by_name(&self, template: TemplateId, name: &str) -> Result<TemplateVersion, Error> {
        self.get(&paths::template_version_by_name(template, name), &[]).await
    }

    /// Sets the active version, which new builds use.
    pub async fn set_active_version(
        &self,
        template: TemplateId,
        version: TemplateVersionId,
    ) -> Result<(), Error> {
        let request = UpdateActiveVersionRequest { id: Some(version) };
        self.send_without_answer(Method::PATCH, &paths::template_versions(template), &request).await
    }

    /// Hides a version that neither the template nor a workspace uses.
    pub async fn archive_version(&self, version: TemplateVersionId) -> Result<(), Error> {
        self.command(Method::POST, &paths::version_archive(version)).await
    }

    /// Shows an archived version again.
    pub async fn unarchive_version(&self, version: TemplateVersionId) -> Result<(), Error> {
        self.command(Method::POST, &paths::version_unarchive(version)).await
    }

    /// Archives the failed versions of a template, or with `all` every unused one.
    pub async fn archive_versions(
        &self,
        template: TemplateId,
        all: bool,
    ) -> Result<ArchiveVersionsResponse, Error> {
        let request = ArchiveVersionsRequest { all };
        self.send(Method::POST, &paths::template_versions_archive(template), &request).await
    }

    /// Creates a version and starts its import.
    pub async fn create_version(
        &self,
        organization: OrganizationId,
        request: &CreateTemplateVersionRequest,
    ) -> Result<TemplateVersion, Error> {
        self.send(Method::POST, &paths::create_template_version(organization), request).await
    }

    pub async fn version(&self, version: TemplateVersionId) -> Result<TemplateVersion, Error> {
        self.get(&paths::version(version), &[]).await
    }

    /// Cancels a version's import.
    pub async fn cancel_version(&self, version: TemplateVersionId) -> Result<(), Error> {
        self.command(Method::PATCH, &paths::version_cancel(version)).await
    }

    /// The resources that builds of a version would create, for starts and stops.
    pub async fn version_resources(
        &self,
        version: TemplateVersionId,
    ) -> Result<Vec<WorkspaceResource>, Error> {
        self.list(&paths::version_resources(version), &[]).await
    }

    /// A version's Terraform variables.
    pub async fn version_variables(
        &self,
        version: TemplateVersionId,
    ) -> Result<Vec<TemplateVersionVariable>, Error> {
        self.list(&paths::version_variables(version), &[]).await
    }

    /// The parameters of a version.
    pub async fn rich_parameters(
        &self,
        version: TemplateVersionId,
    ) -> Result<Vec<TemplateVersionParameter>, Error> {
        self.list(&paths::version_rich_parameters(version), &[]).await
    }

    /// A version's presets.
    pub async fn presets(&self, version: TemplateVersionId) -> Result<Vec<Preset>, Error> {
        self.list(&paths::version_presets(version), &[]).await
    }

    /// The external authentication that builds of a version need.
    pub async fn external_auth(
        &self,
        version: TemplateVersionId,
    ) -> Result<Vec<TemplateVersionExternalAuth>, Error> {
        self.list(&paths::version_external_auth(version), &[]).await
    }

    /// Starts a dry run.
    pub async fn create_dry_run(
        &self,
        version: TemplateVersionId,
        request: &CreateDryRunRequest,
    ) -> Result<ProvisionerJob, Error> {
        self.send(Method::POST, &paths::dry_runs(version), request).await
    }

    /// A dry run's job.
    pub async fn dry_run(&self, version: TemplateVersionId, job: JobId) -> Result<ProvisionerJob, Error> {
        self.get(&paths::dry_run(version, job), &[]).await
    }

    /// How many daemons could run a dry run.
    pub async fn dry_run_matched(
        &self,
        version: TemplateVersionId,
        job: JobId,
    ) -> Result<MatchedProvisioners, Error> {
        self.get(&paths::dry_run_matched(version, job), &[]).await
    }

    pub async fn dry_run_resources(
        &self,
        version: TemplateVersionId,
        job: JobId,
    ) -> Result<Vec<WorkspaceResource>, Error> {
        self.list(&paths::dry_run_resources(version, job), &[]).await
    }

    pub async fn cancel_dry_run(&self, version: TemplateVersionId, job: JobId) -> Result<(), Error> {
        self.command(Method::PATCH, &paths::dry_run_cancel(version, job)).await
    }
}

//! Calls about organizations and the provisioner keys, daemons and jobs in them.

use std::collections::BTreeMap;

use coder_domain::ids::{JobId, OrganizationId, UserId};
use coder_domain::secret::Secret;
use http::Method;

use super::{Client, DaemonFilter, Error, JobFilter};
use crate::daemons::{DrainResponse, ProvisionerDaemon};
use crate::explanations::JobExplanation;
use crate::jobs::ProvisionerJob;
use crate::keys::{
    CreateKeyResponse, CreateProvisionerKeyRequest, ProvisionerKey, RotateProvisionerKeyRequest,
    RotateProvisionerKeyResponse, UpdateProvisionerKeyRequest,
};
use crate::organizations::Organization;
use crate::paths;

/// Every method fails with what [`Error`] describes.
#[expect(clippy::missing_errors_doc, reason = "documented once for the block")]
impl Client {
    /// The caller's organizations.
    pub async fn my_organizations(&self) -> Result<Vec<Organization>, Error> {
        self.list(&paths::user_organizations(paths::ME), &[]).await
    }

    /// An organization by name, id, or `default`.
    pub async fn organization(&self, organization: &str) -> Result<Organization, Error> {
        self.get(&paths::organization(organization), &[]).await
    }

    /// Creates a provisioner key; the secret is sent only this once.
    pub async fn create_provisioner_key(
        &self,
        organization: OrganizationId,
        name: &str,
        tags: BTreeMap<String, String>,
    ) -> Result<Secret, Error> {
        let name = name.to_owned();
        let request = CreateProvisionerKeyRequest { name, tags, ..CreateProvisionerKeyRequest::default() };
        self.create_limited_provisioner_key(organization, &request).await
    }

    /// Creates a provisioner key with an end or an allow list, which official servers do not support.
    pub async fn create_limited_provisioner_key(
        &self,
        organization: OrganizationId,
        request: &CreateProvisionerKeyRequest,
    ) -> Result<Secret, Error> {
        let key: CreateKeyResponse =
            self.send(Method::POST, &paths::provisioner_keys(organization), request).await?;
        Ok(key.key)
    }

    /// Gives a provisioner key a new secret. Not official.
    pub async fn rotate_provisioner_key(
        &self,
        organization: OrganizationId,
        name: &str,
        request: RotateProvisionerKeyRequest,
    ) -> Result<RotateProvisionerKeyResponse, Error> {
        self.send(Method::POST, &paths::provisioner_key_rotate(organization, name), &request).await
    }

    /// Changes when a provisioner key expires and from where it may be used. Not official.
    pub async fn update_provisioner_key(
        &self,
        organization: OrganizationId,
        name: &str,
        request: &UpdateProvisionerKeyRequest,
    ) -> Result<ProvisionerKey, Error> {
        self.send(Method::PATCH, &paths::provisioner_key(organization, name), request).await
    }

    /// The provisioner keys, without the reserved ones.
    pub async fn provisioner_keys(&self, organization: OrganizationId) -> Result<Vec<ProvisionerKey>, Error> {
        self.list(&paths::provisioner_keys(organization), &[]).await
    }

    pub async fn delete_provisioner_key(
        &self,
        organization: OrganizationId,
        name: &str,
    ) -> Result<(), Error> {
        self.command(Method::DELETE, &paths::provisioner_key(organization, name)).await
    }

    /// Daemons, newest first.
    pub async fn daemons(
        &self,
        organization: OrganizationId,
        filter: &DaemonFilter,
    ) -> Result<Vec<ProvisionerDaemon>, Error> {
        let mut query = vec![("limit", filter.limit.unwrap_or(50).to_string())];
        if filter.offline {
            query.push(("offline", "true".to_owned()));
        }
        if !filter.status.is_empty() {
            query.push(("status", filter.status.join(",")));
        }
        if let Some(age) = filter.max_age {
            query.push(("max_age", format!("{}s", age.as_secs())));
        }
        push_tags(&mut query, &filter.tags);
        self.list(&paths::daemons(organization), &borrow(&query)).await
    }

    /// Drains daemons by name, or one by its id: they finish their jobs and disconnect. Not official.
    pub async fn drain(&self, organization: OrganizationId, daemon: &str) -> Result<DrainResponse, Error> {
        self.send(Method::POST, &paths::daemon_drain(organization, daemon), &()).await
    }

    /// Ends a drain. Daemons that were notified before still disconnect.
    ///
    /// # Errors
    /// See [`Error`]; 404 when no daemon has that name or id.
    pub async fn undrain(&self, organization: OrganizationId, daemon: &str) -> Result<DrainResponse, Error> {
        self.send(Method::DELETE, &paths::daemon_drain(organization, daemon), &()).await
    }

    /// Why a job waits; none on an official server, which cannot say.
    pub async fn explain_job(
        &self,
        organization: OrganizationId,
        job: JobId,
    ) -> Result<Option<JobExplanation>, Error> {
        match self.get(&paths::job_explanation(organization, job), &[]).await {
            Ok(explanation) => Ok(Some(explanation)),
            Err(error) if error.status().is_some_and(|status| status == 404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Jobs, newest first.
    pub async fn jobs(
        &self,
        organization: OrganizationId,
        filter: &JobFilter,
    ) -> Result<Vec<ProvisionerJob>, Error> {
        let mut query = vec![("limit", filter.limit.unwrap_or(50).to_string())];
        if !filter.status.is_empty() {
            query.push(("status", filter.status.join(",")));
        }
        if let Some(UserId(initiator)) = filter.initiator {
            query.push(("initiator", initiator.to_string()));
        }
        push_tags(&mut query, &filter.tags);
        self.list(&paths::jobs(organization), &borrow(&query)).await
    }

    pub async fn job(&self, organization: OrganizationId, job: JobId) -> Result<ProvisionerJob, Error> {
        self.get(&paths::job(organization, job), &[]).await
    }

    /// Cancels a job through its version, dry run or build (http-api 5.4).
    pub async fn cancel_job(&self, job: &ProvisionerJob) -> Result<(), Error> {
        use coder_domain::job::Type;
        let path = match (job.kind, job.input.template_version_id, job.input.workspace_build_id) {
            (Type::TemplateVersionImport, Some(version), _) => Some(paths::version_cancel(version)),
            (Type::TemplateVersionDryRun, Some(version), _) => Some(paths::dry_run_cancel(version, job.id)),
            (Type::WorkspaceBuild, _, Some(build)) => Some(paths::build_cancel(build)),
            _ => None,
        };
        let Some(path) = path else {
            let at = super::error::Call::new(Method::PATCH, self.base());
            return Err(at.protocol(format!("the server does not say what job {} works on", job.id)));
        };
        self.command(Method::PATCH, &path).await
    }
}

fn push_tags(query: &mut Vec<(&str, String)>, tags: &BTreeMap<String, String>) {
    if !tags.is_empty() {
        query.push(("tags", serde_json::to_string(tags).expect("a map of strings is JSON")));
    }
}

fn borrow<'a>(query: &'a [(&'a str, String)]) -> Vec<(&'a str, &'a str)> {
    query.iter().map(|(key, value)| (*key, value.as_str())).collect()
}

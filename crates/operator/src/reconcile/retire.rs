//! Deletes keys: former ones when nothing uses them any more, and all of a deleted pool.

use std::collections::BTreeSet;
use std::time::Duration;

use coder_api::client::{DaemonFilter, Error as CoderError};
use coder_domain::ids::OrganizationId;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use super::pass::{Pass, Reached};
use crate::access;
use crate::context::Context;
use crate::crd::provisioner_status::{KeyState, KeyStatus};
use crate::failure::Failure;
use crate::names::KEY_ID;

/// Rows of a list of daemons; without a limit it has 50.
const MAX_ROWS: u32 = 100_000;

impl Pass<'_> {
    /// Deletes retiring keys that neither pods nor connected daemons use. The pool works meanwhile, so a failure is reported and
    /// the deletion is tried again later.
    pub(super) async fn retire_keys(&mut self, reached: &Reached) -> Result<(), Failure> {
        let retiring: Vec<KeyStatus> =
            self.status.keys.iter().filter(|key| key.state == KeyState::Retiring).cloned().collect();
        if retiring.is_empty() {
            return Ok(());
        }
        self.within(Duration::from_secs(5));
        let Some(of_pods) = self.keys_of_pods().await? else { return Ok(()) };
        for key in retiring {
            if key.id.as_ref().is_some_and(|id| of_pods.contains(id)) {
                continue;
            }
            match self.retire(reached, &key).await {
                Ok(true) => {
                    self.status.keys.retain(|known| known.name != key.name);
                    self.save_keys().await?;
                    let entries = self.entries().await?;
                    self.write_secret(&entries).await?;
                }
                Ok(false) => {}
                Err(error) => {
                    self.within(Duration::from_secs(30));
                    let note =
                        format!("cannot delete the retired provisioner key {:?} yet: {error}", key.name);
                    self.ctx.event(&self.about, true, "KeyCleanupFailed", &note).await;
                }
            }
        }
        Ok(())
    }

    /// Deletes a retiring key that no pod uses; returns whether it is done with.
    async fn retire(&mut self, reached: &Reached, key: &KeyStatus) -> Result<bool, CoderError> {
        if let (Some(id), Ok(organization)) = (&key.id, key.organization_id.parse::<OrganizationId>()) {
            let filter = DaemonFilter { limit: Some(MAX_ROWS), ..DaemonFilter::default() };
            match reached.client.daemons(organization, &filter).await {
                Ok(daemons) if daemons.iter().any(|daemon| daemon.key_id.to_string() == *id) => {
                    return Ok(false);
                }
                Ok(_) => {}
                // It does not exist any more, or is one of another server.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        let note = match delete_key(self.ctx, &self.names.namespace, Some(reached), key).await? {
            Deleted::Done => {
                let note =
                    format!("the provisioner key {:?} was deleted: no daemon uses it any more", key.name);
                self.ctx.event(&self.about, false, "KeyDeleted", &note).await;
                return Ok(true);
            }
            Deleted::Leaked(why) => format!("the provisioner key {:?} stays on {}: {why}", key.name, key.url),
        };
        self.ctx.event(&self.about, true, "KeyLeaked", &note).await;
        Ok(true)
    }

    /// The ids of the keys of all pods; none if there are pods whose key is not known.
    async fn keys_of_pods(&self) -> Result<Option<BTreeSet<String>>, Failure> {
        let pods: Api<Pod> = Api::namespaced(self.ctx.kube.clone(), &self.names.namespace);
        let pods = pods.list(&ListParams::default().labels(&self.names.selector())).await?;
        let ended = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            matches!(phase, Some("Succeeded" | "Failed"))
        };
        Ok(pods
            .items
            .iter()
            .filter(|pod| !ended(pod))
            .map(|pod| pod.annotations().get(KEY_ID).cloned())
            .collect())
    }
}

/// What became of a key that should be deleted.
pub(super) enum Deleted {
    /// It does not exist any more.
    Done,
    /// It cannot be deleted from here.
    Leaked(String),
}

/// Deletes a key of the resource, after it was found by its id. A key of another server needs that one's token.
pub(super) async fn delete_key(
    ctx: &Context,
    namespace: &str,
    reached: Option<&Reached>,
    key: &KeyStatus,
) -> Result<Deleted, CoderError> {
    let here = reached.filter(|reached| {
        reached.access.url == key.url
            || (key.control_plane.is_some() && reached.access.control_plane == key.control_plane)
            || key.url.is_empty()
    });
    let client = match (here, &key.control_plane) {
        (Some(reached), _) => reached.client.clone(),
        (None, Some(plane)) => {
            let access = access::control_plane(&ctx.kube, namespace, plane, None, true).await;
            match access.map(|access| ctx.clients.get(&access)) {
                Ok(Ok(client)) => client,
                _ => {
                    return Ok(Deleted::Leaked(format!(
                        "the token of the control plane {plane:?} is not there"
                    )));
                }
            }
        }
        (None, None) => return Ok(Deleted::Leaked("its token is not known any more".to_owned())),
    };
    if client.token().is_none() {
        return Ok(Deleted::Leaked("the token for its server is not known".to_owned()));
    }
    let Ok(organization) = key.organization_id.parse::<OrganizationId>() else {
        return Ok(Deleted::Leaked("its organization is not known".to_owned()));
    };
    let found = match client.provisioner_keys(organization).await {
        Ok(found) => found,
        // The organization is gone, and its keys with it.
        Err(error) if error.is_not_found() => return Ok(Deleted::Done),
        Err(error) => return Err(error),
    };
    let same = found.iter().find(|known| match &key.id {
        Some(id) => known.id.to_string() == *id,
        None => known.name.eq_ignore_ascii_case(&key.name),
    });
    let Some(same) = same else { return Ok(Deleted::Done) };
    match client.delete_provisioner_key(organization, &same.name).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(Deleted::Done),
    }
}

//! Writes the status, if it changed.

use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::pass::Pass;
use super::resource::{Error, api};
use crate::apply::FIELD_MANAGER;
use crate::failure::Failure;
use crate::rules::conditions::{self, DAEMONS, Finding, PROGRESSING};

impl Pass<'_> {
    /// Enters the summary and writes the status.
    pub(super) async fn conclude(&mut self) -> Result<(), Error> {
        self.status.selector = Some(self.names.selector());
        self.enter_findings().await;
        let summary = conditions::summary(&self.status.conditions);
        self.status.phase = Some(
            match (summary.is_true, self.status.desired_replicas, self.status.replicas) {
                (true, 0, 0) => "ScaledToZero",
                (true, ..) => "Ready",
                (false, ..) => "Pending",
            }
            .to_owned(),
        );
        self.find(summary);
        self.enter_findings().await;
        self.write_status().await
    }

    /// Writes the status, if it changed.
    pub(super) async fn write_status(&mut self) -> Result<(), Error> {
        if self.resource.status.as_ref() == Some(&self.status) {
            return Ok(());
        }
        self.patch_status().await.map_err(|source| Error { what: "write the status", source })
    }

    /// Writes the keys at once, before what a crash must not make forgotten.
    pub(super) async fn save_keys(&mut self) -> Result<(), Failure> {
        self.patch_status().await.map_err(Failure::from)
    }

    async fn patch_status(&self) -> Result<(), kube::Error> {
        let patch = json!({
            "apiVersion": "coder.com/v1alpha1",
            "kind": "CoderProvisioner",
            "metadata": {"name": self.resource.name_any()},
            "status": self.status,
        });
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let patched = api(self.ctx, self.resource)
            .patch_status(&self.resource.name_any(), &parameters, &Patch::Apply(&patch))
            .await;
        match patched {
            Ok(_) => Ok(()),
            // It was deleted meanwhile.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether daemons are connected, and whether pods are being replaced.
    pub(super) fn find_daemons(&mut self, is_known: Option<String>, updating: Option<String>) {
        let (connected, wanted) = (self.status.connected, self.status.ready_replicas);
        let finding = match is_known {
            Some(why) => Finding::no(DAEMONS, "Unknown", why),
            None if wanted == 0 => Finding::yes(DAEMONS, "NoneExpected", "no pod is ready"),
            None if connected >= wanted => {
                Finding::yes(DAEMONS, "Connected", "the daemons of all ready pods are connected")
            }
            None => {
                Finding::no(DAEMONS, "NotConnected", format!("{connected} of {wanted} daemons are connected"))
            }
        };
        // Daemons that come and go are not worth an Event.
        let generation = self.resource.metadata.generation;
        let now = self.ctx.clock.now();
        conditions::set(&mut self.status.conditions, &finding, generation, now);
        let finding = match updating {
            Some(what) => Finding::yes(PROGRESSING, "Updating", what),
            None => Finding::no(PROGRESSING, "Complete", "all pods are as described"),
        };
        conditions::set(&mut self.status.conditions, &finding, generation, now);
    }
}

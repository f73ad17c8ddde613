//! Events about resources, as `kubectl describe` shows them.
//!
//! What happens again soon is counted in the first Event about it, so that a problem that comes and goes is one Event.

use std::collections::HashMap;
use std::sync::Arc;

use coder_domain::clock::Clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use parking_lot::Mutex;
use serde_json::json;

use crate::names;

/// The name under which Events are reported.
const CONTROLLER: &str = "coder-operator";
/// The API server accepts 1024 bytes.
const MAX_NOTE_BYTES: usize = 1000;
/// What happens again within this time is the same Event. Kubernetes keeps Events for an hour.
const SERIES_WINDOW: SignedDuration = SignedDuration::from_mins(6);

/// What happened to an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Report {
    uid: String,
    is_warning: bool,
    reason: String,
    note: String,
}

/// An Event that was written.
#[derive(Clone)]
struct Written {
    name: String,
    count: i32,
    at: Timestamp,
}

/// Writes Events.
pub(crate) struct Events {
    kube: Client,
    clock: Arc<dyn Clock>,
    written: Mutex<HashMap<Report, Written>>,
}

impl Events {
    #[must_use]
    pub(crate) fn new(kube: Client, clock: Arc<dyn Clock>) -> Self {
        Self { kube, clock, written: Mutex::default() }
    }

    /// Reports what happened to an object. A failure to report is logged and ignored.
    pub(crate) async fn report(&self, about: &ObjectReference, is_warning: bool, reason: &str, note: &str) {
        if let Err(error) = self.write(about, is_warning, reason, note).await {
            tracing::warn!(%error, reason, "cannot write an Event");
        }
    }

    async fn write(
        &self,
        about: &ObjectReference,
        is_warning: bool,
        reason: &str,
        note: &str,
    ) -> Result<(), kube::Error> {
        let now = self.clock.now();
        let report = Report {
            uid: about.uid.clone().unwrap_or_default(),
            is_warning,
            reason: reason.to_owned(),
            note: cut(note).to_owned(),
        };
        let known = {
            let mut written = self.written.lock();
            written.retain(|_, written| now.duration_since(written.at) < SERIES_WINDOW);
            written.get(&report).cloned()
        };
        let events: Api<Event> =
            Api::namespaced(self.kube.clone(), about.namespace.as_deref().unwrap_or("default"));
        let repeated = match known {
            Some(known) => self.repeat(&events, known, now).await?,
            None => None,
        };
        let written = match repeated {
            Some(written) => written,
            None => {
                let event = event(about, &report, now);
                let name = event.name_any();
                events.create(&PostParams::default(), &event).await?;
                Written { name, count: 1, at: now }
            }
        };
        self.written.lock().insert(report, written);
        Ok(())
    }

    /// Counts an Event; none if it does not exist any more.
    async fn repeat(
        &self,
        events: &Api<Event>,
        known: Written,
        now: Timestamp,
    ) -> Result<Option<Written>, kube::Error> {
        let count = known.count.saturating_add(1);
        let series = EventSeries { count, last_observed_time: MicroTime(now) };
        let patch = Patch::Merge(json!({"series": series}));
        match events.patch(&known.name, &PatchParams::default(), &patch).await {
            Ok(_) => Ok(Some(Written { name: known.name, count, at: now })),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn cut(note: &str) -> &str {
    &note[..note.floor_char_boundary(MAX_NOTE_BYTES)]
}

fn event(about: &ObjectReference, what: &Report, now: Timestamp) -> Event {
    let name = names::event(about.name.as_deref().unwrap_or(CONTROLLER), now.as_nanosecond());
    Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: about.namespace.clone(),
            ..ObjectMeta::default()
        },
        action: Some("Reconcile".to_owned()),
        event_time: Some(MicroTime(now)),
        note: Some(what.note.clone()),
        reason: Some(what.reason.clone()),
        regarding: Some(about.clone()),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(CONTROLLER.to_owned()),
        type_: Some(if what.is_warning { "Warning" } else { "Normal" }.to_owned()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_note_is_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        let long = format!("{}ä and more", "a".repeat(MAX_NOTE_BYTES - 1));
        assert_eq!(cut(&long), "a".repeat(MAX_NOTE_BYTES - 1));
    }
}

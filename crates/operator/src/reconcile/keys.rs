//! Does what the rules of [`crate::rules::keys`] say, on the server and in the Secret.

use std::collections::BTreeMap;
use std::time::Duration;

use coder_api::client::Error as CoderError;
use coder_domain::ids::OrganizationId;
use coder_domain::secret::Secret;
use jiff::SignedDuration;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::pass::{ActiveKey, Pass, Reached};
use super::retire::{Deleted, delete_key};
use crate::access::given;
use crate::apply::{self, apply};
use crate::context::{ANSWER_TTL, Organization};
use crate::crd::provisioner_status::{KeyState, KeyStatus, SecretReference};
use crate::failure::{Failure, Retry};
use crate::names;
use crate::objects::secret;
use crate::rules::conditions::{Finding, KEY, SECRET};
use crate::rules::keys::{self, Check, Observed, Step, Wanted, fingerprint};

/// More steps than any sequence needs.
const MAX_STEPS: usize = 16;

impl Pass<'_> {
    /// The key of a Secret that somebody else manages.
    pub(super) async fn existing_key(&mut self, reached: &Reached) -> Result<ActiveKey, Failure> {
        let reference = self.resource.spec.key.existing_secret_ref.clone().unwrap_or_default();
        let key = reference.key_or("key").to_owned();
        let found = given(&self.ctx.kube, &self.names.namespace, &reference.name, &key).await?;
        let text = found.and_then(|value| {
            let text = String::from_utf8(value).unwrap_or_default().trim().to_owned();
            let unusable =
                || format!("the entry {key:?} of Secret {:?} is empty or not text", reference.name);
            if text.is_empty() { Err(unusable()) } else { Ok(text) }
        });
        let text = match text {
            Ok(text) => text,
            Err(message) => {
                let finding = Finding::no(SECRET, "SecretUnavailable", message);
                return Err(Failure::new(finding, Retry::After(Duration::from_secs(15))));
            }
        };
        self.find(Finding::yes(SECRET, "SecretReady", "the existing key is there"));
        match self.check(reached, &Secret::new(text), false).await? {
            Check::Valid { id, organization_id, tags } => {
                self.find(Finding::yes(KEY, "ProvisionerKeyReady", "the server accepts the key"));
                self.status.organization_id = Some(organization_id);
                self.status.provisioner_key_id = Some(id.clone());
                self.status.provisioner_key_name = None;
                self.status.secret_ref =
                    Some(SecretReference { name: reference.name.clone(), key: key.clone() });
                Ok(ActiveKey { secret: reference.name, entry: key, id, tags })
            }
            _ => Err(Finding::no(
                KEY,
                "ProvisionerKeyRefused",
                "the server does not accept the existing key: put another one into the Secret",
            )
            .into()),
        }
    }

    /// The resource's own key, which is made or replaced first if necessary.
    pub(super) async fn own_key(
        &mut self,
        reached: &Reached,
        organization: &Organization,
    ) -> Result<ActiveKey, Failure> {
        let wanted = self.wanted(reached, organization);
        if let Err(error) = coder_domain::tags::validate(&wanted.tags) {
            return Err(Finding::no(KEY, "InvalidTags", error.to_string()).into());
        }
        let mut entries = self.entries().await?;
        self.adopt_official_key(reached, &wanted, &entries).await?;
        let mut must_present = false;
        for _ in 0..MAX_STEPS {
            let check = self.check_of_entries(reached, &entries, must_present).await?;
            let fingerprints = fingerprints(&entries);
            let observed = Observed {
                keys: &self.status.keys,
                generation: self.status.key_generation,
                rotated_for: self.status.rotated_for.as_deref(),
                entries: &fingerprints,
                check,
                // Keys are deleted after the pods have the new one.
                in_use: None,
                now: self.ctx.clock.now(),
            };
            let step = keys::next(&wanted, &observed);
            must_present = matches!(step, Step::Present(_));
            match &step {
                Step::Rest => return self.finish_keys(&wanted, &entries).await,
                Step::Note(pending, reason) => {
                    self.status.key_generation += 1;
                    self.status.rotated_for.clone_from(&wanted.rotate);
                    let note = format!("making the provisioner key {:?}: {}", pending.name, reason.text());
                    self.ctx.event(&self.about, false, "RotatingKey", &note).await;
                    self.ctx.metrics.rotation();
                }
                Step::Create(pending) => {
                    let key = self.create_key(reached, pending).await?;
                    entries.insert(pending.entry.clone(), key);
                    self.write_secret(&entries).await?;
                    must_present = true;
                    continue;
                }
                Step::Delete(key) => {
                    self.delete_key(Some(reached), key).await?;
                    entries.remove(&key.entry);
                }
                Step::Present(_) => continue,
                Step::Activate(_) | Step::Update(_) => {}
            }
            self.status.keys = keys::apply(&self.status.keys, &step);
            self.mirror_active_key();
            self.save_keys().await?;
        }
        Err(Failure::new(
            Finding::no(
                KEY,
                "ProvisionerKeyFailed",
                "the key changes all the time: somebody else changes the Secret or the keys of the server",
            ),
            Retry::Backoff,
        ))
    }

    fn wanted(&self, reached: &Reached, organization: &Organization) -> Wanted {
        let spec = &self.resource.spec;
        let default = || format!("{}-{}", self.names.namespace, self.names.resource);
        Wanted {
            base: spec.key.name.clone().filter(|name| !name.is_empty()).unwrap_or_else(default),
            uid: self.uid.clone(),
            entry: spec.key.entry().to_owned(),
            organization_id: organization.id.to_string(),
            tags: spec.tags.clone(),
            url: reached.access.url.clone(),
            control_plane: reached.access.control_plane.clone(),
            deployment_id: organization.deployment_id.clone(),
            rotate: self.resource.annotations().get(names::ROTATE).cloned(),
            rotate_after: spec.key.rotate_after_seconds.map(SignedDuration::from_secs),
        }
    }

    fn secret_name(&self) -> &str {
        self.resource
            .spec
            .key
            .secret_name
            .as_deref()
            .filter(|name| !name.is_empty())
            .unwrap_or(&self.names.secret)
    }

    /// The texts in the Secret, and in the former one if its name was changed.
    pub(super) async fn entries(&self) -> Result<BTreeMap<String, String>, Failure> {
        let secrets: Api<KubeSecret> = Api::namespaced(self.ctx.kube.clone(), &self.names.namespace);
        let mut entries = BTreeMap::new();
        let former = self.status.secret_ref.as_ref().map(|former| former.name.as_str());
        for name in
            former.into_iter().filter(|former| *former != self.secret_name()).chain([self.secret_name()])
        {
            let Some(secret) = secrets.get_opt(name).await? else { continue };
            if !secret.owner_references().iter().any(|owner| owner.uid == self.uid)
                && name != self.secret_name()
            {
                continue;
            }
            for (key, ByteString(value)) in secret.data.unwrap_or_default() {
                if let Ok(text) = String::from_utf8(value)
                    && !text.is_empty()
                {
                    entries.insert(key, text);
                }
            }
        }
        Ok(entries)
    }

    /// Takes over the key that the official operator made for this resource, if the server still accepts it.
    async fn adopt_official_key(
        &mut self,
        reached: &Reached,
        wanted: &Wanted,
        entries: &BTreeMap<String, String>,
    ) -> Result<(), Failure> {
        if !self.status.keys.is_empty() || self.status.key_generation > 0 {
            return Ok(());
        }
        let (Some(id), Some(name)) = (&self.status.provisioner_key_id, &self.status.provisioner_key_name)
        else {
            return Ok(());
        };
        let (id, name) = (id.clone(), name.clone());
        let entry =
            self.status.secret_ref.as_ref().map(|former| former.key.clone()).filter(|key| !key.is_empty());
        let entry = entry.unwrap_or_else(|| wanted.entry.clone());
        let mut adopted = KeyStatus {
            state: KeyState::Retiring,
            name,
            id: Some(id.clone()),
            entry: entry.clone(),
            organization_id: self.status.organization_id.clone().unwrap_or_default(),
            url: reached.access.url.clone(),
            control_plane: reached.access.control_plane.clone(),
            deployment_id: wanted.deployment_id.clone(),
            ..KeyStatus::default()
        };
        if let Some(text) = entries.get(&entry)
            && let Check::Valid { id: found, organization_id, tags } =
                self.check(reached, &Secret::new(text), true).await?
            && found == id
        {
            adopted.state = KeyState::Active;
            adopted.fingerprint = Some(fingerprint(text));
            adopted.organization_id = organization_id;
            adopted.tags = tags;
        }
        self.status.keys.push(adopted);
        self.save_keys().await
    }

    /// What the server says about the pending key, or else about the active one.
    async fn check_of_entries(
        &mut self,
        reached: &Reached,
        entries: &BTreeMap<String, String>,
        must_ask: bool,
    ) -> Result<Check, Failure> {
        let of = |state| self.status.keys.iter().find(|key| key.state == state);
        let pending = of(KeyState::Pending);
        let Some(key) = pending.or_else(|| of(KeyState::Active)) else { return Ok(Check::Unknown) };
        // The key of another server is not shown to this one.
        let is_here = key.url == reached.access.url || key.deployment_id == self.deployment_of(reached).await;
        let Some(text) = entries.get(&key.entry).filter(|_| is_here) else { return Ok(Check::Unknown) };
        let is_changed = key.fingerprint.as_ref().is_some_and(|known| *known != fingerprint(text));
        let text = Secret::new(text);
        self.check(reached, &text, must_ask || is_changed || pending.is_some()).await
    }

    async fn deployment_of(&self, reached: &Reached) -> String {
        let name = self.resource.spec.organization_name.as_str();
        let found = self.ctx.organization(&reached.access, &reached.client, name).await;
        found.map(|organization| organization.deployment_id).unwrap_or_default()
    }

    /// Presents a key to the server, unless it was asked lately.
    async fn check(&mut self, reached: &Reached, key: &Secret, must_ask: bool) -> Result<Check, Failure> {
        let print = fingerprint(key.expose());
        let now = self.ctx.clock.now();
        let known = self.ctx.remember(&self.id, |memory| memory.check.clone());
        if let Some((known, at, check)) = known
            && known == print
            && !must_ask
            && now.duration_since(at) < ANSWER_TTL
        {
            return Ok(check);
        }
        let check = match reached.client.own_provisioner_key(key).await {
            Ok(found) => Check::Valid {
                id: found.id.to_string(),
                organization_id: found.organization.to_string(),
                tags: found.tags.as_map().clone(),
            },
            // 400: not even the form of a key.
            Err(error) if error.status().is_some_and(|status| matches!(status.as_u16(), 400 | 401)) => {
                Check::Refused
            }
            // What is not a header's value is not a key.
            Err(CoderError::InvalidHeader(_)) => Check::Refused,
            Err(error) => return Err(Failure::server("verify the provisioner key", &error)),
        };
        self.ctx.remember(&self.id, |memory| memory.check = Some((print, now, check.clone())));
        Ok(check)
    }

    /// Makes a pending key. One of its name can only be what an interrupted pass left.
    async fn create_key(&mut self, reached: &Reached, pending: &KeyStatus) -> Result<String, Failure> {
        let organization = organization_id(&pending.organization_id)?;
        let create =
            || reached.client.create_provisioner_key(organization, &pending.name, pending.tags.clone());
        let mut made = create().await;
        if made.as_ref().is_err_and(|error| error.status().is_some_and(|status| status.as_u16() == 409)) {
            let deleted = reached.client.delete_provisioner_key(organization, &pending.name).await;
            if let Err(error) = deleted
                && !error.is_not_found()
            {
                return Err(Failure::server("delete an unfinished provisioner key", &error));
            }
            made = create().await;
        }
        match made {
            Ok(key) => Ok(key.expose().to_owned()),
            Err(error) => {
                self.ctx.forget_organization(&reached.access, &self.resource.spec.organization_name);
                Err(Failure::server(&format!("make the provisioner key {:?}", pending.name), &error))
            }
        }
    }

    /// Writes the entries of all keys, and the current one under the name that people expect.
    pub(super) async fn write_secret(&mut self, entries: &BTreeMap<String, String>) -> Result<(), Failure> {
        let mut data: BTreeMap<String, String> = BTreeMap::new();
        for key in &self.status.keys {
            if let Some(text) = entries.get(&key.entry) {
                data.insert(key.entry.clone(), text.clone());
            }
        }
        let of = |state| self.status.keys.iter().find(|key| key.state == state);
        let current =
            of(KeyState::Active).or_else(|| of(KeyState::Pending)).and_then(|key| entries.get(&key.entry));
        if let Some(text) = current {
            data.insert(self.resource.spec.key.entry().to_owned(), text.clone());
        }
        if data.is_empty() {
            return Ok(());
        }
        let encoded: BTreeMap<String, String> = data
            .into_iter()
            .map(|(key, text)| {
                let value = json!(ByteString(text.into_bytes()));
                (key, value.as_str().unwrap_or_default().to_owned())
            })
            .collect();
        let object = secret::secret(self.secret_name(), &self.names, &self.owner, &encoded);
        apply(&self.ctx.kube, &self.uid, object).await.map_err(|error| match &error {
            apply::Error::Foreign { .. } => {
                Failure::from(Finding::no(SECRET, "SecretConflict", error.to_string()))
            }
            _ => Failure::from(error),
        })?;
        Ok(())
    }

    async fn finish_keys(
        &mut self,
        wanted: &Wanted,
        entries: &BTreeMap<String, String>,
    ) -> Result<ActiveKey, Failure> {
        self.write_secret(entries).await?;
        self.mirror_active_key();
        let active = self.status.keys.iter().find(|key| key.state == KeyState::Active).cloned();
        let active = active
            .ok_or_else(|| Failure::from(Finding::no(KEY, "ProvisionerKeyFailed", "the pool has no key")))?;
        self.find(Finding::yes(KEY, "ProvisionerKeyReady", format!("the key is {:?}", active.name)));
        self.find(Finding::yes(SECRET, "SecretReady", "the Secret has the key"));
        if let Some(age) = wanted.rotate_after
            && let Some(created) = active.created_at.as_ref().and_then(|text| text.parse().ok())
        {
            let left = age - self.ctx.clock.now().duration_since(created);
            self.within(Duration::try_from(left).unwrap_or_default().max(Duration::from_secs(1)));
        }
        Ok(ActiveKey {
            secret: self.secret_name().to_owned(),
            entry: active.entry,
            id: active.id.unwrap_or_default(),
            tags: active.tags,
        })
    }

    /// The fields that the official operator has for the key.
    fn mirror_active_key(&mut self) {
        let Some(active) = self.status.keys.iter().find(|key| key.state == KeyState::Active) else { return };
        self.status.provisioner_key_id.clone_from(&active.id);
        self.status.provisioner_key_name = Some(active.name.clone());
        let text: String = active.tags.iter().map(|(key, value)| format!("{key}\0{value}\0")).collect();
        self.status.tags_hash = Some(names::hash8(&text));
        self.status.secret_ref = Some(SecretReference {
            name: self.secret_name().to_owned(),
            key: self.resource.spec.key.entry().to_owned(),
        });
    }

    async fn delete_key(&mut self, reached: Option<&Reached>, key: &KeyStatus) -> Result<(), Failure> {
        match delete_key(self.ctx, &self.names.namespace, reached, key).await {
            Ok(Deleted::Done) => Ok(()),
            Ok(Deleted::Leaked(why)) => {
                let note = format!("the provisioner key {:?} stays on {}: {why}", key.name, key.url);
                self.ctx.event(&self.about, true, "KeyLeaked", &note).await;
                Ok(())
            }
            Err(error) => Err(Failure::server(&format!("delete the provisioner key {:?}", key.name), &error)),
        }
    }
}

fn organization_id(text: &str) -> Result<OrganizationId, Failure> {
    text.parse().map_err(|_| {
        Failure::from(Finding::no(
            KEY,
            "ProvisionerKeyFailed",
            format!("the organization id {text:?} is malformed"),
        ))
    })
}

fn fingerprints(entries: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    entries.iter().map(|(entry, key)| (entry.clone(), fingerprint(key.trim()))).collect()
}

//! Copies cached modules to where Terraform looks for them, so that none is fetched twice.
//!
//! A missing module is fetched by a separate Terraform process, which sees nothing of the template but the
//! module's source; the result serves all templates. Whatever fails here is left to `terraform get`, which
//! reports errors and retries transient ones.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use coder_wire::messages::provisioner::LogLevel;
use reqwest::Client;

use super::{StepError, Steps, args, blocking, failed};
use crate::files::job_file::is_plain_dir;
use crate::job::reporter::StageLog;
use crate::terraform::cache::modules::calls;
use crate::terraform::cache::modules::calls::ModuleCall;
use crate::terraform::cache::modules::registry;
use crate::terraform::cache::modules::registry::RegistryClient;
use crate::terraform::cache::modules::source;
use crate::terraform::cache::modules::source::ModuleSource;
use crate::terraform::cache::modules::{ModuleKey, REQUEST_TIMEOUT, archive, repository};
use crate::terraform::command::{CommandError, Runner};
use crate::terraform::http_client;
use crate::terraform::template::literal;
use crate::terraform::template::modules::{ModuleEntry, ModuleManifest};

/// Further calls of a template are ignored.
const MAX_CALLS: usize = 256;

/// The key of a module that is fetched alone.
const ALONE_KEY: &str = "m";

/// A repository that does not answer in this time is left to Terraform.
const GIT_PATIENCE: Duration = Duration::from_secs(30);

/// The progress of placing the modules of a template.
#[derive(Default)]
struct SeedState {
    manifest: ModuleManifest,
    /// The manifest has changed.
    is_new: bool,
    /// A fetch failed; the next would fail too.
    fetch_failed: bool,
    /// Servers that could not resolve a source; asking again would waste time.
    unreachable: BTreeSet<String>,
    registries: RegistryClient,
    /// Created on first use, because that takes a while.
    http: Option<Client>,
}

impl SeedState {
    fn add(&mut self, entry: Option<ModuleEntry>) {
        if let Some(entry) = entry {
            self.manifest.modules.retain(|known| known.key != entry.key);
            self.manifest.modules.push(entry);
        }
    }

    fn http(&mut self) -> Option<Client> {
        if self.http.is_none() {
            self.http = http_client::client(REQUEST_TIMEOUT).ok();
        }
        self.http.clone()
    }
}

/// A module whose content is determined.
struct PinnedModule {
    /// Its source, as the call gives it.
    source: String,
    /// The same in the notation of Terraform's manifest.
    whole: String,
    /// Only for modules of a registry.
    version: Option<String>,
    /// Only for modules of a registry.
    pin: String,
}

impl Steps<'_> {
    /// Places the modules of the job's template, as far as their content is determined.
    pub(super) async fn seed_modules(&self, log: &StageLog) -> Result<(), StepError> {
        let Some(dialect) = self.binary.as_ref().map(|binary| binary.dialect()) else { return Ok(()) };
        let template = self.work.template();
        let read = template.clone();
        let manifest =
            blocking(move || Ok(ModuleManifest::read(&read).map(|(manifest, _)| manifest))).await?;
        let manifest = manifest.unwrap_or_default();
        let mut seeding = SeedState { manifest, ..SeedState::default() };
        let mut folders = VecDeque::from([(String::new(), PathBuf::new())]);
        let mut remaining = MAX_CALLS;
        while let Some((above, folder)) = folders.pop_front() {
            let dir = template.join(&folder);
            for call in blocking(move || Ok(calls::read(&dir, dialect))).await? {
                if remaining == 0 {
                    folders.clear();
                    break;
                }
                remaining -= 1;
                let key = if above.is_empty() { call.name.clone() } else { format!("{above}.{}", call.name) };
                let found = self.place_module(&key, &folder, call, &mut seeding, log).await?;
                folders.extend(found.map(|folder| (key, folder)));
            }
        }
        if seeding.is_new {
            let written = blocking(move || seeding.manifest.write(&template).map_err(StepError::from)).await;
            if let Err(error) = written {
                tracing::debug!(error = %error.message, "the module manifest could not be written");
            }
        }
        Ok(())
    }

    /// The directory of a module that is called from `folder`, if it is available.
    async fn place_module(
        &self,
        key: &str,
        folder: &Path,
        call: ModuleCall,
        seeding: &mut SeedState,
        log: &StageLog,
    ) -> Result<Option<PathBuf>, StepError> {
        let origin = ModuleSource::of(&call.source);
        if origin == ModuleSource::Local {
            let found = resolve_local(folder, &call.source);
            // Terraform ignores modules below one that is not in its manifest.
            seeding.add(found.as_deref().and_then(|found| local_entry(key, &call.source, found)));
            return Ok(found);
        }
        let known = seeding.manifest.modules.iter().find(|entry| entry.key == key);
        let mut version = call.version.clone();
        if let Some(known) = known {
            if is_plain_dir(&self.work.template(), Path::new(&known.dir)) {
                return Ok(Some(PathBuf::from(&known.dir)));
            }
            // It did not fit into the version's module archive; the same version must be used again.
            version = Some(known.version.clone()).filter(|version| !version.is_empty()).or(version);
        }
        let Some(binary) = self.binary.as_ref() else { return Ok(None) };
        let server = origin.server(binary.product).unwrap_or_default();
        let pin = match fixed_pin(&origin, version.as_deref()) {
            None if seeding.unreachable.contains(server) => return Ok(None),
            None => self.unless_canceled(self.resolve_pin(&origin, version.as_deref(), seeding)).await?,
            fixed_pin => fixed_pin,
        };
        let Some(pin) = pin else {
            seeding.unreachable.insert(server.to_owned());
            return Ok(None);
        };
        let (whole, version) = match &origin {
            ModuleSource::Registry(address) => (address.whole(binary.product), Some(pin.clone())),
            _ => (call.source.clone(), None),
        };
        let wanted = PinnedModule { source: call.source, whole, version, pin };
        let Some(entry) = self.restore_or_fetch(key, &wanted, &origin, seeding, log).await? else {
            return Ok(None);
        };
        let folder = PathBuf::from(&entry.dir);
        seeding.add(Some(entry));
        seeding.is_new = true;
        Ok(Some(folder))
    }

    async fn restore_or_fetch(
        &self,
        key: &str,
        wanted: &PinnedModule,
        origin: &ModuleSource,
        seeding: &mut SeedState,
        log: &StageLog,
    ) -> Result<Option<ModuleEntry>, StepError> {
        let Some(binary) = self.binary.as_ref() else { return Ok(None) };
        let name = ModuleKey::of(binary.product, &wanted.whole, &wanted.pin);
        let shown = [
            source::without_credentials(&wanted.source).as_str(),
            wanted.version.as_deref().unwrap_or_default(),
        ]
        .join(" ");
        let shown = shown.trim_end();
        let mut found = self.restore(&name, key).await?;
        if found.is_some() {
            log.line(LogLevel::Info, &format!("{shown} for {key} is on this machine already")).await;
        } else if !seeding.fetch_failed {
            let Some(_lock) = self.lock(&format!("module-{}", &name.as_str()[..2])).await? else {
                return Ok(None);
            };
            found = self.restore(&name, key).await?;
            if found.is_none() {
                log.line(LogLevel::Info, &format!("Downloading {shown} for {key}...")).await;
                seeding.fetch_failed = !self.fetch(&name, wanted, origin, seeding, log).await?;
                found = self.restore(&name, key).await?;
            }
        }
        Ok(found)
    }

    async fn restore(&self, name: &ModuleKey, key: &str) -> Result<Option<ModuleEntry>, StepError> {
        let (modules, template, name) =
            (self.tools.cache.modules.clone(), self.work.template(), name.clone());
        let (key, now) = (key.to_owned(), SystemTime::from(self.tools.clock.now()));
        blocking(move || {
            Ok(modules.restore(&name, &key, &template, now).unwrap_or_else(|error| {
                tracing::debug!(%error, "a cached module cannot be used");
                None
            }))
        })
        .await
    }

    /// What a source currently refers to, if its server can say it.
    async fn resolve_pin(
        &self,
        origin: &ModuleSource,
        version: Option<&str>,
        seeding: &mut SeedState,
    ) -> Option<String> {
        match origin {
            ModuleSource::Registry(address) => {
                let (http, product) = (seeding.http()?, self.binary.as_ref()?.product);
                seeding.registries.newest(&http, address, version, product, self.tools.environment).await
            }
            ModuleSource::Git { url, reference } => self.commit(url, reference.as_deref()).await,
            ModuleSource::Archive { url } => archive::fingerprint(&seeding.http()?, url).await,
            ModuleSource::Local | ModuleSource::Other => None,
        }
    }

    /// Fetches one module for all templates; returns false on failure.
    async fn fetch(
        &self,
        name: &ModuleKey,
        wanted: &PinnedModule,
        origin: &ModuleSource,
        seeding: &SeedState,
        log: &StageLog,
    ) -> Result<bool, StepError> {
        let scratch_dirs = self.tools.cache.scratch.clone();
        let mut text = format!("module \"{ALONE_KEY}\" {{\n  source = {}\n", literal::quote(&wanted.source));
        if let Some(version) = &wanted.version {
            text.push_str(&format!("  version = {}\n", literal::quote(version)));
        }
        text.push_str("}\n");
        let with_writable = blocking(move || {
            let made = scratch_dirs.make().and_then(|with_writable| {
                std::fs::write(with_writable.dir().join("main.tf"), text)?;
                Ok(with_writable)
            });
            made.map_err(|error| failed("make a directory for a module", error))
        })
        .await?;
        self.empty_home().await?;
        let runner = self.runner(with_writable.dir())?;
        let runner = Runner {
            sandbox: runner.sandbox.map(|sandbox| sandbox.with_writable(with_writable.dir())),
            ..runner
        };
        let fetched =
            runner.capture(&args(["get", "-no-color"]), &self.common_variables(), &log.silent()).await;
        match fetched {
            Ok(_) => {}
            Err(error @ CommandError::Canceled) => return Err(failed("initialize terraform", error)),
            Err(error) => {
                tracing::debug!(%error, "a module could not be fetched; terraform will fetch it");
                return Ok(false);
            }
        }
        if let (ModuleSource::Archive { url }, Some(http)) = (origin, &seeding.http) {
            let mark = self.unless_canceled(archive::fingerprint(http, url)).await?;
            if mark.as_deref() != Some(&*wanted.pin) {
                return Ok(false);
            }
        }
        let commit = matches!(origin, ModuleSource::Git { .. }).then(|| wanted.pin.clone());
        let (modules, name, now) =
            (self.tools.cache.modules.clone(), name.clone(), SystemTime::from(self.tools.clock.now()));
        let product = self.binary.as_ref().map(|binary| binary.product);
        blocking(move || {
            let dir = with_writable.dir();
            let Ok((manifest, _)) = ModuleManifest::read(dir) else { return Ok(false) };
            if commit
                .is_some_and(|commit| repository::checked_out(dir, ALONE_KEY).as_deref() != Some(&*commit))
            {
                return Ok(false);
            }
            let mut is_kept = false;
            for entry in manifest.modules.iter().filter(|entry| entry.is_fetched()) {
                let of_registry = || Some(ModuleKey::of(product?, &entry.source, &entry.version));
                let nested = || of_registry().filter(|_| !entry.version.is_empty());
                let Some(name) = (if entry.key == ALONE_KEY { Some(name.clone()) } else { nested() }) else {
                    continue;
                };
                match modules.store(&name, dir, entry, now) {
                    Ok(()) => is_kept |= entry.key == ALONE_KEY,
                    Err(error) => tracing::debug!(%error, key = entry.key, "a module could not be cached"),
                }
            }
            Ok(is_kept)
        })
        .await
    }

    /// The commit of a branch or tag.
    async fn commit(&self, url: &str, reference: Option<&str>) -> Option<String> {
        let mut arguments = args(["ls-remote", "--", url]);
        arguments.extend(repository::names(reference).into_iter().map(Into::into));
        // A template's directory could contain a git configuration.
        let runner = Runner { program: Path::new("git"), ..self.runner(Path::new("/")).ok()? };
        let mut variables = self.common_variables();
        variables.push(("GIT_TERMINAL_PROMPT".to_owned(), "0".to_owned()));
        let log = self.log(crate::terraform::steps::init::INIT_STAGE).silent();
        let asked = tokio::time::timeout(GIT_PATIENCE, runner.capture(&arguments, &variables, &log));
        let output = asked.await.ok()?.ok()?;
        repository::resolved_commit(&String::from_utf8_lossy(&output))
    }
}

/// What an immutable source refers to.
fn fixed_pin(origin: &ModuleSource, version: Option<&str>) -> Option<String> {
    match origin {
        ModuleSource::Registry(_) => version.and_then(registry::exact_version),
        ModuleSource::Git { reference, .. } => reference.clone().filter(|name| repository::is_commit(name)),
        _ => None,
    }
}

/// The manifest entry of a local module.
fn local_entry(key: &str, source: &str, folder: &Path) -> Option<ModuleEntry> {
    let mut path = PathBuf::new();
    for part in Path::new(source).components() {
        match part {
            Component::ParentDir if path.file_name().is_some() => {
                path.pop();
            }
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    let path = path.to_str()?;
    let source = if path.starts_with("..") { path.to_owned() } else { format!("./{path}") };
    Some(ModuleEntry {
        key: key.to_owned(),
        source,
        version: String::new(),
        dir: folder.to_str()?.to_owned(),
    })
}

/// Resolves a local source, if it stays inside the template.
fn resolve_local(folder: &Path, source: &str) -> Option<PathBuf> {
    let mut found = folder.to_owned();
    for part in Path::new(source).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if found.pop() => {}
            Component::Normal(name) => found.push(name),
            _ => return None,
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_beside_others() {
        for (folder, source, wanted) in [
            ("", "./a", Some(("a", "./a"))),
            ("", "./a/", Some(("a", "./a"))),
            ("a", "../b/./c", Some(("b/c", "../b/c"))),
            ("a/b", "./x/../y", Some(("a/b/y", "./y"))),
            ("a/b", "../../c", Some(("c", "../../c"))),
            ("a", "../../c", None),
        ] {
            let found = resolve_local(Path::new(folder), source);
            assert_eq!(found.as_deref(), wanted.map(|(dir, _)| Path::new(dir)), "{folder} {source}");
            let entry = found.and_then(|found| local_entry("k", source, &found));
            assert_eq!(entry.map(|entry| entry.source), wanted.map(|(_, source)| source.to_owned()));
        }
    }
}

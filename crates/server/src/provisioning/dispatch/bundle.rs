//! Templates that are too long for the message of a job. Modules and providers in the archive of a bundle are sent as its
//! module archive, which is downloaded in chunks (wire-protocol 5.9).

use std::io::{self, Read, Write};

use bytes::Bytes;
use coder_domain::ids::TemplateVersionId;
use coder_store::templates::version_details;
use coder_store::{files, transaction};
use coder_wire::drpc::MAX_MESSAGE_SIZE;
use coder_wire::messages::provisioner::Metadata;
use coder_wire::messages::provisionerd::{AcquiredJob, acquired_job};

use super::payload::Error;
use crate::provisioning::reports::module_files as modules;
use crate::provisioning::session::Session;
use crate::spool::Spool;
use crate::stored_file;

/// Path prefixes of modules and providers in a bundle.
const BUNDLED: [&[u8]; 2] = [b".terraform/", b"terraform.d/plugins/"];

/// The archive of a template: in memory, or read part by part when it is long.
pub(crate) enum TemplateArchive {
    Short(Bytes),
    Long(files::FileInfo),
}

/// Moves modules and providers from the template's archive into a file that the daemon downloads. The message gets the rest,
/// if it is short enough. An archive without modules and providers stays as it is.
pub(crate) async fn take_out(
    session: &Session,
    version: TemplateVersionId,
    sources: TemplateArchive,
    message: &mut AcquiredJob,
) -> Result<(), Error> {
    let app = &session.app;
    let size = match &sources {
        TemplateArchive::Short(data) => data.len(),
        TemplateArchive::Long(file) => usize::try_from(file.size_bytes).unwrap_or(usize::MAX),
    };
    let mut bundled = Spool::new(&session.holds, &app.memory);
    // Tar headers may become longer.
    bundled.reserve(size.saturating_mul(2)).await;
    let unsendable = |error: &dyn std::error::Error| Error::Unsendable(error.to_string());
    let split = match sources {
        TemplateArchive::Short(data) => tokio::task::spawn_blocking(move || split(&data[..], bundled))
            .await
            .map_err(|error| unsendable(&error))?,
        TemplateArchive::Long(file) => {
            let work = move |archive| split(archive, bundled);
            match stored_file::read(&app.store, &file, work).await {
                Ok(split) => split,
                Err(stored_file::Error::Store(error)) => return Err(error.into()),
                Err(error) => return Err(unsendable(&error)),
            }
        }
    };
    // The daemon reports an invalid archive, if it fits into the message.
    let Ok(Split { own, bundled: Some(mut bundled) }) = split else { return Ok(()) };
    let (now, hash) = (app.now(), bundled.hash());
    let file = transaction!(app.store, Error, |tx| {
        let file = match modules::find(tx, &hash, now).await? {
            Some(file) => file,
            None => {
                let size = bundled.size() as u64;
                let content = bundled.read().map_err(|error| Error::Unsendable(error.to_string()))?;
                modules::store(tx, hash.clone(), size, content, now).await?
            }
        };
        if version_details::find_module_file(tx, version).await? != Some(file) {
            version_details::update_module_file(tx, version, file, now).await?;
        }
        Ok(file)
    })?;
    message.template_source_archive = own.into();
    if let Some(metadata) = message.r#type.as_mut().and_then(metadata) {
        metadata.template_version_modules_file = file.to_string();
    }
    Ok(())
}

fn metadata(job: &mut acquired_job::Type) -> Option<&mut Metadata> {
    match job {
        acquired_job::Type::TemplateImport(import) => import.metadata.as_mut(),
        acquired_job::Type::TemplateDryRun(dry_run) => dry_run.metadata.as_mut(),
        acquired_job::Type::WorkspaceBuild(build) => build.metadata.as_mut(),
    }
}

struct Split {
    own: Vec<u8>,
    /// `None` when the archive has no modules and providers.
    bundled: Option<Spool>,
}

/// A buffer of the length of a message.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.0.len() + data.len() > MAX_MESSAGE_SIZE {
            return Err(io::Error::other("the template's own files are longer than a message"));
        }
        self.0.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn split(archive: impl Read, bundled: Spool) -> io::Result<Split> {
    let mut own = tar::Builder::new(Bounded(Vec::new()));
    let mut bundled = tar::Builder::new(bundled);
    let mut has_bundled = false;
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let name = entry.path_bytes().into_owned();
        let plain = name.strip_prefix(b"./").unwrap_or(&name);
        let is_bundled = BUNDLED.iter().any(|beginning| plain.starts_with(beginning));
        has_bundled |= is_bundled;
        if is_bundled { append(&mut bundled, &mut entry)? } else { append(&mut own, &mut entry)? }
    }
    let bundled = if has_bundled { Some(bundled.into_inner()?) } else { None };
    Ok(Split { own: own.into_inner()?.0, bundled })
}

fn append(target: &mut tar::Builder<impl Write>, entry: &mut tar::Entry<'_, impl Read>) -> io::Result<()> {
    let mut header = entry.header().clone();
    let path = entry.path()?.into_owned();
    let link = entry.link_name()?.map(std::borrow::Cow::into_owned);
    match link {
        Some(link) => target.append_link(&mut header, path, link),
        None => {
            let size = entry.size();
            target.append_data(&mut header, path, entry.by_ref().take(size))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar_of(names: &[&str]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for name in names {
            let mut header = tar::Header::new_gnu();
            header.set_size(name.len() as u64);
            header.set_mode(0o755);
            tar.append_data(&mut header, name, name.as_bytes()).unwrap();
        }
        tar.into_inner().unwrap()
    }

    fn spool() -> Spool {
        let memory = crate::memory::Memory::new(&crate::config::Limits::default());
        Spool::new(&memory.holder(1), &memory)
    }

    fn content(archive: &[u8]) -> Vec<(String, String, u32)> {
        let mut archive = tar::Archive::new(archive);
        let entry = |entry: io::Result<tar::Entry<'_, &[u8]>>| {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (entry.path().unwrap().display().to_string(), text, entry.header().mode().unwrap())
        };
        archive.entries().unwrap().map(entry).collect()
    }

    #[test]
    fn bundled_modules_and_providers_are_split_from_the_template() {
        let long = format!("terraform.d/plugins/{}/x.zip", "long-name/".repeat(20));
        let names =
            ["main.tf", ".terraform/modules/m/main.tf", &long, "terraform.d/other", ".terraform.lock.hcl"];
        let split = split(&tar_of(&names)[..], spool()).unwrap();
        let entries = |names: &[&str]| -> Vec<_> {
            names.iter().map(|name| ((*name).to_owned(), (*name).to_owned(), 0o755)).collect()
        };
        assert_eq!(content(&split.own), entries(&["main.tf", "terraform.d/other", ".terraform.lock.hcl"]));
        assert_eq!(
            content(&split.bundled.unwrap().content().unwrap()),
            entries(&[".terraform/modules/m/main.tf", &long])
        );
    }

    #[test]
    fn an_ordinary_template_has_nothing_to_take_out() {
        assert!(split(&tar_of(&["main.tf", "modules/a/main.tf"])[..], spool()).unwrap().bundled.is_none());
        assert!(
            split(&b"no archive, however long one looks at it, and longer than a block of five hundred bytes"[..], spool())
                .is_err()
        );
    }
}

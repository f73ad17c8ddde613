//! Which versions of a module a registry offers, asked for as Terraform asks.

use std::collections::BTreeMap;

use reqwest::Client;
use serde::Deserialize;
use url::Url;

use super::TIMEOUT;
use super::source::RegistryAddress;
use crate::terraform::binary::constraint::Constraint;
use crate::terraform::binary::{Product, Version};
use crate::terraform::command::environment::Environment;
use crate::terraform::http_client;

/// The list of what a host offers.
const DISCOVERY_LIMIT: usize = 1024 * 1024;
/// The longest lists of versions have some hundred kilobytes.
const VERSIONS_LIMIT: usize = 16 * 1024 * 1024;

#[derive(Deserialize)]
struct VersionsResponse {
    modules: Vec<ModuleVersions>,
}

#[derive(Deserialize)]
struct ModuleVersions {
    versions: Vec<ListedVersion>,
}

#[derive(Deserialize)]
struct ListedVersion {
    version: String,
}

/// The registries that one template's modules are in, each asked once.
#[derive(Debug, Default)]
pub(crate) struct RegistryClient {
    /// Where a host has its modules.
    bases: BTreeMap<String, Option<Url>>,
    /// The versions of a module, by its address without a folder.
    versions: BTreeMap<String, Option<Vec<String>>>,
}

impl RegistryClient {
    /// The newest version that fits. None when that is not certain, and for hosts about which Terraform has been told more
    /// than can be known here, such as a token.
    pub(crate) async fn newest(
        &mut self,
        http: &Client,
        address: &RegistryAddress,
        condition: Option<&str>,
        product: Product,
        environment: &Environment,
    ) -> Option<String> {
        let condition = match condition {
            Some(text) => Some(Constraint::parse(text)?),
            None => None,
        };
        let host = address.host(product);
        if environment.has_settings_for(host) {
            return None;
        }
        let name = format!("{host}/{}", address.path);
        if !self.versions.contains_key(&name) {
            let asked = tokio::time::timeout(TIMEOUT, self.fetch_versions(http, host, &address.path)).await;
            self.versions.insert(name.clone(), asked.ok().flatten());
        }
        let versions = self.versions.get(&name)?.as_ref()?;
        newest(versions.iter().map(String::as_str), condition.as_ref()).map(str::to_owned)
    }

    async fn fetch_versions(&mut self, http: &Client, host: &str, path: &str) -> Option<Vec<String>> {
        if !self.bases.contains_key(host) {
            self.bases.insert(host.to_owned(), discover(http, host).await);
        }
        let base = self.bases.get(host)?.as_ref()?;
        let (_, text) = get(http, base.join(&format!("{path}/versions")).ok()?, VERSIONS_LIMIT).await?;
        let offered: VersionsResponse = serde_json::from_slice(&text).ok()?;
        let first = offered.modules.into_iter().next()?;
        Some(first.versions.into_iter().map(|listed| listed.version).collect())
    }
}

/// A condition that only one version fits.
pub(crate) fn exact_version(condition: &str) -> Option<String> {
    let text = condition.trim();
    let text = text.strip_prefix('=').unwrap_or(text).trim();
    Version::parse(text).filter(|_| !text.contains('+')).map(|_| text.to_owned())
}

/// Versions before a release are only taken by their exact names.
fn newest<'v>(versions: impl Iterator<Item = &'v str>, condition: Option<&Constraint>) -> Option<&'v str> {
    let parsed = versions.filter_map(|text| Some((Version::parse(text)?, text)));
    let fitting = parsed.filter(|(version, _)| {
        version.is_release() && condition.is_none_or(|condition| condition.accepts(version))
    });
    fitting.max_by(|(one, _), (other, _)| one.order(other)).map(|(_, text)| text)
}

async fn discover(http: &Client, host: &str) -> Option<Url> {
    let discovery = Url::parse(&format!("https://{host}/.well-known/terraform.json")).ok()?;
    let (from, text) = get(http, discovery, DISCOVERY_LIMIT).await?;
    let services: serde_json::Value = serde_json::from_slice(&text).ok()?;
    let modules = services.get("modules.v1")?.as_str()?;
    from.join(&format!("{}/", modules.trim_end_matches('/'))).ok()
}

/// The text, and the address that it came from in the end.
async fn get(http: &Client, url: Url, limit: usize) -> Option<(Url, Vec<u8>)> {
    let answer = http.get(url).send().await;
    let mut response = answer.ok().filter(|response| response.status().is_success())?;
    let from = response.url().clone();
    Some((from, http_client::body(&mut response, limit).await.ok()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_version_is_named_exactly() {
        for (condition, wanted) in [
            ("1.2.3", Some("1.2.3")),
            ("= 1.2.3", Some("1.2.3")),
            (" =1.2.3-rc1 ", Some("1.2.3-rc1")),
            ("1.2", None),
            ("~> 1.2.3", None),
            (">= 1.2.3", None),
            ("1.2.3, 1.2.3", None),
            ("1.2.3+build", None),
        ] {
            assert_eq!(exact_version(condition).as_deref(), wanted, "{condition}");
        }
    }

    #[test]
    fn the_newest_that_fits() {
        let versions = ["1.0.0", "1.10.0", "1.9.0", "2.0.0-rc1", "nonsense"];
        let newest = |condition: Option<&str>| {
            newest(versions.into_iter(), condition.map(|text| Constraint::parse(text).unwrap()).as_ref())
        };
        for (condition, wanted) in [
            (None, Some("1.10.0")),
            (Some("~> 1.0"), Some("1.10.0")),
            (Some("< 1.10"), Some("1.9.0")),
            (Some(">= 2.0.0"), None),
            (Some("3.0"), None),
        ] {
            assert_eq!(newest(condition), wanted, "{condition:?}");
        }
    }
}

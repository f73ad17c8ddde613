//! Resolves module versions in registries, as Terraform does.

use std::collections::BTreeMap;

use reqwest::Client;
use serde::Deserialize;
use url::Url;

use super::REQUEST_TIMEOUT;
use super::source::RegistryAddress;
use crate::terraform::binary::constraint::Constraint;
use crate::terraform::binary::{Product, Version};
use crate::terraform::command::environment::Environment;
use crate::terraform::http_client;

/// Limit of the service discovery document.
const DISCOVERY_LIMIT: usize = 1024 * 1024;
/// The longest version lists have several hundred kilobytes.
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

/// The registries of one template's modules; each is asked once.
#[derive(Debug, Default)]
pub(crate) struct RegistryClient {
    /// The module service of each host.
    bases: BTreeMap<String, Option<Url>>,
    /// The versions of a module, by its address without a directory.
    versions: BTreeMap<String, Option<Vec<String>>>,
}

impl RegistryClient {
    /// The newest version that fits. `None` when it cannot be determined, and for hosts for which Terraform may
    /// have settings that are unknown here, such as a token.
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
            let asked =
                tokio::time::timeout(REQUEST_TIMEOUT, self.fetch_versions(http, host, &address.path)).await;
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

/// The only version that a constraint allows.
pub(crate) fn exact_version(condition: &str) -> Option<String> {
    let text = condition.trim();
    let text = text.strip_prefix('=').unwrap_or(text).trim();
    Version::parse(text).filter(|_| !text.contains('+')).map(|_| text.to_owned())
}

/// Pre-releases are only used by their exact version.
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

/// The body, and the final address after redirects.
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

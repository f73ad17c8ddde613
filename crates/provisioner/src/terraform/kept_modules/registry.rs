//! Which versions of a module a registry offers, asked for as Terraform asks.

use std::time::Duration;

use serde::Deserialize;
use url::Url;

use super::origin::Address;
use crate::terraform::binary::constraint::Constraint;
use crate::terraform::binary::{Product, Version};
use crate::terraform::environment::Environment;
use crate::terraform::web;

/// The list of what a host offers.
const DISCOVERY_LIMIT: usize = 1024 * 1024;
/// The longest lists of versions have some hundred kilobytes.
const VERSIONS_LIMIT: usize = 16 * 1024 * 1024;

/// A registry that says nothing for this long is left to Terraform.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct Offered {
    modules: Vec<Versions>,
}

#[derive(Deserialize)]
struct Versions {
    versions: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    version: String,
}

/// The version that these conditions mean: the only one that fits, or the newest that the registry has. None when that is
/// not certain, and for hosts about which Terraform has been told more than can be known here, such as a token.
pub(crate) async fn wanted(
    address: &Address,
    condition: Option<&str>,
    product: Product,
    environment: &Environment,
) -> Option<String> {
    if let Some(exact) = condition.and_then(exact) {
        return Some(exact);
    }
    let condition = match condition {
        Some(text) => Some(Constraint::parse(text)?),
        None => None,
    };
    let host = address.host(product);
    if environment.knows_host(host) {
        return None;
    }
    let versions = versions(host, &address.path).await?;
    newest(versions.iter().map(String::as_str), condition.as_ref()).map(str::to_owned)
}

/// A condition that only one version fits.
pub(crate) fn exact(condition: &str) -> Option<String> {
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

async fn versions(host: &str, path: &str) -> Option<Vec<String>> {
    let http = web::client(PATIENCE).ok()?;
    let asked = async {
        let discovery = Url::parse(&format!("https://{host}/.well-known/terraform.json")).ok()?;
        let (from, text) = get(&http, discovery, DISCOVERY_LIMIT).await?;
        let services: serde_json::Value = serde_json::from_slice(&text).ok()?;
        let modules = services.get("modules.v1")?.as_str()?;
        let base = from.join(&format!("{}/", modules.trim_end_matches('/'))).ok()?;
        let (_, text) = get(&http, base.join(&format!("{path}/versions")).ok()?, VERSIONS_LIMIT).await?;
        let offered: Offered = serde_json::from_slice(&text).ok()?;
        let first = offered.modules.into_iter().next()?;
        Some(first.versions.into_iter().map(|listed| listed.version).collect())
    };
    tokio::time::timeout(PATIENCE, asked).await.ok()?
}

/// The text, and the address that it came from in the end.
async fn get(http: &reqwest::Client, url: Url, limit: usize) -> Option<(Url, Vec<u8>)> {
    let answer = http.get(url).send().await;
    let mut response = answer.ok().filter(|response| response.status().is_success())?;
    let from = response.url().clone();
    Some((from, web::body(&mut response, limit).await.ok()??))
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
            assert_eq!(exact(condition).as_deref(), wanted, "{condition}");
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

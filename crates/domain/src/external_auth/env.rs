//! Reads providers from variables `CODER_EXTERNAL_AUTH_<N>_<FIELD>`, as the official server does. Mistakes are reported
//! at the start.

use std::collections::BTreeMap;

use regex::Regex;
use url::Url;

use super::products::{self, Product};
use super::{Flow, Provider};
use crate::names;
use crate::secret::Secret;

/// The prefix of the variables' names; a number and the field follow.
pub const PREFIX: &str = "CODER_EXTERNAL_AUTH_";
const KEY_ICON: &str = "/emojis/1f511.png";

/// Why the providers cannot be used. The texts contain no value that may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "{PREFIX}{found}_… is set, but no variable with number {missing}: number the providers from 0 without gaps"
    )]
    MissingNumber {
        /// The first missing number.
        missing: usize,
        /// The next number that is set.
        found: usize,
    },
    /// A required field is missing.
    #[error("{PREFIX}{number}_{field} is missing: set it")]
    Missing {
        /// The provider's number.
        number: usize,
        field: &'static str,
    },
    /// The id is not a valid name.
    #[error("{PREFIX}{number}_ID (or _TYPE) {id:?} {source}")]
    Id {
        /// The provider's number.
        number: usize,
        id: String,
        /// The rule that it breaks.
        source: names::Error,
    },
    /// Two providers have one id.
    #[error("{PREFIX}{number}_ID {id:?} is the id of provider number {other} too: give each another id")]
    Duplicate {
        /// The provider's number.
        number: usize,
        /// The number of the provider before it.
        other: usize,
        id: String,
    },
    /// A field is not an HTTP URL.
    #[error("{PREFIX}{number}_{field} is not an http:// or https:// URL")]
    InvalidUrl {
        /// The provider's number.
        number: usize,
        field: &'static str,
    },
    /// A field is neither true nor false.
    #[error("{PREFIX}{number}_{field} is neither true nor false")]
    InvalidFlag {
        /// The provider's number.
        number: usize,
        field: &'static str,
    },
    /// The expression does not compile.
    #[error("{PREFIX}{number}_REGEX is not a regular expression")]
    InvalidRegex {
        /// The provider's number.
        number: usize,
    },
}

/// Reads the providers. Other variables, fields of newer releases and empty values are ignored.
///
/// # Errors
/// The first mistake, in the order of numbers.
pub fn from_env(variables: impl IntoIterator<Item = (String, String)>) -> Result<Vec<Provider>, Error> {
    let mut numbered: BTreeMap<usize, BTreeMap<String, String>> = BTreeMap::new();
    for (name, value) in variables {
        let numbered_field = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_'));
        let Some((number, field)) = numbered_field else { continue };
        // The variables that give tokens to builds have the same prefix.
        let (Ok(number), false) = (number.parse(), value.is_empty()) else { continue };
        numbered.entry(number).or_default().insert(field.to_owned(), value);
    }
    let mut providers: Vec<Provider> = Vec::new();
    for (missing, (number, values)) in numbered.into_iter().enumerate() {
        if number != missing {
            return Err(Error::MissingNumber { missing, found: number });
        }
        let provider = Fields { number, values }.provider()?;
        if let Some(other) = providers.iter().position(|other| other.id == provider.id) {
            return Err(Error::Duplicate { number, other, id: provider.id });
        }
        providers.push(provider);
    }
    Ok(providers)
}

struct Fields {
    number: usize,
    values: BTreeMap<String, String>,
}

impl Fields {
    fn provider(mut self) -> Result<Provider, Error> {
        let (id, kind) = (self.take("ID"), self.take("TYPE"));
        let id = id.or_else(|| kind.clone()).ok_or(Error::Missing { number: self.number, field: "TYPE" })?;
        names::name(&id).map_err(|source| Error::Id { number: self.number, id: id.clone(), source })?;
        let kind = kind.unwrap_or_else(|| id.clone()).to_ascii_lowercase();
        let product = products::product(&kind);
        let client_id = self.need("CLIENT_ID")?;
        let auth_url = self.url("AUTH_URL")?;
        let base = product.map(|product| product.base(auth_url.as_ref()));
        let known = product.zip(base.as_ref());
        let token_url = self.url_or("TOKEN_URL", known.map(|(product, base)| product.token_url(base)))?;
        let validate_url = self.url("VALIDATE_URL")?;
        let flow = self.flow(auth_url, known)?;
        let regex = self.take("REGEX").or_else(|| known.map(|(product, base)| product.regex(base)));
        let regex = regex.map(|text| Regex::new(&text)).transpose();
        let scopes = self.take("SCOPES").map(|text| text.split_whitespace().map(str::to_owned).collect());
        let default_scopes = || {
            let scopes = product.map_or(&[] as &[&str], |product| product.scopes);
            scopes.iter().map(|scope| (*scope).to_owned()).collect()
        };
        Ok(Provider {
            client_id,
            client_secret: Secret::new(self.take("CLIENT_SECRET").unwrap_or_default()),
            flow,
            token_url,
            validate_url: validate_url.or_else(|| known.map(|(product, base)| product.validate_url(base))),
            scopes: scopes.unwrap_or_else(default_scopes),
            regex: regex.map_err(|_| Error::InvalidRegex { number: self.number })?,
            display_name: self
                .take("DISPLAY_NAME")
                .unwrap_or_else(|| product.map_or_else(|| id.clone(), |product| product.name.to_owned())),
            display_icon: self
                .take("DISPLAY_ICON")
                .unwrap_or_else(|| product.map_or(KEY_ICON, |product| product.icon).to_owned()),
            no_refresh: self.flag("NO_REFRESH")?,
            id,
            kind,
        })
    }

    fn flow(&mut self, auth_url: Option<Url>, known: Option<(&Product, &Url)>) -> Result<Flow, Error> {
        if self.flag("DEVICE_FLOW")? {
            let default = known.and_then(|(product, base)| product.device_url(base));
            return Ok(Flow::Device { code_url: self.url_or("DEVICE_CODE_URL", default)? });
        }
        let default = known.map(|(product, _)| product.auth_url());
        let missing = Error::Missing { number: self.number, field: "AUTH_URL" };
        Ok(Flow::Browser { auth_url: auth_url.or(default).ok_or(missing)? })
    }

    fn take(&mut self, field: &'static str) -> Option<String> {
        self.values.remove(field)
    }

    fn need(&mut self, field: &'static str) -> Result<String, Error> {
        self.take(field).ok_or(Error::Missing { number: self.number, field })
    }

    fn url(&mut self, field: &'static str) -> Result<Option<Url>, Error> {
        let Some(text) = self.take(field) else { return Ok(None) };
        let url = Url::parse(&text).ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        url.map(Some).ok_or(Error::InvalidUrl { number: self.number, field })
    }

    fn url_or(&mut self, field: &'static str, default: Option<Url>) -> Result<Url, Error> {
        self.url(field)?.or(default).ok_or(Error::Missing { number: self.number, field })
    }

    fn flag(&mut self, field: &'static str) -> Result<bool, Error> {
        match self.take(field).as_deref() {
            None | Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
            Some(_) => Err(Error::InvalidFlag { number: self.number, field }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &[&str]) -> Result<Vec<Provider>, Error> {
        let pair = |line: &&str| {
            let (name, value) = line.split_once('=').unwrap();
            (format!("{PREFIX}{name}"), value.to_owned())
        };
        from_env(text.iter().map(pair))
    }

    fn one(text: &[&str]) -> Provider {
        of(text).unwrap().remove(0)
    }

    const OWN_VARIABLES: &[&str] = &[
        "0_ID=corp",
        "0_TYPE=sso",
        "0_CLIENT_ID=us",
        "0_CLIENT_SECRET=hunter2",
        "0_AUTH_URL=https://sso.test/a?tenant=1",
        "0_TOKEN_URL=http://sso.test/t",
        "0_SCOPES=read  write",
        "0_REGEX=^git\\.test",
        "0_DISPLAY_NAME=Corp",
        "0_NO_REFRESH=true",
    ];

    #[test]
    fn a_custom_provider_names_every_field() {
        let corp = one(OWN_VARIABLES);
        assert_eq!(
            (corp.id.as_str(), corp.kind.as_str(), corp.display_name.as_str()),
            ("corp", "sso", "Corp")
        );
        assert_eq!(
            (corp.scopes.as_slice(), corp.no_refresh),
            (&["read".to_owned(), "write".to_owned()][..], true)
        );
        assert!(
            matches!(&corp.flow, Flow::Browser { auth_url } if auth_url.as_str() == "https://sso.test/a?tenant=1")
        );
        assert!(
            corp.validate_url.is_none() && corp.matches("git.test/x") && !corp.matches("https://git.test")
        );
        assert_eq!(corp.client_secret.expose(), "hunter2");
        assert!(!format!("{corp:?}").contains("hunter2"));
    }

    #[test]
    fn github_and_gitlab_need_only_a_client() {
        let github = one(&["0_TYPE=github", "0_CLIENT_ID=us"]);
        assert_eq!((github.id.as_str(), github.display_name.as_str()), ("github", "GitHub"));
        assert_eq!(github.token_url.as_str(), "https://github.com/login/oauth/access_token");
        assert_eq!(github.validate_url.as_ref().unwrap().as_str(), "https://api.github.com/user");
        assert!(github.matches("https://github.com/a/b") && !github.matches("https://github.community/a"));
        assert!(!github.is_device() && github.scopes == ["repo", "workflow"]);
        let own =
            one(&["0_TYPE=gitlab", "0_CLIENT_ID=us", "0_AUTH_URL=https://git.corp.test/oauth/authorize?x=1"]);
        assert_eq!(own.token_url.as_str(), "https://git.corp.test/oauth/token");
        assert_eq!(own.validate_url.as_ref().unwrap().as_str(), "https://git.corp.test/oauth/token/info");
        assert!(own.matches("git.corp.test/a/b") && !own.matches("gitlab.com/a"));
        let device = one(&["0_TYPE=github", "0_CLIENT_ID=us", "0_DEVICE_FLOW=true"]);
        assert!(device.is_device());
        assert!(matches!(&device.flow, Flow::Device { code_url } if code_url.path() == "/login/device/code"));
    }

    #[test]
    fn mistakes_name_the_variable() {
        let error = |text: &[&str]| of(text).unwrap_err().to_string();
        let without = |field: &str| {
            let kept: Vec<_> =
                OWN_VARIABLES.iter().filter(|line| !line.starts_with(field)).copied().collect();
            error(&kept)
        };
        assert!(without("0_CLIENT_ID").contains("CODER_EXTERNAL_AUTH_0_CLIENT_ID is missing"));
        assert!(without("0_AUTH_URL").contains("0_AUTH_URL is missing"));
        assert!(without("0_TOKEN_URL").contains("0_TOKEN_URL is missing"));
        assert!(error(&["0_CLIENT_ID=x"]).contains("0_TYPE is missing"));
        let hub = ["0_TYPE=github", "0_CLIENT_ID=x"];
        let with = |more: &[&'static str]| error(&[&hub[..], more].concat());
        assert!(with(&["2_TYPE=gitlab", "2_CLIENT_ID=x"]).contains("no variable with number 1"));
        assert!(with(&["1_ID=github", "1_TYPE=github", "1_CLIENT_ID=y"]).contains("number 0 too"));
        assert!(with(&["0_ID=a/b"]).contains("\"a/b\" must consist of"));
        assert!(with(&["0_TOKEN_URL=ftp://x"]).contains("0_TOKEN_URL is not an http"));
        assert!(with(&["0_REGEX=("]).contains("0_REGEX is not a regular"));
        assert!(with(&["0_NO_REFRESH=maybe"]).contains("0_NO_REFRESH is neither"));
        assert!(
            error(&["0_TYPE=gitlab", "0_CLIENT_ID=x", "0_DEVICE_FLOW=1"])
                .contains("0_DEVICE_CODE_URL is missing")
        );
    }

    #[test]
    fn other_variables_are_ignored() {
        assert!(of(&["ACCESS_TOKEN_github=t", "0_TYPE=", "PROVIDERS=x"]).unwrap().is_empty());
        assert_eq!(of(&["0_TYPE=github", "0_CLIENT_ID=x", "0_REVOKE_URL=y"]).unwrap().len(), 1);
    }
}

//! Defaults for well-known products.

use url::Url;

/// Addresses and texts of one product. Those of a self-hosted installation are derived from its authorization URL.
pub(super) struct Product {
    /// The name that users see.
    pub(super) name: &'static str,
    /// The path of its icon.
    pub(super) icon: &'static str,
    /// The address of the public installation.
    home: &'static str,
    authorize: &'static str,
    token: &'static str,
    validate: &'static str,
    /// Where the public installation validates tokens, if on another host.
    public_validate: Option<&'static str>,
    device: Option<&'static str>,
    pub(super) scopes: &'static [&'static str],
}

const PRODUCTS: &[(&str, Product)] = &[
    (
        "github",
        Product {
            name: "GitHub",
            icon: "/icon/github.svg",
            home: "https://github.com",
            authorize: "/login/oauth/authorize",
            token: "/login/oauth/access_token",
            validate: "/api/v3/user",
            public_validate: Some("https://api.github.com/user"),
            device: Some("/login/device/code"),
            scopes: &["repo", "workflow"],
        },
    ),
    (
        "gitlab",
        Product {
            name: "GitLab",
            icon: "/icon/gitlab.svg",
            home: "https://gitlab.com",
            authorize: "/oauth/authorize",
            token: "/oauth/token",
            validate: "/oauth/token/info",
            public_validate: None,
            device: None,
            scopes: &["write_repository"],
        },
    ),
];

/// The product of this type.
pub(super) fn product(kind: &str) -> Option<&'static Product> {
    PRODUCTS.iter().find(|(name, _)| *name == kind).map(|(_, product)| product)
}

impl Product {
    /// The authorization endpoint of the public installation.
    pub(super) fn auth_url(&self) -> Url {
        self.at(&self.home(), self.authorize)
    }

    /// The installation to which `auth_url` belongs, or the public one.
    pub(super) fn base(&self, auth_url: Option<&Url>) -> Url {
        auth_url.cloned().unwrap_or_else(|| self.home())
    }

    pub(super) fn token_url(&self, base: &Url) -> Url {
        self.at(base, self.token)
    }

    pub(super) fn validate_url(&self, base: &Url) -> Url {
        match self.public_validate.filter(|_| base.host_str() == self.home().host_str()) {
            Some(public) => Url::parse(public).expect("addresses in the table of products are whole"),
            None => self.at(base, self.validate),
        }
    }

    pub(super) fn device_url(&self, base: &Url) -> Option<Url> {
        self.device.map(|path| self.at(base, path))
    }

    /// The expression for repositories on the host of `base`.
    pub(super) fn regex(&self, base: &Url) -> String {
        format!(r"^(https?://)?{}(/.*)?$", regex::escape(base.host_str().unwrap_or_default()))
    }

    fn home(&self) -> Url {
        Url::parse(self.home).expect("addresses in the table of products are whole")
    }

    fn at(&self, base: &Url, path: &str) -> Url {
        let mut url = base.clone();
        url.set_path(path);
        url.set_query(None);
        url.set_fragment(None);
        url
    }
}

//! Module sources.

use crate::terraform::binary::program::Product;

/// A module's source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModuleSource {
    /// A directory relative to the caller.
    Local,
    Registry(RegistryAddress),
    /// A git repository.
    Git {
        /// As passed to git.
        url: String,
        /// A branch, tag or commit; `None` for the default branch.
        reference: Option<String>,
    },
    /// An archive at an address.
    Archive {
        /// Without the part that names a directory in it.
        url: String,
    },
    /// Anything else.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RegistryAddress {
    /// `None` for the default registry of the program.
    pub(crate) host: Option<String>,
    /// `namespace/name/provider`.
    pub(crate) path: String,
    /// A directory in the package.
    pub(crate) folder: Option<String>,
}

/// URL schemes that are passed to git.
const GIT_SCHEMES: [&str; 5] = ["https://", "http://", "ssh://", "git://", "file://"];

/// Extensions of archives.
const ARCHIVES: [&str; 9] =
    [".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".tar"];

/// Hosts whose addresses look like registry addresses but name repositories.
const FORGES: [&str; 3] = ["github.com", "gitlab.com", "bitbucket.org"];

/// Whether a source is a directory relative to the caller.
pub(crate) fn is_local(source: &str) -> bool {
    source.starts_with("./") || source.starts_with("../")
}

impl ModuleSource {
    /// Parses a source.
    pub(crate) fn of(source: &str) -> Self {
        if is_local(source) {
            return Self::Local;
        }
        if let Some(address) = RegistryAddress::parse(source) {
            return Self::Registry(address);
        }
        let (address, query) = source.split_once('?').unwrap_or((source, ""));
        if let Some(rest) = address.strip_prefix("git::") {
            let rest = without_folder(rest);
            let is_known =
                GIT_SCHEMES.iter().any(|scheme| rest.starts_with(scheme)) || rest.starts_with("git@");
            return if is_known { Self::git(rest.to_owned(), query) } else { Self::Other };
        }
        if address.starts_with("git@") {
            return Self::git(without_folder(address).to_owned(), query);
        }
        if let Some(rest) = address.strip_prefix("github.com/") {
            let mut parts = rest.split('/');
            let (Some(owner), Some(name)) = (parts.next(), parts.next()) else { return Self::Other };
            let name = name.strip_suffix(".git").unwrap_or(name);
            return Self::git(format!("https://github.com/{owner}/{name}.git"), query);
        }
        if (address.starts_with("https://") || address.starts_with("http://")) && !query.contains("checksum=")
        {
            let address = without_folder(address);
            let is_archive = ARCHIVES.iter().any(|ending| address.ends_with(ending));
            if is_archive && query.is_empty() {
                return Self::Archive { url: address.to_owned() };
            }
        }
        Self::Other
    }

    /// The server that resolves the source.
    pub(crate) fn server(&self, product: Product) -> Option<&str> {
        match self {
            Self::Registry(address) => Some(address.host(product)),
            Self::Git { url, .. } | Self::Archive { url } => {
                let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
                rest.split('/').next()
            }
            Self::Local | Self::Other => None,
        }
    }

    fn git(url: String, query: &str) -> Self {
        let mut reference = None;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("ref", name)) if is_reference(name) && reference.is_none() => {
                    reference = Some(name.to_owned());
                }
                Some(("depth", _)) => {}
                _ => return Self::Other,
            }
        }
        Self::Git { url, reference }
    }
}

/// Removes credentials from a source, for messages.
pub(crate) fn without_credentials(source: &str) -> String {
    let Some((before, rest)) = source.split_once("://") else { return source.to_owned() };
    let authority = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
    match authority.rfind('@') {
        Some(at) if authority[..at].contains(':') || !before.ends_with("ssh") => {
            format!("{before}://{}", &rest[at + 1..])
        }
        _ => source.to_owned(),
    }
}

/// Whether git can take the text only as a name.
fn is_reference(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'/');
    !name.is_empty() && !name.starts_with('-') && name.bytes().all(is_plain)
}

/// Removes the directory in the package, which follows two slashes.
fn without_folder(address: &str) -> &str {
    let path = address.find("://").map_or(0, |at| at + 3);
    address[path..].find("//").map_or(address, |at| &address[..path + at])
}

impl RegistryAddress {
    /// `[host/]namespace/name/provider[//folder]`.
    fn parse(source: &str) -> Option<Self> {
        let (path, folder) =
            source.split_once("//").map_or((source, None), |(path, rest)| (path, Some(rest)));
        let parts: Vec<&str> = path.split('/').collect();
        let (host, parts) = match parts[..] {
            [host, ref parts @ ..] if parts.len() == 3 => (Some(host), parts.to_vec()),
            _ => (None, parts),
        };
        let is_name = |part: &&str| {
            let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            part.bytes().all(inside) && part.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        };
        let is_host = |host: &str| {
            let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':');
            host.bytes().all(inside) && host.contains('.') && !FORGES.contains(&host)
        };
        let is_address = parts.len() == 3 && parts.iter().all(is_name) && host.is_none_or(is_host);
        is_address.then(|| Self {
            host: host.map(str::to_owned),
            path: parts.join("/"),
            folder: folder.map(str::to_owned),
        })
    }

    pub(crate) fn host(&self, product: Product) -> &str {
        self.host.as_deref().unwrap_or(match product {
            Product::Terraform => "registry.terraform.io",
            Product::OpenTofu => "registry.opentofu.org",
        })
    }

    /// In the notation of Terraform's manifest.
    pub(crate) fn whole(&self, product: Product) -> String {
        let folder = self.folder.as_ref().map(|folder| format!("//{folder}")).unwrap_or_default();
        format!("{}/{}{folder}", self.host(product), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(url: &str, reference: Option<&str>) -> ModuleSource {
        ModuleSource::Git { url: url.to_owned(), reference: reference.map(str::to_owned) }
    }

    fn registry(whole: &str) -> ModuleSource {
        let (host, path) = whole.split_once('/').unwrap();
        let (path, folder) =
            path.split_once("//").map_or((path, None), |(path, folder)| (path, Some(folder)));
        let host = Some(host).filter(|host| *host != "-").map(str::to_owned);
        ModuleSource::Registry(RegistryAddress {
            host,
            path: path.to_owned(),
            folder: folder.map(str::to_owned),
        })
    }

    #[test]
    fn sources() {
        let archive = |url: &str| ModuleSource::Archive { url: url.to_owned() };
        for (source, wanted) in [
            ("./a", ModuleSource::Local),
            ("../a", ModuleSource::Local),
            ("coder/dotfiles/coder", registry("-/coder/dotfiles/coder")),
            (
                "registry.coder.com/coder/git-clone/coder",
                registry("registry.coder.com/coder/git-clone/coder"),
            ),
            ("x.example:8443/a/b/c//sub", registry("x.example:8443/a/b/c//sub")),
            (
                "terraform-aws-modules/iam/aws//modules/user",
                registry("-/terraform-aws-modules/iam/aws//modules/user"),
            ),
            ("github.com/a/b", git("https://github.com/a/b.git", None)),
            ("github.com/a/b.git//x?ref=v1.0", git("https://github.com/a/b.git", Some("v1.0"))),
            (
                "git::https://x.example/a.git//x/y?ref=main&depth=1",
                git("https://x.example/a.git", Some("main")),
            ),
            ("git::file:///srv/a", git("file:///srv/a", None)),
            ("git::ssh://git@x.example/a.git?ref=0a", git("ssh://git@x.example/a.git", Some("0a"))),
            ("git@github.com:a/b.git", git("git@github.com:a/b.git", None)),
            ("https://x.example/m.zip//sub", archive("https://x.example/m.zip")),
            ("http://x.example:80/m.tar.gz", archive("http://x.example:80/m.tar.gz")),
            // With a part that is unknown here.
            ("git::https://x.example/a?sshkey=abc", ModuleSource::Other),
            ("git::https://x.example/a?ref=--upload-pack=x", ModuleSource::Other),
            ("git::https://x.example/a?ref=a&ref=b", ModuleSource::Other),
            ("git::ext::sh -c x", ModuleSource::Other),
            ("git::--upload-pack=x", ModuleSource::Other),
            ("github.com/a", ModuleSource::Other),
            ("gitlab.com/a/b/c", ModuleSource::Other),
            ("https://x.example/m.zip?archive=false", ModuleSource::Other),
            ("https://x.example/m", ModuleSource::Other),
            ("hg::https://x.example/a", ModuleSource::Other),
            ("s3::https://s3.amazonaws.com/b/m.zip", ModuleSource::Other),
            ("/srv/modules/a", ModuleSource::Other),
            ("a/b", ModuleSource::Other),
            ("localhost:8443/a/b/c", ModuleSource::Other),
            ("", ModuleSource::Other),
        ] {
            assert_eq!(ModuleSource::of(source), wanted, "{source}");
        }
    }

    #[test]
    fn nobody_is_shown_a_password() {
        for (source, wanted) in [
            ("git::https://me:secret@x.example/a.git?ref=b", "git::https://x.example/a.git?ref=b"),
            ("git::https://token@x.example/a@b", "git::https://x.example/a@b"),
            ("git::ssh://git@x.example/a", "git::ssh://git@x.example/a"),
            ("git::ssh://git:secret@x.example", "git::ssh://x.example"),
            ("git@x.example:a/b", "git@x.example:a/b"),
            ("a/b/c", "a/b/c"),
        ] {
            assert_eq!(without_credentials(source), wanted);
        }
    }

    #[test]
    fn a_registrys_module_is_written_down_with_its_host() {
        let whole = |source: &str, product| RegistryAddress::parse(source).unwrap().whole(product);
        assert_eq!(whole("a/b/c//d/e", Product::Terraform), "registry.terraform.io/a/b/c//d/e");
        assert_eq!(whole("a/b/c", Product::OpenTofu), "registry.opentofu.org/a/b/c");
        assert_eq!(whole("x.example/a/b/c", Product::OpenTofu), "x.example/a/b/c");
    }
}

//! The example templates of `examples/`, embedded in the binary.

/// A template.
#[derive(Debug)]
pub(crate) struct Example {
    /// Its name and directory.
    pub(crate) name: &'static str,
    pub(crate) files: &'static [(&'static str, &'static str)],
}

macro_rules! examples {
    ($($name:literal: [$($file:literal),*];)*) => {
        &[$(Example {
            name: $name,
            files: &[$(($file, include_str!(concat!("../../../../examples/", $name, "/", $file)))),*],
        }),*]
    };
}

/// All of them.
pub(crate) const ALL: &[Example] = examples! {
    "hello": ["main.tf", "README.md"];
    "quickstart": ["main.tf", "README.md"];
    "workspace-tags": ["main.tf", "README.md"];
    "docker": ["main.tf", "README.md"];
    "kubernetes": ["main.tf", "README.md"];
};

impl Example {
    /// Its description: the first paragraph of its README.
    pub(crate) fn about(&self) -> &'static str {
        let readme = self.files.iter().find(|(name, _)| *name == "README.md").map_or("", |(_, text)| text);
        readme
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty() && !line.starts_with('#'))
            .unwrap_or_default()
    }
}

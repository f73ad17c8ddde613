//! Flags of the official program that are accepted without effect, so that existing scripts and unit files work.

/// An accepted flag without effect, with its variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IgnoredFlag {
    pub(crate) name: &'static str,
    pub(crate) variable: &'static str,
}

impl IgnoredFlag {
    /// The warning for a given flag.
    pub(crate) fn warning(self) -> String {
        format!(
            "--{} has no effect in this release: remove the flag, or the variable {}",
            self.name, self.variable
        )
    }
}

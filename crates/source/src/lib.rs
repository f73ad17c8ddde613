//! Reads a template's sources and evaluates a part of them without Terraform: the workspace tags, and the parameters for
//! given values.
//!
//! ```text
//! archive ─▶ root module's files ─▶ syntax ─┬▶ coder_workspace_tags ─▶ tags, or an error for each
//!                                           └▶ coder_parameter ─▶ parameters
//! ```
//!
//! Everything is pure, in memory and bounded: entries, bytes, nesting and work. The authors of sources have fewer rights
//! than the server that reads them.

mod archive;
mod budget;
#[cfg(test)]
mod charges;
mod constant;
mod constraint;
mod eval;
pub mod files;
mod functions;
mod inputs;
mod json;
mod module;
mod number;
mod parameters;
#[cfg(test)]
mod random;
mod reference;
pub mod syntax;
mod tags;
mod text;
mod value;
mod value_type;

use std::collections::BTreeMap;
use std::fmt;

pub use self::archive::ReadError;
pub use self::constant::{constant, json_constant};
pub use self::inputs::{Flow, Inputs, Owner};
pub use self::parameters::Parameter;
pub use self::tags::{Reason, TagError};

/// The root module of a template.
pub struct Template {
    module: module::Module,
}

impl Template {
    /// Reads a tar or a zip. A template with OpenTofu's own files is read as OpenTofu reads it ([`files`]).
    ///
    /// # Errors
    /// [`ReadError`]. Files with invalid configuration are not an error: see [`Self::invalid_files`].
    pub fn read(bytes: &[u8], mimetype: &str) -> Result<Self, ReadError> {
        Self::read_from(bytes, mimetype)
    }

    /// As [`Self::read`], from a reader. A tar is never in memory as a whole.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read_from(bytes: impl std::io::Read, mimetype: &str) -> Result<Self, ReadError> {
        Ok(Self { module: module::Module::parse(archive::read(bytes, mimetype)?) })
    }

    /// Reads the files of a template's top folder by their names; files that neither Terraform nor OpenTofu reads are
    /// ignored.
    ///
    /// # Errors
    /// [`ReadError::TooLarge`].
    pub fn from_files(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Result<Self, ReadError> {
        Ok(Self { module: module::Module::parse(archive::from_files(files)?) })
    }

    /// Files with invalid configuration, each as `file: reason`. Their content is unknown.
    #[must_use]
    pub fn invalid_files(&self) -> &[String] {
        &self.module.invalid_files
    }

    /// Whether there are any workspace tags.
    #[must_use]
    pub fn has_workspace_tags(&self) -> bool {
        !self.module.tags.is_empty()
    }

    /// Whether any parameter may depend on the value of another one. The answer may be a false positive.
    #[must_use]
    pub fn has_dependent_parameters(&self) -> bool {
        parameters::depend(&self.module)
    }

    /// Whether there may be modules, or parameters in them, for certain values only. The content of modules is unknown
    /// here.
    #[must_use]
    pub fn has_dependent_modules(&self) -> bool {
        parameters::modules_depend(&self.module)
    }

    /// Whether parameters or tags may depend on the workspace's owner. The answer may be a false positive.
    #[must_use]
    pub fn may_refer_to_owner(&self) -> bool {
        parameters::mention(&self.module, reference::OWNER)
    }

    /// The parameters of the root module for the given values; none when only Terraform can tell which there are.
    #[must_use]
    pub fn parameters(&self, inputs: &Inputs) -> Option<Vec<Parameter>> {
        parameters::evaluate(&self.module, inputs)
    }

    /// Evaluates `data "coder_workspace_tags"`.
    ///
    /// # Errors
    /// One [`TagError`] for each tag that has no value.
    pub fn workspace_tags(&self, inputs: &Inputs) -> Result<BTreeMap<String, String>, Vec<TagError>> {
        tags::evaluate(&self.module, inputs)
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template").finish_non_exhaustive()
    }
}

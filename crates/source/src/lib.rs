//! A template's sources, read and partly evaluated without Terraform: which workspace tags they ask for, and which
//! parameters they have with given values.
//!
//! ```text
//! archive ─▶ root module's files ─▶ syntax ─┬▶ coder_workspace_tags ─▶ tags, or an error for each
//!                                           └▶ coder_parameter ─▶ parameters
//! ```
//!
//! Everything is pure, in memory and bounded: entries, bytes, nesting and work. Sources are written by people who may do
//! less than the server that reads them.

mod archive;
mod budget;
mod constant;
mod constraint;
mod eval;
pub mod files;
mod functions;
mod json;
mod kind;
mod module;
mod number;
mod parameters;
mod reference;
pub mod syntax;
mod tags;
mod text;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use coder_domain::Timestamp;

pub use self::constant::{constant, json_constant};
pub use self::parameters::Parameter;
pub use self::tags::{Reason, TagError};

/// Why an archive was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Neither tar nor zip (scheduling-and-auth TAG-16).
    #[error("unsupported file type {0:?}: upload a tar or a zip")]
    Kind(String),
    /// Not what it says it is.
    #[error("the archive cannot be read: {0}")]
    Malformed(String),
    /// More entries than allowed.
    #[error("the archive holds more than {0} entries")]
    TooManyEntries(usize),
    /// A file of the root module that is too large, or that makes all of them too large together.
    #[error("{0} is too large: a Terraform file may have 1 MiB, and all of them together 8 MiB")]
    TooLarge(String),
}

/// How parameters of a template work, which decides what tags may refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// The default: everything that is known before Terraform runs (scheduling-and-auth TAG-13).
    #[default]
    Dynamic,
    /// Variables and parameters only, and their values are texts (TAG-15).
    Classic,
}

/// What `data.coder_workspace_owner` tells, as far as it is known before Terraform runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Id of the user.
    pub id: String,
    /// User name.
    pub name: String,
    /// Name for people.
    pub full_name: String,
    /// Address.
    pub email: String,
    /// How the user signs in.
    pub login_type: String,
    /// Names of groups.
    pub groups: Vec<String>,
    /// Roles, each with the id of its organization, which is empty for the site's.
    pub rbac_roles: Vec<(String, String)>,
}

impl Owner {
    /// Whom an import sees, which has no workspace (terraform 3.5).
    #[must_use]
    pub fn of_import(groups: Vec<String>) -> Self {
        let default = || "default".to_owned();
        Self {
            name: default(),
            full_name: default(),
            email: "default@example.com".to_owned(),
            groups,
            ..Self::default()
        }
    }
}

/// What tags are evaluated with. Without `Debug`: variables may hold secrets.
#[derive(Clone, Default)]
pub struct Inputs {
    /// How parameters work.
    pub flow: Flow,
    /// Given values of variables, as on Terraform's command line.
    pub variables: BTreeMap<String, String>,
    /// Given values of parameters, by the parameter's name.
    pub parameters: BTreeMap<String, String>,
    /// Keys somebody else sets: such tags are left out and need not be known (TAG-14).
    pub overridden: BTreeSet<String>,
    /// Whose workspace it is; without one nothing of it is known. The classic flow knows nobody (TAG-15).
    pub owner: Option<Owner>,
    /// What `timestamp()` says.
    pub now: Timestamp,
}

/// The root module of a template.
pub struct Template {
    module: module::Module,
}

impl Template {
    /// Reads a tar or a zip. OpenTofu's own files count as OpenTofu counts them ([`files`]): a template that has some is
    /// for it.
    ///
    /// # Errors
    /// [`ReadError`]. Files that are not valid configuration are no error: see [`Self::broken`].
    pub fn read(bytes: &[u8], mimetype: &str) -> Result<Self, ReadError> {
        Self::read_from(bytes, mimetype)
    }

    /// As [`Self::read`], from wherever the bytes come; a tar is never in memory as a whole.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read_from(bytes: impl std::io::Read, mimetype: &str) -> Result<Self, ReadError> {
        Ok(Self { module: module::Module::parse(archive::read(bytes, mimetype)?) })
    }

    /// Takes the files of a template's top folder by their names; others than Terraform and OpenTofu read are passed over.
    ///
    /// # Errors
    /// [`ReadError::TooLarge`].
    pub fn of_files(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Result<Self, ReadError> {
        Ok(Self { module: module::Module::parse(archive::of_files(files)?) })
    }

    /// Files that are not valid configuration, each as `file: reason`. Nothing of theirs is known.
    #[must_use]
    pub fn broken(&self) -> &[String] {
        &self.module.broken
    }

    /// Whether there are any workspace tags.
    #[must_use]
    pub fn has_workspace_tags(&self) -> bool {
        !self.module.tags.is_empty()
    }

    /// Whether any parameter may depend on the value of another one. May say so where none does.
    #[must_use]
    pub fn has_dependent_parameters(&self) -> bool {
        parameters::depend(&self.module)
    }

    /// Whether there may be modules, or parameters in them, for certain values only. What is in modules is not known here.
    #[must_use]
    pub fn has_dependent_modules(&self) -> bool {
        parameters::modules_depend(&self.module)
    }

    /// Whether parameters or tags may depend on the workspace's owner. May say so where none does.
    #[must_use]
    pub fn may_ask_for_owner(&self) -> bool {
        parameters::mention(&self.module, reference::OWNER)
    }

    /// The parameters of the root module with the given values; none when it is known only later which there are.
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

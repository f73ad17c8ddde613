//! The inputs of an evaluation, besides the template.

use std::collections::{BTreeMap, BTreeSet};

use coder_domain::Timestamp;

/// The parameter flow of a template, which decides what tags may refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// The default: tags may refer to everything that is known before Terraform runs (scheduling-and-auth TAG-13).
    #[default]
    Dynamic,
    /// Tags may refer to variables and parameters only, and their values are strings (TAG-15).
    Classic,
}

/// The attributes of `data.coder_workspace_owner` that are known before Terraform runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Id of the user.
    pub id: String,
    /// User name.
    pub name: String,
    pub full_name: String,
    /// E-mail address.
    pub email: String,
    pub login_type: String,
    /// Names of groups.
    pub groups: Vec<String>,
    /// Roles, each with the id of its organization, which is empty for site roles.
    pub rbac_roles: Vec<(String, String)>,
}

impl Owner {
    /// The owner that an import sees, because it has no workspace (terraform 3.5).
    #[must_use]
    pub fn for_import(groups: Vec<String>) -> Self {
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

/// The inputs of an evaluation. Without `Debug`, because variables may contain secrets.
#[derive(Clone, Default)]
pub struct Inputs {
    /// The parameter flow.
    pub flow: Flow,
    /// Given values of variables, as on Terraform's command line.
    pub variables: BTreeMap<String, String>,
    /// Given values of parameters, by the parameter's name.
    pub parameters: BTreeMap<String, String>,
    /// Keys that the request sets: these tags are skipped and need no value (TAG-14).
    pub overridden: BTreeSet<String>,
    /// The workspace's owner. Without an owner its attributes are unknown. The classic flow has no owner (TAG-15).
    pub owner: Option<Owner>,
    /// The result of `timestamp()`.
    pub now: Timestamp,
}

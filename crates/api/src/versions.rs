//! Template versions, the results of their import, and dry runs.

use std::collections::BTreeMap;

use coder_domain::Timestamp;
use coder_domain::ids::{FileId, OrganizationId, PresetId, TemplateId, TemplateVersionId};
use serde::{Deserialize, Serialize};

use crate::daemons::{MatchedProvisioners, ProvisionerType};
use crate::jobs::ProvisionerJob;
use crate::json::{self, NameValue, nullable};
use crate::users::MinimalUser;

string_enums! {
    /// How a template's source is kept.
    pub enum StorageMethod {
        File = "file",
    }

    /// The type of a template variable or parameter.
    pub enum ValueType {
        String = "string",
        Number = "number",
        Bool = "bool",
        ListOfString = "list(string)",
    }

    /// The form element of a parameter.
    pub enum FormType {
        Unset = "",
        Radio = "radio",
        Dropdown = "dropdown",
        Input = "input",
        Textarea = "textarea",
        Slider = "slider",
        Checkbox = "checkbox",
        Switch = "switch",
        TagSelect = "tag-select",
        MultiSelect = "multi-select",
        Error = "error",
    }
}

/// The warning that a version cannot serve existing workspaces.
pub const UNSUPPORTED_WORKSPACES: &str = "UNSUPPORTED_WORKSPACES";
/// The replacement of sensitive variable values.
pub const REDACTED: &str = "*redacted*";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateVersion {
    pub id: TemplateVersionId,
    /// None while the version is in no template; written as the zero UUID.
    #[serde(default, with = "json::nil_as_none")]
    pub template_id: Option<TemplateId>,
    pub organization_id: OrganizationId,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub name: String,
    #[serde(default)]
    pub message: String,
    pub job: ProvisionerJob,
    #[serde(default)]
    pub readme: String,
    #[serde(default)]
    pub created_by: MinimalUser,
    #[serde(default)]
    pub archived: bool,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// In the answer to a POST always, in others while the job waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched_provisioners: Option<MatchedProvisioners>,
    #[serde(default)]
    pub has_external_agent: bool,
}

/// Creates a version and starts its import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateTemplateVersionRequest {
    /// Empty lets the server choose a name.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// None for the first version of a new template; written as the zero UUID.
    #[serde(with = "json::nil_as_none")]
    pub template_id: Option<TemplateId>,
    #[serde(deserialize_with = "nullable")]
    pub storage_method: StorageMethod,
    /// This or `example_id`.
    #[serde(deserialize_with = "json::optional_id", skip_serializing_if = "Option::is_none")]
    pub file_id: Option<FileId>,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub example_id: String,
    #[serde(deserialize_with = "nullable")]
    pub provisioner: ProvisionerType,
    #[serde(deserialize_with = "nullable")]
    pub tags: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub user_variable_values: Vec<NameValue>,
}

/// Renames a version, or changes its message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateTemplateVersionRequest {
    /// Empty keeps the name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// None keeps the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A Terraform variable of a version. Sensitive values are [`REDACTED`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TemplateVersionVariable {
    pub name: String,
    pub description: String,
    #[serde(rename = "type")]
    pub kind: ValueType,
    pub value: String,
    pub default_value: String,
    pub required: bool,
    pub sensitive: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TemplateVersionParameter {
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    pub description: String,
    pub description_plaintext: String,
    #[serde(rename = "type")]
    pub kind: ValueType,
    pub form_type: FormType,
    pub mutable: bool,
    pub default_value: String,
    pub icon: String,
    #[serde(deserialize_with = "nullable")]
    pub options: Vec<TemplateVersionParameterOption>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub validation_error: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub validation_regex: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_min: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_max: Option<i32>,
    /// `increasing`, `decreasing` or empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub validation_monotonic: String,
    pub required: bool,
    pub ephemeral: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TemplateVersionParameterOption {
    pub name: String,
    pub description: String,
    pub value: String,
    pub icon: String,
}

/// External authentication that builds of a version need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TemplateVersionExternalAuth {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub display_name: String,
    pub display_icon: String,
    pub authenticate_url: String,
    pub authenticated: bool,
    #[serde(skip_serializing_if = "json::is_default")]
    pub optional: bool,
}

/// A named set of parameter values. Its keys start with capital letters on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Preset {
    #[serde(rename = "ID")]
    pub id: PresetId,
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub parameters: Vec<PresetParameter>,
    pub default: bool,
    pub desired_prebuild_instances: Option<i64>,
    pub description: String,
    pub icon: String,
}

/// A value in a preset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct PresetParameter {
    pub name: String,
    pub value: String,
}

/// Starts a dry run; the answer is its job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateDryRunRequest {
    #[serde(deserialize_with = "nullable")]
    pub workspace_name: String,
    #[serde(deserialize_with = "nullable")]
    pub rich_parameter_values: Vec<NameValue>,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub user_variable_values: Vec<NameValue>,
}

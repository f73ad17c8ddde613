//! The secrets of a job, to be masked.

use coder_wire::messages::provisioner::{Metadata, TemplateVariable, VariableValue};
use coder_wire::messages::provisionerd as pb;
use pb::acquired_job::Type;

/// The secrets in an acquired job.
pub(super) fn of_job(job: &pb::AcquiredJob) -> Vec<&str> {
    let mut secrets = Vec::new();
    let metadata = match &job.r#type {
        Some(Type::WorkspaceBuild(build)) => {
            secrets.extend(of_variables(&build.variable_values));
            secrets
                .extend(build.external_auth_providers.iter().map(|provider| provider.access_token.as_str()));
            build.metadata.as_ref()
        }
        Some(Type::TemplateDryRun(dry_run)) => {
            secrets.extend(of_variables(&dry_run.variable_values));
            dry_run.metadata.as_ref()
        }
        // All values of an import are marked; parsing shows which are sensitive.
        Some(Type::TemplateImport(import)) => import.metadata.as_ref(),
        None => None,
    };
    secrets.extend(metadata.into_iter().flat_map(of_metadata));
    secrets
}

fn of_variables(values: &[VariableValue]) -> impl Iterator<Item = &str> {
    values.iter().filter(|value| value.sensitive).map(|value| value.value.as_str())
}

fn of_metadata(metadata: &Metadata) -> impl Iterator<Item = &str> {
    let own = [
        metadata.workspace_owner_session_token.as_str(),
        metadata.workspace_owner_oidc_access_token.as_str(),
        metadata.workspace_owner_ssh_private_key.as_str(),
    ];
    own.into_iter().chain(metadata.running_agent_auth_tokens.iter().map(|token| token.token.as_str()))
}

/// The values, including defaults, of variables that a template declares as sensitive.
pub(super) fn of_declared<'a>(
    declared: &'a [TemplateVariable],
    values: &'a [VariableValue],
) -> impl Iterator<Item = &'a str> {
    let sensitive = declared.iter().filter(|variable| variable.sensitive);
    sensitive.flat_map(move |variable| {
        let given = values.iter().filter(|value| value.name == variable.name);
        given.map(|value| value.value.as_str()).chain([variable.default_value.as_str()])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_declared_sensitive_is_a_secret_of_an_import() {
        let variable = |name: &str, sensitive| TemplateVariable {
            name: name.to_owned(),
            default_value: format!("default of {name}"),
            sensitive,
            ..TemplateVariable::default()
        };
        let value = |name: &str| VariableValue {
            name: name.to_owned(),
            value: format!("value of {name}"),
            sensitive: true,
        };
        let declared = [variable("a", true), variable("b", false)];
        let values = [value("a"), value("b")];
        assert_eq!(of_declared(&declared, &values).collect::<Vec<_>>(), ["value of a", "default of a"]);
    }
}

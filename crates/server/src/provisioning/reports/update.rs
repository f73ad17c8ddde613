//! UpdateJob: keep-alive, log lines, and the results of parsing a template. One transaction per call.

use std::collections::BTreeMap;

use coder_domain::ids::{JobId, TemplateVersionId};
use coder_domain::job::Type;
use coder_domain::secret::Secret;
use coder_domain::{Timestamp, job};
use coder_store::jobs::Holder;
use coder_store::jobs::logs::NewLine;
use coder_store::templates::version_details::{self, Variable};
use coder_store::templates::versions;
use coder_store::{Error, Tx, jobs, transaction};
use coder_wire::messages::provisioner::{TemplateVariable, VariableValue};
use coder_wire::messages::provisionerd::{UpdateJobRequest, UpdateJobResponse};

use super::logs;
use super::refusal::{self, Refusal};
use crate::provisioning::session::Session;

/// The results of parsing a template.
struct Parsed {
    tags: BTreeMap<String, String>,
    readme: Option<String>,
    variables: Vec<Variable>,
}

/// Answers one call (wire-protocol 5.5). Every answer contains `canceled`.
pub async fn update(session: &Session, request: &UpdateJobRequest) -> Result<UpdateJobResponse, Refusal> {
    let app = &session.app;
    let now = app.now();
    let job = refusal::job_id(&request.job_id)?;
    let holder = session.holder(job);
    let lines = logs::read(&request.logs, now)?;
    let has_parsed = !request.template_variables.is_empty()
        || !request.readme.is_empty()
        || !request.workspace_tags.is_empty();
    if lines.is_empty() && !has_parsed {
        return keep_alive(session, job, holder, now).await;
    }
    let parsed = has_parsed.then(|| Parsed {
        tags: request.workspace_tags.clone(),
        readme: (!request.readme.is_empty()).then(|| String::from_utf8_lossy(&request.readme).into_owned()),
        variables: valued(&request.template_variables, &request.user_variable_values),
    });
    let canceled = store(session, (job, holder), &lines, parsed.as_ref(), now).await?;
    session.note_report(job, canceled, now);
    app.events.job_changed(job);
    let variables = parsed.map(|parsed| parsed.variables).unwrap_or_default();
    require_values(&variables)?;
    let variable_values = variables.into_iter().map(value_of).collect();
    Ok(UpdateJobResponse { canceled, variable_values })
}

/// Stores lines and parse results. Returns whether the job was canceled.
async fn store(
    session: &Session,
    (job, holder): (JobId, Holder),
    lines: &[NewLine],
    parsed: Option<&Parsed>,
    now: Timestamp,
) -> Result<bool, Refusal> {
    let (store, cap) = (&session.app.store, session.app.config.provisioning.log_bytes);
    // On Postgres each statement is a round trip. One statement reads and one writes, unless another writer interferes.
    if store.is_postgres()
        && let Some(end) = jobs::logs::find_end(&mut store.reader().await?, job, holder).await?
    {
        let stored = transaction!(store, Refusal, |tx| {
            jobs::logs::append_after(tx, job, holder, &end, lines, cap, now).await?;
            if let Some(parsed) = parsed {
                store_parsed(tx, imported(end.kind, end.template_version_id)?, parsed, now).await?;
            }
            Ok(())
        });
        match stored {
            Ok(()) => return Ok(end.cancel_requested),
            Err(Refusal::Store(Error::Stale { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    transaction!(store, Refusal, |tx| {
        let appended = match jobs::logs::append(tx, job, holder, lines, cap, now).await {
            Ok(appended) => appended,
            Err(error) => return Err(refusal::explain(tx, session, job, holder, error).await),
        };
        if let Some(parsed) = parsed {
            let version = imported_version(&refusal::owned(tx, session, job, holder).await?)?;
            store_parsed(tx, version, parsed, now).await?;
        }
        Ok(appended.cancel_requested)
    })
}

async fn keep_alive(
    session: &Session,
    job: JobId,
    holder: Holder,
    now: Timestamp,
) -> Result<UpdateJobResponse, Refusal> {
    let mut tx = session.app.store.single().await?;
    match jobs::update_alive(&mut tx, job, holder, now).await {
        Ok(canceled) => {
            session.note_report(job, canceled, now);
            Ok(UpdateJobResponse { canceled, variable_values: Vec::new() })
        }
        Err(error) => Err(refusal::explain(&mut tx, session, job, holder, error).await),
    }
}

async fn store_parsed(
    tx: &mut Tx,
    version: TemplateVersionId,
    parsed: &Parsed,
    now: Timestamp,
) -> Result<(), Refusal> {
    if !parsed.tags.is_empty() {
        version_details::update_workspace_tags(tx, version, &parsed.tags).await?;
    }
    if let Some(readme) = &parsed.readme {
        versions::update_readme(tx, version, readme, now).await?;
    }
    version_details::update_variables(tx, version, &parsed.variables).await?;
    Ok(())
}

/// The version that a job imports, from the job's row and never from a message.
pub fn imported_version(job: &jobs::Job) -> Result<TemplateVersionId, Refusal> {
    imported(job.kind, job.template_version_id)
}

fn imported(kind: Type, version: Option<TemplateVersionId>) -> Result<TemplateVersionId, Refusal> {
    match (kind, version) {
        (Type::TemplateVersionImport, Some(version)) => Ok(version),
        _ => Err(Refusal::invalid("only a template import has variables, a README and workspace tags")),
    }
}

fn valued(variables: &[TemplateVariable], given: &[VariableValue]) -> Vec<Variable> {
    let given: BTreeMap<&str, &str> = given.iter().map(|value| (&*value.name, &*value.value)).collect();
    let valued = |variable: &TemplateVariable| Variable {
        value: Secret::new(given.get(&*variable.name).copied().unwrap_or(&variable.default_value)),
        name: variable.name.clone(),
        description: variable.description.clone(),
        kind: variable.r#type.clone(),
        default_value: Secret::new(&*variable.default_value),
        required: variable.required,
        sensitive: variable.sensitive,
    };
    variables.iter().map(valued).collect()
}

/// Fails when required variables have no value. They were stored before, so that clients can ask for the values.
fn require_values(variables: &[Variable]) -> Result<(), Refusal> {
    let is_missing = |variable: &&Variable| variable.required && variable.value.expose().is_empty();
    let missing: Vec<_> = variables.iter().filter(is_missing).map(|variable| &*variable.name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let text = format!("required template variables need values: {}", missing.join(", "));
    debug_assert_eq!(job::error_code(&text), job::REQUIRED_TEMPLATE_VARIABLES);
    Err(Refusal::Invalid(text))
}

/// A variable in a message to a daemon.
pub fn value_of(variable: Variable) -> VariableValue {
    VariableValue {
        name: variable.name,
        value: variable.value.expose().to_owned(),
        sensitive: variable.sensitive,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &str, default: &str, required: bool) -> TemplateVariable {
        TemplateVariable {
            name: name.to_owned(),
            default_value: default.to_owned(),
            required,
            ..TemplateVariable::default()
        }
    }

    #[test]
    fn given_values_win_over_defaults_and_required_ones_without_a_value_are_named() {
        let given = [VariableValue { name: "a".to_owned(), value: "given".to_owned(), sensitive: false }];
        let all = vec![variable("a", "x", false), variable("b", "y", false), variable("c", "", true)];
        let valued = valued(&all, &given);
        let values: Vec<_> = valued.iter().map(|variable| variable.value.expose()).collect();
        assert_eq!(values, ["given", "y", ""]);
        let text = require_values(&valued).unwrap_err().to_string();
        assert_eq!(text, "required template variables need values: c");
        assert_eq!(job::error_code(&text), job::REQUIRED_TEMPLATE_VARIABLES);
        assert!(require_values(&valued[..2]).is_ok());
    }
}

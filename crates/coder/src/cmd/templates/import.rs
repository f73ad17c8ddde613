//! One import: creates the version, follows its job, asks for missing variables, cancels on Ctrl-C.

use std::collections::BTreeMap;

use anyhow::bail;
use coder_api::builds::Transition;
use coder_api::client::{Client, JobLogTarget};
use coder_api::jobs::{ProvisionerJob, Status};
use coder_api::json::NameValue;
use coder_api::versions::{CreateTemplateVersionRequest, TemplateVersion, TemplateVersionVariable};
use coder_domain::ids::OrganizationId;

use crate::context::Context;
use crate::exit::Canceled;
use crate::job::follow;
use crate::terminal::output::{Style, strip_control};
use crate::terminal::resource_tree::Persistent;
use crate::terminal::{prompt, resource_tree};

/// The error code for missing values of variables (http-api 6.3).
const NEEDS_VARIABLES: &str = "REQUIRED_TEMPLATE_VARIABLES";

/// What to import.
pub(crate) struct Source {
    /// The organization.
    pub(crate) organization: OrganizationId,
    /// The version to create, without variable values.
    pub(crate) request: CreateTemplateVersionRequest,
    /// Whether the command may ask for missing variables.
    pub(crate) may_ask: bool,
}

/// Imports; returns the version once its job succeeded.
pub(crate) async fn run(
    ctx: &Context,
    client: &Client,
    mut source: Source,
    mut values: BTreeMap<String, String>,
) -> anyhow::Result<TemplateVersion> {
    loop {
        source.request.user_variable_values =
            values.iter().map(|(name, value)| NameValue::new(name, value)).collect();
        let version = client.create_version(source.organization, &source.request).await?;
        let job = until_done(ctx, client, &version).await?;
        // The declared variables are known after the root module was read.
        let is_read = job.status == Status::Succeeded || job.error_code == NEEDS_VARIABLES;
        let is_of_use = is_read && (job.error_code == NEEDS_VARIABLES || !values.is_empty());
        let declared = if is_of_use { client.version_variables(version.id).await? } else { Vec::new() };
        let unknown = if is_read { undeclared(&declared, &values) } else { Vec::new() };
        for name in &unknown {
            ctx.printer.warn(&format!(
                "the template has no variable {name:?}, so the value given for it is not used"
            ));
        }
        if job.error_code == NEEDS_VARIABLES {
            let missing = missing(declared, &values);
            if !missing.is_empty() {
                // They were already reported.
                values.retain(|name, _| !unknown.contains(name));
                ask(ctx, &missing, &mut values, source.may_ask)?;
                continue;
            }
        }
        follow::outcome(&job, "the import of the template")?;
        let found = client.version_resources(version.id).await?;
        let persistent = Persistent::of(&found);
        let starting: Vec<_> =
            found.into_iter().filter(|resource| resource.workspace_transition == Transition::Start).collect();
        let lines = resource_tree::lines(&ctx.printer, &starting, Some(&persistent), false);
        lines.iter().for_each(|line| ctx.printer.note(line));
        return Ok(version);
    }
}

/// Follows the job. Ctrl-C cancels it and waits for its end.
async fn until_done(
    ctx: &Context,
    client: &Client,
    version: &TemplateVersion,
) -> anyhow::Result<ProvisionerJob> {
    let (id, matched) = (version.id, version.matched_provisioners.as_ref());
    tokio::select! {
        job = follow::follow(client, &ctx.printer, JobLogTarget::Version(id), matched) => return job,
        _ = tokio::signal::ctrl_c() => {}
    }
    ctx.printer.note("Canceling the import; press Ctrl-C again to leave at once.");
    let cancel = async {
        client.cancel_version(id).await?;
        follow::follow(client, &ctx.printer, JobLogTarget::Version(id), None).await
    };
    tokio::select! {
        ended = cancel => drop(ended?),
        _ = tokio::signal::ctrl_c() => {}
    }
    Err(Canceled::Interrupted.into())
}

/// Required variables without a value.
fn missing(
    mut declared: Vec<TemplateVersionVariable>,
    values: &BTreeMap<String, String>,
) -> Vec<TemplateVersionVariable> {
    declared.retain(|variable| variable.required && !values.contains_key(&variable.name));
    declared
}

/// Given values without a variable, for example after a typing error.
fn undeclared(declared: &[TemplateVersionVariable], values: &BTreeMap<String, String>) -> Vec<String> {
    let known = |name: &&String| declared.iter().any(|variable| variable.name == **name);
    values.keys().filter(|name| !known(name)).cloned().collect()
}

fn ask(
    ctx: &Context,
    missing: &[TemplateVersionVariable],
    values: &mut BTreeMap<String, String>,
    may_ask: bool,
) -> anyhow::Result<()> {
    if !may_ask {
        let names: Vec<_> =
            missing.iter().map(|variable| format!("--variable {}=VALUE", variable.name)).collect();
        bail!("the template needs values for variables: pass {}", names.join(" "));
    }
    ctx.printer.note("The template needs values for variables.");
    for variable in missing {
        if !variable.description.is_empty() {
            ctx.printer.note(&ctx.printer.paint(Style::Faint, &strip_control(&variable.description)));
        }
        let question = format!("{}:", variable.name);
        let instead = format!("pass --variable {}=VALUE", variable.name);
        let value = if variable.sensitive {
            prompt::hidden(&ctx.printer, &question, &instead)?.expose().to_owned()
        } else {
            prompt::text(&ctx.printer, &question, None, &instead, |text| {
                if text.is_empty() { Err("needs a value".to_owned()) } else { Ok(()) }
            })?
        };
        values.insert(variable.name.clone(), value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_for_nothing_and_variables_without_one() {
        let variable = |name: &str, required| TemplateVersionVariable {
            name: name.to_owned(),
            required,
            ..TemplateVersionVariable::default()
        };
        let declared = [variable("region", true), variable("size", false), variable("zone", true)];
        let values = ["regoin", "size", "zone"].map(|name| (name.to_owned(), String::new())).into();
        assert_eq!(undeclared(&declared, &values), ["regoin"]);
        let missing = missing(declared.to_vec(), &values);
        assert_eq!(missing.iter().map(|variable| variable.name.as_str()).collect::<Vec<_>>(), ["region"]);
    }
}

//! `coder create`: parameter values, a dry run as a preview, then the workspace (http-api 7.4).

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use coder_api::client::{Client, JobLogTarget};
use coder_api::jobs::{ProvisionerJob, Status};
use coder_api::json::NameValue;
use coder_api::paths;
use coder_api::templates::Template;
use coder_api::versions::{CreateDryRunRequest, Preset, TemplateVersionParameter};
use coder_api::workspaces::CreateWorkspaceRequest;
use coder_domain::ids::{JobId, TemplateVersionId};
use coder_domain::names;

use super::autoupdate::Policy;
use super::{build, schedule};
use crate::context::Context;
use crate::job::follow;
use crate::parameters::{self, PromptMode};
use crate::terminal::menu::{self, Choice};
use crate::terminal::output::{Style, strip_control};
use crate::terminal::{prompt, resource_tree};
use crate::{args, duration, env, external_auth, remote, suggest};

/// How long `--no-wait` waits for a daemon that takes the plan.
const ACQUIRE_TIMEOUT: Duration = Duration::from_millis(1500);
/// Time between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the workspace, or owner/name.
    workspace: Option<String>,
    /// Template to use.
    #[arg(short, long, env = env::TEMPLATE_NAME, value_name = "NAME")]
    template: Option<String>,
    /// Version of the template; default the active one.
    #[arg(long, env = env::TEMPLATE_VERSION, value_name = "NAME")]
    template_version: Option<String>,
    /// Preset to use; `none` for none.
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// Start automatically at this time, as `coder schedule start` takes it: "9:30AM Mon-Fri Europe/Dublin".
    #[arg(long, env = env::WORKSPACE_START_AT, value_name = "SCHEDULE")]
    start_at: Option<String>,
    /// Stop automatically after this running time.
    #[arg(long, env = env::WORKSPACE_STOP_AFTER, value_parser = duration::parse, value_name = "DURATION")]
    stop_after: Option<Duration>,
    /// Whether each start takes the template's active version: always or never.
    #[arg(long, env = env::WORKSPACE_AUTOMATIC_UPDATES, default_value = "never", hide_possible_values = true, value_name = "WHEN")]
    automatic_updates: Policy,
    /// Return as soon as the build is requested; the plan is shown before only if a daemon is free.
    #[arg(long)]
    no_wait: bool,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    /// Workspace whose parameter values to take where no others are given.
    #[arg(long, env = env::WORKSPACE_COPY_PARAMETERS_FROM, value_name = "WORKSPACE")]
    copy_parameters_from: Option<String>,
    /// Take the defaults of parameters without asking.
    #[arg(long, env = env::WORKSPACE_USE_PARAMETER_DEFAULTS)]
    use_parameter_defaults: bool,
    #[command(flatten)]
    parameters: parameters::ParameterFlags,
    #[command(flatten)]
    organization: args::Organization,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let may_ask = prompt::is_interactive() && !args.yes;
    let words = args.start_at.as_deref().map(|text| text.split_whitespace().collect::<Vec<_>>());
    let autostart_schedule =
        words.map(|words| schedule::autostart(&words)).transpose().context("--start-at")?;
    let (owner, name) = name(ctx, &args)?;
    if remote::found(client.workspace_by_name(&owner, &name).await)?.is_some() {
        bail!(
            "there is a workspace {name:?} already: choose another name, or start it with `coder start {name}`"
        );
    }
    let template = template(ctx, &client, &args, may_ask).await?;
    let version = version(&client, &template, args.template_version.as_deref()).await?;
    let preset = preset(ctx, &client, version, args.preset.as_deref()).await?;
    let version = client.version(version).await?;
    let declared = client.rich_parameters(version.id).await?;
    external_auth::connect(ctx, &client, version.id).await?;
    let copied = copied(&client, args.copy_parameters_from.as_deref(), &declared).await?;
    let values = values(ctx, &args, copied, &declared, preset.as_ref(), may_ask)?;
    dry_run(ctx, &client, version.id, &name, &values, args.no_wait).await?;
    if !args.yes {
        prompt::confirm_or_enter(&ctx.printer, "Create the workspace?", "pass --yes")?;
    }
    let request = CreateWorkspaceRequest {
        template_id: None,
        template_version_id: Some(version.id),
        name: name.clone(),
        autostart_schedule,
        ttl_ms: args.stop_after.map(|after| i64::try_from(after.as_millis()).unwrap_or(i64::MAX)),
        rich_parameter_values: values,
        automatic_updates: Some(args.automatic_updates.wire()),
        template_version_preset_id: preset.map(|preset| preset.id),
    };
    let workspace = client.create_workspace(&owner, &request).await?;
    let first = &workspace.latest_build;
    if args.no_wait {
        follow::warn_unmatched(&ctx.printer, &first.job, &first.matched_provisioners);
        ctx.printer.note(&format!("Workspace {name:?} is starting in the background."));
        return Ok(());
    }
    build::finish(ctx, &client, first).await?;
    let bold = ctx.printer.paint(Style::Bold, &name);
    ctx.printer.note(&format!("The workspace {bold} has been created. Look at it with: coder show {name}"));
    Ok(())
}

fn name(ctx: &Context, args: &Args) -> anyhow::Result<(String, String)> {
    let check = |text: &str| names::name(text).map_err(|error| error.to_string());
    let text = match &args.workspace {
        Some(text) => text.clone(),
        None => {
            prompt::text(&ctx.printer, "Name of the workspace:", None, "name it: coder create <name>", check)?
        }
    };
    let (owner, name) = remote::split_owner(&text);
    check(name).map_err(|reason| anyhow::anyhow!("the workspace name {name:?} {reason}"))?;
    Ok((owner.to_owned(), name.to_owned()))
}

async fn template(ctx: &Context, client: &Client, args: &Args, may_ask: bool) -> anyhow::Result<Template> {
    let name = match &args.template {
        Some(name) => name.clone(),
        None if may_ask => choose(ctx, client).await?,
        None => bail!("name the template: pass --template NAME"),
    };
    let query = format!("exact_name:\"{name}\"");
    let mut found = client.templates(&query).await?;
    if let Some(wanted) = &args.organization.org {
        let in_it = |template: &Template| {
            template.organization_name.eq_ignore_ascii_case(wanted)
                || template.organization_id.to_string() == *wanted
                || wanted == paths::DEFAULT_ORGANIZATION
        };
        found.retain(in_it);
    }
    match found.len() {
        0 => bail!("there is no template {name:?}: {}", remote::near_templates(client, &name).await),
        1 => found.pop().context("one was counted"),
        _ => bail!("several organizations have a template {name:?}: choose one with --org"),
    }
}

async fn choose(ctx: &Context, client: &Client) -> anyhow::Result<String> {
    let templates = client.templates("").await?;
    if templates.is_empty() {
        bail!("there are no templates yet: make one with `coder templates init` and `coder templates push`");
    }
    let choices: Vec<_> = templates
        .iter()
        .map(|template| Choice::new(&template.name, strip_control(&template.description)))
        .collect();
    menu::choose(&ctx.printer, "Template:", &choices, None, "pass --template NAME")
}

async fn version(
    client: &Client,
    template: &Template,
    wanted: Option<&str>,
) -> anyhow::Result<TemplateVersionId> {
    let Some(name) = wanted else { return Ok(template.active_version_id) };
    Ok(remote::version(client, template, name).await?.id)
}

async fn preset(
    ctx: &Context,
    client: &Client,
    version: TemplateVersionId,
    wanted: Option<&str>,
) -> anyhow::Result<Option<Preset>> {
    let presets = client.presets(version).await?;
    match wanted {
        Some("none") => Ok(None),
        Some(name) => {
            let names: Vec<_> = presets.iter().map(|preset| preset.name.clone()).collect();
            let found = presets.into_iter().find(|preset| preset.name.eq_ignore_ascii_case(name));
            found.map(Some).with_context(|| {
                let near = suggest::did_you_mean(name, names.iter().map(String::as_str));
                format!("there is no preset {name:?}: {near}choose from: {}", names.join(", "))
            })
        }
        None => {
            let default = presets.into_iter().find(|preset| preset.default);
            if let Some(preset) = &default {
                ctx.printer
                    .note(&format!("Using the template's preset {:?}; choose with --preset.", preset.name));
            }
            Ok(default)
        }
    }
}

/// The lasting values of another workspace's last build for parameters of the template.
async fn copied(
    client: &Client,
    from: Option<&str>,
    declared: &[TemplateVersionParameter],
) -> anyhow::Result<Vec<NameValue>> {
    let Some(from) = from else { return Ok(Vec::new()) };
    let source = remote::workspace(client, from).await?;
    let mut values = client.build_parameters(source.latest_build.id).await?;
    values.retain(|pair| declared.iter().any(|p| p.name == pair.name && !p.ephemeral));
    Ok(values)
}

fn values(
    ctx: &Context,
    args: &Args,
    copied: Vec<NameValue>,
    declared: &[TemplateVersionParameter],
    preset: Option<&Preset>,
    may_ask: bool,
) -> anyhow::Result<Vec<NameValue>> {
    let set = set_by(preset, declared);
    // The preset's values take precedence (http-api 7.1), so the command does not ask for them, and other values are
    // ignored.
    let (fixed, open): (Vec<_>, Vec<_>) =
        declared.iter().cloned().partition(|p| set.iter().any(|pair| pair.name == p.name));
    let mut flags = args.parameters.clone();
    flags.copied = copied;
    flags.takes_defaults = args.use_parameter_defaults;
    for name in flags.drop_all(fixed.iter().map(|p| p.name.as_str()))? {
        ctx.printer.note(&format!("The preset sets {name:?}; the value given for it is not used."));
    }
    let mut values = parameters::resolve(&ctx.printer, &flags, &open, &[], PromptMode::New, may_ask)?;
    values.extend(set);
    Ok(values)
}

/// The values of a preset. Values for unknown parameters are ignored (terraform 4.9).
fn set_by(preset: Option<&Preset>, declared: &[TemplateVersionParameter]) -> Vec<NameValue> {
    let set = preset.into_iter().flat_map(|preset| &preset.parameters);
    let known = set.filter(|pair| declared.iter().any(|parameter| parameter.name == pair.name));
    known.map(|pair| NameValue::new(&pair.name, &pair.value)).collect()
}

async fn dry_run(
    ctx: &Context,
    client: &Client,
    version: TemplateVersionId,
    name: &str,
    values: &[NameValue],
    no_wait: bool,
) -> anyhow::Result<()> {
    let request = CreateDryRunRequest {
        workspace_name: name.to_owned(),
        rich_parameter_values: values.to_vec(),
        user_variable_values: Vec::new(),
    };
    ctx.printer.note("Planning the workspace");
    let job = client.create_dry_run(version, &request).await?;
    let matched = client.dry_run_matched(version, job.id).await?;
    if no_wait && !is_acquired_soon(client, version, job.id).await? {
        return skip(ctx, client, version, &job).await;
    }
    let of = JobLogTarget::DryRun(version, job.id);
    let job = follow::follow(client, &ctx.printer, of, Some(&matched)).await?;
    follow::outcome(&job, "the plan")?;
    let planned = client.dry_run_resources(version, job.id).await?;
    for line in resource_tree::lines(&ctx.printer, &planned, None, false) {
        ctx.printer.note(&line);
    }
    Ok(())
}

/// Whether a daemon takes a plan within a moment.
async fn is_acquired_soon(client: &Client, version: TemplateVersionId, job: JobId) -> anyhow::Result<bool> {
    let start = Instant::now();
    loop {
        if client.dry_run(version, job).await?.status != Status::Pending {
            return Ok(true);
        }
        if start.elapsed() >= ACQUIRE_TIMEOUT {
            return Ok(false);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Continues without the plan and prints why.
async fn skip(
    ctx: &Context,
    client: &Client,
    version: TemplateVersionId,
    job: &ProvisionerJob,
) -> anyhow::Result<()> {
    let explained = client.explain_job(job.organization_id, job.id).await?;
    let reason = explained.and_then(|explained| explained.reasons.into_iter().next());
    let reason = reason.map_or_else(|| "no daemon takes it now".to_owned(), |reason| reason.message);
    // A user who may not cancel it leaves it in the queue. A dry run changes nothing.
    let is_left = client.cancel_dry_run(version, job.id).await.is_err();
    let left = if is_left { " The plan is still made, for nothing." } else { "" };
    ctx.printer.note(&format!("Not waiting for the plan: {}.{left}", reason.trim_end_matches('.')));
    Ok(())
}

#[cfg(test)]
mod tests {
    use coder_api::versions::PresetParameter;

    use super::*;

    #[test]
    fn a_preset_sets_only_what_the_template_asks_for() {
        let pair = |name: &str| PresetParameter { name: name.to_owned(), value: "v".to_owned() };
        let preset = Preset { parameters: vec![pair("size"), pair("gone")], ..Preset::default() };
        let size =
            TemplateVersionParameter { name: "size".to_owned(), ..TemplateVersionParameter::default() };
        assert_eq!(set_by(Some(&preset), std::slice::from_ref(&size)), [NameValue::new("size", "v")]);
        assert!(set_by(None, &[size]).is_empty());
    }
}

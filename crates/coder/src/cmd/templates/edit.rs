//! `coder templates edit`: settings that are not given stay the same.

use anyhow::ensure;
use coder_api::templates::{Template, UpdateTemplateRequest};

use super::schedule_flags::ScheduleFlags;
use crate::args::boolean;
use crate::context::Context;
use crate::terminal::prompt;
use crate::{args, remote};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the template.
    template: String,
    /// New name of the template.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// New name for people.
    #[arg(long, value_name = "TEXT")]
    display_name: Option<String>,
    /// New description.
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// New icon: a URL or a path on the server.
    #[arg(long, value_name = "URL")]
    icon: Option<String>,
    /// Why the template must not be used any more; empty ends the deprecation.
    #[arg(long, value_name = "TEXT")]
    deprecated: Option<String>,
    #[command(flatten)]
    schedules: ScheduleFlags,
    /// Whether users may cancel builds of their workspaces.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = boolean, value_name = "BOOL")]
    allow_user_cancel_workspace_jobs: Option<bool>,
    /// Whether workspaces always start with the active version.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = boolean, value_name = "BOOL")]
    require_active_version: Option<bool>,
    /// Only administrators of templates may use the template from now on.
    #[arg(long)]
    private: bool,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    organization: args::Organization,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let template = remote::template(&client, &organization, &args.template).await?;
    let before = request(&template);
    let after = change(before.clone(), &template, &args)?;
    ensure!(after != before, "nothing to change: see the flags with `coder templates edit --help`");
    if !args.yes {
        let question = format!("Change template {:?}?", template.name);
        prompt::confirm_or_enter(&ctx.printer, &question, "pass --yes")?;
    }
    let changed = client.update_template(template.id, &after).await?;
    ctx.printer.note(&format!("Template {} is changed.", changed.name));
    Ok(())
}

/// The present settings: the server reads a missing field as empty or false.
fn request(template: &Template) -> UpdateTemplateRequest {
    UpdateTemplateRequest {
        name: template.name.clone(),
        display_name: Some(template.display_name.clone()),
        description: Some(template.description.clone()),
        icon: Some(template.icon.clone()),
        default_ttl_ms: template.default_ttl_ms,
        activity_bump_ms: template.activity_bump_ms,
        autostop_requirement: Some(template.autostop_requirement.clone()),
        autostart_requirement: Some(template.autostart_requirement.clone()),
        allow_user_autostart: template.allow_user_autostart,
        allow_user_autostop: template.allow_user_autostop,
        allow_user_cancel_workspace_jobs: template.allow_user_cancel_workspace_jobs,
        failure_ttl_ms: template.failure_ttl_ms,
        time_til_dormant_ms: template.time_til_dormant_ms,
        time_til_dormant_autodelete_ms: template.time_til_dormant_autodelete_ms,
        require_active_version: template.require_active_version,
        ..UpdateTemplateRequest::default()
    }
}

fn change(
    mut request: UpdateTemplateRequest,
    template: &Template,
    args: &Args,
) -> anyhow::Result<UpdateTemplateRequest> {
    fn set<T: Clone>(field: &mut T, given: Option<&T>) {
        if let Some(given) = given {
            field.clone_from(given);
        }
    }
    set(&mut request.name, args.name.as_ref());
    set(&mut request.display_name, args.display_name.clone().map(Some).as_ref());
    set(&mut request.description, args.description.clone().map(Some).as_ref());
    set(&mut request.icon, args.icon.clone().map(Some).as_ref());
    set(&mut request.deprecation_message, args.deprecated.clone().map(Some).as_ref());
    set(&mut request.allow_user_cancel_workspace_jobs, args.allow_user_cancel_workspace_jobs.as_ref());
    set(&mut request.require_active_version, args.require_active_version.as_ref());
    request.disable_everyone_group_access = args.private;
    args.schedules.update(&mut request, template)?;
    Ok(request)
}

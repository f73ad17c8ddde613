//! `coder templates edit`: settings that are not given stay the same.

use std::time::Duration;

use anyhow::ensure;
use coder_api::templates::{
    AutostartRequirement, AutostopRequirement, Template, UpdateTemplateRequest, WEEKDAYS,
};

use crate::args::boolean;
use crate::context::Context;
use crate::terminal::prompt;
use crate::{args, duration, remote, suggest};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the template.
    template: String,
    /// New name.
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
    /// Time after which a started workspace stops by default.
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    default_ttl: Option<Duration>,
    /// Time after which a workspace whose start failed is stopped.
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    failure_ttl: Option<Duration>,
    /// Time without use after which a workspace becomes dormant.
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    dormancy_threshold: Option<Duration>,
    /// Time after which a dormant workspace is deleted.
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    dormancy_auto_deletion: Option<Duration>,
    /// Weekdays on which workspaces may start automatically, separated by commas; `all` for all.
    #[arg(long, value_delimiter = ',', value_name = "WEEKDAYS")]
    autostart_requirement_weekdays: Option<Vec<String>>,
    /// Weekdays on which workspaces must stop, separated by commas; `none` for none.
    #[arg(long, value_delimiter = ',', value_name = "WEEKDAYS")]
    autostop_requirement_weekdays: Option<Vec<String>>,
    /// Interval in weeks at which workspaces must stop.
    #[arg(long, value_name = "NUMBER")]
    autostop_requirement_weeks: Option<i64>,
    /// Whether users may cancel builds of their workspaces.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = boolean, value_name = "BOOL")]
    allow_user_cancel_workspace_jobs: Option<bool>,
    /// Whether users may choose when their workspaces start automatically.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = boolean, value_name = "BOOL")]
    allow_user_autostart: Option<bool>,
    /// Whether users may choose when their workspaces stop automatically.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = boolean, value_name = "BOOL")]
    allow_user_autostop: Option<bool>,
    /// Whether workspaces always start with the active version.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = boolean, value_name = "BOOL")]
    require_active_version: Option<bool>,
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
    let millis =
        |given: Option<Duration>| given.map(|time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
    set(&mut request.name, args.name.as_ref());
    set(&mut request.display_name, args.display_name.clone().map(Some).as_ref());
    set(&mut request.description, args.description.clone().map(Some).as_ref());
    set(&mut request.icon, args.icon.clone().map(Some).as_ref());
    set(&mut request.deprecation_message, args.deprecated.clone().map(Some).as_ref());
    set(&mut request.default_ttl_ms, millis(args.default_ttl).as_ref());
    set(&mut request.failure_ttl_ms, millis(args.failure_ttl).as_ref());
    set(&mut request.time_til_dormant_ms, millis(args.dormancy_threshold).as_ref());
    set(&mut request.time_til_dormant_autodelete_ms, millis(args.dormancy_auto_deletion).as_ref());
    set(&mut request.allow_user_cancel_workspace_jobs, args.allow_user_cancel_workspace_jobs.as_ref());
    set(&mut request.allow_user_autostart, args.allow_user_autostart.as_ref());
    set(&mut request.allow_user_autostop, args.allow_user_autostop.as_ref());
    set(&mut request.require_active_version, args.require_active_version.as_ref());
    if let Some(days) = &args.autostart_requirement_weekdays {
        request.autostart_requirement = Some(AutostartRequirement { days_of_week: weekdays(days)? });
    }
    let stop = &template.autostop_requirement;
    if args.autostop_requirement_weekdays.is_some() || args.autostop_requirement_weeks.is_some() {
        request.autostop_requirement = Some(AutostopRequirement {
            days_of_week: match &args.autostop_requirement_weekdays {
                Some(days) => weekdays(days)?,
                None => stop.days_of_week.clone(),
            },
            weeks: args.autostop_requirement_weeks.unwrap_or(stop.weeks),
        });
    }
    Ok(request)
}

fn weekdays(days: &[String]) -> anyhow::Result<Vec<String>> {
    let days: Vec<_> = days.iter().map(|day| day.trim().to_lowercase()).collect();
    match days.as_slice() {
        [word] if word == "all" => return Ok(WEEKDAYS.map(str::to_owned).to_vec()),
        [word] if word == "none" => return Ok(Vec::new()),
        _ => {}
    }
    for day in &days {
        let near = suggest::did_you_mean(day, WEEKDAYS);
        ensure!(
            WEEKDAYS.contains(&day.as_str()),
            "{day:?} is no weekday: {near}choose from: {}",
            WEEKDAYS.join(", ")
        );
    }
    Ok(days)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weekdays_are_words() {
        assert_eq!(weekdays(&["Monday".to_owned(), "friday".to_owned()]).unwrap(), ["monday", "friday"]);
        assert_eq!(weekdays(&["all".to_owned()]).unwrap().len(), 7);
        assert!(weekdays(&["none".to_owned()]).unwrap().is_empty());
        let error = weekdays(&["munday".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("did you mean \"monday\"?"), "{error}");
    }
}

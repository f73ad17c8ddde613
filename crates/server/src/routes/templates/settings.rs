//! Checks the names and settings of a template, for creation and changes.

use coder_domain::names;
use coder_domain::schedule::weekdays;
use coder_store::templates::{Settings, Template};

use crate::http::{Error, Result};

const MINUTE_MS: i64 = 60_000;
/// Longest duration; a longer one would overflow when added to a time.
const MAX_MS: i64 = 100 * 365 * 24 * 3_600_000;

/// Checks all settings, and reports all errors at once.
pub fn check(template: &Template) -> Result<()> {
    let mut wrong: Vec<(&str, String)> = Vec::new();
    if let Err(error) = names::name(&template.name) {
        wrong.push(("name", format!("The name {error}.")));
    }
    if let Err(error) = names::display_name(&template.display_name) {
        wrong.push(("display_name", format!("The display name {error}.")));
    }
    if template.description.chars().count() >= 128 {
        wrong.push(("description", "The description must be shorter than 128 characters.".to_owned()));
    }
    durations(&template.settings, &mut wrong);
    words(&template.settings, &mut wrong);
    if wrong.is_empty() {
        return Ok(());
    }
    let error = Error::bad_request("Invalid template.");
    Err(wrong.into_iter().fold(error, |error, (field, detail)| error.field(field, detail)))
}

fn durations(settings: &Settings, wrong: &mut Vec<(&str, String)>) {
    let at_least = [
        ("default_ttl_ms", settings.default_ttl_ms, 0),
        ("activity_bump_ms", settings.activity_bump_ms, 0),
        ("failure_ttl_ms", settings.failure_ttl_ms, MINUTE_MS),
        ("time_til_dormant_ms", settings.time_til_dormant_ms, MINUTE_MS),
        ("time_til_dormant_autodelete_ms", settings.time_til_dormant_autodelete_ms, MINUTE_MS),
    ];
    for (field, value, least) in at_least {
        if value != 0 && !(least..=MAX_MS).contains(&value) {
            let least = if least == 0 { "must be a positive integer" } else { "must be at least one minute" };
            wrong.push((field, format!("Value {least}, or zero for none.")));
        }
    }
}

fn words(settings: &Settings, wrong: &mut Vec<(&str, String)>) {
    let known_day = |day: &&String| !weekdays::NAMES.contains(&day.as_str());
    if let Some(day) = settings.autostop_days.iter().find(known_day) {
        wrong.push(("autostop_requirement.days_of_week", format!("{day:?} is not a weekday.")));
    }
    if let Some(day) = settings.autostart_days.iter().find(known_day) {
        wrong.push(("autostart_requirement.days_of_week", format!("{day:?} is not a weekday.")));
    }
    if !(0..=16).contains(&settings.autostop_weeks) {
        wrong.push(("autostop_requirement.weeks", "Must be between 1 and 16.".to_owned()));
    }
    if !["owner", "authenticated", "organization", "public"].contains(&settings.max_port_share_level.as_str())
    {
        wrong.push(("max_port_share_level", "Unknown sharing level.".to_owned()));
    }
    if !["simple", "passthru"].contains(&settings.cors_behavior.as_str()) {
        wrong.push(("cors_behavior", "Unknown CORS behavior.".to_owned()));
    }
}

/// 409 for a name that another template of the organization has.
pub fn taken(name: &str) -> impl FnOnce(coder_store::Error) -> Error {
    let name = name.to_owned();
    move |error| {
        if error.is_conflict_on("templates", "name_lower") {
            return Error::name_taken(format!("Template with name {name:?} already exists."));
        }
        error.into()
    }
}

//! `coder_workspace_preset`: a named set of parameter values, and how many prebuilt workspaces of it to keep.

use super::DataSource;
use crate::check::{Check, CheckResult};
use crate::context::Context;
use crate::cron;
use crate::diagnostics::{Diagnostics, Path};
use crate::schema::Type::{Bool, Number, Text, TextMap};
use crate::schema::{Attribute, Block, Nested, Schema};
use crate::value::Value;
use crate::zone;
use overlap::Schedule;

mod overlap;

pub(super) fn data_source() -> DataSource {
    let block = Block::new(vec![
        Attribute::computed("id", Text, "Same as the name."),
        Attribute::required("name", Text, "Name of the preset.").check(Check::NotEmpty),
        Attribute::optional("description", Text, "What it is for.").check(Check::MaxBytes(128)),
        Attribute::optional("icon", Text, "Address of an image.")
            .check(Check::Url)
            .check(Check::MaxBytes(256)),
        Attribute::optional("default", Bool, "Whether it is chosen at first.").default(Value::Bool(false)),
        Attribute::optional("parameters", TextMap, "Names of parameters and their values."),
    ])
    .with(Nested::set("prebuilds", "Prebuilt workspaces of this preset.", prebuilds()).max(1));
    DataSource { name: "coder_workspace_preset", schema: Schema { version: 1, block }, read }
}

fn prebuilds() -> Block {
    let schedule = Block::new(vec![
        Attribute::required("cron", Text, "Hours and days: five fields, the first of them `*`.")
            .check(Check::Text(hours)),
        Attribute::required("instances", Number, "How many to keep in these hours."),
    ]);
    let scheduling = Block::new(vec![
        Attribute::required("timezone", Text, "Time zone of the hours, such as Europe/Vienna.")
            .check(Check::Text(time_zone)),
    ])
    .with(Nested::list("schedule", "Another number at some hours.", schedule).min(1));
    let expiration = Block::new(vec![
        Attribute::required("ttl", Number, "Seconds until an unclaimed one is deleted; 0 means never.")
            .check(Check::Number(ttl)),
    ]);
    Block::new(vec![Attribute::required("instances", Number, "How many to keep.").check(Check::AtLeast(0))])
        .with(Nested::set("expiration_policy", "When unclaimed ones are replaced.", expiration).max(1))
        .with(Nested::list("scheduling", "How the number changes over the week.", scheduling).max(1))
}

fn ttl(seconds: i64) -> CheckResult {
    if seconds == 0 || (3600..=31_536_000).contains(&seconds) {
        CheckResult::Passed
    } else {
        CheckResult::error(format!(r#""ttl" must be 0 or between 3600 and 31536000, got {seconds}"#))
    }
}

fn time_zone(name: &str) -> CheckResult {
    if zone::is_known(name) {
        CheckResult::Passed
    } else {
        CheckResult::error(format!("failed to load timezone {name:?}: it is not in the time zone database"))
    }
}

fn hours(text: &str) -> CheckResult {
    let fields: Vec<_> = text.split_whitespace().collect();
    if fields.len() != 5 {
        return CheckResult::error(format!(
            "cron expression {text:?} should have 5 fields, found {}: minute hour day-of-month month day-of-week",
            fields.len()
        ));
    }
    if fields[0] != "*" {
        return CheckResult::error(format!("minute field of cron expression {text:?} should be *"));
    }
    match cron::five_fields(text) {
        Ok(()) => CheckResult::Passed,
        Err(error) => CheckResult::error(format!("failed to parse cron expression {text:?}: {error}")),
    }
}

fn read(state: &mut Value, _: &Value, _: &Context<'_>, diagnostics: &mut Diagnostics) {
    let name = state.field("name").clone();
    state.set("id", name);
    for prebuilds in state.field("prebuilds").items() {
        for scheduling in prebuilds.field("scheduling").items() {
            let crons: Vec<_> = scheduling
                .field("schedule")
                .items()
                .iter()
                .map(|item| item.field("cron").text_or_empty())
                .collect();
            if let Err(error) = check_overlaps(&crons) {
                diagnostics.error(Path::of("prebuilds"), format!("schedules of prebuilds: {error}"), "");
            }
        }
    }
}

/// A schedule alone is not compared with anything, so it may also say what cannot be compared.
fn check_overlaps(crons: &[&str]) -> Result<(), overlap::Error> {
    if crons.len() < 2 {
        return Ok(());
    }
    let schedules = crons.iter().map(|cron| Schedule::split(cron)).collect::<Result<Vec<_>, _>>()?;
    for (index, first) in schedules.iter().enumerate() {
        for (second, cron) in schedules.iter().zip(crons).skip(index + 1) {
            if first.overlaps(second)? {
                return Err(overlap::Error::Overlap(crons[index].to_owned(), (*cron).to_owned()));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_zones_and_hours() {
        let fine = |verdict| matches!(verdict, CheckResult::Passed);
        assert!([0, 3600, 31_536_000].map(ttl).into_iter().all(fine));
        assert!(![-1, 1, 1800, 31_536_001].map(ttl).into_iter().any(fine));
        assert!(
            ["UTC", "Europe/Vienna", "America/Argentina/Buenos_Aires", "US/Pacific"]
                .map(time_zone)
                .into_iter()
                .all(fine)
        );
        assert!(!["Mars/Base", "europe/vienna", "Europe"].map(time_zone).into_iter().any(fine));
        assert!(["* 9-17 * * 1-5", "* * * * *", " *  9 * * * "].map(hours).into_iter().all(fine));
        assert!(!["0 9 * * *", "* 24 * * *", "* 9 * *", "* 9 * * * *", ""].map(hours).into_iter().any(fine));
    }

    #[test]
    fn no_two_schedules_may_overlap() {
        assert_eq!(check_overlaps(&["* 8-12 * * 1-5", "* 13-18 * * 1-5", "* * * * 6"]), Ok(()));
        assert_eq!(check_overlaps(&["* */2 * * *"]), Ok(()));
        assert_eq!(check_overlaps(&["* */2 * 1 *", "* */2 * 2 *"]), Ok(()));
        assert!(check_overlaps(&["* */2 * 1 *", "* */2 * 1 *"]).is_err());
        let error = check_overlaps(&["* 8-12 * * 1-5", "* 1 * * *", "* 10 * * 3"]).expect_err("overlap");
        assert_eq!(error, overlap::Error::Overlap("* 8-12 * * 1-5".to_owned(), "* 10 * * 3".to_owned()));
    }
}

//! The flags about the schedules of a template's workspaces, for `create` and `edit`.

use std::time::Duration;

use anyhow::ensure;
use coder_api::templates::{
    AutostartRequirement, AutostopRequirement, CreateTemplateRequest, Template, UpdateTemplateRequest,
    WEEKDAYS,
};

use crate::args::boolean;
use crate::{duration, suggest};

#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ScheduleFlags {
    /// Time after which a started workspace stops by default.
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    default_ttl: Option<Duration>,
    /// By how much activity extends the time until a workspace stops; 0 for not at all.
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    activity_bump: Option<Duration>,
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
    /// Weekdays on which workspaces must stop, in the quiet hours of their owners, separated by commas; `none` for none.
    #[arg(long, value_delimiter = ',', value_name = "WEEKDAYS")]
    autostop_requirement_weekdays: Option<Vec<String>>,
    /// Interval in weeks at which workspaces must stop.
    #[arg(long, value_name = "NUMBER")]
    autostop_requirement_weeks: Option<i64>,
    /// Whether users may choose when their workspaces start automatically.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = boolean, value_name = "BOOL")]
    allow_user_autostart: Option<bool>,
    /// Whether users may choose when their workspaces stop automatically.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = boolean, value_name = "BOOL")]
    allow_user_autostop: Option<bool>,
}

impl ScheduleFlags {
    /// Sets what was given; the rest stays as it is in the template.
    pub(super) fn update(
        &self,
        request: &mut UpdateTemplateRequest,
        template: &Template,
    ) -> anyhow::Result<()> {
        fn set<T>(field: &mut T, given: Option<T>) {
            if let Some(given) = given {
                *field = given;
            }
        }
        set(&mut request.default_ttl_ms, millis(self.default_ttl));
        set(&mut request.activity_bump_ms, millis(self.activity_bump));
        set(&mut request.failure_ttl_ms, millis(self.failure_ttl));
        set(&mut request.time_til_dormant_ms, millis(self.dormancy_threshold));
        set(&mut request.time_til_dormant_autodelete_ms, millis(self.dormancy_auto_deletion));
        set(&mut request.allow_user_autostart, self.allow_user_autostart);
        set(&mut request.allow_user_autostop, self.allow_user_autostop);
        if let Some(requirement) = self.autostart()? {
            request.autostart_requirement = Some(requirement);
        }
        if let Some(requirement) = self.autostop(&template.autostop_requirement)? {
            request.autostop_requirement = Some(requirement);
        }
        Ok(())
    }

    /// Sets what was given; the rest is the server's default.
    pub(super) fn create(&self, request: &mut CreateTemplateRequest) -> anyhow::Result<()> {
        request.default_ttl_ms = millis(self.default_ttl);
        request.activity_bump_ms = millis(self.activity_bump);
        request.failure_ttl_ms = millis(self.failure_ttl);
        request.dormant_ttl_ms = millis(self.dormancy_threshold);
        request.delete_ttl_ms = millis(self.dormancy_auto_deletion);
        request.allow_user_autostart = self.allow_user_autostart;
        request.allow_user_autostop = self.allow_user_autostop;
        request.autostart_requirement = self.autostart()?;
        let weekly = AutostopRequirement { days_of_week: Vec::new(), weeks: 1 };
        request.autostop_requirement = self.autostop(&weekly)?;
        Ok(())
    }

    fn autostart(&self) -> anyhow::Result<Option<AutostartRequirement>> {
        let Some(days) = &self.autostart_requirement_weekdays else { return Ok(None) };
        Ok(Some(AutostartRequirement { days_of_week: weekdays(days)? }))
    }

    fn autostop(&self, before: &AutostopRequirement) -> anyhow::Result<Option<AutostopRequirement>> {
        let (days, weeks) = (&self.autostop_requirement_weekdays, self.autostop_requirement_weeks);
        if days.is_none() && weeks.is_none() {
            return Ok(None);
        }
        let days_of_week = match days {
            Some(days) => weekdays(days)?,
            None => before.days_of_week.clone(),
        };
        Ok(Some(AutostopRequirement { days_of_week, weeks: weeks.unwrap_or(before.weeks) }))
    }
}

fn millis(given: Option<Duration>) -> Option<i64> {
    given.map(|time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
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
            "{day:?} is not a weekday: {near}choose from: {}",
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

    #[test]
    fn a_new_template_gets_what_was_given_only() {
        let flags = ScheduleFlags {
            failure_ttl: Some(Duration::from_secs(60)),
            autostop_requirement_weekdays: Some(vec!["monday".to_owned()]),
            ..ScheduleFlags::default()
        };
        let mut request = CreateTemplateRequest::default();
        flags.create(&mut request).unwrap();
        let days = AutostopRequirement { days_of_week: vec!["monday".to_owned()], weeks: 1 };
        assert_eq!((request.failure_ttl_ms, request.autostop_requirement.take()), (Some(60_000), Some(days)));
        request.failure_ttl_ms = None;
        assert_eq!(request, CreateTemplateRequest::default());
    }
}

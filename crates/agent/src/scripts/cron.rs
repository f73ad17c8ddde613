//! When a script with a schedule runs: five or six fields, the seconds first, in the time zone of the agent.

use std::sync::Arc;
use std::time::Duration;

use coder_wire::messages::coder::agent::v2::timing::Stage;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::run;
use crate::log_queue::Level;
use crate::manifest::{Manifest, Script};
use crate::state::AgentState;
use crate::time_zone;

/// A clock that jumps is noticed after this time at the latest.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Reads a schedule. Templates are written for six fields: second, minute, hour, day of month, month, day of week, of which the last may be
/// missing.
fn parse(text: &str) -> Result<Cron, croner::errors::CronError> {
    let text = text.trim();
    let parser = CronParser::builder().seconds(Seconds::Required).year(Year::Disallowed).build();
    if text.split_whitespace().count() == 5 { parser.parse(&format!("{text} *")) } else { parser.parse(text) }
}

/// The next instant of a schedule after `now`.
fn next(cron: &Cron, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    cron.find_next_occurrence(&now.to_zoned(zone.clone()), false).ok().map(|next| next.timestamp())
}

/// Runs a script by its schedule. A run does not begin while the one before goes on.
pub(super) async fn follow(state: &Arc<AgentState>, manifest: &Arc<Manifest>, script: &Script) {
    let clock = &state.config.clock;
    let cron = match parse(&script.cron) {
        Ok(cron) => cron,
        Err(error) => {
            let text =
                format!("the schedule {:?} cannot be read, so the script does not run: {error}", script.cron);
            tracing::warn!(script = script.name, "{text}");
            state.logs.push(script.log_source, clock.now(), Level::Error, text.as_bytes());
            state.logs.finish(script.log_source, clock.now());
            return;
        }
    };
    let (zone, problem) = time_zone::find(state.config.variable("TZ"));
    if let Some(problem) = problem {
        tracing::warn!(script = script.name, "{problem}; schedules are in UTC");
    }
    let mut after = clock.now();
    while let Some(at) = next(&cron, after, &zone) {
        loop {
            let left = at.duration_since(clock.now());
            let Ok(left) = Duration::try_from(left) else { break };
            if left.is_zero() {
                break;
            }
            tokio::time::sleep(left.min(CHECK_INTERVAL)).await;
        }
        run::run(state, manifest, script, Stage::Cron).await;
        after = clock.now().max(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schedule: &str, now: &str, want: &str) {
        let cron = parse(schedule).unwrap();
        let next = next(&cron, now.parse().unwrap(), &TimeZone::UTC);
        assert_eq!(next, Some(want.parse().unwrap()), "{schedule}");
    }

    /// Each day at nine, over the change to summer time.
    #[test]
    fn schedule_is_in_the_time_zone_of_the_agent() {
        let (zone, _) = time_zone::find(Some("CET-1CEST,M3.5.0,M10.5.0/3".into()));
        let cron = parse("0 0 9 * * *").unwrap();
        let first = next(&cron, "2026-03-28T07:00:00Z".parse().unwrap(), &zone).unwrap();
        let second = next(&cron, first, &zone).unwrap();
        assert_eq!(
            [first, second].map(|at| at.to_string()),
            ["2026-03-28T08:00:00Z", "2026-03-29T07:00:00Z"]
        );
    }

    /// agent 2.6.
    #[test]
    fn seconds_come_first_and_the_day_of_week_may_be_missing() {
        check("0 30 9 * * 1-5", "2026-11-20T10:00:00Z", "2026-11-23T09:30:00Z");
        check("*/10 * * * * *", "2026-11-20T10:00:05Z", "2026-11-20T10:00:10Z");
        check("15 5 * * *", "2026-11-20T10:05:15Z", "2026-11-20T11:05:15Z");
        check("0 0 0 29 2 *", "2026-03-01T00:00:00Z", "2028-02-29T00:00:00Z");
    }

    #[test]
    fn malformed_schedules_are_refused() {
        for text in ["", "* * *", "61 * * * * *", "* * * * * * *", "often"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}

//! When workspaces start, stop, become dormant and are deleted without a person (docs/schedules.md). All rules are functions of
//! facts and an instant, so a clock that jumps, a restart and a second server change nothing.

pub mod activity;
pub mod cron;
pub mod deadline;
pub mod decide;
pub mod rules;
pub mod weekdays;
pub mod zones;

pub use cron::Schedule;
pub use rules::TemplateRules;
pub use weekdays::Weekdays;

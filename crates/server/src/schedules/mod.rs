//! Builds that no person requests: what a workspace's schedule, its template and its use make due (docs/schedules.md). The rules
//! are in `coder_domain::schedule`; the task is `tasks/schedules.rs`.
//!
//! | file | question |
//! | --- | --- |
//! | `perform.rs` | what is due for one workspace, and doing it |
//! | `deadlines.rs` | when a workspace stops: at the end of a start, with activity, in quiet hours |

pub mod deadlines;
pub mod perform;

use coder_domain::schedule::Schedule;
use coder_domain::schedule::deadline;
use coder_domain::{Timestamp, ids::UserId};
use coder_store::templates::Settings;
use coder_store::workspaces::Workspace;

/// The schedule of a workspace. One that an older server stored and that this one cannot read is ignored.
#[must_use]
pub fn autostart(text: Option<&str>) -> Option<Schedule> {
    text.and_then(|text| Schedule::weekly(text).ok())
}

/// When a workspace starts next by its schedule, for people.
#[must_use]
pub fn next_start(workspace: &Workspace, settings: &Settings, now: Timestamp) -> Option<Timestamp> {
    if workspace.dormant_at.is_some() || workspace.deleted || workspace.owner_id == UserId::PREBUILDS {
        return None;
    }
    let schedule = autostart(workspace.autostart_schedule.as_deref())?;
    deadline::next_autostart(&settings.schedule_rules(), &schedule, now)
}

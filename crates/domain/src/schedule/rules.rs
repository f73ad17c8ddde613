//! What a template says about the schedules of its workspaces.

use jiff::SignedDuration;

use super::weekdays::Weekdays;

/// The rules of a template. A duration of zero means never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateRules {
    /// The time to live of workspaces whose owners may not choose it.
    pub default_ttl: SignedDuration,
    /// By how much activity extends a workspace.
    pub activity_bump: SignedDuration,
    /// After which a workspace whose start failed is stopped.
    pub failure_ttl: SignedDuration,
    /// Without use for so long, a workspace becomes dormant.
    pub time_til_dormant: SignedDuration,
    /// Dormant for so long, a workspace is deleted.
    pub time_til_deletion: SignedDuration,
    /// Days on which workspaces may start by schedule.
    pub autostart_days: Weekdays,
    /// Days on which workspaces must stop, in the owner's quiet hours.
    pub autostop_days: Weekdays,
    /// In every which week they must stop.
    pub autostop_weeks: i64,
    pub allow_user_autostart: bool,
    pub allow_user_autostop: bool,
}

impl TemplateRules {
    /// The time to live of a workspace that asks for `own`.
    #[must_use]
    pub fn time_to_live(&self, own: Option<SignedDuration>) -> Option<SignedDuration> {
        let ttl = if self.allow_user_autostop { own } else { Some(self.default_ttl) };
        ttl.filter(|ttl| ttl.is_positive())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The rules of a new template (http-api 6.2).
    pub(crate) const DEFAULT: TemplateRules = TemplateRules {
        default_ttl: SignedDuration::ZERO,
        activity_bump: SignedDuration::from_hours(1),
        failure_ttl: SignedDuration::ZERO,
        time_til_dormant: SignedDuration::ZERO,
        time_til_deletion: SignedDuration::ZERO,
        autostart_days: Weekdays::ALL,
        autostop_days: Weekdays::NONE,
        autostop_weeks: 1,
        allow_user_autostart: true,
        allow_user_autostop: true,
    };

    #[test]
    fn a_template_that_allows_no_choice_sets_the_time_to_live() {
        let hour = SignedDuration::from_hours(1);
        assert_eq!(DEFAULT.time_to_live(Some(hour)), Some(hour));
        assert_eq!(DEFAULT.time_to_live(None), None);
        let fixed = TemplateRules { allow_user_autostop: false, default_ttl: hour * 2, ..DEFAULT };
        assert_eq!(fixed.time_to_live(Some(hour)), Some(hour * 2));
        assert_eq!(
            TemplateRules { default_ttl: SignedDuration::ZERO, ..fixed }.time_to_live(Some(hour)),
            None
        );
    }
}

//! Settings that are stored and returned but have no effect yet. The response to a request that sets one contains a warning. `docs/operators/limits.md` lists them.

use coder_api::templates::UpdateTemplateRequest;
use coder_api::workspaces::CreateWorkspaceRequest;
use coder_store::templates::Settings;

pub const AUTOSTART: &str =
    "the autostart schedule is stored, but this server does not start workspaces by schedule";
pub const TTL: &str = "the time to live is stored, but this server does not stop workspaces when it is over";
pub const DORMANT: &str =
    "the workspace is marked as dormant, but this server neither stops nor deletes dormant workspaces";
pub const TRIAL: &str = "the request for a trial license is not used, because this server has no licenses";

const DEFAULT_TTL: &str =
    "default_ttl_ms is stored, but this server does not stop workspaces when their time to live is over";
const ACTIVITY_BUMP: &str =
    "activity_bump_ms is stored, but this server does not extend the deadlines of workspaces";
const FAILURE_TTL: &str = "failure_ttl_ms is stored, but this server does not stop failed workspaces";
const TIME_TIL_DORMANT: &str =
    "time_til_dormant_ms is stored, but this server does not make unused workspaces dormant";
const AUTODELETE: &str =
    "time_til_dormant_autodelete_ms is stored, but this server does not delete dormant workspaces";
const AUTOSTOP_DAYS: &str =
    "autostop_requirement is stored, but this server does not stop workspaces by schedule";
const AUTOSTART_DAYS: &str =
    "autostart_requirement is stored, but this server does not start workspaces by schedule";
const CLASSIC: &str = "use_classic_parameter_flow is stored as false, but clients still get the classic form, because \
    this server has no dynamic-parameters endpoint; only the values of builds are evaluated dynamically";
const USED_AT: &str = "update_workspace_last_used_at is not used: no workspace was changed";
const DORMANT_AT: &str = "update_workspace_dormant_at is not used: no workspace was changed";

/// Warnings about a template's settings. Default values cause none.
pub fn of_template(settings: &Settings) -> Vec<&'static str> {
    let base = Settings::default();
    let all = [
        (settings.default_ttl_ms != base.default_ttl_ms, DEFAULT_TTL),
        (settings.activity_bump_ms != base.activity_bump_ms, ACTIVITY_BUMP),
        (settings.failure_ttl_ms != base.failure_ttl_ms, FAILURE_TTL),
        (settings.time_til_dormant_ms != base.time_til_dormant_ms, TIME_TIL_DORMANT),
        (settings.time_til_dormant_autodelete_ms != base.time_til_dormant_autodelete_ms, AUTODELETE),
        (!settings.autostop_days.is_empty(), AUTOSTOP_DAYS),
        (settings.autostart_days.len() != base.autostart_days.len(), AUTOSTART_DAYS),
    ];
    chosen(&all)
}

/// Warnings about a request that creates a template. `classic` is its parameter flow.
pub fn of_new_template(settings: &Settings, classic: Option<bool>) -> Vec<&'static str> {
    let mut found = of_template(settings);
    found.extend((classic == Some(false)).then_some(CLASSIC));
    found
}

/// Warnings about a request that changes a template.
pub fn of_template_update(settings: &Settings, request: &UpdateTemplateRequest) -> Vec<&'static str> {
    let mut found = of_new_template(settings, request.use_classic_parameter_flow);
    found.extend(chosen(&[
        (request.update_workspace_last_used_at, USED_AT),
        (request.update_workspace_dormant_at, DORMANT_AT),
    ]));
    found
}

/// Warnings about a request that creates a workspace, which got this time to live.
pub fn of_new_workspace(request: &CreateWorkspaceRequest, ttl_ms: Option<i64>) -> Vec<&'static str> {
    let has_schedule = request.autostart_schedule.as_ref().is_some_and(|text| !text.is_empty());
    chosen(&[(has_schedule, AUTOSTART), (ttl_ms.is_some(), TTL)])
}

fn chosen(all: &[(bool, &'static str)]) -> Vec<&'static str> {
    all.iter().filter(|(is_set, _)| *is_set).map(|(_, text)| *text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_warn_of_nothing() {
        assert!(of_new_template(&Settings::default(), None).is_empty());
        assert!(of_new_template(&Settings::default(), Some(true)).is_empty());
        assert!(of_new_workspace(&CreateWorkspaceRequest::default(), None).is_empty());
    }

    #[test]
    fn each_setting_warns_for_itself() {
        let base = Settings::default;
        let alone = [
            Settings { default_ttl_ms: 1, ..base() },
            Settings { activity_bump_ms: 1, ..base() },
            Settings { failure_ttl_ms: 1, ..base() },
            Settings { time_til_dormant_ms: 1, ..base() },
            Settings { time_til_dormant_autodelete_ms: 1, ..base() },
            Settings { autostop_days: vec!["monday".to_owned()], ..base() },
            Settings { autostart_days: Vec::new(), ..base() },
        ];
        let mut seen: Vec<_> = alone.iter().flat_map(of_template).collect();
        assert_eq!(seen.len(), alone.len());
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), alone.len());
        let request = UpdateTemplateRequest {
            update_workspace_last_used_at: true,
            update_workspace_dormant_at: true,
            use_classic_parameter_flow: Some(false),
            ..UpdateTemplateRequest::default()
        };
        assert_eq!(of_template_update(&base(), &request), [CLASSIC, USED_AT, DORMANT_AT]);
    }
}

//! Removes from messages what a server of an older protocol version does not know (wire-protocol 6).

use std::borrow::Cow;

use coder_domain::protocol::{ApiVersion, CURRENT};
use coder_wire::messages::provisioner::{AiTask, Preset, Resource};
use coder_wire::messages::provisionerd as pb;
use pb::completed_job::Type;

/// A result with only the fields of `protocol`. Versions below 1.7 (v2.24) are not supported.
pub(crate) fn completed(request: &pb::CompletedJob, protocol: ApiVersion) -> Cow<'_, pb::CompletedJob> {
    if protocol >= CURRENT {
        return Cow::Borrowed(request);
    }
    let mut request = request.clone();
    let minor = protocol.minor;
    match &mut request.r#type {
        Some(Type::TemplateImport(import)) => {
            if minor < 9 {
                import.has_external_agents = false;
            }
            if minor < 8 {
                import.presets.iter_mut().for_each(bare);
            }
            resources(import.start_resources.iter_mut().chain(&mut import.stop_resources), minor);
        }
        Some(Type::TemplateDryRun(dry_run)) => resources(dry_run.resources.iter_mut(), minor),
        Some(Type::WorkspaceBuild(build)) => {
            resources(build.resources.iter_mut(), minor);
            if minor < 11 {
                build.ai_tasks.iter_mut().for_each(without_app);
            }
        }
        None => {}
    }
    Cow::Owned(request)
}

fn bare(preset: &mut Preset) {
    preset.description.clear();
    preset.icon.clear();
}

/// Before 1.10 a task used the app of its sidebar.
fn without_app(task: &mut AiTask) {
    task.app_id.clear();
}

fn resources<'a>(resources: impl Iterator<Item = &'a mut Resource>, minor: u32) {
    if minor >= 10 {
        return;
    }
    for app in resources.flat_map(|resource| &mut resource.agents).flat_map(|agent| &mut agent.apps) {
        app.tooltip.clear();
    }
}

#[cfg(test)]
mod tests {
    use coder_wire::messages::provisioner::{Agent, App};

    use super::*;

    #[test]
    fn each_version_gets_what_it_knows() {
        let app = App { tooltip: "t".to_owned(), ..App::default() };
        let agent = Agent { apps: vec![app], ..Agent::default() };
        let resource = Resource { agents: vec![agent], ..Resource::default() };
        let preset = Preset { description: "d".to_owned(), ..Preset::default() };
        let import = pb::completed_job::TemplateImport {
            start_resources: vec![resource.clone()],
            presets: vec![preset],
            has_external_agents: true,
            ..Default::default()
        };
        let request =
            pb::CompletedJob { r#type: Some(Type::TemplateImport(import)), ..pb::CompletedJob::default() };
        let check = |minor, wanted: [bool; 3]| {
            let sent = completed(&request, ApiVersion { major: 1, minor });
            let Some(Type::TemplateImport(import)) = &sent.r#type else { panic!("another result") };
            let tooltip = !import.start_resources[0].agents[0].apps[0].tooltip.is_empty();
            let description = !import.presets[0].description.is_empty();
            assert_eq!([tooltip, import.has_external_agents, description], wanted, "1.{minor}");
        };
        check(14, [true; 3]);
        check(10, [true; 3]);
        check(9, [false, true, true]);
        check(8, [false, false, true]);
        check(7, [false; 3]);

        let task = AiTask { id: "i".to_owned(), app_id: "a".to_owned(), ..AiTask::default() };
        let build = pb::completed_job::WorkspaceBuild { ai_tasks: vec![task], ..Default::default() };
        let request =
            pb::CompletedJob { r#type: Some(Type::WorkspaceBuild(build)), ..pb::CompletedJob::default() };
        let sent = completed(&request, ApiVersion { major: 1, minor: 10 });
        let Some(Type::WorkspaceBuild(build)) = &sent.r#type else { panic!("another result") };
        assert_eq!(build.ai_tasks[0].app_id, "");
    }
}

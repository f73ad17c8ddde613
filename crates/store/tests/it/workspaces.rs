//! Workspaces, builds, states, resources, agents and apps.

use coder_domain::build::{BuildReason, Transition};
use coder_domain::ids::{AppId, BuildId, JobId, ResourceId, WorkspaceId};
use coder_domain::job::Type;
use coder_domain::secret::Secret;
use coder_domain::tags::TagSet;
use coder_store::templates::Template;
use coder_store::workspaces::agents::{Agent, App, AppDefinition, Definition, Script};
use coder_store::workspaces::builds::{BuildPage, NewBuild};
use coder_store::workspaces::resources::{Metadata, Module, Resource};
use coder_store::workspaces::{self, agents, builds, resources};
use coder_store::workspaces::{Workspace, WorkspaceFilter};
use coder_store::{Error, StatementCounts, jobs, templates};

use crate::fixture::{Fixture, at, on_both_engines};
use crate::templates::{new_template, new_version};

on_both_engines!(
    a_workspace_is_found_listed_and_changed,
    names_are_free_after_deletion,
    builds_are_numbered_and_one_at_a_time,
    states_belong_to_builds_and_are_copied,
    resources_agents_and_apps,
);

pub(crate) async fn new_workspace(fixture: &Fixture, template: &Template, name: &str) -> Workspace {
    let workspace = Workspace {
        id: WorkspaceId::random(),
        organization_id: fixture.organization,
        owner_id: fixture.user,
        template_id: template.id,
        name: name.to_owned(),
        autostart_schedule: None,
        ttl_ms: Some(60_000),
        automatic_updates: "never".to_owned(),
        favorite: false,
        created_at: at(1),
        updated_at: at(1),
        last_used_at: at(1),
        dormant_at: None,
        deleting_at: None,
        schedule_note: String::new(),
        deleted: false,
    };
    fixture.store.write(async |tx| workspaces::insert(tx, &workspace).await).await.unwrap();
    workspace
}

pub(crate) async fn new_build(
    fixture: &Fixture,
    template: &Template,
    workspace: WorkspaceId,
    transition: Transition,
) -> Result<(BuildId, JobId, i64), Error> {
    let id = BuildId::random();
    let job = jobs::NewJob {
        kind: Type::WorkspaceBuild,
        template_version_id: Some(template.active_version_id),
        workspace_build_id: Some(id),
        ..fixture.new_job(&TagSet::untagged())
    };
    let build = NewBuild {
        id,
        workspace_id: workspace,
        template_version_id: template.active_version_id,
        template_version_preset_id: None,
        job_id: job.id,
        initiator_id: fixture.user,
        transition,
        reason: BuildReason::Initiator,
    };
    let now = fixture.tick();
    let number = fixture
        .store
        .write(async |tx| {
            jobs::insert(tx, &job, now).await?;
            // The new job itself does not prevent its build, because the build does not exist yet.
            builds::insert(tx, &build, now).await
        })
        .await?;
    Ok((id, job.id, number))
}

pub(crate) async fn template(fixture: &Fixture) -> Template {
    let version = new_version(fixture, "v1").await;
    let template = new_template(fixture, "docker", &version).await;
    end(fixture, version.job_id).await;
    template
}

pub(crate) async fn end(fixture: &Fixture, job: JobId) {
    let mut tx = fixture.store.single().await.unwrap();
    jobs::finish_unclaimed(&mut tx, job, "", fixture.tick()).await.unwrap();
}

async fn a_workspace_is_found_listed_and_changed(fixture: Fixture) {
    let template = template(&fixture).await;
    let mut workspace = new_workspace(&fixture, &template, "Dev").await;
    let mut tx = fixture.store.begin().await.unwrap();
    assert_eq!(workspaces::find(&mut tx, workspace.id).await.unwrap().unwrap(), workspace);
    let found = workspaces::find_by_name(&mut tx, fixture.user, "dEV", false).await.unwrap();
    assert_eq!(found.as_ref(), Some(&workspace));
    workspaces::update_name(&mut tx, workspace.id, "Prod", at(3)).await.unwrap();
    workspaces::update_used(&mut tx, workspace.id, at(4)).await.unwrap();
    workspace.name = "Prod".to_owned();
    workspace.last_used_at = at(4);
    workspace.autostart_schedule = Some("CRON_TZ=UTC 0 9 * * 1-5".to_owned());
    workspace.ttl_ms = None;
    workspace.dormant_at = Some(at(5));
    workspace.favorite = true;
    workspace.updated_at = at(5);
    workspaces::update(&mut tx, &workspace).await.unwrap();
    let text = |text: &str| Some(text.to_owned());
    let cases = [
        (WorkspaceFilter::default(), true),
        (
            WorkspaceFilter {
                owner_id: Some(fixture.user),
                ids: Some(vec![workspace.id]),
                ..WorkspaceFilter::default()
            },
            true,
        ),
        (
            WorkspaceFilter {
                owner_name: text("ADA"),
                template_name: text("Docker"),
                ..WorkspaceFilter::default()
            },
            true,
        ),
        (WorkspaceFilter { owner_name: text("ad"), ..WorkspaceFilter::default() }, false),
        (WorkspaceFilter { name: text("RO"), ..WorkspaceFilter::default() }, true),
        (WorkspaceFilter { name: text("dev"), ..WorkspaceFilter::default() }, false),
        (WorkspaceFilter { dormant: Some(false), ..WorkspaceFilter::default() }, false),
        (
            WorkspaceFilter {
                last_used_after: Some(at(4)),
                last_used_before: Some(at(4)),
                ..WorkspaceFilter::default()
            },
            true,
        ),
        (WorkspaceFilter { last_used_after: Some(at(5)), ..WorkspaceFilter::default() }, false),
        (WorkspaceFilter { template_ids: Some(vec![template.id]), ..WorkspaceFilter::default() }, true),
        (WorkspaceFilter { organization_ids: Some(vec![]), ..WorkspaceFilter::default() }, false),
    ];
    for (filter, found) in cases {
        let listed = workspaces::list(&mut tx, &filter).await.unwrap();
        assert_eq!(listed, if found { vec![workspace.clone()] } else { vec![] }, "{filter:?}");
    }
    assert_eq!(workspaces::count_of_owner(&mut tx, fixture.user).await.unwrap(), 1);
    assert!(templates::delete(&mut tx, template.id, at(9)).await.is_err(), "workspaces still use it");
    tx.commit().await.unwrap();
}

async fn names_are_free_after_deletion(fixture: Fixture) {
    let template = template(&fixture).await;
    let first = new_workspace(&fixture, &template, "dev").await;
    let again = Workspace { id: WorkspaceId::random(), name: "DEV".to_owned(), ..first.clone() };
    let taken = workspaces::insert(&mut fixture.store.begin().await.unwrap(), &again).await.unwrap_err();
    assert!(taken.is_conflict_on("workspaces", "name_lower"), "{taken:?}");
    let mut tx = fixture.store.single().await.unwrap();
    workspaces::delete(&mut tx, first.id, at(5)).await.unwrap();
    assert!(workspaces::delete(&mut tx, first.id, at(5)).await.is_err());
    assert_eq!(workspaces::find_by_name(&mut tx, fixture.user, "dev", false).await.unwrap(), None);
    assert_eq!(
        workspaces::find_by_name(&mut tx, fixture.user, "dev", true).await.unwrap().unwrap().id,
        first.id
    );
    workspaces::insert(&mut tx, &again).await.unwrap();
    assert_eq!(
        workspaces::find_by_name(&mut tx, fixture.user, "dev", true).await.unwrap().unwrap().id,
        again.id
    );
    tx.commit().await.unwrap();
}

async fn builds_are_numbered_and_one_at_a_time(fixture: Fixture) {
    let template = template(&fixture).await;
    let workspace = new_workspace(&fixture, &template, "dev").await.id;
    let (first, job, number) = new_build(&fixture, &template, workspace, Transition::Start).await.unwrap();
    assert_eq!(number, 1);
    let refused = new_build(&fixture, &template, workspace, Transition::Stop).await;
    assert!(matches!(refused, Err(Error::Stale { .. })), "{refused:?}");
    end(&fixture, job).await;
    let (second, _, number) = new_build(&fixture, &template, workspace, Transition::Stop).await.unwrap();
    assert_eq!(number, 2);

    let mut tx = fixture.store.begin().await.unwrap();
    let build = builds::get(&mut tx, second).await.unwrap();
    assert_eq!(
        (build.transition, build.reason, build.daily_cost),
        (Transition::Stop, BuildReason::Initiator, 0)
    );
    assert_eq!(builds::find_by_number(&mut tx, workspace, 1).await.unwrap().unwrap().id, first);
    assert_eq!(builds::find_by_job(&mut tx, build.job_id).await.unwrap().unwrap().id, second);
    assert_eq!(builds::find_latest(&mut tx, workspace).await.unwrap().unwrap().id, second);
    assert_eq!(builds::list_latest(&mut tx, &[workspace]).await.unwrap(), [build]);
    let ids = |listed: Vec<builds::Build>| listed.into_iter().map(|build| build.id).collect::<Vec<_>>();
    assert_eq!(ids(builds::list(&mut tx, workspace, BuildPage::default()).await.unwrap()), [second, first]);
    let page = BuildPage { after: Some(second), limit: 1, ..BuildPage::default() };
    assert_eq!(ids(builds::list(&mut tx, workspace, page).await.unwrap()), [first]);
    builds::update_daily_cost(&mut tx, first, 5, at(9)).await.unwrap();
    builds::update_flags(&mut tx, first, false, true, at(9)).await.unwrap();
    let build = builds::find_many(&mut tx, &[first]).await.unwrap().remove(0);
    assert_eq!((build.daily_cost, build.has_ai_task, build.has_external_agent), (5, Some(false), Some(true)));
    let parameters = [("size".to_owned(), "10".to_owned()), ("a".to_owned(), String::new())].into();
    builds::insert_parameters(&mut tx, first, &parameters).await.unwrap();
    assert_eq!(builds::list_parameters(&mut tx, first).await.unwrap(), parameters);
    tx.commit().await.unwrap();
}

async fn states_belong_to_builds_and_are_copied(fixture: Fixture) {
    let template = template(&fixture).await;
    let workspace = new_workspace(&fixture, &template, "dev").await.id;
    let (first, job, _) = new_build(&fixture, &template, workspace, Transition::Start).await.unwrap();
    end(&fixture, job).await;
    let (second, _, _) = new_build(&fixture, &template, workspace, Transition::Stop).await.unwrap();
    let mut tx = fixture.store.begin().await.unwrap();
    assert_eq!(builds::find_state(&mut tx, first).await.unwrap(), None);
    assert!(!builds::copy_previous_state(&mut tx, second).await.unwrap(), "nothing to copy");
    builds::update_state(&mut tx, first, b"one\0".to_vec()).await.unwrap();
    assert!(builds::copy_previous_state(&mut tx, second).await.unwrap());
    assert_eq!(builds::find_state(&mut tx, second).await.unwrap().unwrap(), b"one\0");
    builds::update_state(&mut tx, second, b"two".to_vec()).await.unwrap();
    assert!(!builds::copy_previous_state(&mut tx, second).await.unwrap(), "has its own");
    builds::update_state(&mut tx, second, Vec::new()).await.unwrap();
    assert!(builds::copy_previous_state(&mut tx, second).await.unwrap(), "an empty one counts as none");
    builds::update_state(&mut tx, second, b"two".to_vec()).await.unwrap();
    builds::copy_state(&mut tx, first, second).await.unwrap();
    assert_eq!(builds::find_state(&mut tx, first).await.unwrap().unwrap(), b"two");
    assert!(!builds::copy_previous_state(&mut tx, first).await.unwrap(), "the first has none before it");
    tx.commit().await.unwrap();
}

fn resource(job_id: JobId, position: i64, transition: Transition) -> Resource {
    Resource {
        id: ResourceId::random(),
        job_id,
        position,
        transition,
        kind: "docker_container".to_owned(),
        name: format!("workspace{position}"),
        hide: position == 1,
        icon: String::new(),
        instance_type: String::new(),
        daily_cost: 3,
        module_path: String::new(),
        metadata: vec![Metadata { key: "token".to_owned(), value: "s".to_owned(), sensitive: true }],
        created_at: at(1),
    }
}

async fn resources_agents_and_apps(fixture: Fixture) {
    let job = fixture.job(&TagSet::untagged()).await;
    let made = vec![
        resource(job, 0, Transition::Start),
        resource(job, 1, Transition::Start),
        resource(job, 0, Transition::Stop),
    ];
    let token = Secret::new(uuid::Uuid::new_v4().to_string());
    let definition = Definition {
        env: [("A".to_owned(), "1".to_owned())].into(),
        operating_system: "linux".to_owned(),
        scripts: vec![Script { display_name: "Start".to_owned(), run_on_start: true, ..Script::default() }],
        ..Definition::default()
    };
    let reported: Vec<_> = ["main", "dev"]
        .iter()
        .zip(0..)
        .map(|(name, position)| {
            let (token, definition) = (token.clone(), definition.clone());
            Agent::reported(made[1].id, position, (*name).to_owned(), token, definition, at(1 - position))
        })
        .collect();
    let app = |position, slug: &str| App {
        id: AppId::random(),
        agent_id: reported[0].id,
        position,
        slug: slug.to_owned(),
        definition: AppDefinition { sharing_level: "owner".to_owned(), ..AppDefinition::default() },
        health: "disabled".to_owned(),
        created_at: at(1),
    };
    let apps = [app(0, "code"), app(1, "a")];
    let modules = [Module {
        transition: Transition::Start,
        source: "registry".to_owned(),
        version: "1".to_owned(),
        key: "m".to_owned(),
    }];
    let StatementCounts { work: before, round_trips, .. } = fixture.store.statement_counts();
    let mut tx = fixture.store.begin().await.unwrap();
    resources::insert(&mut tx, &made).await.unwrap();
    agents::insert(&mut tx, &reported).await.unwrap();
    agents::insert_apps(&mut tx, &apps).await.unwrap();
    resources::insert_modules(&mut tx, job, &modules).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(fixture.store.statement_counts().work - before, 4, "one statement a list");
    let asked = fixture.store.statement_counts().round_trips - round_trips;
    assert_eq!(
        asked,
        if fixture.store.is_postgres() { 1 } else { 6 },
        "at once where each question is a round trip"
    );

    let mut tx = fixture.store.reader().await.unwrap();
    assert_eq!(resources::list(&mut tx, &[job]).await.unwrap(), made);
    assert_eq!(resources::find(&mut tx, made[1].id).await.unwrap().unwrap(), made[1]);
    assert_eq!(agents::list(&mut tx, &[made[0].id, made[1].id]).await.unwrap(), reported);
    assert_eq!(agents::find(&mut tx, reported[1].id).await.unwrap().unwrap(), reported[1]);
    assert_eq!(agents::list_apps(&mut tx, &[reported[0].id]).await.unwrap(), apps);
    assert_eq!(resources::list_modules(&mut tx, job).await.unwrap(), modules);
    assert!(!format!("{made:?}").contains("\"s\""), "metadata may be sensitive");
    let twice =
        agents::insert_apps(&mut fixture.store.single().await.unwrap(), &[app(2, "a")]).await.unwrap_err();
    assert!(twice.is_conflict_on("workspace_apps", "slug"), "{twice:?}");
    let lonely = [resource(JobId::random(), 0, Transition::Start)];
    let missing = resources::insert(&mut fixture.store.single().await.unwrap(), &lonely).await;
    assert!(matches!(missing, Err(Error::Reference(_))));
}

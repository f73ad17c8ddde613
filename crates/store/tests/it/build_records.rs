//! Rows of builds, and what is read for a new build, for its job and at its end.

use std::collections::BTreeMap;

use coder_domain::build::{BuildReason, Transition};
use coder_domain::ids::{BuildId, JobId, PresetId, TemplateVersionId, WorkspaceId};
use coder_domain::job::Type;
use coder_domain::secret::Secret;
use coder_domain::tags::TagSet;
use coder_store::jobs::assignments;
use coder_store::organizations::{self, Member};
use coder_store::templates::Template;
use coder_store::templates::version_details::{self, Parameter, Preset, Variable};
use coder_store::users::{self, GitSshKey};
use coder_store::workspaces::builds::{self, Build, BuildEnd, BuildPage, Names, NewBuild};
use coder_store::workspaces::{self, Workspace, WorkspaceFilter, build_inputs};
use coder_store::{Error, Tx, files, jobs, quiet_hours};

use crate::fixture::{Fixture, at, on_both_engines};
use crate::workspaces::{end, new_build, new_workspace, template};

on_both_engines!(
    every_field_of_a_build_is_stored,
    pages_of_builds,
    jobs_know_the_names_of_what_they_build,
    a_build_ends_with_its_properties,
    a_build_gets_the_number_that_its_caller_read,
    a_state_is_copied_as_it_was_read,
    the_inputs_of_the_next_build,
    the_parameters_of_the_next_build,
    the_message_of_a_job_is_complete,
    the_end_of_a_job_knows_its_build_and_schedules,
    uses_of_several_workspaces_are_noted_at_once,
);

/// A workspace with this many ended builds.
async fn built(fixture: &Fixture, template: &Template, name: &str, count: usize) -> (Workspace, Vec<Build>) {
    let workspace = new_workspace(fixture, template, name).await;
    let mut made = Vec::new();
    for _ in 0..count {
        let (build, job, _) = new_build(fixture, template, workspace.id, Transition::Start).await.unwrap();
        end(fixture, job).await;
        made.push(builds::get(&mut fixture.store.reader().await.unwrap(), build).await.unwrap());
    }
    (workspace, made)
}

/// A preset of the template's version.
async fn preset(fixture: &Fixture, template: &Template) -> PresetId {
    let preset = Preset {
        id: PresetId::random(),
        name: "large".to_owned(),
        is_default: false,
        description: String::new(),
        icon: String::new(),
        desired_instances: None,
        parameters: BTreeMap::new(),
        prebuild: serde_json::Value::Null,
    };
    let (version, presets) = (template.active_version_id, [preset]);
    let insert = async |tx: &mut Tx| version_details::insert_presets(tx, version, &presets).await;
    fixture.store.write(insert).await.unwrap();
    presets[0].id
}

/// The job and the row of a build that is not inserted yet.
fn prepared(
    fixture: &Fixture,
    template: &Template,
    workspace: WorkspaceId,
    preset: PresetId,
) -> (jobs::NewJob, NewBuild) {
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
        template_version_preset_id: Some(preset),
        job_id: job.id,
        initiator_id: fixture.user,
        transition: Transition::Delete,
        reason: BuildReason::Autostop,
    };
    (job, build)
}

async fn every_field_of_a_build_is_stored(fixture: Fixture) {
    let template = template(&fixture).await;
    let (workspace, earlier) = built(&fixture, &template, "dev", 1).await;
    let (other, others) = built(&fixture, &template, "other", 1).await;
    let (job, new) = prepared(&fixture, &template, workspace.id, preset(&fixture, &template).await);
    let number = fixture
        .store
        .write(async |tx| {
            jobs::insert(tx, &job, at(70)).await?;
            builds::insert(tx, &new, at(71)).await
        })
        .await
        .unwrap();
    let expected = Build {
        id: new.id,
        workspace_id: workspace.id,
        build_number: 2,
        template_version_id: new.template_version_id,
        template_version_preset_id: new.template_version_preset_id,
        job_id: job.id,
        initiator_id: fixture.user,
        transition: Transition::Delete,
        reason: BuildReason::Autostop,
        daily_cost: 0,
        deadline_at: None,
        max_deadline_at: None,
        has_ai_task: None,
        has_external_agent: None,
        created_at: at(71),
        updated_at: at(71),
    };
    assert_eq!(number, 2);
    let mut tx = fixture.store.reader().await.unwrap();
    let found = Some(expected.clone());
    assert_eq!(builds::get(&mut tx, new.id).await.unwrap(), expected);
    assert_eq!(builds::find(&mut tx, new.id).await.unwrap(), found);
    assert_eq!(builds::find_by_job(&mut tx, job.id).await.unwrap(), found);
    assert_eq!(builds::find_by_number(&mut tx, workspace.id, 2).await.unwrap(), found);
    assert_eq!(builds::find_latest(&mut tx, workspace.id).await.unwrap(), found);
    let mut latest = builds::list_latest(&mut tx, &[workspace.id, other.id]).await.unwrap();
    latest.sort_by_key(|build| build.created_at);
    assert_eq!(latest, [others[0].clone(), expected.clone()]);
    let ids = [new.id, earlier[0].id, BuildId::random()];
    let mut many = builds::find_many(&mut tx, &ids).await.unwrap();
    many.sort_by_key(|build| build.build_number);
    assert_eq!(many, [earlier[0].clone(), expected]);

    assert!(builds::get(&mut tx, BuildId::random()).await.unwrap_err().is_not_found());
    assert_eq!(builds::find(&mut tx, BuildId::random()).await.unwrap(), None);
    assert_eq!(builds::find_by_job(&mut tx, JobId::random()).await.unwrap(), None);
    assert_eq!(builds::find_by_number(&mut tx, workspace.id, 3).await.unwrap(), None);
    assert_eq!(builds::find_latest(&mut tx, WorkspaceId::random()).await.unwrap(), None);
    assert_eq!(builds::list_latest(&mut tx, &[]).await.unwrap(), []);
}

async fn pages_of_builds(fixture: Fixture) {
    let template = template(&fixture).await;
    let (workspace, made) = built(&fixture, &template, "dev", 4).await;
    built(&fixture, &template, "other", 1).await;
    let mut tx = fixture.store.reader().await.unwrap();
    let all = BuildPage::default();
    for (page, numbers) in [
        (all, &[4, 3, 2, 1][..]),
        (BuildPage { since: Some(made[2].created_at), ..all }, &[4, 3]),
        (BuildPage { after: Some(made[2].id), ..all }, &[2, 1]),
        (BuildPage { after: Some(made[3].id), limit: 2, ..all }, &[3, 2]),
        (BuildPage { limit: 1, ..all }, &[4]),
        (BuildPage { offset: 3, ..all }, &[1]),
        (BuildPage { limit: 2, offset: 1, ..all }, &[3, 2]),
    ] {
        let listed = builds::list(&mut tx, workspace.id, page).await.unwrap();
        let found: Vec<_> = listed.iter().map(|build| build.build_number).collect();
        assert_eq!(found, numbers, "{page:?}");
    }
}

async fn jobs_know_the_names_of_what_they_build(fixture: Fixture) {
    let template = template(&fixture).await;
    let (_, one) = built(&fixture, &template, "one", 1).await;
    let (_, two) = built(&fixture, &template, "two", 2).await;
    let import = fixture.job(&TagSet::untagged()).await;
    let mut tx = fixture.store.reader().await.unwrap();
    let asked = [one[0].job_id, two[1].job_id, import];
    let names = |workspace: &str| Names { workspace: workspace.to_owned(), owner: "ada".to_owned() };
    let expected: BTreeMap<_, _> = [(asked[0], names("one")), (asked[1], names("two"))].into();
    assert_eq!(builds::list_names(&mut tx, &asked).await.unwrap(), expected);
    assert_eq!(builds::list_names(&mut tx, &[import]).await.unwrap(), BTreeMap::new());
}

async fn a_build_ends_with_its_properties(fixture: Fixture) {
    let template = template(&fixture).await;
    let (_, made) = built(&fixture, &template, "dev", 2).await;
    let mut tx = fixture.store.single().await.unwrap();
    let end = BuildEnd {
        has_ai_task: true,
        has_external_agent: false,
        deadline_at: Some(at(500)),
        max_deadline_at: Some(at(600)),
    };
    builds::update_ended(&mut tx, made[1].id, end, at(90)).await.unwrap();
    let first = Build {
        has_ai_task: Some(true),
        has_external_agent: Some(false),
        deadline_at: Some(at(500)),
        max_deadline_at: Some(at(600)),
        updated_at: at(90),
        ..made[1].clone()
    };
    assert_eq!(builds::get(&mut tx, made[1].id).await.unwrap(), first);
    let end =
        BuildEnd { has_ai_task: false, has_external_agent: true, deadline_at: None, max_deadline_at: None };
    builds::update_ended(&mut tx, made[1].id, end, at(91)).await.unwrap();
    let second =
        Build { has_ai_task: Some(false), has_external_agent: Some(true), updated_at: at(91), ..first };
    assert_eq!(builds::get(&mut tx, made[1].id).await.unwrap(), second, "none changes no deadline");
    builds::update_daily_cost(&mut tx, made[1].id, 7, at(92)).await.unwrap();
    builds::update_flags(&mut tx, made[1].id, true, false, at(93)).await.unwrap();
    let third = Build {
        daily_cost: 7,
        has_ai_task: Some(true),
        has_external_agent: Some(false),
        updated_at: at(93),
        ..second
    };
    assert_eq!(builds::get(&mut tx, made[1].id).await.unwrap(), third);
    assert_eq!(builds::get(&mut tx, made[0].id).await.unwrap(), made[0]);
    let missing = BuildId::random();
    for result in [
        builds::update_ended(&mut tx, missing, end, at(92)).await,
        builds::update_daily_cost(&mut tx, missing, 7, at(92)).await,
        builds::update_flags(&mut tx, missing, true, true, at(92)).await,
    ] {
        assert!(matches!(result, Err(Error::Stale { .. })), "{result:?}");
    }
}

async fn a_build_gets_the_number_that_its_caller_read(fixture: Fixture) {
    let template = template(&fixture).await;
    let (workspace, _) = built(&fixture, &template, "dev", 2).await;
    let preset = preset(&fixture, &template).await;
    let insert = async |number| {
        let (job, new) = prepared(&fixture, &template, workspace.id, preset);
        let inserted = fixture.store.write(async |tx| {
            jobs::insert(tx, &job, at(70)).await?;
            builds::insert_numbered(tx, &new, number, at(71)).await
        });
        inserted.await.map(|()| (new, job.id))
    };
    let taken = insert(2).await.unwrap_err();
    assert!(taken.is_conflict_on("workspace_builds", "build_number"), "{taken:?}");
    let (new, job) = insert(3).await.unwrap();
    let found = builds::get(&mut fixture.store.reader().await.unwrap(), new.id).await.unwrap();
    assert_eq!((found.build_number, found.job_id, found.created_at), (3, job, at(71)));
    assert_eq!((found.transition, found.reason), (new.transition, new.reason));
    assert_eq!(found.template_version_preset_id, new.template_version_preset_id);
    let refused = insert(4).await;
    assert!(matches!(refused, Err(Error::Stale { .. })), "the last one has not ended: {refused:?}");
}

async fn a_state_is_copied_as_it_was_read(fixture: Fixture) {
    let template = template(&fixture).await;
    let (workspace, made) = built(&fixture, &template, "dev", 2).await;
    let [from, to] = [made[0].id, made[1].id];
    let mut tx = fixture.store.single().await.unwrap();
    let previous = build_inputs::find(&mut tx, workspace.id).await.unwrap().unwrap().previous;
    assert_eq!(previous.last_state_sealed, None);
    builds::copy_known_state(&mut tx, to, from, None).await.unwrap();
    assert_eq!(builds::find_state(&mut tx, to).await.unwrap(), None);
    builds::copy_state(&mut tx, to, from).await.unwrap();
    assert_eq!(builds::find_state(&mut tx, to).await.unwrap(), None, "there is nothing to copy");
    let missing = builds::copy_known_state(&mut tx, to, from, Some(false)).await;
    assert!(matches!(missing, Err(Error::Stale { .. })), "{missing:?}");
    for (state, sealed) in [("one", Some(false)), ("two", Some(true)), ("three", Some(false))] {
        builds::update_state(&mut tx, from, state.into()).await.unwrap();
        builds::copy_known_state(&mut tx, to, from, sealed).await.unwrap();
        assert_eq!(builds::find_state(&mut tx, to).await.unwrap().as_deref(), Some(state.as_bytes()));
    }
    let previous = build_inputs::find(&mut tx, workspace.id).await.unwrap().unwrap().previous;
    assert_eq!(previous.last_state_sealed, Some(false));
    let key = crate::encryption::with_keys(&fixture, &[1]).await;
    drop(tx);
    let mut tx = key.single().await.unwrap();
    builds::update_state(&mut tx, from, "four".into()).await.unwrap();
    let refused = builds::copy_known_state(&mut tx, to, from, Some(false)).await;
    refused.unwrap();
    assert_eq!(builds::find_state(&mut tx, to).await.unwrap().as_deref(), Some(&b"four"[..]));
    let previous = build_inputs::find(&mut tx, workspace.id).await.unwrap().unwrap().previous;
    assert_eq!(previous.last_state_sealed, Some(true));
    drop(tx);
    // A server without the key sees that the state was encrypted meanwhile.
    let mut tx = fixture.store.single().await.unwrap();
    let refused = builds::copy_known_state(&mut tx, to, from, Some(false)).await;
    assert!(matches!(refused, Err(Error::Stale { .. })), "{refused:?}");
}

async fn the_inputs_of_the_next_build(fixture: Fixture) {
    let template = template(&fixture).await;
    let workspace = new_workspace(&fixture, &template, "dev").await;
    built(&fixture, &template, "other", 2).await;
    let find = async |id| build_inputs::find(&mut fixture.store.reader().await.unwrap(), id).await.unwrap();
    let inputs = find(workspace.id).await.unwrap();
    assert_eq!((&inputs.workspace, &inputs.template), (&workspace, &template));
    assert_eq!((inputs.previous.last, inputs.previous.last_ended_at), (None, None));
    let mut ended = Vec::new();
    for _ in 0..2 {
        let (build, job, _) = new_build(&fixture, &template, workspace.id, Transition::Start).await.unwrap();
        let open = find(workspace.id).await.unwrap().previous;
        assert_eq!((open.last.map(|build| build.id), open.last_ended_at), (Some(build), None));
        end(&fixture, job).await;
        ended.push((build, fixture.get_job(job).await.completed_at));
    }
    let previous = find(workspace.id).await.unwrap().previous;
    let (last, last_ended_at) = ended[1];
    assert_eq!((previous.last.map(|build| build.id), previous.last_ended_at), (Some(last), last_ended_at));
    assert_eq!((previous.owner_name.as_str(), previous.owner_avatar_url.as_str()), ("ada", ""));
    users::delete(&mut fixture.store.single().await.unwrap(), fixture.user, at(99)).await.unwrap();
    let previous = find(workspace.id).await.unwrap().previous;
    assert_eq!((previous.owner_name.as_str(), previous.owner_avatar_url.as_str()), ("", ""));
    assert!(find(WorkspaceId::random()).await.is_none());

    let mut tx = fixture.store.reader().await.unwrap();
    let (version, import) =
        build_inputs::find_version(&mut tx, template.active_version_id).await.unwrap().unwrap();
    let stored = coder_store::templates::versions::get(&mut tx, template.active_version_id).await.unwrap();
    assert_eq!(version, stored);
    assert_eq!(import, jobs::get(&mut tx, version.job_id).await.unwrap());
    assert!(build_inputs::find_version(&mut tx, TemplateVersionId::random()).await.unwrap().is_none());
}

async fn the_parameters_of_the_next_build(fixture: Fixture) {
    let template = template(&fixture).await;
    let (_, made) = built(&fixture, &template, "dev", 2).await;
    let version = template.active_version_id;
    let parameter = |name: &str, order| Parameter { name: name.to_owned(), order, ..Parameter::default() };
    let definitions = [parameter("size", 1), parameter("region", 2)];
    let values: BTreeMap<_, _> = [("size".to_owned(), "10".to_owned())].into();
    let mut tx = fixture.store.single().await.unwrap();
    version_details::insert_parameters(&mut tx, version, &definitions).await.unwrap();
    builds::insert_parameters(&mut tx, made[0].id, &BTreeMap::new()).await.unwrap();
    builds::insert_parameters(&mut tx, made[0].id, &values).await.unwrap();
    for (build, values) in
        [(Some(made[0].id), values.clone()), (Some(made[1].id), BTreeMap::new()), (None, BTreeMap::new())]
    {
        let found = build_inputs::list_parameters(&mut tx, version, build).await.unwrap();
        assert_eq!((found.definitions, found.values), (definitions.to_vec(), values));
        assert!(!found.has_presets);
    }
    version_details::insert_presets(&mut tx, version, &[]).await.unwrap();
    drop(tx);
    preset(&fixture, &template).await;
    let mut tx = fixture.store.reader().await.unwrap();
    assert!(build_inputs::list_parameters(&mut tx, version, None).await.unwrap().has_presets);
    let other = build_inputs::list_parameters(&mut tx, TemplateVersionId::random(), None).await.unwrap();
    assert!(other.definitions.is_empty() && !other.has_presets);
}

async fn the_message_of_a_job_is_complete(fixture: Fixture) {
    let template = template(&fixture).await;
    let (workspace, made) = built(&fixture, &template, "dev", 3).await;
    let roles = vec!["organization-admin".to_owned()];
    let member = Member {
        organization_id: fixture.organization,
        user_id: fixture.user,
        roles: roles.clone(),
        created_at: at(1),
        updated_at: at(1),
    };
    let pair = GitSshKey {
        user_id: fixture.user,
        public_key: "public".to_owned(),
        private_key: Secret::new("private"),
        created_at: at(1),
        updated_at: at(1),
    };
    let get = async |tx: &mut Tx, job| assignments::get(tx, job).await.unwrap();
    let mut tx = fixture.store.single().await.unwrap();
    let context = get(&mut tx, made[1].job_id).await.context.unwrap();
    assert_eq!((context.member_roles, context.public_key, context.has_variables), (None, None, false));
    organizations::insert_member(&mut tx, &member).await.unwrap();
    users::insert_git_ssh_key(&mut tx, &pair).await.unwrap();
    let variable = Variable {
        name: "region".to_owned(),
        description: String::new(),
        kind: "string".to_owned(),
        value: Secret::new("eu"),
        default_value: Secret::new(""),
        required: false,
        sensitive: false,
    };
    version_details::update_variables(&mut tx, template.active_version_id, &[variable]).await.unwrap();
    version_details::update_module_file(&mut tx, template.active_version_id, fixture.file, at(5))
        .await
        .unwrap();
    let parameters = |size: &str| BTreeMap::from([("size".to_owned(), size.to_owned())]);
    for (build, size) in made.iter().zip(["1", "2", "3"]) {
        builds::insert_parameters(&mut tx, build.id, &parameters(size)).await.unwrap();
        builds::update_state(&mut tx, build.id, format!("state {size}").into()).await.unwrap();
    }

    let assignment = get(&mut tx, made[1].job_id).await;
    assert_eq!(assignment.job, jobs::get(&mut tx, made[1].job_id).await.unwrap());
    assert_eq!(assignment.initiator.as_deref(), Some("ada"));
    assert_eq!(assignment.state.as_deref(), Some(&b"state 2"[..]));
    let archive = assignment.archive.unwrap();
    assert_eq!((archive.size, archive.data.as_deref()), (3, Some(&b"tar"[..])));
    let context = assignment.context.unwrap();
    assert_eq!((context.build_id, context.build_number), (made[1].id, 2));
    assert_eq!(context.transition, Transition::Start);
    assert_eq!((context.workspace_id, context.workspace_name.as_str()), (workspace.id, "dev"));
    assert_eq!((context.organization_id, context.owner_id), (fixture.organization, fixture.user));
    assert_eq!((context.username.as_deref(), context.name.as_deref()), (Some("ada"), Some("")));
    assert_eq!(context.email.as_deref(), Some("ada@Example.com"));
    assert_eq!(context.login_type, Some(users::LoginType::Password));
    assert_eq!((&context.site_roles, &context.member_roles), (&Some(vec!["owner".to_owned()]), &Some(roles)));
    assert_eq!(
        (&context.public_key, &context.private_key),
        (&Some(pair.public_key), &Some(pair.private_key))
    );
    assert_eq!((context.template_id, context.template_name.as_str()), (template.id, "docker"));
    assert_eq!((context.version_id, context.version_name.as_str()), (template.active_version_id, "v1"));
    assert_eq!((context.has_variables, context.module_file_id), (true, Some(fixture.file)));
    let (own, earlier) = assignments::list_parameters(&mut tx, &context).await.unwrap();
    assert_eq!((own, earlier), (parameters("2"), parameters("1")));
    let context = get(&mut tx, made[0].job_id).await.context.unwrap();
    let (own, earlier) = assignments::list_parameters(&mut tx, &context).await.unwrap();
    assert_eq!((own, earlier), (parameters("1"), BTreeMap::new()));

    users::delete(&mut tx, fixture.user, at(90)).await.unwrap();
    let context = get(&mut tx, made[1].job_id).await.context.unwrap();
    assert_eq!((context.username, context.email, context.site_roles), (None, None, None));
    drop(tx);

    // A job that builds nothing, with a long archive.
    let long = vec![7; files::PART_BYTES + 1];
    let new = files::NewFile {
        hash: files::hash(&long),
        size: long.len() as u64,
        created_by: fixture.user,
        mimetype: "application/x-tar",
    };
    let mut tx = fixture.store.begin().await.unwrap();
    let (file, _) = files::insert(&mut tx, &new, &mut &long[..], at(1)).await.unwrap();
    let job = jobs::NewJob { file_id: file.id, ..fixture.new_job(&TagSet::untagged()) };
    jobs::insert(&mut tx, &job, at(2)).await.unwrap();
    let assignment = get(&mut tx, job.id).await;
    assert!(assignment.context.is_none() && assignment.state.is_none());
    let archive = assignment.archive.unwrap();
    assert_eq!((archive.size, archive.data), (file.size_bytes, None), "it is read part by part");
    assert!(assignments::get(&mut tx, JobId::random()).await.err().unwrap().is_not_found());
    tx.rollback().await;
}

async fn the_end_of_a_job_knows_its_build_and_schedules(fixture: Fixture) {
    let template = template(&fixture).await;
    let (workspace, made) = built(&fixture, &template, "dev", 2).await;
    let import = fixture.job(&TagSet::untagged()).await;
    let mut tx = fixture.store.single().await.unwrap();
    let scheduled =
        Workspace { autostart_schedule: Some("CRON_TZ=UTC 0 9 * * 1".to_owned()), ..workspace.clone() };
    workspaces::update(&mut tx, &scheduled).await.unwrap();
    quiet_hours::upsert(&mut tx, fixture.user, "CRON_TZ=UTC 0 0 * * *").await.unwrap();
    let found = assignments::find_with_build(&mut tx, made[0].job_id).await.unwrap().unwrap();
    assert_eq!(found.job, jobs::get(&mut tx, made[0].job_id).await.unwrap());
    assert_eq!(found.build, Some(builds::get(&mut tx, made[0].id).await.unwrap()));
    assert_eq!(
        (found.schedules.ttl_ms, &found.schedules.autostart_schedule),
        (Some(60_000), &scheduled.autostart_schedule)
    );
    assert_eq!(found.schedules.settings, Some(template.settings));
    assert_eq!(found.schedules.quiet_hours.as_deref(), Some("CRON_TZ=UTC 0 0 * * *"));
    let found = assignments::find_with_build(&mut tx, import).await.unwrap().unwrap();
    assert_eq!((found.job.id, found.build, found.schedules.ttl_ms), (import, None, None));
    assert!(assignments::find_with_build(&mut tx, JobId::random()).await.unwrap().is_none());
}

async fn uses_of_several_workspaces_are_noted_at_once(fixture: Fixture) {
    let template = template(&fixture).await;
    let mut made = Vec::new();
    for name in ["one", "two", "three"] {
        made.push(new_workspace(&fixture, &template, name).await);
    }
    let mut tx = fixture.store.single().await.unwrap();
    workspaces::update_used(&mut tx, made[1].id, at(50)).await.unwrap();
    workspaces::update_all_used(&mut tx, &[made[0].id, made[1].id], at(40)).await.unwrap();
    for (workspace, used) in made.iter().zip([40, 50, 1]) {
        let found = workspaces::find(&mut tx, workspace.id).await.unwrap().unwrap();
        assert_eq!(found.last_used_at, at(used), "{}", workspace.name);
    }
    let mut listed = workspaces::find_many(&mut tx, &[made[2].id, made[0].id]).await.unwrap();
    listed.sort_by_key(|workspace| workspace.last_used_at);
    assert_eq!(listed[0], made[2]);
    assert_eq!(listed[1].id, made[0].id);
    assert_eq!(workspaces::count_of_owner(&mut tx, fixture.user).await.unwrap(), 3);
    assert_eq!(workspaces::count_of_owner(&mut tx, coder_domain::ids::UserId::PREBUILDS).await.unwrap(), 0);
    workspaces::delete(&mut tx, made[1].id, at(60)).await.unwrap();
    assert_eq!(workspaces::count_of_owner(&mut tx, fixture.user).await.unwrap(), 2);
    let names: Vec<_> = workspaces::list(&mut tx, &WorkspaceFilter::default()).await.unwrap();
    let names: Vec<_> = names.iter().map(|workspace| workspace.name.as_str()).collect();
    assert_eq!(names, ["one", "three"]);
    let gone = workspaces::update_used(&mut tx, made[1].id, at(70)).await;
    assert!(matches!(gone, Err(Error::Stale { .. })), "{gone:?}");
}

//! Rows of templates and versions: every query with rows that it must find and rows that it must not.

use std::collections::BTreeMap;

use coder_domain::ids::{JobId, OrganizationId, PresetId, TemplateId, TemplateVersionId, UserId};
use coder_domain::schedule::{TemplateRules, Weekdays};
use coder_domain::secret::Secret;
use coder_domain::tags::TagSet;
use coder_store::templates::version_details::{self, ExternalAuth, Plan, Preset, Variable};
use coder_store::templates::versions::{self, Version, VersionPage};
use coder_store::templates::{self, Settings, Template, TemplateFilter};
use coder_store::{Error, Tx};
use jiff::SignedDuration;

use crate::fixture::{Fixture, at, on_both_engines};
use crate::templates::{new_template, new_version};
use crate::workspaces::new_workspace;

on_both_engines!(
    every_field_of_a_template_is_stored,
    templates_are_selected_by_each_field,
    a_kept_template_exists,
    every_field_of_a_version_is_stored,
    pages_of_versions,
    details_belong_to_their_version,
    the_plan_and_the_modules_are_stored_apart,
);

fn stale(result: Result<(), Error>) {
    assert!(matches!(result, Err(Error::Stale { .. })), "{result:?}");
}

/// A template with a version, whose fields differ from those of other names.
async fn made(fixture: &Fixture, name: &str, second: i64) -> Template {
    let version = new_version(fixture, &format!("version of {name}")).await;
    let template = Template {
        id: TemplateId::random(),
        organization_id: fixture.organization,
        name: name.to_owned(),
        display_name: format!("Display {name}"),
        description: format!("about {name}"),
        icon: format!("/icon/{name}"),
        provisioner: "echo".to_owned(),
        active_version_id: version.id,
        created_by: fixture.user,
        deprecated: String::new(),
        settings: Settings { default_ttl_ms: second, ..Settings::default() },
        created_at: at(second),
        updated_at: at(second + 1),
        deleted: false,
    };
    let insert = async |tx: &mut Tx| {
        templates::insert(tx, &template).await?;
        versions::update_template(tx, version.id, template.id, at(second)).await
    };
    fixture.store.write(insert).await.unwrap();
    template
}

async fn every_field_of_a_template_is_stored(fixture: Fixture) {
    let (first, second) = (made(&fixture, "Docker", 10).await, made(&fixture, "kubernetes", 20).await);
    let organization = fixture.organization;
    let mut tx = fixture.store.single().await.unwrap();
    let found = Some(first.clone());
    assert_eq!(templates::find(&mut tx, first.id).await.unwrap(), found);
    assert_eq!(templates::find_by_name(&mut tx, organization, "dOCKER").await.unwrap(), found);
    let mut both = templates::find_many(&mut tx, &[second.id, first.id, TemplateId::random()]).await.unwrap();
    both.sort_by_key(|template| template.created_at);
    assert_eq!(both, [first.clone(), second.clone()]);
    assert_eq!(templates::find(&mut tx, TemplateId::random()).await.unwrap(), None);
    assert_eq!(templates::find_by_name(&mut tx, organization, "dock").await.unwrap(), None);
    assert_eq!(templates::find_by_name(&mut tx, OrganizationId::random(), "docker").await.unwrap(), None);

    let changed = Template {
        name: "Podman".to_owned(),
        display_name: "Display".to_owned(),
        description: "about".to_owned(),
        icon: "icon".to_owned(),
        deprecated: "use another one".to_owned(),
        settings: Settings { default_ttl_ms: 99, everyone_may_use: false, ..Settings::default() },
        updated_at: at(30),
        ..first
    };
    templates::update(&mut tx, &changed).await.unwrap();
    assert_eq!(
        templates::find_by_name(&mut tx, organization, "podman").await.unwrap(),
        Some(changed.clone())
    );
    assert_eq!(templates::find_by_name(&mut tx, organization, "docker").await.unwrap(), None);
    assert_eq!(templates::find(&mut tx, second.id).await.unwrap(), Some(second.clone()));
    drop(tx);
    let version = new_version(&fixture, "v2").await.id;
    let mut tx = fixture.store.single().await.unwrap();
    stale(templates::update_active_version(&mut tx, changed.id, version, at(40)).await);
    versions::update_template(&mut tx, version, changed.id, at(41)).await.unwrap();
    templates::update_active_version(&mut tx, changed.id, version, at(42)).await.unwrap();
    let changed = Template { active_version_id: version, updated_at: at(42), ..changed };
    assert_eq!(templates::find(&mut tx, changed.id).await.unwrap(), Some(changed.clone()));
    templates::delete(&mut tx, changed.id, at(50)).await.unwrap();
    let deleted = Template { deleted: true, updated_at: at(50), ..changed };
    assert_eq!(templates::find(&mut tx, deleted.id).await.unwrap(), Some(deleted.clone()));
    assert_eq!(templates::list(&mut tx, &TemplateFilter::default()).await.unwrap(), [second]);
    stale(templates::update(&mut tx, &deleted).await);
    stale(templates::update_active_version(&mut tx, deleted.id, version, at(60)).await);
    stale(templates::delete(&mut tx, deleted.id, at(60)).await);
}

async fn templates_are_selected_by_each_field(fixture: Fixture) {
    let first = made(&fixture, "b-docker", 10).await;
    let second = Template {
        display_name: String::new(),
        deprecated: "old".to_owned(),
        ..made(&fixture, "a-docker", 20).await
    };
    let mut tx = fixture.store.single().await.unwrap();
    templates::update(&mut tx, &second).await.unwrap();
    let all = [second, first];
    let any = TemplateFilter::default;
    let text = |text: &str| Some(text.to_owned());
    for (filter, found) in [
        (any(), &all[..]),
        (TemplateFilter { organization_ids: Some(vec![fixture.organization]), ..any() }, &all[..]),
        (TemplateFilter { organization_ids: Some(vec![OrganizationId::NIL]), ..any() }, &[]),
        (TemplateFilter { exact_name: text("A-Docker"), ..any() }, &all[..1]),
        (TemplateFilter { exact_name: text("docker"), ..any() }, &[]),
        (TemplateFilter { name: text("Dock"), ..any() }, &all[..]),
        (TemplateFilter { name: text("b-"), ..any() }, &all[1..]),
        (TemplateFilter { exact_display_name: text("display B-docker"), ..any() }, &all[1..]),
        (TemplateFilter { exact_display_name: text("display"), ..any() }, &[]),
        (TemplateFilter { display_name: text("DISPLAY"), ..any() }, &all[1..]),
        (TemplateFilter { display_name: text("A-d"), ..any() }, &all[..1]),
        (TemplateFilter { ids: Some(vec![all[1].id]), ..any() }, &all[1..]),
        (TemplateFilter { deprecated: Some(true), ..any() }, &all[..1]),
        (TemplateFilter { deprecated: Some(false), ..any() }, &all[1..]),
        (TemplateFilter { created_by: Some(fixture.user), ..any() }, &all[..]),
        (TemplateFilter { created_by: Some(UserId::PREBUILDS), ..any() }, &[]),
    ] {
        assert_eq!(templates::list(&mut tx, &filter).await.unwrap(), found, "{filter:?}");
    }
}

async fn a_kept_template_exists(fixture: Fixture) {
    let version = new_version(&fixture, "v1").await;
    let (used, unused) = (new_template(&fixture, "used", &version).await, made(&fixture, "unused", 10).await);
    let workspace = new_workspace(&fixture, &used, "dev").await.id;
    let mut tx = fixture.store.begin().await.unwrap();
    assert!(templates::keep(&mut tx, unused.id).await.unwrap());
    let before = fixture.store.statement_counts().work;
    templates::lock(&mut tx, unused.id).await.unwrap();
    assert_eq!(fixture.store.statement_counts().work - before, 1);
    assert_eq!(templates::find(&mut tx, unused.id).await.unwrap(), Some(unused.clone()), "unchanged");
    templates::delete(&mut tx, unused.id, at(20)).await.unwrap();
    for id in [unused.id, TemplateId::random()] {
        assert!(!templates::keep(&mut tx, id).await.unwrap());
    }
    stale(templates::delete(&mut tx, used.id, at(20)).await);
    assert!(templates::keep(&mut tx, used.id).await.unwrap(), "a workspace uses it");
    coder_store::workspaces::delete(&mut tx, workspace, at(30)).await.unwrap();
    templates::delete(&mut tx, used.id, at(31)).await.unwrap();
    tx.commit().await.unwrap();
}

async fn every_field_of_a_version_is_stored(fixture: Fixture) {
    let template = made(&fixture, "docker", 10).await;
    let other = made(&fixture, "other", 10).await;
    let base = new_version(&fixture, "v2").await;
    let new = Version {
        id: TemplateVersionId::random(),
        template_id: Some(template.id),
        job_id: fixture.job(&TagSet::untagged()).await,
        name: "Named".to_owned(),
        message: "a message".to_owned(),
        readme: "# Read me".to_owned(),
        source_example_id: "example".to_owned(),
        has_ai_task: Some(false),
        has_external_agent: Some(true),
        created_at: at(500),
        updated_at: at(501),
        ..base.clone()
    };
    fixture.store.write(async |tx| versions::insert(tx, &new).await).await.unwrap();
    let mut tx = fixture.store.single().await.unwrap();
    let found = Some(new.clone());
    assert_eq!(versions::find(&mut tx, new.id).await.unwrap(), found);
    assert_eq!(versions::get(&mut tx, new.id).await.unwrap(), new);
    assert_eq!(versions::find_by_name(&mut tx, template.id, "Named").await.unwrap(), found);
    let mut many =
        versions::find_many(&mut tx, &[new.id, base.id, TemplateVersionId::random()]).await.unwrap();
    many.sort_by_key(|version| version.created_at);
    assert_eq!(many, [base.clone(), new.clone()]);
    let first = versions::get(&mut tx, template.active_version_id).await.unwrap();
    assert_eq!(versions::find_previous(&mut tx, &new).await.unwrap(), Some(first.clone()));
    assert_eq!(versions::find_previous(&mut tx, &first).await.unwrap(), None);
    assert_eq!(versions::find_by_job(&mut tx, first.job_id).await.unwrap(), Some(first.clone()));
    assert_eq!(versions::find(&mut tx, TemplateVersionId::random()).await.unwrap(), None);
    assert!(versions::get(&mut tx, TemplateVersionId::random()).await.unwrap_err().is_not_found());
    assert_eq!(versions::find_by_job(&mut tx, JobId::random()).await.unwrap(), None);
    assert_eq!(versions::find_by_name(&mut tx, template.id, "named").await.unwrap(), None);
    assert_eq!(versions::find_by_name(&mut tx, other.id, "Named").await.unwrap(), None);

    versions::update(&mut tx, new.id, "Renamed", "another", at(510)).await.unwrap();
    versions::update_readme(&mut tx, new.id, "# New", at(511)).await.unwrap();
    versions::update_flags(&mut tx, new.id, true, false, at(512)).await.unwrap();
    versions::update_archived(&mut tx, new.id, true, at(513)).await.unwrap();
    let changed = Version {
        name: "Renamed".to_owned(),
        message: "another".to_owned(),
        readme: "# New".to_owned(),
        has_ai_task: Some(true),
        has_external_agent: Some(false),
        archived: true,
        updated_at: at(513),
        ..new
    };
    assert_eq!(versions::get(&mut tx, changed.id).await.unwrap(), changed);
    assert_eq!(versions::get(&mut tx, first.id).await.unwrap(), first);
    stale(versions::update_template(&mut tx, changed.id, other.id, at(514)).await);
    versions::update_template(&mut tx, base.id, other.id, at(515)).await.unwrap();
    let attached = Version { template_id: Some(other.id), updated_at: at(515), ..base };
    assert_eq!(versions::get(&mut tx, attached.id).await.unwrap(), attached);
    let missing = TemplateVersionId::random();
    stale(versions::update(&mut tx, missing, "x", "y", at(520)).await);
    stale(versions::update_readme(&mut tx, missing, "x", at(520)).await);
    stale(versions::update_flags(&mut tx, missing, true, true, at(520)).await);
    stale(versions::update_archived(&mut tx, missing, true, at(520)).await);
    stale(versions::update_template(&mut tx, missing, other.id, at(520)).await);
}

async fn pages_of_versions(fixture: Fixture) {
    let template = made(&fixture, "docker", 10).await;
    made(&fixture, "other", 10).await;
    let mut ids = vec![template.active_version_id];
    for name in ["b", "c", "d"] {
        let version = new_version(&fixture, name).await.id;
        let mut tx = fixture.store.single().await.unwrap();
        versions::update_template(&mut tx, version, template.id, at(20)).await.unwrap();
        ids.push(version);
    }
    let mut tx = fixture.store.single().await.unwrap();
    versions::update_archived(&mut tx, ids[2], true, at(30)).await.unwrap();
    let shown = VersionPage::default();
    let all = VersionPage { include_archived: true, ..shown };
    for (page, numbers) in [
        (shown, &[0, 1, 3][..]),
        (all, &[0, 1, 2, 3]),
        (VersionPage { limit: 2, ..all }, &[0, 1]),
        (VersionPage { offset: 2, ..all }, &[2, 3]),
        (VersionPage { limit: 1, offset: 1, ..all }, &[1]),
        (VersionPage { after: Some(ids[0]), ..shown }, &[1, 3]),
        (VersionPage { after: Some(ids[1]), limit: 1, ..all }, &[2]),
        (VersionPage { after: Some(ids[3]), ..all }, &[]),
    ] {
        let listed = versions::list(&mut tx, template.id, page).await.unwrap();
        let found: Vec<_> = listed.iter().map(|version| version.id).collect();
        assert_eq!(found, numbers.iter().map(|number| ids[*number]).collect::<Vec<_>>(), "{page:?}");
    }
}

fn variable(name: &str, value: &str) -> Variable {
    Variable {
        name: name.to_owned(),
        description: format!("about {name}"),
        kind: "number".to_owned(),
        value: Secret::new(value),
        default_value: Secret::new(format!("default {value}")),
        required: false,
        sensitive: true,
    }
}

async fn details_belong_to_their_version(fixture: Fixture) {
    let (first, second) = (new_version(&fixture, "v1").await.id, new_version(&fixture, "v2").await.id);
    let preset = |name: &str, number: i64| Preset {
        id: PresetId::random(),
        name: name.to_owned(),
        is_default: number == 1,
        description: format!("about {name}"),
        icon: format!("/icon/{name}"),
        desired_instances: (number > 1).then_some(number),
        parameters: [("size".to_owned(), number.to_string())].into(),
        prebuild: serde_json::json!({ "ttl": number }),
    };
    let auth = |provider: &str, optional| ExternalAuth { provider_id: provider.to_owned(), optional };
    let presets = [preset("b", 1), preset("a", 2), preset("c", 3)];
    let providers = [auth("gitlab", false), auth("github", true)];
    let tags: BTreeMap<_, _> = [("site".to_owned(), "\"a\"".to_owned())].into();
    let mut tx = fixture.store.single().await.unwrap();
    version_details::insert_presets(&mut tx, first, &presets[..2]).await.unwrap();
    version_details::insert_presets(&mut tx, second, &presets[2..]).await.unwrap();
    version_details::insert_external_auth(&mut tx, first, &[]).await.unwrap();
    version_details::insert_external_auth(&mut tx, first, &providers).await.unwrap();
    version_details::insert_external_auth(&mut tx, second, &providers[1..]).await.unwrap();
    version_details::update_workspace_tags(&mut tx, first, &tags).await.unwrap();
    version_details::update_variables(&mut tx, first, &[variable("b", "1"), variable("a", "2")])
        .await
        .unwrap();
    version_details::update_variables(&mut tx, second, &[variable("b", "3")]).await.unwrap();
    version_details::update_variables(&mut tx, first, &[variable("b", "4")]).await.unwrap();
    assert_eq!(version_details::list_presets(&mut tx, first).await.unwrap(), presets[..2]);
    assert_eq!(version_details::list_presets(&mut tx, second).await.unwrap(), presets[2..]);
    assert_eq!(version_details::list_external_auth(&mut tx, first).await.unwrap(), providers);
    assert_eq!(version_details::list_external_auth(&mut tx, second).await.unwrap(), providers[1..]);
    assert_eq!(version_details::list_workspace_tags(&mut tx, first).await.unwrap(), tags);
    assert_eq!(version_details::list_workspace_tags(&mut tx, second).await.unwrap(), BTreeMap::new());
    let mut variables = version_details::list_variables(&mut tx, first).await.unwrap();
    variables.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(variables, [variable("a", "2"), variable("b", "4")]);
    assert_eq!(version_details::list_variables(&mut tx, second).await.unwrap(), [variable("b", "3")]);
    assert_eq!(version_details::list_parameters(&mut tx, second).await.unwrap(), []);
    let twice = version_details::insert_external_auth(&mut tx, second, &providers).await;
    assert!(matches!(twice, Err(Error::Conflict { .. })), "{twice:?}");
}

async fn the_plan_and_the_modules_are_stored_apart(fixture: Fixture) {
    let versions = ["v1", "v2", "v3"];
    let mut ids = Vec::new();
    for name in versions {
        ids.push(new_version(&fixture, name).await.id);
    }
    let plan = |text: &str, module_file_id, version: &str| Plan {
        plan: text.into(),
        module_file_id,
        provisioner_version: version.to_owned(),
    };
    let mut tx = fixture.store.single().await.unwrap();
    let check = async |tx: &mut Tx, id, expected: Plan| {
        let file = version_details::find_module_file(tx, id).await.unwrap();
        assert_eq!(file, expected.module_file_id);
        assert!(version_details::find_plan(tx, id).await.unwrap() == Some(expected));
    };
    assert!(version_details::find_plan(&mut tx, ids[0]).await.unwrap().is_none());
    // The modules arrive first, and then the plan; or the plan alone.
    version_details::update_module_file(&mut tx, ids[0], fixture.file, at(1)).await.unwrap();
    check(&mut tx, ids[0], plan("{}", Some(fixture.file), "")).await;
    version_details::update_plan_alone(&mut tx, ids[0], b"{\"a\":1}", at(2)).await.unwrap();
    check(&mut tx, ids[0], plan("{\"a\":1}", Some(fixture.file), "")).await;
    version_details::update_module_file(&mut tx, ids[0], fixture.file, at(3)).await.unwrap();
    check(&mut tx, ids[0], plan("{\"a\":1}", Some(fixture.file), "")).await;
    version_details::update_plan_alone(&mut tx, ids[1], b"{\"b\":1}", at(4)).await.unwrap();
    check(&mut tx, ids[1], plan("{\"b\":1}", None, "")).await;
    let whole = plan("{\"c\":1}", Some(fixture.file), "v2.30");
    version_details::update_plan(&mut tx, ids[1], whole.clone(), at(5)).await.unwrap();
    check(&mut tx, ids[1], whole).await;
    assert!(version_details::find_plan(&mut tx, ids[2]).await.unwrap().is_none());
    assert_eq!(version_details::find_module_file(&mut tx, ids[2]).await.unwrap(), None);
}

#[test]
fn settings_become_rules_about_schedules() {
    let days = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let settings = Settings {
        default_ttl_ms: 1_000,
        activity_bump_ms: 2_000,
        failure_ttl_ms: 3_000,
        time_til_dormant_ms: 4_000,
        time_til_dormant_autodelete_ms: 5_000,
        autostop_days: days(&["monday"]),
        autostop_weeks: 6,
        autostart_days: days(&["tuesday", "friday"]),
        allow_user_autostart: true,
        allow_user_autostop: false,
        ..Settings::default()
    };
    let rules = TemplateRules {
        default_ttl: SignedDuration::from_secs(1),
        activity_bump: SignedDuration::from_secs(2),
        failure_ttl: SignedDuration::from_secs(3),
        time_til_dormant: SignedDuration::from_secs(4),
        time_til_deletion: SignedDuration::from_secs(5),
        autostart_days: Weekdays::from_names(["tuesday", "friday"]),
        autostop_days: Weekdays::from_names(["monday"]),
        autostop_weeks: 6,
        allow_user_autostart: true,
        allow_user_autostop: false,
    };
    assert_eq!(settings.schedule_rules(), rules);
    let negative = Settings { default_ttl_ms: -1, ..settings }.schedule_rules();
    assert_eq!(negative, TemplateRules { default_ttl: SignedDuration::ZERO, ..rules });
}

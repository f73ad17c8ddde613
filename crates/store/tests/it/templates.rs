//! Templates, versions and the results of imports.

use std::collections::BTreeMap;

use coder_domain::ids::{OrganizationId, PresetId, TemplateId, TemplateVersionId};
use coder_domain::secret::Secret;
use coder_domain::tags::TagSet;
use coder_store::templates::version_details::{
    ExternalAuth, Parameter, ParameterOption, Plan, Preset, Variable,
};
use coder_store::templates::versions::{Version, VersionPage};
use coder_store::templates::{self, version_details, versions};
use coder_store::templates::{Settings, Template, TemplateFilter};
use coder_store::{Error, jobs};

use crate::fixture::{Fixture, at, on_both_engines};

on_both_engines!(
    a_template_is_made_listed_and_changed,
    names_are_free_after_deletion,
    versions_have_names_of_their_template,
    a_version_in_use_is_not_archived,
    details_of_a_version,
);

pub(crate) async fn new_version(fixture: &Fixture, name: &str) -> Version {
    let id = TemplateVersionId::random();
    let job = jobs::NewJob { template_version_id: Some(id), ..fixture.new_job(&TagSet::untagged()) };
    let now = fixture.tick();
    let version = Version {
        id,
        organization_id: fixture.organization,
        template_id: None,
        name: name.to_owned(),
        message: "first".to_owned(),
        readme: String::new(),
        job_id: job.id,
        created_by: fixture.user,
        source_example_id: String::new(),
        archived: false,
        has_ai_task: None,
        has_external_agent: None,
        created_at: now,
        updated_at: now,
    };
    fixture
        .store
        .write(async |tx| {
            jobs::insert(tx, &job, now).await?;
            versions::insert(tx, &version).await
        })
        .await
        .unwrap();
    version
}

pub(crate) async fn new_template(fixture: &Fixture, name: &str, version: &Version) -> Template {
    let template = template(fixture, name, version);
    fixture
        .store
        .write(async |tx| {
            templates::insert(tx, &template).await?;
            versions::update_template(tx, version.id, template.id, at(2)).await
        })
        .await
        .unwrap();
    template
}

fn template(fixture: &Fixture, name: &str, version: &Version) -> Template {
    Template {
        id: TemplateId::random(),
        organization_id: fixture.organization,
        name: name.to_owned(),
        display_name: String::new(),
        description: "text".to_owned(),
        icon: String::new(),
        provisioner: "terraform".to_owned(),
        active_version_id: version.id,
        created_by: fixture.user,
        deprecated: String::new(),
        settings: Settings::default(),
        created_at: at(1),
        updated_at: at(1),
        deleted: false,
    }
}

async fn a_template_is_made_listed_and_changed(fixture: Fixture) {
    let version = new_version(&fixture, "v1").await;
    let template = new_template(&fixture, "Docker", &version).await;
    let mut tx = fixture.store.begin().await.unwrap();
    assert_eq!(templates::find(&mut tx, template.id).await.unwrap().unwrap(), template);
    assert_eq!(
        templates::find_by_name(&mut tx, fixture.organization, "dOCKER").await.unwrap().unwrap(),
        template
    );
    let mut changed = template.clone();
    changed.display_name = "Ärmel".to_owned();
    changed.deprecated = "old".to_owned();
    changed.settings.default_ttl_ms = 7;
    changed.updated_at = at(3);
    templates::update(&mut tx, &changed).await.unwrap();
    let text = |text: &str| Some(text.to_owned());
    let cases = [
        (TemplateFilter::default(), true),
        (TemplateFilter { exact_name: text("DOCKER"), ..TemplateFilter::default() }, true),
        (TemplateFilter { exact_name: text("dock"), ..TemplateFilter::default() }, false),
        (TemplateFilter { name: text("OCK"), ..TemplateFilter::default() }, true),
        (TemplateFilter { display_name: text("ÄRM"), ..TemplateFilter::default() }, true),
        (TemplateFilter { display_name: text("docker"), ..TemplateFilter::default() }, false),
        (TemplateFilter { exact_display_name: text("ärmel"), ..TemplateFilter::default() }, true),
        (TemplateFilter { deprecated: Some(false), ..TemplateFilter::default() }, false),
        (TemplateFilter { deprecated: Some(true), ..TemplateFilter::default() }, true),
        (
            TemplateFilter {
                ids: Some(vec![template.id]),
                created_by: Some(fixture.user),
                ..TemplateFilter::default()
            },
            true,
        ),
        (
            TemplateFilter {
                organization_ids: Some(vec![OrganizationId::random()]),
                ..TemplateFilter::default()
            },
            false,
        ),
    ];
    for (filter, found) in cases {
        let listed = templates::list(&mut tx, &filter).await.unwrap();
        assert_eq!(listed, if found { vec![changed.clone()] } else { vec![] }, "{filter:?}");
    }
    assert_eq!(templates::find_many(&mut tx, &[template.id]).await.unwrap(), [changed]);
    tx.commit().await.unwrap();
}

async fn names_are_free_after_deletion(fixture: Fixture) {
    let version = new_version(&fixture, "v1").await;
    let first = new_template(&fixture, "docker", &version).await;
    let taken =
        templates::insert(&mut fixture.store.begin().await.unwrap(), &template(&fixture, "DOCKER", &version))
            .await;
    assert!(taken.unwrap_err().is_conflict_on("templates", "name_lower"));
    let mut tx = fixture.store.begin().await.unwrap();
    templates::delete(&mut tx, first.id, at(5)).await.unwrap();
    assert!(templates::delete(&mut tx, first.id, at(5)).await.is_err());
    templates::insert(&mut tx, &template(&fixture, "docker", &version)).await.unwrap();
    assert!(templates::find(&mut tx, first.id).await.unwrap().unwrap().deleted);
    tx.commit().await.unwrap();
}

async fn versions_have_names_of_their_template(fixture: Fixture) {
    let first = new_version(&fixture, "v1").await;
    let twin = new_version(&fixture, "v1").await;
    let second = new_version(&fixture, "V1").await;
    let template = new_template(&fixture, "docker", &first).await;
    let attach = async |version: &Version| {
        fixture
            .store
            .write(async |tx| versions::update_template(tx, version.id, template.id, at(9)).await)
            .await
    };
    assert!(attach(&twin).await.unwrap_err().is_conflict_on("template_versions", "name"));
    attach(&second).await.unwrap();
    assert!(matches!(attach(&second).await, Err(Error::Stale { .. })), "attached before");

    let mut tx = fixture.store.begin().await.unwrap();
    assert_eq!(versions::find_by_name(&mut tx, template.id, "v1").await.unwrap().unwrap().id, first.id);
    assert_eq!(versions::find_by_job(&mut tx, second.job_id).await.unwrap().unwrap().id, second.id);
    let stored = versions::get(&mut tx, second.id).await.unwrap();
    assert_eq!(versions::find_previous(&mut tx, &stored).await.unwrap().unwrap().id, first.id);
    let ids = |listed: Vec<Version>| listed.into_iter().map(|version| version.id).collect::<Vec<_>>();
    assert_eq!(
        ids(versions::list(&mut tx, template.id, VersionPage::default()).await.unwrap()),
        [first.id, second.id]
    );
    let after = VersionPage { after: Some(first.id), limit: 5, ..VersionPage::default() };
    assert_eq!(ids(versions::list(&mut tx, template.id, after).await.unwrap()), [second.id]);
    versions::update(&mut tx, second.id, "v2", "message", at(10)).await.unwrap();
    versions::update_readme(&mut tx, second.id, "# Hi", at(10)).await.unwrap();
    versions::update_flags(&mut tx, second.id, true, false, at(10)).await.unwrap();
    let stored = versions::find_many(&mut tx, &[second.id]).await.unwrap().remove(0);
    assert_eq!(
        (stored.name.as_str(), stored.readme.as_str(), stored.has_ai_task),
        ("v2", "# Hi", Some(true))
    );
    templates::update_active_version(&mut tx, template.id, second.id, at(11)).await.unwrap();
    let foreign = templates::update_active_version(&mut tx, template.id, twin.id, at(12)).await;
    assert!(matches!(foreign, Err(Error::Stale { .. })), "not one of its own");
    tx.commit().await.unwrap();
}

async fn a_version_in_use_is_not_archived(fixture: Fixture) {
    let first = new_version(&fixture, "v1").await;
    let second = new_version(&fixture, "v2").await;
    let template = new_template(&fixture, "docker", &first).await;
    let mut tx = fixture.store.begin().await.unwrap();
    versions::update_template(&mut tx, second.id, template.id, at(9)).await.unwrap();
    assert!(versions::update_archived(&mut tx, first.id, true, at(10)).await.is_err(), "active");
    versions::update_archived(&mut tx, second.id, true, at(10)).await.unwrap();
    assert!(versions::update_archived(&mut tx, second.id, true, at(10)).await.is_err(), "archived before");
    assert_eq!(versions::list(&mut tx, template.id, VersionPage::default()).await.unwrap().len(), 1);
    let all = VersionPage { include_archived: true, ..VersionPage::default() };
    assert_eq!(versions::list(&mut tx, template.id, all).await.unwrap().len(), 2);
    versions::update_archived(&mut tx, second.id, false, at(11)).await.unwrap();
    tx.commit().await.unwrap();
}

async fn details_of_a_version(fixture: Fixture) {
    let version = new_version(&fixture, "v1").await.id;
    let variable = |name: &str, value: &str| Variable {
        name: name.to_owned(),
        description: "it's \"quoted\"\n\\u0000".to_owned(),
        kind: "string".to_owned(),
        value: Secret::new(value),
        default_value: Secret::new(""),
        required: true,
        sensitive: false,
    };
    let parameter = |name: &str, order| Parameter {
        name: name.to_owned(),
        order,
        validation_min: Some(0),
        options: vec![ParameterOption { name: "é\0".to_owned(), ..ParameterOption::default() }],
        ..Parameter::default()
    };
    let preset = |name: &str, is_default| Preset {
        id: PresetId::random(),
        name: name.to_owned(),
        is_default,
        description: String::new(),
        icon: String::new(),
        desired_instances: is_default.then_some(3),
        parameters: BTreeMap::from([("size".to_owned(), "1".to_owned())]),
        prebuild: serde_json::json!({"ttl": 5}),
    };
    let mut tx = fixture.store.begin().await.unwrap();
    version_details::update_variables(
        &mut tx,
        version,
        &[variable("b", "1"), variable("a", "x"), variable("a", "2")],
    )
    .await
    .unwrap();
    version_details::update_variables(&mut tx, version, &[]).await.unwrap();
    assert_eq!(
        version_details::list_variables(&mut tx, version).await.unwrap(),
        [variable("b", "1"), variable("a", "2")]
    );
    let parameters = [parameter("c", 1), parameter("b", 0), parameter("A", 0)];
    version_details::insert_parameters(&mut tx, version, &parameters).await.unwrap();
    let stored = version_details::list_parameters(&mut tx, version).await.unwrap();
    assert_eq!(stored, [parameter("A", 0), parameter("b", 0), parameter("c", 1)]);
    let presets = [preset("large", false), preset("small", true)];
    version_details::insert_presets(&mut tx, version, &presets).await.unwrap();
    assert_eq!(version_details::list_presets(&mut tx, version).await.unwrap(), presets);
    for tags in [&[("a", "1"), ("b", "2")][..], &[("c", "var.x")], &[]] {
        let tags: BTreeMap<_, _> =
            tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        version_details::update_workspace_tags(&mut tx, version, &tags).await.unwrap();
        assert_eq!(version_details::list_workspace_tags(&mut tx, version).await.unwrap(), tags);
    }
    let auth = [ExternalAuth { provider_id: "github".to_owned(), optional: true }];
    version_details::insert_external_auth(&mut tx, version, &auth).await.unwrap();
    assert_eq!(version_details::list_external_auth(&mut tx, version).await.unwrap(), auth);
    assert_eq!(version_details::find_module_file(&mut tx, version).await.unwrap(), None);
    let plan = |text: &[u8]| Plan {
        plan: text.to_vec(),
        module_file_id: Some(fixture.file),
        provisioner_version: "v2".to_owned(),
    };
    version_details::update_plan(&mut tx, version, plan(b"{}"), at(1)).await.unwrap();
    version_details::update_plan(&mut tx, version, plan(b"{\"a\":1}"), at(1)).await.unwrap();
    assert!(version_details::find_plan(&mut tx, version).await.unwrap() == Some(plan(b"{\"a\":1}")));
    assert_eq!(version_details::find_module_file(&mut tx, version).await.unwrap(), Some(fixture.file));
    tx.commit().await.unwrap();
}

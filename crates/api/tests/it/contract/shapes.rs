//! Which keys are there when nothing is set: read from the keys no object can be without, written in full (http-api 11).

use coder_api::builds::WorkspaceBuild;
use coder_api::daemons::{MatchedProvisioners, ProvisionerDaemon};
use coder_api::deployment::{Appearance, BuildInfo, Entitlements, SshConfig};
use coder_api::error::ErrorBody;
use coder_api::jobs::ProvisionerJob;
use coder_api::keys::ProvisionerKey;
use coder_api::organizations::{MemberWithUserData, Organization};
use coder_api::resources::{AppStatus, WorkspaceAgent, WorkspaceApp, WorkspaceResource};
use coder_api::templates::Template;
use coder_api::tokens::ApiKeyWithOwner;
use coder_api::users::{AssignableRole, AuthMethods, User};
use coder_api::versions::{
    Preset, TemplateVersion, TemplateVersionExternalAuth, TemplateVersionParameter, TemplateVersionVariable,
};
use coder_api::workspaces::Workspace;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{TIME, id};

fn bare<T: DeserializeOwned + Serialize>(name: &str, json: Value) {
    let value: T = serde_json::from_value(json).unwrap();
    insta::assert_json_snapshot!(name, value);
}

fn job() -> Value {
    json!({"id": id('1'), "created_at": TIME, "status": "pending", "type": "workspace_build"})
}

fn build() -> Value {
    json!({"id": id('1'), "created_at": TIME, "updated_at": TIME, "workspace_id": id('2'),
        "template_version_id": id('3'), "build_number": 1, "transition": "stop", "job": job(), "status": "pending"})
}

#[test]
fn people() {
    bare::<User>("user", json!({"id": id('1'), "username": "a", "created_at": TIME, "updated_at": TIME}));
    bare::<AssignableRole>("assignable_role", json!({"name": "owner"}));
    bare::<AuthMethods>("auth_methods", json!({}));
    let key = json!({"id": "abcdefghij", "user_id": id('1'), "expires_at": TIME, "created_at": TIME,
        "updated_at": TIME});
    bare::<ApiKeyWithOwner>("api_key_with_owner", key);
}

#[test]
fn organizations() {
    let organization = json!({"id": id('1'), "name": "coder", "created_at": TIME, "updated_at": TIME});
    bare::<Organization>("organization", organization);
    let member = json!({"username": "a", "user_id": id('1'), "organization_id": id('2'), "created_at": TIME,
        "updated_at": TIME});
    bare::<MemberWithUserData>("member", member);
}

#[test]
fn provisioning() {
    let key = json!({"id": id('1'), "created_at": TIME, "organization": id('2'), "name": "k"});
    bare::<ProvisionerKey>("provisioner_key", key);
    let daemon = json!({"id": id('1'), "organization_id": id('2'), "created_at": TIME, "name": "d"});
    bare::<ProvisionerDaemon>("provisioner_daemon", daemon);
    bare::<ProvisionerJob>("provisioner_job", job());
    bare::<MatchedProvisioners>("matched_provisioners", json!({}));
}

#[test]
fn templates() {
    let template = json!({"id": id('1'), "created_at": TIME, "updated_at": TIME, "organization_id": id('2'),
        "name": "t", "active_version_id": id('3')});
    bare::<Template>("template", template);
    let version = json!({"id": id('1'), "organization_id": id('2'), "created_at": TIME, "updated_at": TIME,
        "name": "v", "job": job()});
    bare::<TemplateVersion>("template_version", version);
    bare::<TemplateVersionVariable>("variable", json!({}));
    bare::<TemplateVersionParameter>("parameter", json!({}));
    bare::<TemplateVersionExternalAuth>("external_auth", json!({}));
    bare::<Preset>("preset", json!({}));
}

#[test]
fn workspaces() {
    let workspace = json!({"id": id('1'), "created_at": TIME, "updated_at": TIME, "owner_id": id('2'),
        "organization_id": id('3'), "template_id": id('5'), "template_active_version_id": id('6'),
        "latest_build": build(), "name": "w"});
    bare::<Workspace>("workspace", workspace);
    bare::<WorkspaceBuild>("workspace_build", build());
}

#[test]
fn resources() {
    let resource = json!({"id": id('1'), "created_at": TIME, "job_id": id('2'), "workspace_transition": "start",
        "type": "x", "name": "y"});
    bare::<WorkspaceResource>("resource", resource);
    let agent = json!({"id": id('1'), "created_at": TIME, "updated_at": TIME, "name": "main",
        "resource_id": id('2')});
    bare::<WorkspaceAgent>("agent", agent);
    bare::<WorkspaceApp>("app", json!({"id": id('1'), "slug": "web"}));
    let status = json!({"id": id('1'), "created_at": TIME, "workspace_id": id('2'), "agent_id": id('3'),
        "app_id": id('5')});
    bare::<AppStatus>("app_status", status);
}

#[test]
fn server() {
    bare::<BuildInfo>("build_info", json!({}));
    bare::<Entitlements>(
        "entitlements",
        json!({"features": {"external_provisioner_daemons": {"entitlement": "entitled", "enabled": true}},
            "refreshed_at": TIME}),
    );
    bare::<Appearance>("appearance", json!({}));
    bare::<SshConfig>("ssh_config", json!({}));
}

#[test]
fn errors() {
    insta::assert_json_snapshot!("error_plain", ErrorBody::new("no"));
    let full = ErrorBody::new("no").with_detail("because").with_validation("name", "taken");
    insta::assert_json_snapshot!("error_full", full);
}

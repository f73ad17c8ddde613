//! Requests as official clients send them (recorded), and as we send them.

use coder_api::builds::{CreateWorkspaceBuildRequest, UpdateBuildStateRequest};
use coder_api::json::{Blob, NameValue, ZERO_TIME};
use coder_api::keys::CreateProvisionerKeyRequest;
use coder_api::templates::{AutostopRequirement, CorsBehavior, CreateTemplateRequest, UpdateTemplateRequest};
use coder_api::tokens::CreateTokenRequest;
use coder_api::users::{CreateFirstUserRequest, CreateUserRequest, LoginRequest, LoginType};
use coder_api::versions::{CreateTemplateVersionRequest, StorageMethod};
use coder_api::workspaces::{
    AutomaticUpdates, CreateWorkspaceRequest, UpdateAutostartRequest, UpdateTtlRequest,
};
use coder_domain::build::{BuildReason, Transition};
use coder_domain::ids::{TemplateId, TemplateVersionId};
use coder_domain::secret::Secret;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{NIL, id};

fn read<T: DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).unwrap()
}

#[test]
fn zero_ids_are_absent() {
    let request: CreateWorkspaceRequest = read(json!({
        "template_id": NIL, "template_version_id": id('1'), "name": "w", "automatic_updates": "",
        "template_version_preset_id": NIL
    }));
    assert_eq!(request.template_id, None);
    assert_eq!(request.template_version_id, id('1').parse::<TemplateVersionId>().ok());
    assert_eq!((request.template_version_preset_id, request.automatic_updates), (None, None));

    let request: CreateTemplateVersionRequest = read(json!({
        "message": "m", "template_id": NIL, "storage_method": "file", "file_id": id('1'),
        "provisioner": "terraform", "tags": null, "user_variable_values": null
    }));
    assert_eq!((request.template_id, request.storage_method), (None, StorageMethod::File));
    assert!(request.tags.is_empty() && request.user_variable_values.is_empty() && request.file_id.is_some());

    let request: CreateWorkspaceBuildRequest =
        read(json!({"template_version_id": NIL, "transition": "stop", "template_version_preset_id": NIL}));
    assert_eq!((request.template_version_id, request.template_version_preset_id), (None, None));
    assert!(request.provisioner_state.is_empty() && request.reason.is_none());
}

#[test]
fn empty_words_are_absent_and_wrong_ones_refused() {
    let build = |reason: &str| {
        serde_json::from_value::<CreateWorkspaceBuildRequest>(
            json!({"transition": "start", "reason": reason}),
        )
    };
    assert_eq!(build("").unwrap().reason, None);
    assert_eq!(build("cli").unwrap().reason, Some(BuildReason::Cli));
    assert!(build("boredom").is_err());
    let user: CreateUserRequest = read(json!({"user_status": ""}));
    assert_eq!(user.user_status, None);
    let template: CreateTemplateRequest =
        read(json!({"max_port_share_level": "", "cors_behavior": "simple"}));
    assert_eq!((template.max_port_share_level, template.cors_behavior), (None, Some(CorsBehavior::Simple)));
}

#[test]
fn absent_ids_are_sent_as_zero() {
    let sent =
        serde_json::to_value(CreateWorkspaceRequest { name: "w".to_owned(), ..Default::default() }).unwrap();
    assert_eq!(
        sent,
        json!({"template_id": NIL, "template_version_id": NIL, "name": "w", "template_version_preset_id": NIL})
    );
    let sent = serde_json::to_value(CreateWorkspaceBuildRequest::new(Transition::Start)).unwrap();
    assert_eq!(
        sent,
        json!({"template_version_id": NIL, "transition": "start", "template_version_preset_id": NIL})
    );
}

#[test]
fn an_empty_id_is_refused() {
    assert!(serde_json::from_value::<CreateWorkspaceRequest>(json!({"template_id": ""})).is_err());
    assert!(serde_json::from_value::<CreateWorkspaceBuildRequest>(json!({"transition": "explode"})).is_err());
}

#[test]
fn nulls_and_missing_fields_are_zero_values() {
    let request: CreateTemplateRequest = read(json!({
        "name": "t", "template_version_id": id('1'), "allow_user_cancel_workspace_jobs": null,
        "disable_everyone_group_access": false, "require_active_version": false, "max_port_share_level": null,
        "cors_behavior": null, "default_ttl_ms": null
    }));
    assert_eq!((request.max_port_share_level, request.default_ttl_ms), (None, None));
    let request: CreateTemplateRequest = read(json!({}));
    assert_eq!(request.version_id, None);

    let request: CreateUserRequest = read(json!({
        "email": "a@x", "username": "a", "name": "", "password": "p", "login_type": "", "user_status": null,
        "organization_ids": [NIL]
    }));
    assert_eq!((request.login_type, request.user_status), (LoginType::Unset, None));
    assert!(request.organization_ids[0].is_nil(), "a zero id in the list means the default organization");

    let request: CreateFirstUserRequest = read(json!({
        "email": "a@x", "username": "a", "name": "", "password": "p", "trial": false,
        "trial_info": {"first_name": "", "developers": ""}
    }));
    assert_eq!(request.password.expose(), "p");
    let request: CreateProvisionerKeyRequest = read(json!({"name": "k", "tags": null}));
    assert!(request.tags.is_empty());
    let request: UpdateAutostartRequest = read(json!({}));
    assert_eq!(request.schedule, None);
    let request: UpdateTtlRequest = read(json!({"ttl_ms": null}));
    assert_eq!(request.ttl_ms, None);
}

#[test]
fn an_update_keeps_what_is_absent_where_the_field_allows_it() {
    let request: UpdateTemplateRequest = read(json!({
        "display_name": "D", "autostop_requirement": {"days_of_week": null, "weeks": 1},
        "update_workspace_last_used_at": false
    }));
    assert_eq!((request.display_name.as_deref(), request.description), (Some("D"), None));
    assert_eq!(request.autostop_requirement, Some(AutostopRequirement { days_of_week: vec![], weeks: 1 }));
    assert!(!request.allow_user_autostart && request.default_ttl_ms == 0);
}

#[test]
fn state_is_standard_base64_and_not_shown() {
    let request: UpdateBuildStateRequest = read(json!({"state": "e30="}));
    assert_eq!(request.state, Blob(b"{}".to_vec()));
    assert_eq!(serde_json::to_value(&request).unwrap(), json!({"state": "e30="}));
    assert_eq!(format!("{:?}", request.state), "Blob(2 bytes)");
    assert!(serde_json::from_value::<UpdateBuildStateRequest>(json!({"state": "*"})).is_err());
    let request: UpdateBuildStateRequest = read(json!({"state": null}));
    assert!(request.state.is_empty());
}

#[test]
fn durations_are_nanoseconds() {
    let request = CreateTokenRequest::new("ci", std::time::Duration::from_secs(3600));
    assert_eq!(
        serde_json::to_value(&request).unwrap(),
        json!({"lifetime": 3_600_000_000_000_i64, "token_name": "ci"})
    );
}

#[test]
fn times_are_utc_without_trailing_zeros_and_may_come_with_an_offset() {
    let written = |text: &str| {
        let time: coder_api::Timestamp = text.parse().unwrap();
        serde_json::to_string(&time).unwrap()
    };
    assert_eq!(written("2026-01-02T03:04:05.120000Z"), "\"2026-01-02T03:04:05.12Z\"");
    assert_eq!(written("2026-01-02T03:04:05Z"), "\"2026-01-02T03:04:05Z\"");
    assert_eq!(written("2026-01-02T05:04:05.000001+02:00"), "\"2026-01-02T03:04:05.000001Z\"");
    assert_eq!(serde_json::to_string(&ZERO_TIME).unwrap(), "\"0001-01-01T00:00:00Z\"");
}

#[test]
fn credentials_and_values_are_not_shown() {
    let login = LoginRequest { email: "a@x".to_owned(), password: Secret::new("hunter2") };
    assert!(!format!("{login:?}").contains("hunter2"));
    assert_eq!(serde_json::to_value(&login).unwrap()["password"], "hunter2");
    let version = CreateTemplateVersionRequest {
        template_id: Some(TemplateId::NIL),
        user_variable_values: vec![NameValue::new("token", "hunter2")],
        ..Default::default()
    };
    assert!(!format!("{version:?}").contains("hunter2"));
}

#[test]
fn words_know_what_they_are() {
    assert!(AutomaticUpdates::from("always").is_known() && !AutomaticUpdates::from("sometimes").is_known());
    assert_eq!(AutomaticUpdates::from("sometimes").to_string(), "sometimes");
}

//! Answers as official servers send them come out of our types unchanged: nothing lost, nothing added (http-api 18).

use coder_api::builds::WorkspaceBuild;
use coder_api::daemons::ProvisionerDaemon;
use coder_api::jobs::{ProvisionerJob, ProvisionerJobLog};
use coder_api::resources::WorkspaceResource;
use coder_api::users::User;
use coder_api::versions::{Preset, TemplateVersion, TemplateVersionParameter};
use serde_json::{Value, json};

use super::{NIL, TIME, id, through};

fn job() -> Value {
    json!({
        "id": id('1'), "created_at": "2026-01-02T03:04:05.541115Z", "status": "pending", "file_id": id('2'),
        "tags": {"owner": "", "scope": "organization"}, "queue_position": 0, "queue_size": 0,
        "organization_id": id('3'), "initiator_id": id('5'), "input": {"template_version_id": id('6')},
        "type": "template_version_import",
        "metadata": {"template_version_name": "", "template_id": NIL, "template_name": "",
            "template_display_name": "", "template_icon": ""},
        "logs_overflowed": false
    })
}

#[test]
fn pending_import() {
    let sample = json!({
        "id": id('6'), "template_id": NIL, "organization_id": id('3'), "created_at": TIME, "updated_at": TIME,
        "name": "quiet_owl1", "message": "Uploaded from the CLI", "job": job(), "readme": "",
        "created_by": {"id": id('5'), "username": "admin", "name": "Ad Min"}, "archived": false,
        "matched_provisioners": {"count": 2, "available": 2, "most_recently_seen": "2026-01-02T03:03:47.283003Z"},
        "has_external_agent": false
    });
    assert_eq!(through::<TemplateVersion>(&sample), sample);
}

#[test]
fn idle_daemon() {
    let sample = json!({
        "id": id('1'), "organization_id": id('3'), "key_id": "00000000-0000-0000-0000-000000000001",
        "created_at": TIME, "last_seen_at": "2026-01-02T03:07:47.3184Z", "name": "host-0",
        "version": "v2.30.0+0000000", "api_version": "1.14", "provisioners": ["terraform"],
        "tags": {"owner": "", "scope": "organization"}, "key_name": "built-in", "status": "idle",
        "current_job": null,
        "previous_job": {"id": id('7'), "status": "succeeded", "template_name": "full", "template_icon": "",
            "template_display_name": ""}
    });
    assert_eq!(through::<ProvisionerDaemon>(&sample), sample);
}

#[test]
fn finished_job_with_its_worker() {
    let mut sample = job();
    let more = json!({
        "status": "succeeded", "started_at": TIME, "completed_at": TIME, "worker_id": id('8'),
        "worker_name": "host-1", "queue_size": 1, "available_workers": [id('9')], "error": "boom",
        "error_code": "REQUIRED_TEMPLATE_VARIABLES", "canceled_at": TIME
    });
    sample.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    assert_eq!(through::<ProvisionerJob>(&sample), sample);
}

#[test]
fn log_lines() {
    for sample in [
        json!({"id": 1020, "created_at": "2026-01-02T03:04:05.146Z", "log_source": "provisioner_daemon",
            "log_level": "info", "stage": "Setting up", "output": ""}),
        json!({"id": 1033, "created_at": "2026-01-02T03:04:05.371Z", "log_source": "provisioner",
            "log_level": "info", "stage": "Planning", "output": "Plan: 1 to add"}),
    ] {
        assert_eq!(through::<ProvisionerJobLog>(&sample), sample);
    }
}

#[test]
fn running_build() {
    let mut job = job();
    job["type"] = json!("workspace_build");
    job["input"] = json!({"workspace_build_id": id('6')});
    let sample = json!({
        "id": id('6'), "created_at": TIME, "updated_at": TIME, "workspace_id": id('7'), "workspace_name": "w2",
        "workspace_owner_id": id('5'), "workspace_owner_name": "admin", "template_version_id": id('8'),
        "template_version_name": "v3", "build_number": 1, "transition": "start", "initiator_id": id('5'),
        "initiator_name": "admin", "job": job, "reason": "initiator", "resources": [], "deadline": null,
        "max_deadline": null, "status": "running", "daily_cost": 0,
        "matched_provisioners": {"count": 0, "available": 0, "most_recently_seen": null},
        "template_version_preset_id": null, "has_ai_task": false, "has_external_agent": false
    });
    assert_eq!(through::<WorkspaceBuild>(&sample), sample);
}

#[test]
fn resource_with_an_agent() {
    let sample = json!({
        "id": id('1'), "created_at": TIME, "job_id": id('2'), "workspace_transition": "start",
        "type": "terraform_data", "name": "box", "hide": false, "icon": "",
        "agents": [{
            "id": id('3'), "parent_id": null, "created_at": TIME, "updated_at": TIME, "first_connected_at": TIME,
            "last_connected_at": TIME, "started_at": TIME, "ready_at": TIME, "status": "connected",
            "lifecycle_state": "ready", "name": "main", "resource_id": id('1'), "architecture": "amd64",
            "environment_variables": null, "operating_system": "linux", "logs_length": 36,
            "logs_overflowed": false, "version": "v2.30.0", "api_version": "2.7",
            "apps": [{
                "id": id('5'), "url": "http://localhost:8000", "external": false, "slug": "web",
                "display_name": "Web", "subdomain": false, "sharing_level": "owner",
                "healthcheck": {"url": "http://localhost:8000", "interval": 5, "threshold": 3},
                "health": "initializing", "hidden": false, "open_in": "slim-window", "statuses": []
            }],
            "connection_timeout_seconds": 120, "troubleshooting_url": "https://example.com/help",
            "subsystems": [], "health": {"healthy": true},
            "display_apps": ["vscode", "ssh_helper", "port_forwarding_helper", "web_terminal"],
            "log_sources": [{"workspace_agent_id": id('3'), "id": id('6'), "created_at": TIME,
                "display_name": "Startup Script", "icon": ""}],
            "scripts": [{"id": id('7'), "log_source_id": id('6'), "log_path": "startup.log", "script": "echo hi",
                "cron": "", "run_on_start": true, "run_on_stop": false, "start_blocks_login": false, "timeout": 0,
                "display_name": "Startup Script"}],
            "startup_script_behavior": "non-blocking"
        }],
        "metadata": [{"key": "region", "value": "eu", "sensitive": false}], "daily_cost": 0
    });
    assert_eq!(through::<WorkspaceResource>(&sample), sample);
}

#[test]
fn presets_have_capital_keys() {
    let sample = json!({
        "ID": id('1'), "Name": "small", "Parameters": [{"Name": "cpu", "Value": "1"}], "Default": true,
        "DesiredPrebuildInstances": null, "Description": "", "Icon": ""
    });
    assert_eq!(through::<Preset>(&sample), sample);
}

#[test]
fn parameters_omit_the_validation_they_do_not_have() {
    let mut sample = json!({
        "name": "cpu", "description": "CPUs", "description_plaintext": "CPUs", "type": "number",
        "form_type": "slider", "mutable": true, "default_value": "2", "icon": "",
        "options": [{"name": "two", "description": "", "value": "2", "icon": ""}], "required": false,
        "ephemeral": false
    });
    assert_eq!(through::<TemplateVersionParameter>(&sample), sample);
    let validation = json!({"validation_error": "no", "validation_min": 0, "validation_max": 8,
        "validation_monotonic": "increasing", "display_name": "CPU"});
    sample.as_object_mut().unwrap().extend(validation.as_object().unwrap().clone());
    assert_eq!(through::<TemplateVersionParameter>(&sample), sample);
}

#[test]
fn unknown_words_and_fields_of_newer_servers_are_kept_or_skipped() {
    let sample = json!({
        "id": id('1'), "username": "a", "email": "a@x", "created_at": TIME, "updated_at": TIME,
        "last_seen_at": "0001-01-01T00:00:00Z", "status": "hibernating", "login_type": "passkey",
        "organization_ids": [], "roles": []
    });
    let mut newer = sample.clone();
    newer["shoe_size"] = json!(42);
    assert_eq!(through::<User>(&newer), sample);
}

#[test]
fn nulls_of_go_read_as_empty() {
    let sample = json!({
        "id": id('1'), "username": "a", "email": "a@x", "created_at": TIME, "updated_at": TIME,
        "last_seen_at": null, "status": "active", "login_type": "none", "organization_ids": null, "roles": null
    });
    let user: User = serde_json::from_value(sample).unwrap();
    assert!(user.roles.is_empty() && user.organization_ids.is_empty() && user.last_seen_at.is_none());
}

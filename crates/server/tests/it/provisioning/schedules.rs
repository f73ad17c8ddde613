//! The schedule task over the real protocol, with a clock that is moved by hand.

use coder_domain::ids::{TemplateId, WorkspaceId};
use coder_server::tasks::driver::WakingTask as _;
use coder_server::tasks::schedules::WorkspaceSchedules;
use coder_wire::messages::provisioner::Metadata;
use coder_wire::messages::provisionerd::acquired_job::Type;
use jiff::SignedDuration;

use super::*;
use crate::harness::{START, on_both_engines, settings};

const MINUTE: i64 = 60;
const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// A workspace of an owner, with a daemon that can build it.
struct Scene {
    server: TestServer,
    owner: String,
    daemon: Daemon,
    template: TemplateId,
}

impl Scene {
    async fn new(server: TestServer) -> Self {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "example").await;
        let daemon = Daemon::untagged(&server, "d").await;
        let scene = Self { server, owner, daemon, template };
        scene.keep_sessions().await;
        scene
    }

    /// The sessions of people outlast the days of a test.
    async fn keep_sessions(&self) {
        self.server.execute("update api_keys set expires_us = 4102444800000000;").await;
    }

    /// Changes the template. What is not named is the default, because an absent number means zero.
    async fn rules(&self, more: Value) {
        let mut body = json!({ "allow_user_autostart": true, "allow_user_autostop": true, "activity_bump_ms": 3_600_000 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer =
            self.server.patch(&self.owner, &format!("/api/v2/templates/{}", self.template), body).await;
        assert!(!answer.headers.contains_key("x-coder-entitlements-warning"), "{answer:?}");
        answer.expect(200);
    }

    /// A started workspace.
    async fn workspace(&self, more: Value) -> String {
        let mut body = json!({ "name": "w", "template_id": self.template });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = self.server.post(&self.owner, "/api/v2/users/me/workspaces", body).await;
        assert!(!answer.headers.contains_key("x-coder-entitlements-warning"), "{answer:?}");
        let id = answer.expect(201)["id"].as_str().unwrap().to_owned();
        self.run().await;
        id
    }

    /// Runs the next build to its end, and returns what it got.
    async fn run(&self) -> Metadata {
        let got = self.daemon.acquire().await;
        let Some(Type::WorkspaceBuild(arm)) = got.r#type else { panic!("{got:?}") };
        let job = got.job_id.parse().unwrap();
        self.daemon.calls.complete_job(&build_result(job, b"state")).await.unwrap();
        arm.metadata.unwrap()
    }

    async fn fail_next(&self) {
        let job = self.daemon.acquire().await.job_id.parse().unwrap();
        self.daemon.fail(job, "no").await.unwrap();
    }

    async fn build(&self, id: &str, transition: &str) {
        let path = format!("/api/v2/workspaces/{id}/builds");
        self.server.post(&self.owner, &path, json!({ "transition": transition })).await.expect(201);
    }

    /// One pass of the task. Returns after how many seconds it wants to look again.
    async fn pass(&self) -> u64 {
        WorkspaceSchedules::default().run(&self.server.app).await.unwrap().as_secs()
    }

    async fn shown(&self, id: &str) -> Value {
        self.server.get(&self.owner, &format!("/api/v2/workspaces/{id}")).await.expect(200)
    }

    /// Number, transition and reason of the latest build.
    async fn latest(&self, id: &str) -> (i64, String, String) {
        let build = self.shown(id).await["latest_build"].clone();
        let text = |field: &str| build[field].as_str().unwrap().to_owned();
        (build["build_number"].as_i64().unwrap(), text("transition"), text("reason"))
    }

    async fn put(&self, id: &str, part: &str, body: Value) -> crate::harness::Answer {
        self.server.put(&self.owner, &format!("/api/v2/workspaces/{id}/{part}"), body).await
    }
}

fn after(seconds: i64) -> String {
    (START + SignedDuration::from_secs(seconds)).to_string()
}

/// A schedule at the minute that is this long after the start of the test, every day.
fn daily(seconds: i64) -> (String, i64) {
    let at = (START + SignedDuration::from_secs(seconds)).to_zoned(jiff::tz::TimeZone::UTC);
    (format!("CRON_TZ=UTC {} {} * * *", at.minute(), at.hour()), seconds - i64::from(at.second()))
}

fn build_is(found: &(i64, String, String), number: i64, transition: &str, reason: &str) {
    assert_eq!((found.0, found.1.as_str(), found.2.as_str()), (number, transition, reason));
}

on_both_engines! {
    async fn a_workspace_stops_at_its_deadline(server: TestServer) {
        let scene = Scene::new(server).await;
        let id = scene.workspace(json!({ "ttl_ms": 60_000 })).await;
        let shown = scene.shown(&id).await;
        assert_eq!(shown["latest_build"]["deadline"], after(MINUTE));
        assert_eq!(shown["latest_build"]["max_deadline"], Value::Null);
        assert_eq!(scene.pass().await, 60);
        scene.server.advance(59);
        assert_eq!(scene.pass().await, 1);
        build_is(&scene.latest(&id).await, 1, "start", "initiator");
        scene.server.advance(1);
        scene.pass().await;
        build_is(&scene.latest(&id).await, 2, "stop", "autostop");
        assert_eq!(scene.shown(&id).await["latest_build"]["initiator_name"], "admin");
        // Nothing is due while the build runs, and nothing afterwards.
        scene.pass().await;
        scene.run().await;
        scene.server.advance(DAY);
        scene.pass().await;
        build_is(&scene.latest(&id).await, 2, "stop", "autostop");
    }

    async fn a_used_workspace_does_not_stop(server: TestServer) {
        let scene = Scene::new(server).await;
        let id = scene.workspace(json!({ "ttl_ms": 60_000 })).await;
        scene.server.advance(30);
        scene.server.post(&scene.owner, &format!("/api/v2/workspaces/{id}/usage"), Value::Null).await.expect(204);
        scene.server.app.pending.write(&scene.server.app).await.unwrap();
        let shown = scene.shown(&id).await;
        assert_eq!(shown["latest_build"]["deadline"], after(30 + HOUR));
        assert_eq!(shown["last_used_at"], after(30));
        scene.server.advance(HOUR - 1);
        scene.pass().await;
        build_is(&scene.latest(&id).await, 1, "start", "initiator");
        scene.server.advance(1);
        scene.pass().await;
        build_is(&scene.latest(&id).await, 2, "stop", "autostop");
        scene.run().await;
        // A use of a stopped workspace moves nothing.
        scene.server.app.pending.used(id.parse::<WorkspaceId>().unwrap());
        scene.server.app.pending.write(&scene.server.app).await.unwrap();
        assert_eq!(scene.shown(&id).await["latest_build"]["deadline"], Value::Null);
    }

    async fn a_template_without_a_bump_stops_a_used_workspace(server: TestServer) {
        let scene = Scene::new(server).await;
        scene.rules(json!({ "activity_bump_ms": 0 })).await;
        let id = scene.workspace(json!({ "ttl_ms": 60_000 })).await;
        scene.server.advance(30);
        scene.server.app.pending.used(id.parse::<WorkspaceId>().unwrap());
        scene.server.app.pending.write(&scene.server.app).await.unwrap();
        scene.server.advance(30);
        scene.pass().await;
        build_is(&scene.latest(&id).await, 2, "stop", "autostop");
    }

    async fn a_workspace_starts_by_its_schedule(server: TestServer) {
        let scene = Scene::new(server).await;
        let id = scene.workspace(json!({})).await;
        let (schedule, due) = daily(2 * HOUR);
        scene.put(&id, "autostart", json!({ "schedule": schedule })).await.expect(204);
        assert_eq!(scene.shown(&id).await["next_start_at"], after(due));
        scene.build(&id, "stop").await;
        scene.run().await;
        scene.server.advance(due - 1);
        scene.pass().await;
        build_is(&scene.latest(&id).await, 2, "stop", "initiator");
        scene.server.advance(1);
        scene.pass().await;
        build_is(&scene.latest(&id).await, 3, "start", "autostart");
        assert_eq!(scene.shown(&id).await["next_start_at"], after(due + DAY));
        scene.run().await;
        // A start does not count as use: only people do.
        assert_eq!(scene.shown(&id).await["last_used_at"], after(0));
        // The server was away for two days: the start of yesterday is made up for, once.
        scene.build(&id, "stop").await;
        scene.run().await;
        scene.server.advance(2 * DAY);
        scene.pass().await;
        scene.pass().await;
        build_is(&scene.latest(&id).await, 5, "start", "autostart");
        scene.run().await;
        scene.put(&id, "autostart", json!({})).await.expect(204);
        assert_eq!(scene.shown(&id).await["next_start_at"], Value::Null);
    }

    async fn a_start_without_a_daemon_waits_and_says_why(server: TestServer) {
        let scene = Scene::new(server).await;
        let (schedule, due) = daily(2 * HOUR);
        let id = scene.workspace(json!({ "autostart_schedule": schedule })).await;
        scene.build(&id, "stop").await;
        scene.run().await;
        let Scene { server, owner, daemon, template } = scene;
        drop(daemon);
        all_gone(&server).await;
        server.advance(due + 1);
        let pass = async || WorkspaceSchedules::default().run(&server.app).await.unwrap().as_secs();
        assert_eq!(pass().await, 60, "it is tried again in a minute");
        let shown = async || server.get(&owner, &format!("/api/v2/workspaces/{id}")).await.expect(200);
        let note = shown().await["schedule_note"].as_str().unwrap().to_owned();
        assert!(note.starts_with("autostart: no provisioner daemon with the tags"), "{note}");
        assert_eq!(shown().await["latest_build"]["build_number"], 2, "nothing waits in the queue");
        server.advance(60);
        let daemon = Daemon::untagged(&server, "again").await;
        pass().await;
        let scene = Scene { server, owner, daemon, template };
        build_is(&scene.latest(&id).await, 3, "start", "autostart");
        assert_eq!(scene.shown(&id).await["schedule_note"], Value::Null);
    }

    async fn a_start_takes_the_active_version_when_it_follows_it(server: TestServer) {
        let scene = Scene::new(server).await;
        let (schedule, due) = daily(2 * HOUR);
        let more = json!({ "autostart_schedule": schedule, "automatic_updates": "always" });
        let id = scene.workspace(more).await;
        scene.build(&id, "stop").await;
        scene.run().await;
        let (version, job) = scene.server.version(&scene.owner, json!({ "template_id": scene.template })).await;
        let got = scene.daemon.acquire().await;
        assert_eq!(got.job_id, job.to_string());
        scene.daemon.calls.complete_job(&import_result(job, Vec::new())).await.unwrap();
        let path = format!("/api/v2/templates/{}/versions", scene.template);
        scene.server.patch(&scene.owner, &path, json!({ "id": version })).await.expect(200);
        let path = format!("/api/v2/workspaces/{id}/resolve-autostart");
        assert_eq!(scene.server.get(&scene.owner, &path).await.expect(200)["parameter_mismatch"], false);
        scene.server.advance(due);
        scene.pass().await;
        let build = scene.shown(&id).await["latest_build"].clone();
        assert_eq!(build["reason"], "autostart");
        assert_eq!(build["template_version_id"], version.to_string());
    }

    async fn a_workspace_whose_start_failed_is_stopped(server: TestServer) {
        let scene = Scene::new(server).await;
        scene.rules(json!({ "failure_ttl_ms": 120_000 })).await;
        let id = scene.workspace(json!({ "ttl_ms": 60_000 })).await;
        scene.build(&id, "start").await;
        scene.fail_next().await;
        scene.server.advance(119);
        scene.pass().await;
        build_is(&scene.latest(&id).await, 2, "start", "initiator");
        scene.server.advance(1);
        scene.pass().await;
        build_is(&scene.latest(&id).await, 3, "stop", "autostop");
    }

    async fn an_unused_workspace_becomes_dormant_and_is_deleted(server: TestServer) {
        let scene = Scene::new(server).await;
        scene.rules(json!({ "time_til_dormant_ms": DAY * 1000, "time_til_dormant_autodelete_ms": DAY * 1000 })).await;
        let id = scene.workspace(json!({})).await;
        scene.server.advance(DAY - 1);
        scene.pass().await;
        assert_eq!(scene.shown(&id).await["dormant_at"], Value::Null);
        scene.server.advance(1);
        scene.pass().await;
        let shown = scene.shown(&id).await;
        assert_eq!((&shown["dormant_at"], &shown["deleting_at"]), (&json!(after(DAY)), &json!(after(2 * DAY))));
        build_is(&scene.latest(&id).await, 2, "stop", "dormancy");
        scene.run().await;
        // A person wakes it; it falls asleep again, now without a build.
        scene.put(&id, "dormant", json!({ "dormant": false })).await.expect(200);
        assert_eq!(scene.shown(&id).await["deleting_at"], Value::Null);
        scene.server.advance(DAY);
        scene.pass().await;
        build_is(&scene.latest(&id).await, 2, "stop", "dormancy");
        assert_eq!(scene.shown(&id).await["deleting_at"], after(3 * DAY));
        scene.server.advance(DAY - 1);
        scene.pass().await;
        build_is(&scene.latest(&id).await, 2, "stop", "dormancy");
        scene.server.advance(1);
        scene.pass().await;
        build_is(&scene.latest(&id).await, 3, "delete", "autodelete");
        scene.fail_next().await;
        scene.server.advance(DAY - 1);
        scene.pass().await;
        build_is(&scene.latest(&id).await, 3, "delete", "autodelete");
        scene.server.advance(1);
        scene.pass().await;
        build_is(&scene.latest(&id).await, 4, "delete", "autodelete");
        scene.run().await;
        scene.server.get(&scene.owner, &format!("/api/v2/workspaces/{id}")).await.expect(410);
    }

    async fn a_person_who_starts_a_workspace_uses_it(server: TestServer) {
        let scene = Scene::new(server).await;
        scene.rules(json!({ "time_til_dormant_ms": DAY * 1000 })).await;
        let id = scene.workspace(json!({})).await;
        scene.server.advance(DAY);
        scene.pass().await;
        scene.run().await;
        scene.build(&id, "start").await;
        scene.run().await;
        scene.pass().await;
        let shown = scene.shown(&id).await;
        assert_eq!((&shown["dormant_at"], &shown["last_used_at"]), (&Value::Null, &json!(after(DAY))));
    }

    async fn a_template_that_changes_its_rules_changes_them_for_its_workspaces(server: TestServer) {
        let scene = Scene::new(server).await;
        let id = scene.workspace(json!({})).await;
        scene.put(&id, "dormant", json!({ "dormant": true })).await.expect(200);
        scene.pass().await;
        scene.server.advance(HOUR);
        scene.rules(json!({ "time_til_dormant_autodelete_ms": DAY * 1000 })).await;
        assert_eq!(scene.shown(&id).await["deleting_at"], after(DAY));
        scene.rules(json!({ "time_til_dormant_autodelete_ms": DAY * 1000, "update_workspace_dormant_at": true })).await;
        let shown = scene.shown(&id).await;
        assert_eq!((&shown["dormant_at"], &shown["deleting_at"]), (&json!(after(HOUR)), &json!(after(HOUR + DAY))));
        scene.rules(json!({ "update_workspace_last_used_at": true })).await;
        let shown = scene.shown(&id).await;
        assert_eq!((&shown["last_used_at"], &shown["deleting_at"]), (&json!(after(HOUR)), &Value::Null));
        scene.server.advance(9 * DAY);
        scene.pass().await;
        build_is(&scene.latest(&id).await, 1, "start", "initiator");
    }

    async fn a_template_may_set_the_time_to_live_and_forbid_schedules(server: TestServer) {
        let scene = Scene::new(server).await;
        let (schedule, due) = daily(2 * HOUR);
        let id = scene.workspace(json!({ "autostart_schedule": schedule, "ttl_ms": 60_000 })).await;
        let closed = json!({ "allow_user_autostart": false, "allow_user_autostop": false, "default_ttl_ms": HOUR * 1000 });
        scene.rules(closed).await;
        assert_eq!(scene.put(&id, "ttl", json!({ "ttl_ms": 120_000 })).await.status, 400);
        assert_eq!(scene.put(&id, "autostart", json!({ "schedule": schedule })).await.status, 400);
        let shown = scene.shown(&id).await;
        assert_eq!((&shown["ttl_ms"], &shown["next_start_at"]), (&json!(HOUR * 1000), &Value::Null));
        scene.build(&id, "start").await;
        scene.run().await;
        assert_eq!(scene.shown(&id).await["latest_build"]["deadline"], after(HOUR));
        scene.server.advance(HOUR);
        scene.pass().await;
        scene.run().await;
        build_is(&scene.latest(&id).await, 3, "stop", "autostop");
        scene.server.advance(due + DAY);
        scene.pass().await;
        build_is(&scene.latest(&id).await, 3, "stop", "autostop");
        let note = scene.shown(&id).await["schedule_note"].clone();
        assert_eq!(note, "autostart: the template does not allow autostart");
    }

    async fn a_required_stop_is_in_the_quiet_hours_of_the_owner(server: TestServer) {
        let scene = Scene::new(server).await;
        let days = json!(["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]);
        scene.rules(json!({ "autostop_requirement": { "days_of_week": days, "weeks": 1 } })).await;
        let path = "/api/v2/users/me/quiet-hours";
        let shown = scene.server.get(&scene.owner, path).await.expect(200);
        assert_eq!(shown["raw_schedule"], "CRON_TZ=UTC 0 0 * * *");
        assert_eq!((&shown["user_set"], &shown["user_can_set"]), (&json!(false), &json!(true)));
        for wrong in ["", "0 1 * * 1", "* * * * *"] {
            assert_eq!(scene.server.put(&scene.owner, path, json!({ "schedule": wrong })).await.refused(400), "schedule");
        }
        let body = json!({ "schedule": "CRON_TZ=Asia/Kolkata 30 1 * * *" });
        let chosen = scene.server.put(&scene.owner, path, body).await.expect(200);
        assert_eq!((&chosen["time"], &chosen["timezone"]), (&json!("01:30"), &json!("Asia/Kolkata")));
        assert_eq!(chosen["user_set"], true);
        assert_eq!(scene.server.get(&scene.owner, path).await.expect(200), chosen);
        let other = scene.server.user(&scene.owner, "other", &[]).await;
        let path = "/api/v2/users/admin/quiet-hours";
        assert!(scene.server.put(&other, path, json!({ "schedule": "0 1 * * *" })).await.status.is_client_error());

        // It is 20:26 UTC; 01:30 in Kolkata was 20:00 UTC, so the stop is tomorrow.
        let id = scene.workspace(json!({ "ttl_ms": DAY * 2000 })).await;
        let stop = "2026-05-29T20:00:00Z";
        let build = scene.shown(&id).await["latest_build"].clone();
        assert_eq!((&build["deadline"], &build["max_deadline"]), (&json!(stop), &json!(stop)));
        let late = json!({ "deadline": "2026-05-29T20:00:01Z" });
        assert_eq!(scene.put(&id, "extend", late).await.refused(400), "deadline");
        // Activity does not move it.
        scene.server.advance(DAY - HOUR);
        scene.server.app.pending.used(id.parse::<WorkspaceId>().unwrap());
        scene.server.app.pending.write(&scene.server.app).await.unwrap();
        scene.server.advance(HOUR);
        scene.pass().await;
        build_is(&scene.latest(&id).await, 2, "stop", "autostop");
    }

    async fn a_template_that_requires_stops_limits_started_workspaces(server: TestServer) {
        let scene = Scene::new(server).await;
        let id = scene.workspace(json!({})).await;
        let days = json!(["saturday"]);
        scene.rules(json!({ "autostop_requirement": { "days_of_week": days, "weeks": 1 } })).await;
        let build = scene.shown(&id).await["latest_build"].clone();
        let stop = json!("2026-05-30T00:00:00Z");
        assert_eq!((&build["deadline"], &build["max_deadline"]), (&stop, &stop));
        scene.rules(json!({ "autostop_requirement": { "days_of_week": [], "weeks": 1 } })).await;
        assert_eq!(scene.shown(&id).await["latest_build"]["max_deadline"], Value::Null);
    }

    async fn a_deadline_is_extended(server: TestServer) {
        let scene = Scene::new(server).await;
        let id = scene.workspace(json!({})).await;
        let to = |seconds: i64| json!({ "deadline": after(seconds) });
        let refused = scene.put(&id, "extend", to(HOUR)).await.expect(409);
        assert_eq!(refused["message"], "Workspace shutdown is manual.");
        scene.put(&id, "ttl", json!({ "ttl_ms": 60_000 })).await.expect(204);
        scene.build(&id, "start").await;
        let refused = scene.put(&id, "extend", to(HOUR)).await.expect(409);
        assert_eq!(refused["message"], "Workspace is still building!");
        scene.run().await;
        assert_eq!(scene.put(&id, "extend", to(28 * MINUTE)).await.refused(400), "deadline");
        let said = scene.put(&id, "extend", to(2 * HOUR)).await.expect(200);
        assert_eq!(said["message"], format!("Deadline updated to {}.", after(2 * HOUR)));
        scene.pass().await;
        // A deadline that is nearer than the one before holds too.
        scene.put(&id, "extend", to(HOUR)).await.expect(200);
        scene.server.advance(HOUR);
        scene.pass().await;
        build_is(&scene.latest(&id).await, 3, "stop", "autostop");
        scene.run().await;
        let refused = scene.put(&id, "extend", to(3 * HOUR)).await.expect(409);
        assert_eq!(refused["message"], "Workspace must be started, current status: stop");
        let other = scene.server.user(&scene.owner, "other", &[]).await;
        let path = format!("/api/v2/workspaces/{id}/extend");
        scene.server.put(&other, &path, to(HOUR)).await.expect(404);
    }

    async fn a_workspace_of_a_suspended_account_is_stopped_and_not_started(server: TestServer) {
        let scene = Scene::new(server).await;
        scene.server.user(&scene.owner, "dev", &[]).await;
        let (schedule, due) = daily(2 * HOUR);
        let path = "/api/v2/organizations/default/members/dev/workspaces";
        let body = json!({ "name": "w", "template_id": scene.template, "autostart_schedule": schedule });
        let made = scene.server.post(&scene.owner, path, body).await.expect(201);
        let id = made["id"].as_str().unwrap().to_owned();
        scene.run().await;
        scene.pass().await;
        let status = async |word: &str| {
            let path = format!("/api/v2/users/dev/status/{word}");
            scene.server.put(&scene.owner, &path, Value::Null).await.expect(200)
        };
        status("suspend").await;
        scene.pass().await;
        build_is(&scene.latest(&id).await, 2, "stop", "autostop");
        scene.run().await;
        scene.server.advance(due);
        scene.pass().await;
        build_is(&scene.latest(&id).await, 2, "stop", "autostop");
        let note = scene.shown(&id).await["schedule_note"].clone();
        assert_eq!(note, "autostart: the account of the owner is suspended");
        status("activate").await;
        scene.pass().await;
        build_is(&scene.latest(&id).await, 3, "start", "autostart");
    }

    async fn several_servers_do_it_once(server: TestServer) {
        let scene = Scene::new(server).await;
        let id = scene.workspace(json!({ "ttl_ms": 60_000 })).await;
        scene.server.advance(MINUTE);
        let (other, third) = (scene.server.beside(settings()).await, scene.server.beside(settings()).await);
        let pass = async |server: &TestServer| WorkspaceSchedules::default().run(&server.app).await.unwrap();
        tokio::join!(pass(&scene.server), pass(&other), pass(&third));
        pass(&scene.server).await;
        build_is(&scene.latest(&id).await, 2, "stop", "autostop");
        scene.run().await;
        tokio::join!(pass(&other), pass(&third));
        build_is(&scene.latest(&id).await, 2, "stop", "autostop");
    }

    /// A killed server leaves the lease behind; another one goes on when it has expired.
    async fn the_lease_of_a_killed_server_expires(server: TestServer) {
        let scene = Scene::new(server).await;
        let id = scene.workspace(json!({ "ttl_ms": 60_000 })).await;
        scene.server.advance(MINUTE);
        let now = scene.server.app.now();
        let until = now + SignedDuration::from_secs(60);
        let mut tx = scene.server.app.store.single().await.unwrap();
        coder_store::leases::claim(&mut tx, "workspace schedules", "killed", until, now).await.unwrap();
        drop(tx);
        assert_eq!(scene.pass().await, 5);
        build_is(&scene.latest(&id).await, 1, "start", "initiator");
        scene.server.advance(MINUTE);
        scene.pass().await;
        build_is(&scene.latest(&id).await, 2, "stop", "autostop");
    }

    async fn a_changed_clock_removes_nothing_at_once(server: TestServer) {
        let scene = Scene::new(server).await;
        scene.rules(json!({ "time_til_dormant_ms": DAY * 1000 })).await;
        let (schedule, _) = daily(2 * HOUR);
        let id = scene.workspace(json!({ "autostart_schedule": schedule })).await;
        let mut task = WorkspaceSchedules::default();
        task.run(&scene.server.app).await.unwrap();
        scene.server.advance(30 * DAY);
        task.run(&scene.server.app).await.unwrap();
        let shown = scene.shown(&id).await;
        assert_eq!(shown["dormant_at"], Value::Null);
        assert_eq!(shown["schedule_note"], "dormancy: waits, because the clock of the server was set");
        // The administrator sets it right: everything is calculated again.
        scene.server.advance(-30 * DAY);
        task.run(&scene.server.app).await.unwrap();
        assert_eq!(scene.shown(&id).await["schedule_note"], Value::Null);
        scene.server.advance(DAY);
        scene.pass().await;
        build_is(&scene.latest(&id).await, 2, "stop", "dormancy");
    }

    /// An organization admin who may not act as the owner sets the schedule.
    async fn a_schedule_gives_no_more_credentials_than_the_person_who_set_it_has(server: TestServer) {
        let scene = Scene::new(server).await;
        let admin = scene.server.user(&scene.owner, "orgadmin", &[]).await;
        let path = "/api/v2/organizations/default/members/orgadmin/roles";
        scene.server.put(&scene.owner, path, json!({ "roles": ["organization-admin"] })).await.expect(200);
        scene.keep_sessions().await;
        let id = scene.workspace(json!({})).await;
        let (schedule, due) = daily(2 * HOUR);
        let path = format!("/api/v2/workspaces/{id}/autostart");
        let next = async |who: &str, seconds: i64| {
            scene.server.put(who, &path, json!({ "schedule": schedule })).await.expect(204);
            scene.build(&id, "stop").await;
            scene.run().await;
            scene.server.advance(seconds);
            scene.pass().await;
            assert_eq!(scene.latest(&id).await.2, "autostart");
            scene.run().await.workspace_owner_session_token
        };
        assert_eq!(next(&admin, due).await, "");
        assert_ne!(next(&scene.owner, DAY).await, "");
        // Choosing the version that a start takes is the same power.
        let path = format!("/api/v2/workspaces/{id}/autoupdates");
        scene.server.put(&admin, &path, json!({ "automatic_updates": "always" })).await.expect(204);
        scene.build(&id, "stop").await;
        scene.run().await;
        scene.server.advance(DAY);
        scene.pass().await;
        assert_eq!(scene.run().await.workspace_owner_session_token, "");
    }
}

/// The task of a running server wakes when something is due, long before its next regular look.
#[tokio::test]
async fn a_running_server_wakes_for_a_deadline() {
    let scene = Scene::new(TestServer::sqlite().await).await;
    let app = scene.server.app.clone();
    coder_server::tasks::start(&app);
    let id = scene.workspace(json!({ "ttl_ms": 60_000 })).await;
    scene.server.advance(MINUTE);
    // The clock of the test does not wake the task; a change does.
    scene.put(&id, "autoupdates", json!({ "automatic_updates": "never" })).await.expect(204);
    poll_until("the workspace is being stopped", async || {
        Some(scene.latest(&id).await).filter(|found| found.2 == "autostop")
    })
    .await;
    app.lifecycle.stop(WAIT_LIMIT).await;
}

//! Archives of modules: a result may name only archives that its own daemon uploaded.

use coder_store::jobs;
use coder_store::templates::version_details;
use coder_wire::messages::provisioner::DataUploadType::UploadTypeModuleFiles as MODULES;
use coder_wire::messages::provisionerd::acquired_job;

use super::*;
use crate::harness::on_both_engines;

fn with(job: JobId, hash: &[u8]) -> CompletedJob {
    let import = completed_job::TemplateImport { module_files_hash: hash.to_vec(), ..Default::default() };
    CompletedJob { job_id: job.to_string(), r#type: Some(completed_job::Type::TemplateImport(import)) }
}

async fn modules_of(server: &TestServer, version: TemplateVersionId) -> Option<coder_domain::ids::FileId> {
    version_details::find_module_file(&mut server.app.store.reader().await.unwrap(), version).await.unwrap()
}

on_both_engines! {
    async fn an_archive_counts_for_the_job_it_was_uploaded_for_only(server: TestServer) {
        let owner = server.owner().await;
        let data = bytes::Bytes::from_static(b"modules of a secret template");
        let hash = coder_wire::file::hash(&data);
        let (secret, first) = import(&server, &owner, json!({})).await;
        let daemon = Daemon::untagged(&server, "d").await;
        daemon.take(first).await;
        daemon.calls.upload_file(MODULES, data.clone()).await.unwrap();
        daemon.calls.complete_job(&with(first, &hash)).await.unwrap();
        let stored = modules_of(&server, secret).await;
        assert!(stored.is_some());

        // Another daemon that knows the hash, and the same daemon for another job.
        let (version, posted) = import(&server, &owner, json!({})).await;
        let curious = Daemon::untagged(&server, "curious").await;
        curious.take(posted).await;
        let (later, again) = import(&server, &owner, json!({})).await;
        daemon.take(again).await;
        for (daemon, job_id, version) in [(&curious, posted, version), (&daemon, again, later)] {
            let said = refused(daemon.calls.complete_job(&with(job_id, &hash)).await);
            assert!(said.contains("not uploaded"), "{said}");
            assert_eq!(modules_of(&server, version).await, None);
            assert_eq!(status(&job(&server, job_id).await), Status::Running);
        }
        // A daemon that has the content may upload it too.
        daemon.calls.upload_file(MODULES, data.clone()).await.unwrap();
        let said = refused(curious.calls.complete_job(&with(posted, &hash)).await);
        assert!(said.contains("not uploaded"), "{said}");
        daemon.calls.complete_job(&with(again, &hash)).await.unwrap();
        assert_eq!(modules_of(&server, later).await, stored, "equal content is stored once");
        // A result may refer to the archive that the version already has.
        let (file, now) = (stored.unwrap(), server.app.now());
        let mut tx = server.app.store.single().await.unwrap();
        version_details::update_module_file(&mut tx, version, file, now).await.unwrap();
        drop(tx);
        curious.calls.complete_job(&with(posted, &hash)).await.unwrap();
        assert_eq!(modules_of(&server, version).await, stored);
        // The purge deletes the records of uploads for old jobs, but not the files.
        server.advance(1);
        let mut tx = server.app.store.single().await.unwrap();
        assert_eq!(jobs::uploads::purge(&mut tx, server.app.now()).await.unwrap(), 2);
    }

    async fn a_dry_run_has_the_modules_of_its_version(server: TestServer) {
        let owner = server.owner().await;
        let data = bytes::Bytes::from_static(b"modules");
        let (version, posted) = import(&server, &owner, json!({})).await;
        let daemon = Daemon::untagged(&server, "d").await;
        daemon.take(posted).await;
        daemon.calls.upload_file(MODULES, data.clone()).await.unwrap();
        daemon.calls.complete_job(&with(posted, &coder_wire::file::hash(&data))).await.unwrap();
        let path = format!("/api/v2/templateversions/{version}/dry-run");
        let dry_run = server.post(&owner, &path, json!({ "workspace_name": "w" })).await.expect(201);
        let message = daemon.acquire().await;
        assert_eq!(message.job_id, dry_run["id"].as_str().unwrap());
        let Some(acquired_job::Type::TemplateDryRun(dry_run)) = message.r#type else { panic!("no dry run") };
        let file = modules_of(&server, version).await.unwrap();
        assert_eq!(dry_run.metadata.unwrap().template_version_modules_file, file.to_string());
    }

    async fn a_job_has_room_for_so_many_archives(server: TestServer) {
        let owner = server.owner().await;
        let (_, posted) = import(&server, &owner, json!({})).await;
        let daemon = Daemon::untagged(&server, "d").await;
        daemon.take(posted).await;
        let data = |number: i64| bytes::Bytes::from(format!("archive {number}"));
        for number in 0..jobs::uploads::MAX_UPLOADS {
            daemon.calls.upload_file(MODULES, data(number)).await.unwrap();
        }
        let said = refused(daemon.calls.upload_file(MODULES, data(-1)).await);
        assert!(said.contains("at most 8 archives"), "{said}");
        daemon.calls.upload_file(MODULES, data(0)).await.unwrap();
        let hash = coder_wire::file::hash(&data(-1));
        let said = refused(daemon.calls.complete_job(&with(posted, &hash)).await);
        assert!(said.contains("not uploaded"), "{said}");
    }

    async fn a_refused_upload_takes_no_memory(server: TestServer) {
        let daemon = Daemon::untagged(&server, "d").await;
        let uploads = (0..16).map(|_| daemon.calls.upload_file(MODULES, vec![7; 8 << 20].into()));
        for refused in futures_util::future::join_all(uploads).await {
            assert!(super::refused(refused).contains("holds no import"));
        }
        let (peak, _) = server.app.memory.take_peaks();
        assert!(peak <= 4 << 20, "{peak}");
    }

    async fn a_long_archive_is_stored_and_handed_out_as_it_was(server: TestServer) {
        let owner = server.owner().await;
        let data: bytes::Bytes = (0..5_000_000_u32).map(|byte| (byte % 251) as u8).collect();
        let (version, posted) = import(&server, &owner, json!({})).await;
        let daemon = Daemon::untagged(&server, "d").await;
        daemon.take(posted).await;
        daemon.calls.upload_file(MODULES, data.clone()).await.unwrap();
        daemon.calls.complete_job(&with(posted, &coder_wire::file::hash(&data))).await.unwrap();
        let path = format!("/api/v2/templateversions/{version}/dry-run");
        server.post(&owner, &path, json!({ "workspace_name": "w" })).await.expect(201);
        daemon.acquire().await;
        let file = modules_of(&server, version).await.unwrap().to_string();
        assert!(daemon.calls.download_file(&file, MODULES).await.unwrap() == data);
        eventually("everything is released", || server.app.memory.used() == 0).await;
    }
}

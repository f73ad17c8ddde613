//! Uploads and downloads (http-api 6.1).

use std::io::Write;

use serde_json::{Value, json};

use crate::harness::{TestServer, on_both_engines, settings, tar};

fn zip(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, content) in entries {
        archive.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(content.as_bytes()).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

on_both_engines! {
    async fn the_same_bytes_are_stored_once_per_user(server: TestServer) {
        let owner = server.owner().await;
        let other = server.user(&owner, "dev", &[]).await;
        let bytes = tar(&[("main.tf", "x")]);
        let first = server.upload(&owner, "application/x-tar", bytes.clone()).await.expect(201);
        assert_eq!(server.upload(&owner, "application/x-tar", bytes.clone()).await.expect(200), first);
        assert_ne!(server.upload(&other, "application/x-tar", bytes.clone()).await.expect(201), first);
        let path = format!("/api/v2/files/{}", first["hash"].as_str().unwrap());
        let down = server.get(&owner, &path).await;
        assert_eq!(down.headers["content-type"], "application/x-tar");
        assert_eq!(down.body, bytes);
        server.get(&other, &path).await.expect(404);
        let zipped = server.get(&owner, &format!("{path}?format=zip")).await;
        assert_eq!(zipped.headers["content-type"], "application/zip");
        assert!(zipped.body.starts_with(b"PK"));
        server.get(&owner, &format!("{path}?format=rar")).await.expect(400);
        server.get(&owner, "/api/v2/files/nonsense").await.expect(400);
    }

    async fn a_zip_becomes_a_tar(server: TestServer) {
        let owner = server.owner().await;
        let uploaded = server.upload(&owner, "application/zip", zip(&[("main.tf", "y")])).await.expect(201);
        server.upload(&owner, "application/x-zip-compressed", zip(&[("main.tf", "y")])).await.expect(200);
        let down = server.get(&owner, &format!("/api/v2/files/{}", uploaded["hash"].as_str().unwrap())).await;
        assert_eq!(down.headers["content-type"], "application/x-tar");
        let mut archive = tar::Archive::new(down.body.as_slice());
        let entry = archive.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(entry.path().unwrap().to_str(), Some("main.tf"));
    }
}

#[tokio::test]
async fn invalid_and_too_large_archives_are_refused() {
    let mut config = settings();
    config.limits.upload_bytes = 4096;
    let server = TestServer::sqlite_with(config).await;
    let owner = server.owner().await;
    assert_eq!(server.upload(&owner, "text/plain", vec![0; 10]).await.status, 400);
    assert_eq!(server.upload(&owner, "application/zip", vec![0; 10]).await.status, 400);
    assert_eq!(server.upload(&owner, "application/zip", zip(&[("../x", "")])).await.status, 400);
    assert_eq!(server.upload(&owner, "application/x-tar", vec![0; 4097]).await.status, 413);
    assert_eq!(server.upload(&owner, "application/x-tar; charset=x", vec![0; 4096]).await.status, 201);
    assert_eq!(server.upload("", "application/x-tar", vec![0; 10]).await.status, 401);
}

/// The server unpacks a zip on arrival and refuses it there. A tar does not grow; daemons have bounds for it.
#[tokio::test]
async fn zips_that_unpack_to_far_more_are_refused() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    // 64 MiB of zeros, which is within the limit of an upload, in some 64 KiB.
    let zeros = "\0".repeat(64 << 20);
    let bomb = zip(&[("main.tf", &zeros)]);
    assert!(bomb.len() < 1 << 20, "{}", bomb.len());
    let refused = server.upload(&owner, "application/zip", bomb).await.expect(400);
    assert!(refused.to_string().contains("expands more than 200 times"), "{refused}");
    let names: Vec<_> = (0..10_001).map(|number| number.to_string()).collect();
    let entries: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
    let refused = server.upload(&owner, "application/zip", zip(&entries)).await.expect(400);
    assert!(refused.to_string().contains("more than 10000 entries"), "{refused}");
}

const ORGANIZATIONS: &str = "/api/v2/organizations";

on_both_engines! {
    /// A version makes its file readable in its organization, so creating one requires the right to download the file.
    async fn a_version_is_made_only_from_a_file_that_its_author_may_download(server: TestServer) {
        let owner = server.owner().await;
        for name in ["a", "b"] {
            server.post(&owner, ORGANIZATIONS, json!({ "name": name })).await.expect(201);
        }
        let author = async |name: &str, organization: &str| {
            let token = server.user(&owner, name, &[]).await;
            let member = format!("{ORGANIZATIONS}/{organization}/members/{name}");
            server.post(&owner, &member, Value::Null).await.expect(200);
            let roles = json!({ "roles": ["organization-template-admin"] });
            server.put(&owner, &format!("{member}/roles"), roles).await.expect(200);
            token
        };
        let (ann, bob) = (author("ann", "a").await, author("bob", "b").await);
        let file = server.upload(&ann, "application/x-tar", tar(&[("main.tf", "# secret")])).await.expect(201);
        let file = file["hash"].as_str().unwrap().to_owned();
        let push = async |token: &str, organization: &str, file: &str| {
            let path = format!("{ORGANIZATIONS}/{organization}/templateversions");
            server.post(token, &path, json!({ "file_id": file, "provisioner": "terraform" })).await
        };
        push(&ann, "a", &file).await.expect(201);
        // The version's JSON contains the id. Knowing the id is not a permission.
        assert_eq!(push(&bob, "b", &file).await.refused(404), "file_id");
        server.get(&bob, &format!("/api/v2/files/{file}")).await.expect(404);
        // Users who may download it may use it: its uploader in another organization, and a member of the organization
        // that uses it.
        let cat = author("cat", "a").await;
        push(&cat, "a", &file).await.expect(201);
        push(&owner, "b", &file).await.expect(201);
        push(&bob, "b", &file).await.expect(201);
    }

    async fn a_file_of_the_system_is_no_template_source(server: TestServer) {
        let owner = server.owner().await;
        let mut tx = server.app.store.begin().await.unwrap();
        let data = tar(&[("main.tf", "resource {}")]);
        let (hash, size) = (coder_store::files::hash(&data), data.len() as u64);
        let created_by = coder_server::provisioning::reports::module_files::SYSTEM;
        let new = coder_store::files::NewFile { hash, size, created_by, mimetype: "application/x-tar" };
        let (file, _) = coder_store::files::insert(&mut tx, &new, &mut &data[..], server.app.now()).await.unwrap();
        tx.commit().await.unwrap();
        let request = json!({ "file_id": file.id, "provisioner": "terraform" });
        let path = format!("{ORGANIZATIONS}/default/templateversions");
        assert_eq!(server.post(&owner, &path, request).await.refused(404), "file_id");
    }
}

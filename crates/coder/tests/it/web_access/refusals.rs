//! Tokens of other apps, forged tokens, hosts that are not an app's, workspaces that are stopped or offline.

use coder_api::builds::CreateWorkspaceBuildRequest;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_of_one_app_opens_no_other() {
    let mut site = Site::start(PathAppRules::default()).await;
    let (cookie, _) =
        site.get(Some(&site.ann), &host("own"), "/").await.cookie("coder_signed_app_token").unwrap();
    let with = async |site: &Site, host: &str, path: &str, cookie: &str| {
        site.ask("GET", host, path, &[("Cookie", cookie)]).await.status
    };
    assert_eq!(with(&site, &host("own"), "/", &cookie).await, 200);
    for (host, path) in [
        (host("auth"), "/"),
        (format!("own--prod--ann.{APPS}"), "/"),
        (format!("own--dev--bob.{APPS}"), "/"),
        (format!("x---own--dev--ann.{APPS}"), "/"),
        (format!("own--main--dev--ann.{APPS}"), "/"),
        ("coder.test".to_owned(), "/@ann/dev/apps/own/"),
    ] {
        assert_eq!(with(&site, &host, path, &cookie).await, 303, "{host}{path}");
    }
    // Another user is refused with it, too, when it is for another app.
    let (head, signature) = cookie.rsplit_once('.').unwrap();
    for forged in [
        format!("{head}."),
        format!("{head}.{}", signature.chars().rev().collect::<String>()),
        "coder_signed_app_token=eyJhbGciOiJub25lIiwia2lkIjoiMSJ9.e30.".to_owned(),
        format!("coder_signed_app_token={}", "x".repeat(10_000)),
    ] {
        assert_eq!(with(&site, &host("own"), "/", &forged).await, 303, "{forged}");
    }
    // Who may not see a workspace learns nothing about its agent.
    let bob = user(&site.server, "bob", site.server.handle.app.default_organization).await;
    site.kill_agent().await;
    assert_eq!(site.get(Some(&bob), &host("own"), "/").await.status, 404);
    let offline = site.get(Some(&site.ann), &host("own"), "/").await;
    assert_eq!(offline.status, 404);
    assert!(offline.body.contains("offline") && offline.body.contains("disconnected"), "{}", offline.body);
    let request: CreateWorkspaceBuildRequest = serde_json::from_str(r#"{"transition": "stop"}"#).unwrap();
    site.ann.create_build(site.workspace.id, &request).await.unwrap();
    let stopped = site.get(Some(&site.ann), &host("own"), "/").await;
    assert_eq!(stopped.status, 400);
    assert!(stopped.body.contains("stopped"), "{}", stopped.body);
    assert_eq!(site.get(Some(&bob), &host("own"), "/").await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_and_paths_that_are_none() {
    let site = Site::start(PathAppRules::default()).await;
    let ann = Some(&site.ann);
    for (host, status) in [
        (format!("x.{APPS}"), 400),
        (format!("workspace--app.{APPS}"), 400),
        (format!("1--2--3--4--5.{APPS}"), 400),
        (format!("8080--dev--ann.{APPS}"), 400),
        (format!("{}.{APPS}", "a".repeat(10_000)), 400),
        (format!("{}--dev--ann.{APPS}", "a".repeat(10_000)), 404),
        (host("none"), 404),
        (format!("own--none--ann.{APPS}"), 404),
        (format!("own--dev--none.{APPS}"), 404),
        (format!("own--other--dev--ann.{APPS}"), 200),
        // No host of an app: the server's own pages.
        (format!("own--dev--ann.{APPS}.evil.test"), 404),
        (format!("a.own--dev--ann.{APPS}"), 404),
    ] {
        let path = if status == 200 || host.ends_with(APPS) && !host.starts_with("a.") { "/" } else { "/x" };
        assert_eq!(site.get(ann, &host, path).await.status, status, "{}", &host[..host.len().min(80)]);
    }
    for (path, status) in [
        ("/@me/dev/apps/own/", 404),
        ("/@ann/dev.other/apps/own/", 404),
        ("/@ann/dev/apps/none/", 404),
        ("/@ann/dev/apps/8080/", 404),
        ("/@ann/dev", 404),
        ("/@ann/../apps/own/", 404),
        ("/%40ann/dev.MAIN/apps/own/", 200),
    ] {
        assert_eq!(site.get(ann, "coder.test", path).await.status, status, "{path}");
    }
    // The server's own routes are not reached through the host of an app.
    let inside = site.get(None, &host("open"), "/api/v2/buildinfo").await;
    assert!(inside.body.starts_with("GET /api/v2/buildinfo HTTP/1.1"), "{}", inside.body);
}

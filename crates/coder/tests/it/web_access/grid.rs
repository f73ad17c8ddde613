//! Who may open what: owner, member of the organization, user of another one, owner of the site and nobody, for each sharing level,
//! under a path and on a host name.

use super::*;

/// The statuses that these visitors get: ann, bob of the same organization, eve of another, the site's owner, nobody.
async fn row(site: &Site, visitors: &[Option<&Client>; 5], host: &str, path: &str) -> [u16; 5] {
    let mut statuses = [0; 5];
    for (status, visitor) in statuses.iter_mut().zip(visitors) {
        *status = site.get(*visitor, host, path).await.status;
    }
    statuses
}

async fn check(rules: PathAppRules, by_path: [[u16; 5]; 4]) {
    let site = Site::start(rules).await;
    let bob = user(&site.server, "bob", site.server.handle.app.default_organization).await;
    let eve = stranger(&site.server, "eve").await;
    let visitors = [Some(&site.ann), Some(&bob), Some(&eve), Some(&site.server.owner), None];
    for (slug, wanted) in [
        ("own", [200, 404, 404, 200, 303]),
        ("org", [200, 200, 404, 200, 303]),
        ("auth", [200, 200, 200, 200, 303]),
        ("open", [200; 5]),
    ] {
        assert_eq!(row(&site, &visitors, &host(slug), "/").await, wanted, "{slug} on its host");
    }
    for (slug, wanted) in ["own", "org", "auth", "open"].into_iter().zip(by_path) {
        let path = format!("/@ann/dev.main/apps/{slug}/");
        assert_eq!(row(&site, &visitors, "coder.test", &path).await, wanted, "{slug} under a path");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apps_under_paths_are_for_their_owner_alone() {
    check(PathAppRules::default(), [[200, 404, 404, 404, 303]; 4]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apps_under_paths_are_shared_when_the_operator_accepts_the_danger() {
    let rules = PathAppRules { sharing: true, site_owner_access: true };
    check(rules, [[200, 404, 404, 200, 303], [200, 200, 404, 200, 303], [200, 200, 200, 200, 303], [200; 5]])
        .await;
}

//! Users, organizations, API keys, provisioner keys, files, settings, leases and the audit log.

use coder_domain::ids::{KeyId, OrganizationId, UserId};
use coder_domain::key::Sha256Digest;
use coder_domain::secret::Secret;
use coder_store::organizations::{Member, Organization};
use coder_store::tokens::ApiKey;
use coder_store::users::{GitSshKey, LoginType, UserFilter, UserStatus};
use coder_store::{UNLIMITED, audit, files, keys, leases, organizations, settings, tokens, users};
use uuid::Uuid;

use crate::fixture::{Fixture, at, new_user, on_both_engines};

on_both_engines!(
    a_new_database_has_what_the_reference_has,
    users_are_found_without_regard_to_case_and_names_are_free_after_deletion,
    users_can_be_changed_and_listed,
    organizations_and_members,
    api_keys,
    a_key_ends_with_the_one_that_minted_it,
    files_are_stored_once_per_uploader,
    files_that_nothing_references_are_purged,
    long_files_are_read_part_by_part,
    settings_and_leases,
    audit_entries,
    nul_characters_are_replaced,
);

async fn a_new_database_has_what_the_reference_has(fixture: Fixture) {
    let mut tx = fixture.store.reader().await.unwrap();
    let default = organizations::get_default(&mut tx).await.unwrap();
    assert_eq!(
        (default.name.as_str(), default.display_name.as_str(), default.is_default),
        ("coder", "Coder", true)
    );
    let reserved = keys::list(&mut tx, default.id).await.unwrap();
    let names: Vec<_> = reserved.iter().map(|key| (key.id, key.name.as_str())).collect();
    assert_eq!(names, [(KeyId::BUILT_IN, "built-in"), (KeyId::USER_AUTH, "user-auth"), (KeyId::PSK, "psk")]);
    assert!(Uuid::try_parse(&settings::deployment_id(&mut tx).await.unwrap()).is_ok());
    assert!(users::get(&mut tx, UserId::PREBUILDS).await.unwrap().is_system);
}

async fn users_are_found_without_regard_to_case_and_names_are_free_after_deletion(fixture: Fixture) {
    let mut tx = fixture.store.begin().await.unwrap();
    let found = users::find_by_username(&mut tx, "ADA").await.unwrap().unwrap();
    assert_eq!(found.id, fixture.user);
    assert_eq!(found.password_hash, None);
    assert_eq!(
        users::find_by_email(&mut tx, "aDa@example.COM").await.unwrap().unwrap().email,
        "ada@Example.com"
    );
    tx.rollback().await;

    let conflict = async |user| {
        let mut tx = fixture.store.begin().await.unwrap();
        users::insert(&mut tx, &user).await.unwrap_err()
    };
    let mut same_name = new_user("Ada");
    same_name.email = "other@example.com".to_owned();
    assert!(conflict(same_name).await.is_conflict_on("users", "username_lower"));
    let mut same_mail = new_user("bob");
    same_mail.email = "ADA@example.com".to_owned();
    assert!(conflict(same_mail).await.is_conflict_on("users", "email_lower"));

    let mut tx = fixture.store.begin().await.unwrap();
    users::delete(&mut tx, fixture.user, at(5)).await.unwrap();
    assert_eq!(users::find(&mut tx, fixture.user).await.unwrap(), None);
    assert_eq!(users::find_many(&mut tx, &[fixture.user]).await.unwrap().len(), 1);
    users::insert(&mut tx, &new_user("ada")).await.unwrap();
    assert!(users::any(&mut tx).await.unwrap());
    tx.commit().await.unwrap();
}

async fn users_can_be_changed_and_listed(fixture: Fixture) {
    let mut tx = fixture.store.begin().await.unwrap();
    let mut bob = new_user("Bob");
    bob.name = "Robert Ärger".to_owned();
    bob.site_roles = vec![];
    bob.password_hash = Some(Secret::new("$hash"));
    users::insert(&mut tx, &bob).await.unwrap();
    users::update_profile(&mut tx, bob.id, "bobby", "Bob ÄRGER", at(1)).await.unwrap();
    users::update_password(&mut tx, bob.id, &Secret::new("$other"), at(2)).await.unwrap();
    users::update_status(&mut tx, bob.id, UserStatus::Suspended, at(3)).await.unwrap();
    users::update_roles(&mut tx, bob.id, &["auditor".to_owned()], at(4)).await.unwrap();
    users::update_seen(&mut tx, fixture.user, at(5)).await.unwrap();
    let bob = users::get(&mut tx, bob.id).await.unwrap();
    assert_eq!((bob.username.as_str(), bob.status, bob.updated_at), ("bobby", UserStatus::Suspended, at(4)));
    assert_eq!(bob.password_hash.unwrap().expose(), "$other");
    assert_eq!(users::get(&mut tx, fixture.user).await.unwrap().status, UserStatus::Active);

    let search = |text: &str| UserFilter { search: Some(text.to_owned()), ..UserFilter::default() };
    let cases = [
        (UserFilter::default(), vec!["ada", "bobby"]),
        (search("BOB"), vec!["bobby"]),
        (search("ärger"), vec!["bobby"]),
        (search("example"), vec!["ada", "bobby"]),
        (search("%"), vec![]),
        (UserFilter { status: Some(vec![UserStatus::Active]), ..UserFilter::default() }, vec!["ada"]),
        (UserFilter { role: Some("auditor".to_owned()), ..UserFilter::default() }, vec!["bobby"]),
        (UserFilter { login_type: Some(vec![LoginType::Oidc]), ..UserFilter::default() }, vec![]),
        (UserFilter { ids: Some(vec![fixture.user]), ..UserFilter::default() }, vec!["ada"]),
    ];
    for (filter, want) in cases {
        let listed = users::list(&mut tx, &filter, UNLIMITED, 0).await.unwrap();
        let names: Vec<_> = listed.iter().map(|user| user.username.as_str()).collect();
        assert_eq!(names, want, "{filter:?}");
        assert_eq!(users::count(&mut tx, &filter).await.unwrap(), i64::try_from(want.len()).unwrap());
    }
    assert_eq!(users::list(&mut tx, &UserFilter::default(), 1, 1).await.unwrap()[0].username, "bobby");

    let key = GitSshKey {
        user_id: bob.id,
        public_key: "ssh-ed25519 A".to_owned(),
        private_key: Secret::new("PEM"),
        created_at: at(6),
        updated_at: at(6),
    };
    assert_eq!(users::find_git_ssh_key(&mut tx, bob.id).await.unwrap(), None);
    users::insert_git_ssh_key(&mut tx, &key).await.unwrap();
    let second = GitSshKey { public_key: "B".to_owned(), ..key.clone() };
    users::insert_git_ssh_key(&mut tx, &second).await.unwrap();
    assert_eq!(users::find_git_ssh_key(&mut tx, bob.id).await.unwrap(), Some(key), "the first stays");
}

async fn organizations_and_members(fixture: Fixture) {
    let mut tx = fixture.store.begin().await.unwrap();
    let second = Organization {
        id: OrganizationId::random(),
        name: "Second".to_owned(),
        display_name: "2".to_owned(),
        description: String::new(),
        icon: String::new(),
        is_default: false,
        created_at: at(1),
        updated_at: at(1),
    };
    organizations::insert(&mut tx, &second).await.unwrap();
    assert_eq!(organizations::find_by_name(&mut tx, "SECOND").await.unwrap().unwrap(), second);
    let member = Member {
        organization_id: second.id,
        user_id: fixture.user,
        roles: vec!["organization-admin".to_owned()],
        created_at: at(2),
        updated_at: at(2),
    };
    organizations::insert_member(&mut tx, &member).await.unwrap();
    let none: [String; 0] = [];
    organizations::update_member_roles(&mut tx, second.id, fixture.user, &none, at(3)).await.unwrap();
    let member = organizations::find_member(&mut tx, second.id, fixture.user).await.unwrap().unwrap();
    assert_eq!((member.roles.len(), member.updated_at), (0, at(3)));
    assert_eq!(organizations::list_of_user(&mut tx, fixture.user).await.unwrap(), vec![second.clone()]);
    assert_eq!(organizations::list_members(&mut tx, second.id, UNLIMITED, 0).await.unwrap().len(), 1);
    assert_eq!(organizations::list_memberships(&mut tx, &[fixture.user]).await.unwrap(), vec![member]);
    assert_eq!(organizations::list(&mut tx).await.unwrap().len(), 2);
    organizations::delete_member(&mut tx, second.id, fixture.user).await.unwrap();
    organizations::delete(&mut tx, second.id, at(4)).await.unwrap();
    assert_eq!(organizations::find(&mut tx, second.id).await.unwrap(), None);
    assert!(
        organizations::delete(&mut tx, fixture.organization, at(5)).await.is_err(),
        "the default one stays"
    );
    organizations::insert(&mut tx, &Organization { id: OrganizationId::random(), ..second }).await.unwrap();
    tx.commit().await.unwrap();
}

fn api_key(fixture: &Fixture, id: &str, name: &str) -> ApiKey {
    ApiKey {
        id: id.to_owned(),
        user_id: fixture.user,
        hashed_secret: Sha256Digest::of("secret"),
        login_type: if name.is_empty() { LoginType::Password } else { LoginType::Token },
        token_name: name.to_owned(),
        scopes: vec!["coder:all".to_owned()],
        allow_list: vec!["*:*".to_owned()],
        lifetime_seconds: 60,
        ip_address: "127.0.0.1".to_owned(),
        created_at: at(1),
        updated_at: at(1),
        last_used_at: at(1),
        expires_at: at(61),
        parent_id: None,
        not_after: None,
    }
}

async fn a_key_ends_with_the_one_that_minted_it(fixture: Fixture) {
    let mut tx = fixture.store.begin().await.unwrap();
    let other = UserId::PREBUILDS;
    let child = |id: &str, parent: &str, user: UserId| ApiKey {
        user_id: user,
        parent_id: Some(parent.to_owned()),
        not_after: Some(at(61)),
        ..api_key(&fixture, id, "")
    };
    let root = api_key(&fixture, "rrrrrrrrrr", "ci");
    let first = child("aaaaaaaaaa", "rrrrrrrrrr", fixture.user);
    let second = child("bbbbbbbbbb", "aaaaaaaaaa", other);
    let alone = api_key(&fixture, "cccccccccc", "");
    for key in [&root, &first, &second, &alone] {
        tokens::insert(&mut tx, key).await.unwrap();
    }
    assert!(alone.is_sign_in());
    assert!(!root.is_sign_in() && !first.is_sign_in(), "a token, and what it minted");
    assert!(!api_key(&fixture, "x", "ws").is_sign_in());
    assert_eq!((first.extended(at(30)), alone.extended(at(30))), (at(61), at(90)));
    assert_eq!(tokens::find(&mut tx, "aaaaaaaaaa").await.unwrap().unwrap(), first);
    let session = coder_store::sessions::find(&mut tx, "aaaaaaaaaa").await.unwrap().unwrap();
    assert_eq!(session.key, first);
    let mut below = tokens::list_affected_users(&mut tx, fixture.user, Some("rrrrrrrrrr")).await.unwrap();
    below.sort();
    let mut both = vec![fixture.user, other];
    both.sort();
    assert_eq!(below, both);
    assert_eq!(tokens::list_affected_users(&mut tx, fixture.user, None).await.unwrap().len(), 2);
    assert_eq!(
        tokens::list_affected_users(&mut tx, fixture.user, Some("cccccccccc")).await.unwrap(),
        [fixture.user]
    );
    // The kept token stays together with its parents.
    coder_store::sessions::delete_others(&mut tx, fixture.user, "aaaaaaaaaa").await.unwrap();
    for (id, stays) in
        [("rrrrrrrrrr", true), ("aaaaaaaaaa", true), ("bbbbbbbbbb", true), ("cccccccccc", false)]
    {
        assert_eq!(tokens::find(&mut tx, id).await.unwrap().is_some(), stays, "{id}");
    }
    assert_eq!(tokens::delete_for_others(&mut tx, fixture.user).await.unwrap(), 1);
    assert_eq!(tokens::find(&mut tx, "bbbbbbbbbb").await.unwrap(), None);
    tokens::insert(&mut tx, &second).await.unwrap();
    tokens::delete(&mut tx, "rrrrrrrrrr").await.unwrap();
    for id in ["rrrrrrrrrr", "aaaaaaaaaa", "bbbbbbbbbb"] {
        assert_eq!(tokens::find(&mut tx, id).await.unwrap(), None, "{id}");
    }
    tx.commit().await.unwrap();
    // Only a key without children can be replaced by another one of its name.
    let mut tx = fixture.store.begin().await.unwrap();
    tokens::insert(&mut tx, &root).await.unwrap();
    tokens::insert(&mut tx, &first).await.unwrap();
    assert!(!tokens::delete_unless_parent(&mut tx, fixture.user, "ci").await.unwrap());
    tokens::insert(&mut tx, &api_key(&fixture, "mmmmmmmmmm", "alone")).await.unwrap();
    assert!(tokens::delete_unless_parent(&mut tx, fixture.user, "alone").await.unwrap());
    assert!(!tokens::delete_unless_parent(&mut tx, fixture.user, "alone").await.unwrap());
    let replaced = tokens::replace(&mut tx, &api_key(&fixture, "nnnnnnnnnn", "ci")).await.unwrap_err();
    assert!(matches!(replaced, coder_store::Error::Reference(_)), "{replaced:?}");
}

async fn api_keys(fixture: Fixture) {
    let mut tx = fixture.store.begin().await.unwrap();
    for (id, name) in [("aaaaaaaaaa", ""), ("bbbbbbbbbb", ""), ("cccccccccc", "ci"), ("dddddddddd", "CI")] {
        tokens::insert(&mut tx, &api_key(&fixture, id, name)).await.unwrap();
    }
    let key = tokens::find(&mut tx, "aaaaaaaaaa").await.unwrap().unwrap();
    assert_eq!(key, api_key(&fixture, "aaaaaaaaaa", ""));
    tokens::update_used(&mut tx, "aaaaaaaaaa", at(9), at(99), "::1").await.unwrap();
    let key = tokens::find(&mut tx, "aaaaaaaaaa").await.unwrap().unwrap();
    assert_eq!((key.last_used_at, key.expires_at, key.ip_address.as_str()), (at(9), at(99), "::1"));
    assert_eq!(tokens::find_by_name(&mut tx, fixture.user, "ci").await.unwrap().unwrap().id, "cccccccccc");
    assert_eq!(tokens::list_tokens(&mut tx, Some(fixture.user)).await.unwrap().len(), 2);
    assert_eq!(tokens::list_tokens(&mut tx, Some(UserId::PREBUILDS)).await.unwrap().len(), 0);
    assert_eq!(tokens::list_tokens(&mut tx, None).await.unwrap().len(), 2);
    assert_eq!(tokens::purge(&mut tx, at(62), 1).await.unwrap(), 1);
    assert_eq!(tokens::purge(&mut tx, at(62), 10).await.unwrap(), 2);
    let session = coder_store::sessions::find(&mut tx, "aaaaaaaaaa").await.unwrap().unwrap();
    assert_eq!((session.user.id, session.key, session.memberships), (fixture.user, key, vec![]));
    let roles = vec!["organization-admin".to_owned()];
    let member = Member {
        organization_id: fixture.organization,
        user_id: fixture.user,
        roles: roles.clone(),
        created_at: at(1),
        updated_at: at(1),
    };
    organizations::insert_member(&mut tx, &member).await.unwrap();
    let session = coder_store::sessions::find(&mut tx, "aaaaaaaaaa").await.unwrap().unwrap();
    assert_eq!(session.memberships, [(fixture.organization, roles)]);
    assert_eq!(coder_store::sessions::find(&mut tx, "zzzzzzzzzz").await.unwrap(), None);
    tokens::delete(&mut tx, "aaaaaaaaaa").await.unwrap();
    assert!(tokens::delete(&mut tx, "aaaaaaaaaa").await.is_err());
    tokens::insert(&mut tx, &api_key(&fixture, "eeeeeeeeee", "ws")).await.unwrap();
    assert!(tokens::delete_by_name(&mut tx, fixture.user, "ws").await.unwrap());
    assert!(!tokens::delete_by_name(&mut tx, fixture.user, "ws").await.unwrap());
    tokens::insert(&mut tx, &api_key(&fixture, "ffffffffff", "")).await.unwrap();
    assert_eq!(tokens::delete_of_user(&mut tx, fixture.user).await.unwrap(), 1);
    tx.commit().await.unwrap();

    let mut tx = fixture.store.begin().await.unwrap();
    tokens::insert(&mut tx, &api_key(&fixture, "cccccccccc", "ci")).await.unwrap();
    let taken = tokens::insert(&mut tx, &api_key(&fixture, "gggggggggg", "ci")).await.unwrap_err();
    assert!(taken.is_conflict_on("api_keys", "token_name"), "{taken:?}");
}

async fn store_file(
    tx: &mut coder_store::Tx,
    by: UserId,
    content: &[u8],
    second: i64,
) -> (files::FileInfo, bool) {
    let (hash, size) = (files::hash(content), content.len() as u64);
    let new = files::NewFile { hash, size, created_by: by, mimetype: "application/x-tar" };
    files::insert(tx, &new, &mut &content[..], at(second)).await.unwrap()
}

async fn long_files_are_read_part_by_part(fixture: Fixture) {
    const PART: usize = files::PART_BYTES;
    for size in [0, 1, PART - 1, PART, PART + 1, 3 * PART, 3 * PART + 7] {
        let content: Vec<u8> = (0..size).map(|byte| u8::try_from(byte % 251).unwrap()).collect();
        let mut tx = fixture.store.begin().await.unwrap();
        let (file, is_new) = store_file(&mut tx, fixture.user, &content, 1).await;
        assert!(is_new && file.size_bytes == i64::try_from(size).unwrap());
        assert!(!store_file(&mut tx, fixture.user, &content, 1).await.1);
        assert!(files::get_data(&mut tx, file.id).await.unwrap() == content, "{size}");
        let mut parts = Vec::new();
        for position in 0.. {
            match files::get_part(&mut tx, &file, position).await {
                Ok(part) => parts.push(part.len()),
                Err(error) => {
                    assert!(error.is_not_found());
                    break;
                }
            }
        }
        assert!(parts.iter().all(|part| *part <= PART) && parts.iter().sum::<usize>() == size, "{parts:?}");
        tx.commit().await.unwrap();
    }
    // Content that ends early is not stored.
    let mut tx = fixture.store.begin().await.unwrap();
    let new = files::NewFile {
        hash: files::hash(b"short"),
        size: 6,
        created_by: fixture.user,
        mimetype: "application/x-tar",
    };
    assert!(files::insert(&mut tx, &new, &mut &b"short"[..], at(1)).await.is_err());
}

async fn files_that_nothing_references_are_purged(fixture: Fixture) {
    let mut tx = fixture.store.begin().await.unwrap();
    let long = vec![7; files::PART_BYTES + 1];
    let (old, _) = store_file(&mut tx, fixture.user, b"old", 1).await;
    let (large, _) = store_file(&mut tx, fixture.user, &long, 1).await;
    let (again, _) = store_file(&mut tx, fixture.user, b"again", 1).await;
    let (young, _) = store_file(&mut tx, fixture.user, b"young", 100).await;
    store_file(&mut tx, fixture.user, b"again", 100).await;
    tx.commit().await.unwrap();
    let used = fixture.job(&coder_domain::tags::TagSet::untagged()).await;
    let mut tx = fixture.store.single().await.unwrap();
    let bytes = files::unreferenced_bytes(&mut tx, fixture.user, at(0)).await.unwrap();
    assert_eq!(bytes, 3 + 5 + 5 + long.len() as i64, "without the file of the job {used}");
    assert_eq!(files::unreferenced_bytes(&mut tx, fixture.user, at(50)).await.unwrap(), 10);
    assert_eq!(files::unreferenced_bytes(&mut tx, UserId::PREBUILDS, at(0)).await.unwrap(), 0);
    let (mut after, mut removed, mut passes) = (None, 0, 0);
    loop {
        let purged = files::purge(&mut tx, after, 2, at(50)).await.unwrap();
        (after, removed, passes) = (purged.next, removed + purged.removed, passes + 1);
        if after.is_none() {
            break;
        }
    }
    assert_eq!((removed, passes), (2, 3));
    for (file, stays) in [(&old, false), (&large, false), (&again, true), (&young, true)] {
        assert_eq!(files::find(&mut tx, file.id).await.unwrap().is_some(), stays);
    }
    assert!(files::find(&mut tx, fixture.file).await.unwrap().is_some(), "a job uses it");
    assert!(files::get_part(&mut tx, &large, 1).await.unwrap_err().is_not_found());
    assert_eq!(
        files::purge(&mut tx, None, 100, at(50)).await.unwrap(),
        files::PurgeProgress { removed: 0, next: None }
    );
}

async fn files_are_stored_once_per_uploader(fixture: Fixture) {
    let mut tx = fixture.store.begin().await.unwrap();
    let (first, is_new) = store_file(&mut tx, fixture.user, b"content", 1).await;
    let (again, is_newer) = store_file(&mut tx, fixture.user, b"content", 2).await;
    assert_eq!((&first, is_new, is_newer), (&again, true, false));
    let (other, is_new) = store_file(&mut tx, UserId::PREBUILDS, b"content", 3).await;
    assert!(is_new && other.id != first.id);
    let hash = files::hash(b"content");
    assert_eq!(files::touch(&mut tx, &hash, fixture.user, at(4)).await.unwrap().unwrap(), first);
    assert_eq!(files::touch(&mut tx, &files::hash(b"other"), fixture.user, at(4)).await.unwrap(), None);
    assert_eq!(files::find(&mut tx, first.id).await.unwrap().unwrap().size_bytes, 7);
    assert_eq!(files::get_data(&mut tx, first.id).await.unwrap(), b"content");
    let missing = files::get_data(&mut tx, coder_domain::ids::FileId::random()).await.unwrap_err();
    assert!(missing.is_not_found());
    tx.commit().await.unwrap();
}

async fn settings_and_leases(fixture: Fixture) {
    let mut tx = fixture.store.begin().await.unwrap();
    assert_eq!(settings::find(&mut tx, "x").await.unwrap(), None);
    assert_eq!(settings::find_or_insert(&mut tx, "x", "1").await.unwrap(), "1");
    assert_eq!(settings::find_or_insert(&mut tx, "x", "2").await.unwrap(), "1");
    settings::update(&mut tx, "x", "3").await.unwrap();
    assert_eq!(settings::find(&mut tx, "x").await.unwrap().as_deref(), Some("3"));

    assert!(leases::claim(&mut tx, "purge", "a", at(10), at(0)).await.unwrap());
    assert!(!leases::claim(&mut tx, "purge", "b", at(20), at(9)).await.unwrap());
    assert!(leases::claim(&mut tx, "purge", "a", at(15), at(9)).await.unwrap(), "renewed");
    assert!(leases::claim(&mut tx, "purge", "b", at(30), at(15)).await.unwrap(), "expired");
    leases::finish(&mut tx, "purge", "a").await.unwrap();
    assert!(!leases::claim(&mut tx, "purge", "a", at(40), at(16)).await.unwrap(), "not a's to give back");
    leases::finish(&mut tx, "purge", "b").await.unwrap();
    assert!(leases::claim(&mut tx, "purge", "a", at(40), at(16)).await.unwrap());
    tx.commit().await.unwrap();
}

async fn audit_entries(fixture: Fixture) {
    let entry = audit::Entry {
        id: Uuid::new_v4(),
        created_at: at(1),
        user_id: fixture.user,
        organization_id: fixture.organization,
        ip: "::1".to_owned(),
        user_agent: "test".to_owned(),
        resource_type: "template".to_owned(),
        resource_id: Uuid::new_v4(),
        resource_target: "t".to_owned(),
        resource_icon: String::new(),
        action: "create".to_owned(),
        diff: serde_json::json!({"name": ["", "t"]}),
        status_code: 201,
        additional_fields: serde_json::json!({}),
        request_id: Uuid::new_v4(),
    };
    let mut tx = fixture.store.begin().await.unwrap();
    audit::insert(&mut tx, &entry).await.unwrap();
    let later = audit::Entry {
        id: Uuid::new_v4(),
        created_at: at(5),
        organization_id: OrganizationId::NIL,
        action: "delete".to_owned(),
        ..entry.clone()
    };
    audit::insert(&mut tx, &later).await.unwrap();
    let all = [later.clone(), entry.clone()];
    let found = async |tx: &mut coder_store::Tx, filter: audit::AuditFilter| {
        let found = audit::list(tx, &filter, 10, 0).await.unwrap();
        assert_eq!(audit::count(tx, &filter).await.unwrap(), i64::try_from(found.len()).unwrap());
        found
    };
    assert_eq!(found(&mut tx, audit::AuditFilter::default()).await, all);
    assert_eq!(audit::list(&mut tx, &audit::AuditFilter::default(), 1, 1).await.unwrap(), all[1..]);
    let filters = [
        audit::AuditFilter { organization_id: Some(entry.organization_id), ..audit::AuditFilter::default() },
        audit::AuditFilter { action: Some(entry.action.clone()), ..audit::AuditFilter::default() },
        audit::AuditFilter {
            until: Some(at(5)),
            user_id: Some(entry.user_id),
            ..audit::AuditFilter::default()
        },
    ];
    for filter in filters {
        assert_eq!(found(&mut tx, filter).await, all[1..]);
    }
    let since = audit::AuditFilter { since: Some(at(5)), ..audit::AuditFilter::default() };
    assert_eq!(found(&mut tx, since).await, all[..1]);
    let thing = audit::AuditFilter {
        resource_type: Some(entry.resource_type.clone()),
        resource_id: Some(entry.resource_id),
        resource_target: Some("other".to_owned()),
        ..audit::AuditFilter::default()
    };
    assert_eq!(found(&mut tx, thing).await, []);
    assert_eq!(audit::purge(&mut tx, at(2)).await.unwrap(), 1);
    tx.commit().await.unwrap();
}

async fn nul_characters_are_replaced(fixture: Fixture) {
    let mut tx = fixture.store.begin().await.unwrap();
    settings::update(&mut tx, "nul", "a\0b").await.unwrap();
    assert_eq!(settings::find(&mut tx, "nul").await.unwrap().as_deref(), Some("a\u{fffd}b"));
    tx.commit().await.unwrap();
}

/// Earlier releases stored long files in one row.
#[tokio::test]
async fn a_long_file_in_one_row_is_read_part_by_part() {
    const PART: usize = files::PART_BYTES;
    let fixture = Fixture::sqlite().await;
    let mut tx = fixture.store.begin().await.unwrap();
    let (short, _) = store_file(&mut tx, fixture.user, b"", 1).await;
    tx.commit().await.unwrap();
    for size in [PART - 1, PART, PART + 1, 2 * PART, 2 * PART + 9] {
        let content: Vec<u8> = (0..size).map(|byte| u8::try_from(byte % 251).unwrap()).collect();
        let mut tx = fixture.store.begin().await.unwrap();
        let (file, _) = store_file(&mut tx, fixture.user, &content, 1).await;
        tx.commit().await.unwrap();
        let script = format!(
            "update files set in_parts = false, data = x'{}' where id = '{}'",
            content.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
            file.id
        );
        fixture.database().execute(&script).await;
        let mut tx = fixture.store.reader().await.unwrap();
        let file = files::find(&mut tx, file.id).await.unwrap().unwrap();
        assert!(!file.in_parts);
        for (position, part) in (0..).zip(content.chunks(PART)) {
            assert!(files::get_part(&mut tx, &file, position).await.unwrap() == part, "{position} of {size}");
        }
        let after = i64::try_from(size.div_ceil(PART)).unwrap();
        for position in [after, after + 1, i64::MAX, -1, i64::MIN] {
            let missing = files::get_part(&mut tx, &file, position).await.unwrap_err();
            assert!(missing.is_not_found(), "{position} of {size}");
        }
        assert!(files::get_data(&mut tx, file.id).await.unwrap() == content);
    }
    let mut tx = fixture.store.reader().await.unwrap();
    assert!(files::get_part(&mut tx, &short, 0).await.unwrap().is_empty(), "an empty file has one part");
}

#[tokio::test]
async fn an_empty_store_has_no_first_user() {
    let database = coder_store::testing::sqlite();
    let store = coder_store::Store::open(&coder_store::Config::new(database.location.clone()), at(0)).await;
    assert!(!users::any(&mut store.unwrap().reader().await.unwrap()).await.unwrap());
}

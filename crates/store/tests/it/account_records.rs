//! Rows of users, organizations, tokens and keys: every query with rows that it must find and rows that it must not.

use std::slice;

use coder_domain::ids::{KeyId, OrganizationId, UserId};
use coder_domain::key::{AllowList, KeyValidity, Sha256Digest};
use coder_domain::secret::Secret;
use coder_store::keys::{Key, USE_RECORD_INTERVAL};
use coder_store::organizations::{Member, Organization};
use coder_store::tokens::ApiKey;
use coder_store::users::{GitSshKey, LoginType, User, UserFilter, UserStatus};
use coder_store::{Error, Tx, UNLIMITED, keys, organizations, sessions, tokens, users};
use jiff::SignedDuration;

use crate::fixture::{Fixture, at, new_user, on_both_engines, tags};

on_both_engines!(
    every_field_of_a_user_is_stored,
    a_missing_user_is_not_changed,
    users_are_selected_by_each_field,
    the_ssh_key_of_a_user_is_replaced,
    every_field_of_an_organization_is_stored,
    members_are_listed_by_name_in_pages,
    what_is_kept_exists,
    every_field_of_a_token_is_stored,
    tokens_that_ended_are_found,
    keys_that_ended_are_found,
    every_field_of_a_key_is_stored,
);

fn person(name: &str, second: i64) -> User {
    User {
        name: format!("{name} the first"),
        avatar_url: format!("/avatar/{name}"),
        theme_preference: "dark".to_owned(),
        status: UserStatus::Suspended,
        login_type: LoginType::Oidc,
        password_hash: Some(Secret::new(format!("hash of {name}"))),
        site_roles: vec!["auditor".to_owned(), "owner".to_owned()],
        created_at: at(second),
        updated_at: at(second + 1),
        last_seen_at: Some(at(second + 2)),
        ..new_user(name)
    }
}

fn stale(result: Result<(), Error>) {
    assert!(matches!(result, Err(Error::Stale { .. })), "{result:?}");
}

async fn every_field_of_a_user_is_stored(fixture: Fixture) {
    let (bob, eve) = (person("Bob", 10), person("Eve", 20));
    let mut tx = fixture.store.single().await.unwrap();
    for user in [&bob, &eve] {
        users::insert(&mut tx, user).await.unwrap();
    }
    let found = Some(bob.clone());
    assert_eq!(users::find(&mut tx, bob.id).await.unwrap(), found);
    assert_eq!(users::get(&mut tx, bob.id).await.unwrap(), bob);
    assert_eq!(users::find_by_username(&mut tx, "bOB").await.unwrap(), found);
    assert_eq!(users::find_by_email(&mut tx, "BOB@example.com").await.unwrap(), found);
    let many = users::find_many(&mut tx, &[bob.id, UserId::random()]).await.unwrap();
    assert_eq!(many, slice::from_ref(&bob));
    assert_eq!(users::find(&mut tx, UserId::random()).await.unwrap(), None);
    assert!(users::get(&mut tx, UserId::random()).await.unwrap_err().is_not_found());
    assert_eq!(users::find_by_username(&mut tx, "bo").await.unwrap(), None);
    assert_eq!(users::find_by_email(&mut tx, "bob").await.unwrap(), None);

    users::update_profile(&mut tx, bob.id, "Robert", "R.", at(31)).await.unwrap();
    users::update_password(&mut tx, bob.id, &Secret::new("new"), at(32)).await.unwrap();
    users::update_status(&mut tx, bob.id, UserStatus::Dormant, at(33)).await.unwrap();
    users::update_roles(&mut tx, bob.id, &["member".to_owned()], at(34)).await.unwrap();
    let changed = User {
        username: "Robert".to_owned(),
        name: "R.".to_owned(),
        password_hash: Some(Secret::new("new")),
        status: UserStatus::Dormant,
        site_roles: vec!["member".to_owned()],
        updated_at: at(34),
        ..bob.clone()
    };
    assert_eq!(users::get(&mut tx, bob.id).await.unwrap(), changed);
    users::update_seen(&mut tx, bob.id, at(40)).await.unwrap();
    users::update_seen(&mut tx, eve.id, at(41)).await.unwrap();
    let active = User { status: UserStatus::Active, last_seen_at: Some(at(40)), ..changed };
    assert_eq!(users::get(&mut tx, bob.id).await.unwrap(), active);
    assert_eq!(users::find_by_username(&mut tx, "bob").await.unwrap(), None, "it has another name now");
    let suspended = User { last_seen_at: Some(at(41)), ..eve.clone() };
    assert_eq!(users::get(&mut tx, eve.id).await.unwrap(), suspended, "only who sleeps wakes up");
}

async fn a_missing_user_is_not_changed(fixture: Fixture) {
    let gone = person("gone", 10);
    let mut tx = fixture.store.single().await.unwrap();
    users::insert(&mut tx, &gone).await.unwrap();
    users::delete(&mut tx, gone.id, at(20)).await.unwrap();
    for id in [gone.id, UserId::random()] {
        stale(users::update_profile(&mut tx, id, "x", "y", at(31)).await);
        stale(users::update_password(&mut tx, id, &Secret::new("new"), at(32)).await);
        stale(users::update_status(&mut tx, id, UserStatus::Active, at(33)).await);
        stale(users::update_roles(&mut tx, id, &[], at(34)).await);
        stale(users::update_seen(&mut tx, id, at(35)).await);
        stale(users::delete(&mut tx, id, at(36)).await);
    }
    stale(users::delete(&mut tx, UserId::PREBUILDS, at(36)).await);
    let kept = User { updated_at: at(20), ..gone };
    assert_eq!(users::find_many(&mut tx, &[kept.id]).await.unwrap(), [kept]);
}

async fn users_are_selected_by_each_field(fixture: Fixture) {
    let (bob, eve) = (person("bob", 10), User { login_type: LoginType::Github, ..person("eve", 20) });
    let mut tx = fixture.store.single().await.unwrap();
    for user in [&bob, &eve] {
        users::insert(&mut tx, user).await.unwrap();
    }
    let any = UserFilter::default;
    let text = |text: &str| Some(text.to_owned());
    for (filter, names) in [
        (any(), vec!["ada", "bob", "eve"]),
        (UserFilter { search: text("EVE@"), ..any() }, vec!["eve"]),
        (UserFilter { search: text("The First"), ..any() }, vec!["bob", "eve"]),
        (UserFilter { search: text("prebuilds"), ..any() }, vec![]),
        (UserFilter { status: Some(vec![UserStatus::Suspended]), ..any() }, vec!["bob", "eve"]),
        (UserFilter { status: Some(vec![]), ..any() }, vec![]),
        (
            UserFilter { login_type: Some(vec![LoginType::Github, LoginType::Password]), ..any() },
            vec!["ada", "eve"],
        ),
        (UserFilter { role: text("auditor"), ..any() }, vec!["bob", "eve"]),
        (UserFilter { role: text("audit"), ..any() }, vec![]),
        (UserFilter { ids: Some(vec![eve.id, UserId::PREBUILDS]), ..any() }, vec!["eve"]),
        (UserFilter { ids: Some(vec![eve.id]), role: text("member"), ..any() }, vec![]),
    ] {
        let listed = users::list(&mut tx, &filter, UNLIMITED, 0).await.unwrap();
        let found: Vec<_> = listed.iter().map(|user| user.username.as_str()).collect();
        assert_eq!(found, names, "{filter:?}");
        let count = users::count(&mut tx, &filter).await.unwrap();
        assert_eq!(count, i64::try_from(names.len()).unwrap(), "{filter:?}");
    }
    assert_eq!(users::list(&mut tx, &any(), 1, 1).await.unwrap(), slice::from_ref(&bob));
    users::delete(&mut tx, bob.id, at(30)).await.unwrap();
    assert_eq!(users::count(&mut tx, &any()).await.unwrap(), 2);
    assert!(users::any(&mut tx).await.unwrap());
    for id in [fixture.user, eve.id] {
        users::delete(&mut tx, id, at(30)).await.unwrap();
    }
    assert!(!users::any(&mut tx).await.unwrap(), "a system account is nobody");
}

async fn the_ssh_key_of_a_user_is_replaced(fixture: Fixture) {
    let key = |public: &str, private: &str, second| GitSshKey {
        user_id: fixture.user,
        public_key: public.to_owned(),
        private_key: Secret::new(private),
        created_at: at(second),
        updated_at: at(second),
    };
    let mut tx = fixture.store.single().await.unwrap();
    users::upsert_git_ssh_key(&mut tx, &key("a", "A", 1)).await.unwrap();
    assert_eq!(users::find_git_ssh_key(&mut tx, fixture.user).await.unwrap(), Some(key("a", "A", 1)));
    users::upsert_git_ssh_key(&mut tx, &key("b", "B", 2)).await.unwrap();
    let replaced = GitSshKey { created_at: at(1), ..key("b", "B", 2) };
    assert_eq!(users::find_git_ssh_key(&mut tx, fixture.user).await.unwrap(), Some(replaced));
    assert_eq!(users::find_git_ssh_key(&mut tx, UserId::PREBUILDS).await.unwrap(), None);
}

fn organization(name: &str, second: i64) -> Organization {
    Organization {
        id: OrganizationId::random(),
        name: name.to_owned(),
        display_name: format!("display {name}"),
        description: format!("about {name}"),
        icon: format!("/icon/{name}"),
        is_default: false,
        created_at: at(second),
        updated_at: at(second + 1),
    }
}

async fn every_field_of_an_organization_is_stored(fixture: Fixture) {
    let (second, third) = (organization("Second", 10), organization("Another", 20));
    let mut tx = fixture.store.single().await.unwrap();
    for organization in [&second, &third] {
        organizations::insert(&mut tx, organization).await.unwrap();
    }
    let default = organizations::get_default(&mut tx).await.unwrap();
    assert_eq!(default.id, fixture.organization);
    assert_eq!(organizations::find(&mut tx, second.id).await.unwrap(), Some(second.clone()));
    assert_eq!(organizations::find(&mut tx, OrganizationId::random()).await.unwrap(), None);
    assert_eq!(organizations::find_by_name(&mut tx, "sECOND").await.unwrap(), Some(second.clone()));
    assert_eq!(organizations::find_by_name(&mut tx, "sec").await.unwrap(), None);
    let all = [third.clone(), default.clone(), second.clone()];
    assert_eq!(organizations::list(&mut tx).await.unwrap(), all);
    let changed = Organization {
        name: "Renamed".to_owned(),
        display_name: "display".to_owned(),
        description: "about".to_owned(),
        icon: "icon".to_owned(),
        updated_at: at(30),
        ..second
    };
    organizations::update(&mut tx, &changed).await.unwrap();
    assert_eq!(organizations::find_by_name(&mut tx, "renamed").await.unwrap(), Some(changed.clone()));
    assert_eq!(organizations::find_by_name(&mut tx, "second").await.unwrap(), None);
    assert_eq!(organizations::find(&mut tx, third.id).await.unwrap(), Some(third.clone()));
    organizations::delete(&mut tx, third.id, at(40)).await.unwrap();
    stale(organizations::delete(&mut tx, third.id, at(41)).await);
    stale(organizations::update(&mut tx, &third).await);
    stale(organizations::delete(&mut tx, default.id, at(41)).await);
    assert_eq!(organizations::list(&mut tx).await.unwrap(), [default, changed]);
    assert_eq!(organizations::find_by_name(&mut tx, "another").await.unwrap(), None);
}

async fn members_are_listed_by_name_in_pages(fixture: Fixture) {
    let second = organization("second", 10);
    let (bob, gone) = (person("bob", 10), person("aaron", 10));
    let member = |organization_id, user_id, role: &str, second| Member {
        organization_id,
        user_id,
        roles: vec![role.to_owned()],
        created_at: at(second),
        updated_at: at(second),
    };
    let mut tx = fixture.store.single().await.unwrap();
    organizations::insert(&mut tx, &second).await.unwrap();
    for user in [&bob, &gone] {
        users::insert(&mut tx, user).await.unwrap();
    }
    let [of_bob, of_ada, elsewhere] = [
        member(fixture.organization, bob.id, "auditor", 3),
        member(fixture.organization, fixture.user, "admin", 2),
        member(second.id, bob.id, "other", 1),
    ];
    let hidden = [
        member(fixture.organization, gone.id, "x", 4),
        member(fixture.organization, UserId::PREBUILDS, "x", 4),
    ];
    for member in [&of_bob, &of_ada, &elsewhere, &hidden[0], &hidden[1]] {
        organizations::insert_member(&mut tx, member).await.unwrap();
    }
    users::delete(&mut tx, gone.id, at(20)).await.unwrap();
    let list = async |tx: &mut Tx, organization, limit, offset| {
        organizations::list_members(tx, organization, limit, offset).await.unwrap()
    };
    assert_eq!(list(&mut tx, fixture.organization, 9, 0).await, [of_ada.clone(), of_bob.clone()]);
    assert_eq!(list(&mut tx, fixture.organization, 1, 0).await, slice::from_ref(&of_ada));
    assert_eq!(list(&mut tx, fixture.organization, 9, 1).await, slice::from_ref(&of_bob));
    assert_eq!(list(&mut tx, second.id, 9, 0).await, slice::from_ref(&elsewhere));
    let find = async |tx: &mut Tx, organization, user| {
        organizations::find_member(tx, organization, user).await.unwrap()
    };
    assert_eq!(find(&mut tx, fixture.organization, bob.id).await, Some(of_bob.clone()));
    assert_eq!(find(&mut tx, second.id, bob.id).await, Some(elsewhere.clone()));
    assert_eq!(find(&mut tx, second.id, fixture.user).await, None);
    let memberships = organizations::list_memberships(&mut tx, &[bob.id]).await.unwrap();
    assert_eq!(memberships, [elsewhere.clone(), of_bob.clone()], "oldest first");
    let of_user = async |tx: &mut Tx, user| {
        let listed = organizations::list_of_user(tx, user).await.unwrap();
        listed.into_iter().map(|organization| organization.id).collect::<Vec<_>>()
    };
    assert_eq!(of_user(&mut tx, bob.id).await, [fixture.organization, second.id]);
    assert_eq!(of_user(&mut tx, fixture.user).await, [fixture.organization]);
    assert_eq!(of_user(&mut tx, UserId::random()).await, []);

    let roles = ["owner".to_owned()];
    organizations::update_member_roles(&mut tx, second.id, bob.id, &roles, at(30)).await.unwrap();
    let changed = Member { roles: roles.to_vec(), updated_at: at(30), ..elsewhere };
    assert_eq!(find(&mut tx, second.id, bob.id).await, Some(changed));
    assert_eq!(find(&mut tx, fixture.organization, bob.id).await, Some(of_bob));
    stale(organizations::update_member_roles(&mut tx, second.id, fixture.user, &roles, at(30)).await);
    stale(organizations::delete_member(&mut tx, second.id, fixture.user).await);
    organizations::delete_member(&mut tx, second.id, bob.id).await.unwrap();
    assert_eq!(of_user(&mut tx, bob.id).await, [fixture.organization]);
    organizations::delete(&mut tx, second.id, at(40)).await.unwrap();
    let twice = organizations::insert_member(&mut tx, &of_ada).await;
    assert!(matches!(twice, Err(Error::Conflict { .. })), "{twice:?}");
}

async fn what_is_kept_exists(fixture: Fixture) {
    let (second, gone) = (organization("second", 10), person("gone", 10));
    let mut tx = fixture.store.begin().await.unwrap();
    organizations::insert(&mut tx, &second).await.unwrap();
    users::insert(&mut tx, &gone).await.unwrap();
    assert!(organizations::keep(&mut tx, second.id).await.unwrap());
    assert!(users::keep(&mut tx, gone.id).await.unwrap());
    let before = fixture.store.statement_counts().work;
    organizations::lock(&mut tx, second.id).await.unwrap();
    users::lock(&mut tx, &[gone.id, fixture.user]).await.unwrap();
    assert_eq!(fixture.store.statement_counts().work - before, 2);
    assert_eq!(organizations::find(&mut tx, second.id).await.unwrap(), Some(second.clone()), "unchanged");
    assert_eq!(users::find(&mut tx, gone.id).await.unwrap(), Some(gone.clone()), "unchanged");
    organizations::delete(&mut tx, second.id, at(20)).await.unwrap();
    users::delete(&mut tx, gone.id, at(20)).await.unwrap();
    for id in [second.id, OrganizationId::random()] {
        assert!(!organizations::keep(&mut tx, id).await.unwrap());
    }
    for id in [gone.id, UserId::random()] {
        assert!(!users::keep(&mut tx, id).await.unwrap());
    }
    tx.commit().await.unwrap();
}

fn token(user_id: UserId, id: &str, name: &str, second: i64) -> ApiKey {
    ApiKey {
        id: id.to_owned(),
        user_id,
        hashed_secret: Sha256Digest::of(id),
        login_type: LoginType::Token,
        token_name: name.to_owned(),
        scopes: vec![format!("scope of {id}")],
        allow_list: vec![format!("workspace:{id}")],
        lifetime_seconds: second,
        ip_address: format!("::{second}"),
        created_at: at(second),
        updated_at: at(second + 1),
        last_used_at: at(second + 2),
        expires_at: at(second + 100),
        parent_id: None,
        not_after: Some(at(second + 200)),
    }
}

async fn every_field_of_a_token_is_stored(fixture: Fixture) {
    let (user, other) = (fixture.user, UserId::PREBUILDS);
    let [first, second] = [token(user, "aaaaaaaaaa", "ci", 10), token(user, "bbbbbbbbbb", "cd", 5)];
    let foreign = token(other, "cccccccccc", "ci", 7);
    let session = ApiKey { login_type: LoginType::Github, ..token(user, "dddddddddd", "", 1) };
    let mut tx = fixture.store.single().await.unwrap();
    for key in [&first, &second, &foreign, &session] {
        tokens::insert(&mut tx, key).await.unwrap();
        assert_eq!(tokens::find(&mut tx, &key.id).await.unwrap().as_ref(), Some(key));
        assert_eq!(sessions::find(&mut tx, &key.id).await.unwrap().unwrap().key, *key);
    }
    assert_eq!(tokens::find(&mut tx, "zzzzzzzzzz").await.unwrap(), None);
    assert_eq!(tokens::find_by_name(&mut tx, user, "ci").await.unwrap(), Some(first.clone()));
    assert_eq!(tokens::find_by_name(&mut tx, other, "ci").await.unwrap(), Some(foreign.clone()));
    assert_eq!(tokens::find_by_name(&mut tx, other, "cd").await.unwrap(), None);
    assert_eq!(tokens::list_tokens(&mut tx, Some(user)).await.unwrap(), [second.clone(), first.clone()]);
    let all = [second.clone(), foreign.clone(), first.clone()];
    assert_eq!(tokens::list_tokens(&mut tx, None).await.unwrap(), all);

    let newer = token(user, "eeeeeeeeee", "ci", 50);
    tokens::replace(&mut tx, &newer).await.unwrap();
    assert_eq!(tokens::find(&mut tx, &first.id).await.unwrap(), None);
    assert_eq!(tokens::find_by_name(&mut tx, user, "ci").await.unwrap(), Some(newer.clone()));
    let added = token(user, "ffffffffff", "new", 60);
    tokens::replace(&mut tx, &added).await.unwrap();
    assert_eq!(tokens::find(&mut tx, &added.id).await.unwrap(), Some(added.clone()));
    tokens::update_used(&mut tx, &newer.id, at(70), at(170), "::7").await.unwrap();
    let used = ApiKey {
        last_used_at: at(70),
        updated_at: at(70),
        expires_at: at(170),
        ip_address: "::7".to_owned(),
        ..newer.clone()
    };
    assert_eq!(tokens::find(&mut tx, &newer.id).await.unwrap(), Some(used));
    stale(tokens::update_used(&mut tx, "zzzzzzzzzz", at(70), at(170), "::7").await);
    stale(tokens::delete(&mut tx, "zzzzzzzzzz").await);
    tokens::delete(&mut tx, &added.id).await.unwrap();
    assert_eq!(tokens::find(&mut tx, &added.id).await.unwrap(), None);
    assert!(!tokens::delete_by_name(&mut tx, other, "cd").await.unwrap(), "another user's");
    assert!(tokens::delete_by_name(&mut tx, user, "cd").await.unwrap());
    assert_eq!(tokens::find(&mut tx, &second.id).await.unwrap(), None);

    let child = ApiKey { parent_id: Some(newer.id.clone()), ..token(user, "gggggggggg", "", 80) };
    let theirs = ApiKey { parent_id: Some(newer.id.clone()), ..token(other, "hhhhhhhhhh", "", 80) };
    for key in [&child, &theirs] {
        tokens::insert(&mut tx, key).await.unwrap();
    }
    assert!(!tokens::delete_unless_parent(&mut tx, user, "ci").await.unwrap());
    assert!(tokens::find(&mut tx, &newer.id).await.unwrap().is_some());
    let mut affected = tokens::list_affected_users(&mut tx, user, Some(&newer.id)).await.unwrap();
    affected.sort();
    let mut both = [user, other];
    both.sort();
    assert_eq!(affected, both);
    assert_eq!(tokens::list_affected_users(&mut tx, user, Some(&session.id)).await.unwrap(), [user]);
    assert_eq!(tokens::list_affected_users(&mut tx, other, None).await.unwrap(), [other]);
    assert_eq!(sessions::delete_others(&mut tx, other, &foreign.id).await.unwrap(), 1);
    assert_eq!(tokens::find(&mut tx, &theirs.id).await.unwrap(), None);
    assert!(tokens::find(&mut tx, &foreign.id).await.unwrap().is_some());
    let deleted = tokens::delete_of_user(&mut tx, user).await.unwrap();
    assert!((2..=3).contains(&deleted), "the session and the token, and perhaps its child apart: {deleted}");
    for id in [&session.id, &newer.id, &child.id] {
        assert_eq!(tokens::find(&mut tx, id).await.unwrap(), None);
    }
    assert_eq!(tokens::list_tokens(&mut tx, None).await.unwrap(), [foreign]);
}

async fn tokens_that_ended_are_found(fixture: Fixture) {
    let mut tx = fixture.store.single().await.unwrap();
    for (id, second) in [("aaaaaaaaaa", 0), ("bbbbbbbbbb", 50)] {
        tokens::insert(&mut tx, &token(fixture.user, id, id, second)).await.unwrap();
    }
    let asked = ["aaaaaaaaaa", "bbbbbbbbbb", "zzzzzzzzzz"].map(str::to_owned);
    for (now, ended) in [
        (99, &["zzzzzzzzzz"][..]),
        (100, &["aaaaaaaaaa", "zzzzzzzzzz"]),
        (150, &["aaaaaaaaaa", "bbbbbbbbbb", "zzzzzzzzzz"]),
    ] {
        let mut found = tokens::list_ended(&mut tx, &asked, at(now)).await.unwrap();
        found.sort();
        assert_eq!(found, ended, "at {now}");
    }
    assert_eq!(tokens::list_ended(&mut tx, &asked[1..2], at(99)).await.unwrap(), Vec::<String>::new());
    assert_eq!(tokens::purge(&mut tx, at(100), 9).await.unwrap(), 0);
    assert_eq!(tokens::purge(&mut tx, at(151), 9).await.unwrap(), 2);
    assert_eq!(tokens::list_tokens(&mut tx, None).await.unwrap(), []);
}

fn key(fixture: &Fixture, name: &str) -> Key {
    Key {
        expires_at: Some(at(100)),
        networks: AllowList::parse(["10.0.0.0/8"]).unwrap(),
        ..Key::new(KeyId::random(), fixture.organization, name.to_owned(), tags(&[("key", name)]), at(1))
    }
}

async fn keys_that_ended_are_found(fixture: Fixture) {
    let (expires, revoked, lasts) = (
        key(&fixture, "expires"),
        key(&fixture, "revoked"),
        Key { expires_at: None, ..key(&fixture, "lasts") },
    );
    let mut tx = fixture.store.single().await.unwrap();
    for key in [&expires, &revoked, &lasts] {
        keys::insert(&mut tx, key, Sha256Digest::of(&key.name)).await.unwrap();
    }
    keys::revoke(&mut tx, fixture.organization, "revoked", at(50)).await.unwrap().unwrap();
    let asked = [expires.id, revoked.id, lasts.id, KeyId::random()];
    assert_eq!(keys::list_ended(&mut tx, &asked, at(99)).await.unwrap(), [revoked.id]);
    assert_eq!(keys::list_ended(&mut tx, &asked[2..], at(99)).await.unwrap(), []);
    let mut ended = keys::list_ended(&mut tx, &asked, at(100)).await.unwrap();
    ended.sort();
    let mut both = [expires.id, revoked.id];
    both.sort();
    assert_eq!(ended, both);
    assert_eq!(keys::list_expired_in_use(&mut tx, at(100)).await.unwrap(), [], "no daemon uses it");
}

async fn every_field_of_a_key_is_stored(fixture: Fixture) {
    let (first, second) = (key(&fixture, "first"), key(&fixture, "second"));
    let mut tx = fixture.store.single().await.unwrap();
    for key in [&first, &second] {
        keys::insert(&mut tx, key, Sha256Digest::of(&key.name)).await.unwrap();
    }
    let organization = fixture.organization;
    let elsewhere = OrganizationId::random();
    let hash = Sha256Digest::of("first");
    assert_eq!(keys::find(&mut tx, first.id).await.unwrap(), Some(first.clone()));
    assert_eq!(keys::find(&mut tx, KeyId::random()).await.unwrap(), None);
    assert_eq!(keys::find_by_name(&mut tx, organization, "FIRST").await.unwrap(), Some(first.clone()));
    assert_eq!(keys::find_by_name(&mut tx, organization, "fir").await.unwrap(), None);
    assert_eq!(keys::find_by_name(&mut tx, elsewhere, "first").await.unwrap(), None);
    assert_eq!(keys::find_by_hash(&mut tx, hash).await.unwrap(), Some(first.clone()));
    let matched = keys::find_by_secret(&mut tx, hash).await.unwrap().unwrap();
    assert_eq!((matched.key, matched.hashed_secret), (first.clone(), hash));
    let listed = keys::list(&mut tx, organization).await.unwrap();
    assert_eq!(listed.len(), 5);
    assert!(listed.contains(&first) && listed.contains(&second));
    assert_eq!(keys::list(&mut tx, elsewhere).await.unwrap(), []);
    let validity =
        KeyValidity { expires_at: Some(at(100)), networks: first.networks.clone(), ..KeyValidity::default() };
    assert_eq!(first.validity(), validity);

    assert!(keys::update_used(&mut tx, first.id, "::1", at(7)).await.unwrap());
    keys::update_expiry(&mut tx, first.id, Some(at(200))).await.unwrap();
    let networks = AllowList::parse(["192.168.0.0/16"]).unwrap();
    keys::update_networks(&mut tx, first.id, &networks).await.unwrap();
    keys::rotate(&mut tx, first.id, Sha256Digest::of("newer"), at(60)).await.unwrap();
    let changed = Key {
        last_used_at: Some(at(7)),
        last_used_address: "::1".to_owned(),
        expires_at: Some(at(200)),
        networks,
        previous_until: Some(at(60)),
        ..first
    };
    assert_eq!(keys::find(&mut tx, changed.id).await.unwrap(), Some(changed.clone()));
    assert_eq!(keys::find(&mut tx, second.id).await.unwrap(), Some(second.clone()));
    assert_eq!(keys::revoke(&mut tx, elsewhere, "first", at(70)).await.unwrap(), None);
    for name in ["first", "second"] {
        assert!(keys::revoke(&mut tx, organization, name, at(70)).await.unwrap().is_some());
    }
    let revoked = Key { revoked_at: Some(at(70)), ..changed };
    assert_eq!(keys::find(&mut tx, revoked.id).await.unwrap(), Some(revoked.clone()));
    assert_eq!(keys::find_by_name(&mut tx, organization, "first").await.unwrap(), None);
    assert_eq!(revoked.validity().revoked_at, Some(at(70)));
    stale(keys::update_expiry(&mut tx, revoked.id, None).await);
    stale(keys::update_networks(&mut tx, revoked.id, &AllowList::default()).await);
    stale(keys::update_networks(&mut tx, KeyId::PSK, &AllowList::default()).await);
    assert_eq!(keys::purge(&mut tx, at(71)).await.unwrap(), 2);
    assert_eq!(keys::find(&mut tx, revoked.id).await.unwrap(), None);
}

#[tokio::test]
async fn a_use_of_a_key_is_recorded_again_after_a_while_or_from_another_address() {
    let fixture = Fixture::sqlite().await;
    let never = key(&fixture, "edge");
    assert!(never.should_record_use("", at(0)));
    let used = Key { last_used_at: Some(at(1000)), last_used_address: "::1".to_owned(), ..never };
    for (address, distance, recorded) in [
        ("::1", 0, false),
        ("::1", 59, false),
        ("::1", 60, true),
        ("::1", 61, true),
        ("::2", 0, true),
        ("::2", 60, true),
    ] {
        for seconds in [distance, -distance] {
            assert_eq!(used.should_record_use(address, at(1000 + seconds)), recorded, "{address} {seconds}");
        }
    }
    assert_eq!(USE_RECORD_INTERVAL, SignedDuration::from_secs(60));
}

/// What a key was made for decides what it may do.
#[test]
fn sessions_of_people_of_workspaces_and_tokens_are_told_apart() {
    let token = token(UserId::NIL, "aaaaaaaaaa", "ci", 10);
    let parent = || Some("bbbbbbbbbb".to_owned());
    let session = |name: &str, parent_id| ApiKey {
        login_type: LoginType::Password,
        token_name: name.to_owned(),
        parent_id,
        ..token.clone()
    };
    for (key, is_sign_in, belongs_to_workspace) in [
        (session("", None), true, false),
        (session("", parent()), false, false),
        (session("workspace", None), false, true),
        (session("workspace", parent()), false, true),
        (token.clone(), false, false),
        (ApiKey { parent_id: parent(), ..token.clone() }, false, false),
        (ApiKey { token_name: String::new(), ..token.clone() }, false, false),
    ] {
        assert_eq!(
            (key.is_sign_in(), key.belongs_to_workspace()),
            (is_sign_in, belongs_to_workspace),
            "{key:?}"
        );
    }
    let short = ApiKey { not_after: Some(at(45)), ..token.clone() };
    assert_eq!(
        (token.extended(at(40)), short.extended(at(40)), short.extended(at(30))),
        (at(50), at(45), at(40))
    );
    assert_eq!(ApiKey { not_after: None, ..token }.extended(at(1_000_000)), at(1_000_010));
}

//! Connections of daemons: their beginning and end, requests to leave, and by whom daemons joined.

use std::slice;

use coder_domain::ids::{DaemonId, KeyId, OrganizationId, UserId};
use coder_domain::tags::TagSet;
use coder_store::daemons::{
    self, ConnectedDaemons, DaemonFilter, DrainRequest, JoinContext, JoinedDaemon, Liveness, NewDaemon,
};
use coder_store::organizations::{self, Organization};
use coder_store::{Error, Tx, jobs};
use uuid::Uuid;

use crate::fixture::{Fixture, at, on_both_engines, tags};

on_both_engines!(
    only_the_end_of_the_newest_connection_counts,
    a_connection_that_still_exists_takes_the_place_of_one_that_ended,
    a_heartbeat_lists_who_is_connected,
    a_request_to_leave_lasts_until_the_daemon_joins_again,
    what_joined_with_the_tokens_of_a_user_is_found,
    connected_daemons_are_listed_and_kept_however_old_their_heartbeat_is,
);

const HERE: Uuid = Uuid::from_u128(1);
const ELSEWHERE: Uuid = Uuid::from_u128(2);

fn new(fixture: &Fixture, name: &str) -> NewDaemon {
    NewDaemon {
        organization_id: fixture.organization,
        name: name.to_owned(),
        key_id: KeyId::BUILT_IN,
        provisioners: vec!["terraform".to_owned()],
        tags: TagSet::untagged(),
        version: "v1".to_owned(),
        api_version: "1.14".to_owned(),
    }
}

async fn join(fixture: &Fixture, new: &NewDaemon, context: &JoinContext, second: i64) -> JoinedDaemon {
    fixture.store.write(async |tx| daemons::join(tx, new, context, at(second)).await).await.unwrap()
}

/// A daemon that joined the server `HERE`.
async fn here(fixture: &Fixture, name: &str, second: i64) -> JoinedDaemon {
    let context = JoinContext { server: HERE, ..JoinContext::default() };
    join(fixture, &new(fixture, name), &context, second).await
}

async fn gone(tx: &mut Tx, ids: &[DaemonId]) -> Vec<DaemonId> {
    let mut gone = daemons::list_disconnected(tx, ids).await.unwrap();
    gone.sort();
    gone
}

async fn only_the_end_of_the_newest_connection_counts(fixture: Fixture) {
    let first = here(&fixture, "a", 10).await;
    let other = here(&fixture, "b", 10).await;
    let second = here(&fixture, "a", 20).await;
    assert_eq!(second.id, first.id);
    assert_ne!(second.connection, first.connection);
    let ids = [first.id, other.id];
    let mut tx = fixture.store.single().await.unwrap();
    daemons::update_disconnected(&mut tx, first.id, &first.connection, at(30)).await.unwrap();
    assert_eq!(gone(&mut tx, &ids).await, [], "it has connected again");
    daemons::update_disconnected(&mut tx, first.id, &second.connection, at(40)).await.unwrap();
    assert_eq!(gone(&mut tx, &ids).await, [first.id]);
    let row = daemons::find(&mut tx, first.id).await.unwrap().unwrap();
    assert_eq!((row.left_at, row.last_seen_at), (Some(at(40)), Some(at(40))));
    assert_eq!(row.server, HERE.to_string());
    // The clock was set back before the end.
    daemons::update_disconnected(&mut tx, other.id, &other.connection, at(5)).await.unwrap();
    let row = daemons::find(&mut tx, other.id).await.unwrap().unwrap();
    assert_eq!((row.left_at, row.last_seen_at), (Some(at(5)), Some(at(10))));
    drop(tx);
    here(&fixture, "a", 50).await;
    let mut tx = fixture.store.reader().await.unwrap();
    assert_eq!(gone(&mut tx, &ids).await, [other.id]);
    assert_eq!(gone(&mut tx, &[first.id]).await, []);
}

async fn a_connection_that_still_exists_takes_the_place_of_one_that_ended(fixture: Fixture) {
    let joined = here(&fixture, "a", 10).await;
    let id = joined.id;
    let mut tx = fixture.store.single().await.unwrap();
    let ends = async |tx: &mut Tx, connection: &str| {
        daemons::update_disconnected(tx, id, connection, at(30)).await.unwrap();
        !gone(tx, &[id]).await.is_empty()
    };
    daemons::update_connection(&mut tx, id, None, "elsewhere 1").await.unwrap();
    assert!(!ends(&mut tx, "elsewhere 1").await, "the row does not say that it has left");
    daemons::update_connection(&mut tx, id, Some("elsewhere 0"), "elsewhere 1").await.unwrap();
    assert!(!ends(&mut tx, "elsewhere 1").await, "the row names another connection");
    daemons::update_connection(&mut tx, id, Some(&joined.connection), "elsewhere 1").await.unwrap();
    assert!(!ends(&mut tx, &joined.connection).await);
    assert!(ends(&mut tx, "elsewhere 1").await);
    daemons::update_connection(&mut tx, id, None, "elsewhere 2").await.unwrap();
    assert_eq!(gone(&mut tx, &[id]).await, []);
    assert!(ends(&mut tx, "elsewhere 2").await);
}

async fn a_heartbeat_lists_who_is_connected(fixture: Fixture) {
    let there = JoinContext { server: ELSEWHERE, ..JoinContext::default() };
    let present = here(&fixture, "present", 10).await;
    let lost = here(&fixture, "lost", 10).await;
    let young = here(&fixture, "young", 96).await;
    let foreign = join(&fixture, &new(&fixture, "foreign"), &there, 10).await;
    let returned = here(&fixture, "returned", 10).await;
    let leaving = here(&fixture, "leaving", 10).await;
    let mut tx = fixture.store.single().await.unwrap();
    daemons::update_disconnected(&mut tx, returned.id, &returned.connection, at(20)).await.unwrap();
    daemons::update_disconnected(&mut tx, leaving.id, &leaving.connection, at(96)).await.unwrap();
    let ids = [present.id, returned.id, leaving.id];
    assert_eq!(daemons::update_seen(&mut tx, &ids, HERE, at(100)).await.unwrap(), 4);
    for (daemon, seen, left) in [
        (&present, 100, None),
        (&lost, 10, Some(100)),
        (&young, 96, None),
        (&foreign, 10, None),
        (&returned, 100, None),
        (&leaving, 100, Some(96)),
    ] {
        let row = daemons::find(&mut tx, daemon.id).await.unwrap().unwrap();
        assert_eq!((row.last_seen_at, row.left_at), (Some(at(seen)), left.map(at)), "{}", row.name);
    }
}

async fn a_request_to_leave_lasts_until_the_daemon_joins_again(fixture: Fixture) {
    let asked = here(&fixture, "asked", 10).await;
    let other = here(&fixture, "other", 10).await;
    assert_eq!(asked.drain, None);
    let ids = [asked.id, other.id];
    let mut tx = fixture.store.single().await.unwrap();
    assert_eq!(daemons::list_drains(&mut tx, &ids).await.unwrap(), []);
    daemons::update_drain(&mut tx, asked.id, "an upgrade", at(15)).await.unwrap();
    let request = DrainRequest { id: asked.id, asked_at: at(15), reason: "an upgrade".to_owned() };
    assert_eq!(daemons::list_drains(&mut tx, &ids).await.unwrap(), slice::from_ref(&request));
    assert_eq!(daemons::list_drains(&mut tx, &[other.id]).await.unwrap(), []);
    let draining = async |tx: &mut Tx, id| daemons::find(tx, id).await.unwrap().unwrap().draining;
    assert!(draining(&mut tx, asked.id).await && !draining(&mut tx, other.id).await);
    drop(tx);

    let with = |ignores_drain| JoinContext { ignores_drain, server: HERE, ..JoinContext::default() };
    for ignores_drain in [true, false] {
        let again = join(&fixture, &new(&fixture, "asked"), &with(ignores_drain), 20).await;
        assert_eq!(again.drain, Some(request.clone()), "with the same key");
        let mut tx = fixture.store.reader().await.unwrap();
        assert_eq!(draining(&mut tx, asked.id).await, ignores_drain);
    }
    let mut tx = fixture.store.single().await.unwrap();
    daemons::delete_drain(&mut tx, asked.id).await.unwrap();
    assert_eq!(daemons::list_drains(&mut tx, &ids).await.unwrap(), []);
    daemons::update_drain(&mut tx, other.id, "", at(16)).await.unwrap();
    assert!(draining(&mut tx, other.id).await);
    daemons::delete_drain(&mut tx, other.id).await.unwrap();
    assert!(!draining(&mut tx, other.id).await);
    daemons::update_drain(&mut tx, other.id, "", at(16)).await.unwrap();
    drop(tx);
    let with_another_key = NewDaemon { key_id: KeyId::PSK, ..new(&fixture, "other") };
    assert_eq!(join(&fixture, &with_another_key, &with(true), 20).await.drain, None);
    let mut tx = fixture.store.single().await.unwrap();
    assert!(!draining(&mut tx, other.id).await);
    let missing = DaemonId::random();
    let results = [
        daemons::update_drain(&mut tx, missing, "", at(17)).await,
        daemons::delete_drain(&mut tx, missing).await,
    ];
    for result in results {
        assert!(matches!(result, Err(Error::Stale { .. })), "{result:?}");
    }
}

async fn what_joined_with_the_tokens_of_a_user_is_found(fixture: Fixture) {
    let second = Organization {
        id: OrganizationId::random(),
        name: "second".to_owned(),
        display_name: String::new(),
        description: String::new(),
        icon: String::new(),
        is_default: false,
        created_at: at(1),
        updated_at: at(1),
    };
    fixture.store.write(async |tx| organizations::insert(tx, &second).await).await.unwrap();
    let other = UserId::PREBUILDS;
    let personal = TagSet::canonical(fixture.user, [&[("scope".to_owned(), "user".to_owned())].into()]);
    let mut held = Vec::new();
    // The third joined with a key, and the last one holds no job.
    for (name, user, token, key_id, organization, tags, is_busy) in [
        ("a", fixture.user, "t1", KeyId::USER_AUTH, fixture.organization, TagSet::untagged(), true),
        ("b", fixture.user, "t2", KeyId::USER_AUTH, fixture.organization, personal, true),
        ("c", fixture.user, "t3", KeyId::PSK, fixture.organization, TagSet::untagged(), true),
        ("d", fixture.user, "t4", KeyId::USER_AUTH, second.id, TagSet::untagged(), true),
        ("e", other, "t5", KeyId::USER_AUTH, fixture.organization, TagSet::untagged(), true),
        ("f", fixture.user, "t6", KeyId::USER_AUTH, fixture.organization, TagSet::untagged(), false),
    ] {
        let new = NewDaemon { key_id, organization_id: organization, tags, ..new(&fixture, name) };
        let context =
            JoinContext { user: Some(user), token: Some(token.to_owned()), ..JoinContext::default() };
        let daemon = join(&fixture, &new, &context, 10).await.id;
        if is_busy {
            fixture.job(&TagSet::untagged()).await;
            held.push((daemon, fixture.claim(daemon, &[1]).await.unwrap()));
        }
    }
    let mut tx = fixture.store.single().await.unwrap();
    let tokens = async |tx: &mut Tx, user| {
        let mut tokens = daemons::list_tokens_in_use(tx, user).await.unwrap();
        tokens.sort();
        tokens
    };
    assert_eq!(tokens(&mut tx, fixture.user).await, ["t1", "t2", "t3", "t4"]);
    assert_eq!(tokens(&mut tx, other).await, ["t5"]);
    assert_eq!(tokens(&mut tx, UserId::NIL).await, Vec::<String>::new());
    let mut joined = daemons::list_joined_organizations(&mut tx, fixture.user).await.unwrap();
    joined.sort();
    let mut expected = [(fixture.organization, false), (fixture.organization, true), (second.id, false)];
    expected.sort();
    assert_eq!(joined, expected);
    assert_eq!(
        daemons::list_joined_organizations(&mut tx, other).await.unwrap(),
        [(fixture.organization, false)]
    );
    assert_eq!(daemons::list_joined_organizations(&mut tx, UserId::NIL).await.unwrap(), []);
    for (user, organization, is_personal, found) in [
        (fixture.user, fixture.organization, false, &held[0..1]),
        (fixture.user, fixture.organization, true, &held[1..2]),
        (fixture.user, second.id, false, &held[3..4]),
        (fixture.user, second.id, true, &[]),
        (other, fixture.organization, false, &held[4..5]),
    ] {
        let found: Vec<_> = found.iter().map(|(_, job)| *job).collect();
        let listed = jobs::list_joined_by(&mut tx, user, organization, is_personal).await.unwrap();
        assert_eq!(listed, found, "{user} {organization} {is_personal}");
    }
    let (daemon, job) = held[1];
    jobs::complete(&mut tx, job, daemon, at(90)).await.unwrap();
    assert_eq!(tokens(&mut tx, fixture.user).await, ["t1", "t3", "t4"], "one holds no job any more");
    let listed = jobs::list_joined_by(&mut tx, fixture.user, fixture.organization, true).await.unwrap();
    assert_eq!(listed, []);
}

async fn connected_daemons_are_listed_and_kept_however_old_their_heartbeat_is(fixture: Fixture) {
    let there = JoinContext { server: ELSEWHERE, ..JoinContext::default() };
    let unknown = JoinContext { server: Uuid::from_u128(3), ..JoinContext::default() };
    let mine = here(&fixture, "mine", 10).await;
    let theirs = join(&fixture, &new(&fixture, "theirs"), &there, 11).await;
    let left = join(&fixture, &new(&fixture, "left"), &there, 12).await;
    let lost = join(&fixture, &new(&fixture, "lost"), &unknown, 13).await;
    let mut tx = fixture.store.single().await.unwrap();
    daemons::update_disconnected(&mut tx, left.id, &left.connection, at(14)).await.unwrap();
    let connected = ConnectedDaemons { server: HERE, daemons: vec![mine.id], servers: vec![ELSEWHERE] };
    let ids = async |tx: &mut Tx, filter: &DaemonFilter| {
        let listed = daemons::list(tx, filter).await.unwrap();
        listed.into_iter().map(|daemon| daemon.id).collect::<Vec<_>>()
    };
    let seen = Liveness { since: at(100), until: at(200), connected: connected.clone() };
    let filter = DaemonFilter { seen: Some(seen.clone()), ..DaemonFilter::default() };
    assert_eq!(ids(&mut tx, &filter).await, [theirs.id, mine.id]);
    let filter = DaemonFilter { is_present: true, ..DaemonFilter::default() };
    assert_eq!(ids(&mut tx, &filter).await, [lost.id, theirs.id, mine.id]);
    let (matched, newest) = daemons::list_matched(&mut tx, fixture.organization, &[1], &seen).await.unwrap();
    assert_eq!((newest, matched.len()), (1, 1));
    assert_eq!((matched[0].daemons, matched[0].online, matched[0].last_seen_at), (4, 2, at(14)));
    let none = daemons::list_matched(&mut tx, fixture.organization, &[2], &seen).await.unwrap();
    assert_eq!(none, (vec![], 1));
    assert_eq!(daemons::purge(&mut tx, at(13), &connected).await.unwrap(), 0);
    assert_eq!(daemons::purge(&mut tx, at(50), &connected).await.unwrap(), 2);
    assert_eq!(ids(&mut tx, &DaemonFilter::default()).await, [theirs.id, mine.id]);
}

/// Tags and programs of a group, so that a caller knows what its daemons can run.
#[tokio::test]
async fn daemons_that_can_run_different_jobs_are_counted_apart() {
    let fixture = Fixture::sqlite().await;
    let near = tags(&[("site", "near")]);
    fixture.daemon("a", &TagSet::untagged()).await;
    fixture.daemon("b", &near).await;
    fixture.daemon("c", &near).await;
    let mut tx = fixture.store.reader().await.unwrap();
    let seen = Liveness { since: at(0), until: at(100), ..Liveness::default() };
    let (mut found, newest) =
        daemons::list_matched(&mut tx, fixture.organization, &[1, 2], &seen).await.unwrap();
    found.sort_by_key(|group| group.daemons);
    assert_eq!(newest, 2);
    let counted: Vec<_> = found.iter().map(|group| (&group.tags, group.daemons)).collect();
    assert_eq!(counted, [(&TagSet::untagged(), 1), (&near, 2)]);
    assert_eq!(found[0].provisioners, ["terraform"]);
}

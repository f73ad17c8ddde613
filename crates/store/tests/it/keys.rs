//! Provisioner keys: validity, rotation, expiry, deletion and recorded uses.

use coder_domain::ids::{DaemonId, KeyId};
use coder_domain::job::lifecycle::Guard;
use coder_domain::key::{AllowList, SecretVersion, Sha256Digest};
use coder_domain::tags::TagSet;
use coder_store::keys::Key;
use coder_store::{Error, Tx, daemons, jobs, keys, tag_sets};

use crate::fixture::{Fixture, at, on_both_engines, tags};

on_both_engines!(
    keys_are_found_by_secret_and_name,
    old_and_new_secret_are_known_after_a_rotation,
    use_is_noted_once_a_minute,
    a_deleted_key_frees_its_name_and_keeps_its_rows,
    daemons_of_a_deleted_key_stay_while_they_hold_a_job,
);

fn key(fixture: &Fixture, name: &str) -> Key {
    Key::new(KeyId::random(), fixture.organization, name.to_owned(), tags(&[("site", "a")]), at(1))
}

async fn inserted(fixture: &Fixture, tx: &mut Tx, name: &str) -> Key {
    let key = key(fixture, name);
    keys::insert(tx, &key, Sha256Digest::of(name)).await.unwrap();
    key
}

async fn keys_are_found_by_secret_and_name(fixture: Fixture) {
    let mut tx = fixture.store.begin().await.unwrap();
    let mut key = key(&fixture, "edge");
    key.expires_at = Some(at(100));
    key.networks = AllowList::parse(["10.0.0.0/8"]).unwrap();
    keys::insert(&mut tx, &key, Sha256Digest::of("secret")).await.unwrap();
    assert_eq!(keys::find_by_hash(&mut tx, Sha256Digest::of("secret")).await.unwrap(), Some(key.clone()));
    assert_eq!(keys::find_by_hash(&mut tx, Sha256Digest::of("Secret")).await.unwrap(), None);
    assert_eq!(keys::find_by_name(&mut tx, fixture.organization, "EDGE").await.unwrap(), Some(key.clone()));
    assert_eq!(keys::find(&mut tx, key.id).await.unwrap(), Some(key.clone()));
    assert_eq!(keys::list(&mut tx, fixture.organization).await.unwrap().len(), 4, "with the reserved ones");
    keys::update_expiry(&mut tx, key.id, None).await.unwrap();
    keys::update_networks(&mut tx, key.id, &AllowList::default()).await.unwrap();
    let found = keys::find(&mut tx, key.id).await.unwrap().unwrap();
    assert_eq!(found.validity(), coder_domain::key::KeyValidity::default());
    let reserved = keys::update_expiry(&mut tx, KeyId::PSK, Some(at(5))).await;
    assert!(matches!(reserved, Err(Error::Stale { .. })));
    tx.commit().await.unwrap();

    let mut tx = fixture.store.begin().await.unwrap();
    let again = Key { id: KeyId::random(), name: "Edge".to_owned(), ..key };
    let taken = keys::insert(&mut tx, &again, Sha256Digest::of("other")).await.unwrap_err();
    assert!(taken.is_conflict_on("provisioner_keys", "name_lower"), "{taken:?}");
}

async fn old_and_new_secret_are_known_after_a_rotation(fixture: Fixture) {
    let mut tx = fixture.store.begin().await.unwrap();
    let key = inserted(&fixture, &mut tx, "edge").await;
    keys::rotate(&mut tx, key.id, Sha256Digest::of("second"), at(100)).await.unwrap();
    let shown = async |tx: &mut Tx, secret: &str| {
        let shown = keys::find_by_secret(tx, Sha256Digest::of(secret)).await.unwrap();
        shown.map(|shown| (shown.key.id, shown.generation, shown.key.previous_until))
    };
    let until = Some(at(100));
    assert_eq!(shown(&mut tx, "edge").await, Some((key.id, SecretVersion::Previous, until)));
    assert_eq!(shown(&mut tx, "second").await, Some((key.id, SecretVersion::Current, until)));
    assert_eq!(keys::find_by_hash(&mut tx, Sha256Digest::of("edge")).await.unwrap(), None, "not the newest");
    keys::rotate(&mut tx, key.id, Sha256Digest::of("third"), at(200)).await.unwrap();
    assert_eq!(shown(&mut tx, "edge").await, None, "an older one ends at once");
    assert_eq!(shown(&mut tx, "second").await, Some((key.id, SecretVersion::Previous, Some(at(200)))));
    for id in [KeyId::PSK, KeyId::random()] {
        let refused = keys::rotate(&mut tx, id, Sha256Digest::of("x"), at(1)).await;
        assert!(matches!(refused, Err(Error::Stale { .. })));
    }
    assert!(keys::find_by_secret(&mut tx, Sha256Digest::of("")).await.unwrap().is_none());
    tx.commit().await.unwrap();
}

async fn use_is_noted_once_a_minute(fixture: Fixture) {
    let mut tx = fixture.store.begin().await.unwrap();
    let key = inserted(&fixture, &mut tx, "edge").await;
    let mut writes = Vec::new();
    for (address, second) in [("a", 10), ("a", 69), ("a", 70), ("b", 71), ("b", 100), ("b", 20)] {
        let before = keys::find(&mut tx, key.id).await.unwrap().unwrap();
        let wrote = keys::update_used(&mut tx, key.id, address, at(second)).await.unwrap();
        // After the clock was set back by more than a minute, a use is recorded again.
        assert!(!before.should_record_use(address, at(second)) || wrote, "{address} {second}");
        writes.push(wrote);
    }
    assert_eq!(writes, [true, false, true, true, false, true]);
    let noted = keys::find(&mut tx, key.id).await.unwrap().unwrap();
    assert_eq!((noted.last_used_at, noted.last_used_address.as_str()), (Some(at(20)), "b"));
    tx.commit().await.unwrap();
}

async fn a_deleted_key_frees_its_name_and_keeps_its_rows(fixture: Fixture) {
    let mut tx = fixture.store.begin().await.unwrap();
    let key = inserted(&fixture, &mut tx, "edge").await;
    let daemon = joined(&fixture, &mut tx, &key).await;
    let sets: Vec<_> = tag_sets::list_since(&mut tx, 0).await.unwrap().iter().map(|set| set.id).collect();
    let seen = daemons::Liveness { until: at(1000), ..daemons::Liveness::default() };
    let able =
        async |tx: &mut Tx| daemons::list_matched(tx, fixture.organization, &sets, &seen).await.unwrap().0;
    assert_eq!(
        able(&mut tx).await.iter().map(|alike| (alike.daemons, alike.online)).collect::<Vec<_>>(),
        [(1, 1)]
    );
    let revoke = async |tx: &mut Tx, name| keys::revoke(tx, fixture.organization, name, at(9)).await.unwrap();
    assert_eq!(revoke(&mut tx, "psk").await, None, "reserved");
    assert_eq!(revoke(&mut tx, "EDGE").await, Some(key.id));
    assert_eq!(revoke(&mut tx, "edge").await, None);
    assert_eq!(keys::find_by_hash(&mut tx, Sha256Digest::of("edge")).await.unwrap(), None);
    let shown = keys::find_by_secret(&mut tx, Sha256Digest::of("edge")).await.unwrap().unwrap();
    assert_eq!(shown.key.revoked_at, Some(at(9)), "logs may say why somebody was refused");
    assert_eq!(keys::list(&mut tx, fixture.organization).await.unwrap().len(), 3);
    assert!(keys::rotate(&mut tx, key.id, Sha256Digest::of("x"), at(50)).await.is_err());
    let again = Key { id: KeyId::random(), ..key.clone() };
    keys::insert(&mut tx, &again, Sha256Digest::of("new")).await.unwrap();

    assert_eq!(listed(&mut tx, daemons::DaemonFilter::default()).await, [], "nobody sees them any more");
    let all = daemons::DaemonFilter { with_revoked: true, ..daemons::DaemonFilter::default() };
    assert_eq!(listed(&mut tx, all).await, [daemon]);
    assert_eq!(able(&mut tx).await, []);
    assert_eq!(keys::purge(&mut tx, at(9)).await.unwrap(), 0);
    assert_eq!(keys::purge(&mut tx, at(10)).await.unwrap(), 1);
    assert_eq!(daemons::find(&mut tx, daemon).await.unwrap(), None);
    tx.commit().await.unwrap();
}

async fn joined(fixture: &Fixture, tx: &mut Tx, key: &Key) -> DaemonId {
    let join = daemons::NewDaemon {
        organization_id: fixture.organization,
        name: "d".to_owned(),
        key_id: key.id,
        provisioners: vec!["terraform".to_owned()],
        tags: TagSet::untagged(),
        version: String::new(),
        api_version: "1.14".to_owned(),
    };
    daemons::upsert(tx, &join, at(2)).await.unwrap()
}

async fn listed(tx: &mut Tx, filter: daemons::DaemonFilter) -> Vec<DaemonId> {
    daemons::list(tx, &filter).await.unwrap().into_iter().map(|daemon| daemon.id).collect()
}

async fn daemons_of_a_deleted_key_stay_while_they_hold_a_job(fixture: Fixture) {
    let mut tx = fixture.store.begin().await.unwrap();
    let key = inserted(&fixture, &mut tx, "edge").await;
    let daemon = joined(&fixture, &mut tx, &key).await;
    tx.commit().await.unwrap();
    let job = fixture.job(&TagSet::untagged()).await;
    assert_eq!(fixture.claim(daemon, &[1]).await, Some(job));

    let mut tx = fixture.store.begin().await.unwrap();
    keys::update_expiry(&mut tx, key.id, Some(at(5))).await.unwrap();
    assert_eq!(keys::list_expired_in_use(&mut tx, at(4)).await.unwrap(), []);
    assert_eq!(keys::list_expired_in_use(&mut tx, at(5)).await.unwrap(), [key.id]);
    keys::revoke(&mut tx, fixture.organization, "edge", at(9)).await.unwrap().unwrap();
    assert_eq!(jobs::list_of_key(&mut tx, key.id).await.unwrap(), [job]);
    assert_eq!(keys::purge(&mut tx, at(1000)).await.unwrap(), 0, "it holds a job");
    assert_eq!(daemons::purge(&mut tx, at(1000), &daemons::ConnectedDaemons::default()).await.unwrap(), 0);
    assert_eq!(listed(&mut tx, daemons::DaemonFilter::default()).await, [daemon]);
    let held = Guard::HeldBy(daemon);
    jobs::give_up(&mut tx, job, held, "the key is gone", at(10)).await.unwrap();
    assert!(jobs::give_up(&mut tx, job, held, "again", at(11)).await.is_err());
    assert_eq!(jobs::list_of_key(&mut tx, key.id).await.unwrap(), []);
    assert_eq!(listed(&mut tx, daemons::DaemonFilter::default()).await, []);
    assert_eq!(keys::purge(&mut tx, at(1000)).await.unwrap(), 1);
    tx.commit().await.unwrap();
}

//! Encryption at rest: states are encrypted with the first key, readable with all keys, bound to their rows, and
//! re-encrypted with new keys.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coder_domain::build::Transition;
use coder_domain::ids::{BuildId, JobId};
use coder_domain::key::Sha256Digest;
use coder_domain::secret::Secret;
use coder_store::encryption::{self, rotation::RotationReport};
use coder_store::external_auth_links::{self as links, ExternalAuthLink, OAuthTokens};
use coder_store::jobs::journals::{self, JournalEntry, StateVersion};
use coder_store::workspaces::builds;
use coder_store::{Config, Error, StateKeys, Store, users};

use crate::fixture::{Fixture, at, on_both_engines};
use crate::templates::{new_template, new_version};
use crate::workspaces::{end, new_build, new_workspace};

on_both_engines!(
    states_are_encrypted_at_rest_and_follow_their_builds,
    a_rotation_brings_all_states_under_the_first_key_and_back,
    external_auth_tokens_are_encrypted_and_refreshed_once
);

const STATE: &[u8] = br#"{"version":4,"password":"hunter2"}"#;

pub(crate) fn keys(numbers: &[u8]) -> StateKeys {
    let text = |number: &u8| Secret::new(BASE64_STANDARD.encode([*number; 32]));
    StateKeys::parse(&numbers.iter().map(text).collect::<Vec<_>>()).unwrap()
}

/// The same database with other keys.
pub(crate) async fn with_keys(fixture: &Fixture, numbers: &[u8]) -> Store {
    let mut config = Config::new(fixture.database().location.clone());
    config.state_keys = keys(numbers);
    Store::open(&config, at(0)).await.unwrap()
}

/// A workspace with two builds, the second of which has a journal.
async fn two_builds(fixture: &Fixture) -> (BuildId, BuildId, JobId) {
    let version = new_version(fixture, "v1").await;
    let template = new_template(fixture, "docker", &version).await;
    end(fixture, version.job_id).await;
    let workspace = new_workspace(fixture, &template, "dev").await.id;
    let (first, job, _) = new_build(fixture, &template, workspace, Transition::Start).await.unwrap();
    end(fixture, job).await;
    let (second, job, _) = new_build(fixture, &template, workspace, Transition::Stop).await.unwrap();
    (first, second, job)
}

fn entry() -> JournalEntry {
    let version = StateVersion { serial: 1, lineage: "l".to_owned(), sha256: Sha256Digest::of("x") };
    JournalEntry { version, cipher: String::new(), state: STATE.to_vec() }
}

async fn state(store: &Store, build: BuildId) -> Result<Option<Vec<u8>>, Error> {
    builds::find_state(&mut store.reader().await.unwrap(), build).await
}

fn is_state(found: &Option<Vec<u8>>) -> bool {
    found.as_deref() == Some(STATE)
}

async fn states_are_encrypted_at_rest_and_follow_their_builds(fixture: Fixture) {
    let (first, second, job) = two_builds(&fixture).await;
    let store = with_keys(&fixture, &[1]).await;
    let mut tx = store.begin().await.unwrap();
    builds::update_state(&mut tx, first, STATE.to_vec()).await.unwrap();
    assert!(is_state(&builds::find_state(&mut tx, first).await.unwrap()));
    // A copy is bound to its own build.
    assert!(builds::copy_previous_state(&mut tx, second).await.unwrap());
    assert!(is_state(&builds::find_state(&mut tx, second).await.unwrap()));
    assert!(!builds::copy_previous_state(&mut tx, second).await.unwrap(), "it has one");
    builds::update_state(&mut tx, second, Vec::new()).await.unwrap();
    builds::copy_state(&mut tx, second, first).await.unwrap();
    assert!(is_state(&builds::find_state(&mut tx, second).await.unwrap()));
    builds::update_state(&mut tx, second, Vec::new()).await.unwrap();
    assert!(journals::put(&mut tx, job, &entry().version, entry().state, None, at(5)).await.unwrap().kept);
    let found = journals::find(&mut tx, job).await.unwrap().unwrap();
    assert!(found.state == STATE && found.cipher.starts_with("aes-256-gcm "));
    assert!(journals::apply(&mut tx, job, second).await.unwrap());
    tx.commit().await.unwrap();
    assert!(is_state(&state(&store, second).await.unwrap()));
    // Without the key, states are neither read nor copied, and the error names the key.
    for store in [with_keys(&fixture, &[]).await, with_keys(&fixture, &[2]).await] {
        let name = keys(&[1]).current().unwrap();
        let error = state(&store, first).await.unwrap_err();
        assert!(matches!(&error, Error::RowKeyMissing { key, .. } if *key == name), "{error}");
        let mut tx = store.begin().await.unwrap();
        assert!(matches!(builds::copy_state(&mut tx, second, first).await, Err(Error::RowKeyMissing { .. })));
        assert!(matches!(journals::find(&mut tx, job).await, Err(Error::RowKeyMissing { .. })));
        assert!(matches!(journals::apply(&mut tx, job, second).await, Err(Error::RowKeyMissing { .. })));
        tx.rollback().await;
        let unreadable = encryption::rotation::list_undecryptable(&store).await.unwrap();
        let [missing] = &unreadable[..] else { panic!("one line for the key: {unreadable:?}") };
        assert_eq!(missing.id, format!("key {name}"));
        assert!(missing.detail.starts_with("3 values "), "{missing}");
        assert!(missing.detail.contains("--state-encryption-keys"), "{missing}");
        let others = coder_store::check::check(&store).await.unwrap();
        assert!(others.iter().all(|violation| !violation.detail.contains(&name)), "{others:?}");
    }
    // A state that was moved to another row is refused.
    let swap = format!(
        "update workspace_build_states set state = (select other.state from workspace_build_states as other
            where other.workspace_build_id = '{first}') where workspace_build_id = '{second}'"
    );
    fixture.database().execute(&swap).await;
    assert!(matches!(state(&store, second).await, Err(Error::Corrupt { column: "state", .. })));
}

async fn a_rotation_brings_all_states_under_the_first_key_and_back(fixture: Fixture) {
    let (first, second, job) = two_builds(&fixture).await;
    let mut tx = fixture.store.begin().await.unwrap();
    builds::update_state(&mut tx, first, STATE.to_vec()).await.unwrap();
    builds::copy_state(&mut tx, second, first).await.unwrap();
    journals::put(&mut tx, job, &entry().version, entry().state, None, at(5)).await.unwrap();
    tx.commit().await.unwrap();
    let old = with_keys(&fixture, &[1]).await;
    assert!(is_state(&state(&old, first).await.unwrap()), "plain states stay readable");
    let all = encryption::rotation::rotate(&old, &keys(&[1])).await.unwrap();
    assert!(all.changed > 3 && all.total >= all.changed, "{all:?}");
    let none = RotationReport { changed: 0, ..all };
    let both = with_keys(&fixture, &[2, 1]).await;
    assert_eq!(encryption::rotation::rotate(&both, &keys(&[2, 1])).await.unwrap(), all);
    assert_eq!(encryption::rotation::rotate(&both, &keys(&[2, 1])).await.unwrap(), none);
    let new = with_keys(&fixture, &[2]).await;
    assert!(is_state(&state(&new, first).await.unwrap()) && is_state(&state(&new, second).await.unwrap()));
    assert_eq!(journals::find(&mut new.reader().await.unwrap(), job).await.unwrap().unwrap().state, STATE);
    assert!(matches!(
        encryption::rotation::rotate(&old, &keys(&[1])).await,
        Err(Error::RowKeyMissing { .. })
    ));
    assert_eq!(encryption::rotation::list_undecryptable(&new).await.unwrap(), []);
    assert_eq!(encryption::rotation::rotate(&new, &StateKeys::default()).await.unwrap(), all);
    assert!(is_state(&state(&fixture.store, second).await.unwrap()), "plain again");
    let mut tx = fixture.store.begin().await.unwrap();
    assert!(journals::apply(&mut tx, job, second).await.unwrap());
    tx.rollback().await;
}

fn tokens(access: &str) -> OAuthTokens {
    let (access, refresh) = (Secret::new(access), Secret::new("hunter2"));
    OAuthTokens { access, refresh, expires_at: Some(at(60)) }
}

async fn external_auth_tokens_are_encrypted_and_refreshed_once(fixture: Fixture) {
    let user = fixture.user;
    let find = async |store: &Store| -> Result<Option<ExternalAuthLink>, Error> {
        links::find(&mut store.reader().await.unwrap(), user, "github").await
    };
    let old = with_keys(&fixture, &[1]).await;
    let mut tx = old.begin().await.unwrap();
    links::put(&mut tx, user, "github", &tokens("first"), at(1)).await.unwrap();
    tx.commit().await.unwrap();
    let first = find(&old).await.unwrap().unwrap();
    assert_eq!((&first.tokens, first.generation, first.created_at), (&tokens("first"), 1, at(1)));
    assert!(!format!("{first:?}").contains("hunter2"));
    let locked = find(&fixture.store).await.unwrap_err();
    assert!(matches!(locked, Error::RowKeyMissing { table: "external_auth_links", .. }), "{locked}");

    let new = with_keys(&fixture, &[2, 1]).await;
    assert_eq!(encryption::rotation::list_undecryptable(&fixture.store).await.unwrap().len(), 1);
    assert!(encryption::rotation::rotate(&new, &keys(&[2, 1])).await.unwrap().changed > 0);
    assert!(matches!(find(&old).await, Err(Error::RowKeyMissing { .. })));
    assert!(encryption::rotation::rotate(&new, &StateKeys::default()).await.unwrap().changed > 0);
    assert_eq!(find(&fixture.store).await.unwrap().unwrap(), first);

    // A refresh of a deleted account changes nothing.
    let mut tx = fixture.store.begin().await.unwrap();
    assert!(links::update_refreshed(&mut tx, &first, &tokens("second"), at(2)).await.unwrap());
    assert!(!links::update_refreshed(&mut tx, &first, &tokens("third"), at(3)).await.unwrap());
    assert!(!links::update_failed(&mut tx, &first, "invalid_grant").await.unwrap());
    let second = links::find(&mut tx, user, "github").await.unwrap().unwrap();
    assert_eq!((&second.tokens, second.generation), (&tokens("second"), 2));
    assert!(links::update_failed(&mut tx, &second, "invalid_grant").await.unwrap());
    assert_eq!(links::find(&mut tx, user, "github").await.unwrap().unwrap().refresh_failure, "invalid_grant");
    links::put(&mut tx, user, "github", &tokens("fourth"), at(4)).await.unwrap();
    let fourth = links::find(&mut tx, user, "github").await.unwrap().unwrap();
    assert_eq!((fourth.refresh_failure.as_str(), fourth.generation, fourth.created_at), ("", 3, at(1)));
    assert_eq!(links::list_providers(&mut tx, user).await.unwrap(), ["github"]);
    assert!(links::delete(&mut tx, user, "github").await.unwrap());
    assert!(!links::delete(&mut tx, user, "github").await.unwrap());
    links::put(&mut tx, user, "github", &tokens("fifth"), at(5)).await.unwrap();
    users::delete(&mut tx, user, at(6)).await.unwrap();
    assert_eq!(links::find(&mut tx, user, "github").await.unwrap(), None, "deleted with the user");
    tx.commit().await.unwrap();
}

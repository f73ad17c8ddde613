//! The rotation against a small model of server, Secret and pods, with crashes between all steps.

use proptest::prelude::*;

use super::*;

fn wanted() -> Wanted {
    Wanted {
        base: "builds-linux".to_owned(),
        uid: "5f0c".to_owned(),
        entry: "key".to_owned(),
        organization_id: "org-1".to_owned(),
        tags: BTreeMap::from([("os".to_owned(), "linux".to_owned())]),
        url: "http://coder".to_owned(),
        control_plane: None,
        deployment_id: "deployment-1".to_owned(),
        rotate: None,
        rotate_after: None,
    }
}

/// Name, id, secret, organization, tags.
type ServerKey = (String, String, String, String, BTreeMap<String, String>);

/// A server, a Secret, pods, and the status: everything outside the rules.
#[derive(Clone, Debug)]
struct World {
    wanted: Wanted,
    keys: Vec<KeyStatus>,
    generation: i64,
    rotated_for: Option<String>,
    server: Vec<ServerKey>,
    secret: BTreeMap<String, String>,
    /// The key ids of pods.
    pods: BTreeSet<String>,
    made: u32,
    now: Timestamp,
}

impl World {
    fn new() -> Self {
        Self {
            wanted: wanted(),
            keys: Vec::new(),
            generation: 0,
            rotated_for: None,
            server: Vec::new(),
            secret: BTreeMap::new(),
            pods: BTreeSet::new(),
            made: 0,
            now: Timestamp::UNIX_EPOCH,
        }
    }

    fn presented(&self) -> Option<&KeyStatus> {
        let of = |state| self.keys.iter().find(|key| key.state == state);
        of(KeyState::Pending).or_else(|| of(KeyState::Active))
    }

    fn check(&self) -> Check {
        let Some(secret) = self.presented().and_then(|key| self.secret.get(&key.entry)) else {
            return Check::Unknown;
        };
        self.server.iter().find(|key| key.2 == *secret).map_or(Check::Refused, |key| Check::Valid {
            id: key.1.clone(),
            organization_id: key.3.clone(),
            tags: key.4.clone(),
        })
    }

    fn step(&self) -> Step {
        let entries = self.secret.iter().map(|(entry, key)| (entry.clone(), fingerprint(key))).collect();
        next(
            &self.wanted,
            &Observed {
                keys: &self.keys,
                generation: self.generation,
                rotated_for: self.rotated_for.as_deref(),
                entries: &entries,
                check: self.check(),
                in_use: Some(&self.pods),
                now: self.now,
            },
        )
    }

    /// Does a step as the reconciler does. `until` counts the effects before a crash.
    fn perform(&mut self, step: &Step, mut until: u32) {
        let mut effect = || {
            until = until.saturating_sub(1);
            until > 0
        };
        match step {
            Step::Note(..) => {
                self.generation += 1;
                self.rotated_for.clone_from(&self.wanted.rotate);
            }
            Step::Create(pending) => {
                self.server.retain(|key| key.0 != pending.name);
                if !effect() {
                    return;
                }
                self.made += 1;
                let (id, secret) = (format!("id-{}", self.made), format!("secret-{}", self.made));
                let key = (
                    pending.name.clone(),
                    id,
                    secret.clone(),
                    pending.organization_id.clone(),
                    pending.tags.clone(),
                );
                self.server.push(key);
                if !effect() {
                    return;
                }
                self.secret.insert(pending.entry.clone(), secret);
            }
            Step::Delete(key) => {
                self.server.retain(|known| known.0 != key.name);
                if !effect() {
                    return;
                }
                self.secret.remove(&key.entry);
                if !effect() {
                    return;
                }
            }
            Step::Activate(_) | Step::Update(_) | Step::Present(_) | Step::Rest => {}
        }
        self.keys = apply(&self.keys, step);
    }

    /// Runs until nothing is left to do; pods follow the active key at the end.
    fn settle(&mut self) -> u32 {
        for count in 0..40 {
            let step = self.step();
            if step == Step::Rest {
                let active = self.active();
                if self.pods == BTreeSet::from([active.id.clone().unwrap()]) {
                    return count;
                }
                self.pods = BTreeSet::from([active.id.unwrap()]);
                continue;
            }
            assert!(self.old_pods_can_reconnect(), "{self:?}");
            self.perform(&step, u32::MAX);
        }
        panic!("no rest: {self:?}");
    }

    fn active(&self) -> KeyStatus {
        self.keys.iter().find(|key| key.state == KeyState::Active).cloned().expect("an active key")
    }

    /// Each key that a pod uses is alive, unless somebody else deleted it.
    fn old_pods_can_reconnect(&self) -> bool {
        self.pods.iter().all(|id| self.server.iter().any(|key| key.1 == *id))
    }

    fn assert_one_key(&self) {
        assert_eq!(self.server.len(), 1, "{self:?}");
        assert_eq!(self.keys.len(), 1, "{self:?}");
        let active = self.active();
        assert_eq!(active.id.as_ref(), Some(&self.server[0].1));
        assert_eq!(self.secret.get(&active.entry), Some(&self.server[0].2));
        assert_eq!(self.secret.len(), 1, "{self:?}");
        assert_eq!(self.server[0].4, self.wanted.tags);
    }
}

fn rotated_by(change: impl FnOnce(&mut World)) -> World {
    let mut world = World::new();
    world.settle();
    world.assert_one_key();
    let before = world.active();
    change(&mut world);
    world.settle();
    world.assert_one_key();
    assert_ne!(world.active().name, before.name);
    assert_ne!(world.active().id, before.id);
    world
}

#[test]
fn a_new_pool_gets_one_key() {
    let mut world = World::new();
    world.settle();
    world.assert_one_key();
    assert_eq!(world.step(), Step::Rest);
}

#[test]
fn a_key_of_another_operator_keeps_its_name_until_the_wanted_one_changes() {
    let mut world = World::new();
    world.settle();
    world.keys[0].base = None;
    world.settle();
    world.assert_one_key();
    let before = world.active();
    assert_eq!(before.base.as_deref(), Some("builds-linux"));
    "BUILDS-linux".clone_into(&mut world.wanted.base);
    assert_eq!(world.step(), Step::Rest, "names do not differ by case");
    "other".clone_into(&mut world.wanted.base);
    world.settle();
    world.assert_one_key();
    assert!(world.active().name.starts_with("other-"), "{:?}", world.active());
}

#[test]
fn each_change_rotates_before_it_deletes() {
    rotated_by(|world| drop(world.wanted.tags.insert("gpu".to_owned(), "yes".to_owned())));
    rotated_by(|world| "builds-windows".clone_into(&mut world.wanted.base));
    rotated_by(|world| "org-2".clone_into(&mut world.wanted.organization_id));
    rotated_by(|world| world.wanted.rotate = Some("1".to_owned()));
    rotated_by(|world| {
        "http://other".clone_into(&mut world.wanted.url);
        "deployment-2".clone_into(&mut world.wanted.deployment_id);
    });
    rotated_by(|world| {
        world.wanted.rotate_after = Some(SignedDuration::from_hours(1));
        world.now = Timestamp::from_second(3600).unwrap();
    });
}

#[test]
fn a_lost_or_changed_secret_gets_a_new_key() {
    rotated_by(|world| world.secret.clear());
    rotated_by(|world| world.secret.values_mut().for_each(|key| "garbage".clone_into(key)));
}

#[test]
fn a_key_that_the_server_lost_or_changed_is_replaced() {
    let change = |edit: fn(&mut World)| {
        let mut world = World::new();
        world.settle();
        edit(&mut world);
        world.pods.clear();
        world.settle();
        world.assert_one_key();
    };
    change(|world| world.server.clear());
    change(|world| drop(world.server[0].4.insert("gpu".to_owned(), "yes".to_owned())));
    change(|world| "replaced".clone_into(&mut world.server[0].1));
}

#[test]
fn a_new_url_of_the_same_deployment_keeps_the_key() {
    let mut world = World::new();
    world.settle();
    let before = world.active();
    "https://coder.example.com".clone_into(&mut world.wanted.url);
    world.settle();
    assert_eq!((world.active().name, world.active().id), (before.name, before.id));
    assert_eq!(world.active().url, "https://coder.example.com");
}

#[test]
fn a_secret_that_the_server_accepts_is_kept() {
    let mut world = World::new();
    world.settle();
    let before = world.active();
    "renewed".clone_into(&mut world.server[0].2);
    world.secret.values_mut().for_each(|key| "renewed".clone_into(key));
    world.settle();
    assert_eq!(world.active().name, before.name);
    assert_eq!(world.active().fingerprint, Some(fingerprint("renewed")));
}

#[test]
fn a_retiring_key_stays_while_a_pod_uses_it() {
    let mut world = World::new();
    world.settle();
    let old = world.active().id.unwrap();
    world.wanted.tags.clear();
    for _ in 0..10 {
        let step = world.step();
        world.perform(&step, u32::MAX);
    }
    assert_eq!(world.step(), Step::Rest);
    assert!(world.server.iter().any(|key| key.1 == old), "the pod still has it");
    world.pods.clear();
    assert!(matches!(world.step(), Step::Delete(key) if key.id == Some(old)));
}

#[test]
fn nothing_is_deleted_while_it_is_unknown_who_uses_it() {
    let mut world = World::new();
    world.settle();
    world.wanted.tags.clear();
    for _ in 0..10 {
        let step = world.step();
        world.perform(&step, u32::MAX);
    }
    let observed = Observed {
        keys: &world.keys,
        generation: world.generation,
        rotated_for: None,
        entries: &world.secret.iter().map(|(entry, key)| (entry.clone(), fingerprint(key))).collect(),
        check: Check::Unknown,
        in_use: None,
        now: world.now,
    };
    assert_eq!(next(&world.wanted, &observed), Step::Rest);
}

proptest! {
    #[test]
    fn crashes_leave_no_orphan_keys(
        crashes in proptest::collection::vec(1_u32..4, 0..30),
        edits in proptest::collection::vec(0_u8..6, 0..8),
    ) {
        let mut world = World::new();
        let (mut crashes, mut edits) = (crashes.into_iter(), edits.into_iter());
        for round in 0..30 {
            let step = world.step();
            // A crash after some of the effects, or none.
            let until = crashes.next().unwrap_or(u32::MAX);
            world.perform(&step, until);
            if round % 3 == 2 {
                match edits.next() {
                    Some(0) => drop(world.wanted.tags.insert("n".to_owned(), round.to_string())),
                    Some(1) => world.secret.clear(),
                    Some(2) => world.wanted.rotate = Some(round.to_string()),
                    Some(3) => world.organization(round),
                    Some(4) => world.secret.values_mut().for_each(|key| "garbage".clone_into(key)),
                    _ => {}
                }
            }
        }
        world.settle();
        world.assert_one_key();
    }
}

impl World {
    fn organization(&mut self, round: u32) {
        self.wanted.organization_id = format!("org-{round}");
    }
}

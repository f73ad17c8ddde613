//! The matching predicate against brute force over plain texts, and the indexes against bit masks.

use std::collections::{BTreeMap, BTreeSet};

use coder_domain::ids::UserId;
use coder_domain::tags::{DaemonIndex, JobIndex, TagSet};
use proptest::prelude::*;

/// Pairs of which sets are made; a bit mask picks some. The first two of each key exclude each other.
const PAIRS: [(&str, &str); 32] = [
    ("scope", "organization"),
    ("owner", ""),
    ("scope", "user"),
    ("owner", "aaa"),
    ("owner", "bbb"),
    ("a", "1"),
    ("a", "2"),
    ("b", "1"),
    ("b", ""),
    ("B", "1"),
    ("c", "1"),
    ("d", "1"),
    ("e", "1"),
    ("f", "1"),
    ("g", "1"),
    ("g", "2"),
    ("g", "3"),
    ("h", "1"),
    ("h", "2"),
    ("h", "3"),
    ("i", "1"),
    ("i", "2"),
    ("i", "3"),
    ("j", "1"),
    ("j", "2"),
    ("j", "3"),
    ("k", "1"),
    ("k", "2"),
    ("k", "3"),
    ("l", "1"),
    ("l", "2"),
    ("l", "3"),
];
/// How many of the pairs the small worlds use, so that sets often meet.
const PAIRS_IN_USE: usize = 14;
const UNTAGGED: u64 = 0b11;

/// The mask without the later one of two pairs of the same key.
fn consistent(mask: u64) -> u64 {
    let mut keys = BTreeSet::new();
    let first = |index: &usize| mask & (1 << index) != 0 && keys.insert(PAIRS[*index].0);
    (0..PAIRS.len()).filter(first).fold(0, |kept, index| kept | (1 << index))
}

fn set(mask: u64) -> TagSet {
    let chosen = (0..PAIRS.len()).filter(|index| mask & (1 << index) != 0).map(|index| PAIRS[index]);
    TagSet::from_stored(chosen.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

/// The predicate in bits.
fn takes(daemon: u64, job: u64) -> bool {
    if job == UNTAGGED { daemon == UNTAGGED } else { daemon & job == job }
}

/// The predicate over texts: the published rules, line by line.
fn brute_force(daemon: &[(String, String)], job: &[(String, String)]) -> bool {
    let text = |pairs: &[(String, String)]| {
        let mut lines: Vec<_> = pairs.iter().map(|(key, value)| format!("{key}\0{value}\n")).collect();
        lines.sort();
        lines.concat()
    };
    let untagged = "owner\0\nscope\0organization\n";
    if text(job) == untagged {
        return text(daemon) == untagged;
    }
    for (key, value) in job {
        let mut found = false;
        for (other_key, other_value) in daemon {
            found |= key == other_key && value == other_value;
        }
        if !found {
            return false;
        }
    }
    true
}

fn pairs() -> impl Strategy<Value = BTreeMap<String, String>> {
    let free = proptest::collection::btree_map("[abB]", "[12]?", 0..4);
    let reserved = prop_oneof![
        4 => Just(vec![("scope", "organization"), ("owner", "")]),
        3 => Just(vec![("scope", "user"), ("owner", "aaa")]),
        1 => Just(vec![("scope", "user"), ("owner", "bbb")]),
        1 => Just(vec![("scope", "organization")]),
        1 => Just(vec![("scope", "organization"), ("owner", "aaa")]),
        1 => Just(vec![]),
    ];
    (free, reserved).prop_map(|(mut tags, reserved)| {
        tags.extend(reserved.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())));
        tags
    })
}

/// A change of an index: an entry gets a set, or goes.
fn changes() -> impl Strategy<Value = Vec<(u16, Option<u64>)>> {
    let mask = (0_u64..1 << PAIRS_IN_USE).prop_map(consistent);
    let mask = prop_oneof![1 => Just(UNTAGGED), 1 => Just(0), 6 => mask];
    proptest::collection::vec((0_u16..20, proptest::option::weighted(0.8, mask)), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    /// `key=value`, separated by spaces, by key.
    #[test]
    fn a_set_is_written_as_pairs(mask: u32) {
        let mask = consistent(u64::from(mask));
        let chosen = (0..PAIRS.len()).filter(|index| mask & (1 << index) != 0).map(|index| PAIRS[index]);
        let by_key: BTreeMap<_, _> = chosen.collect();
        let pairs: Vec<_> = by_key.iter().map(|(key, value)| format!("{key}={value}")).collect();
        prop_assert_eq!(set(mask).to_string(), pairs.join(" "));
    }


    #[test]
    fn the_predicate_is_the_published_rule(daemon in pairs(), job in pairs()) {
        let list = |tags: &BTreeMap<String, String>| tags.clone().into_iter().collect::<Vec<_>>();
        let (daemon_set, job_set) = (TagSet::from_stored(daemon.clone()), TagSet::from_stored(job.clone()));
        prop_assert_eq!(daemon_set.satisfies(&job_set), brute_force(&list(&daemon), &list(&job)));
    }

    /// TAG-3 as three sentences: what is not reserved comes from the last set with a value; the scope is user or
    /// organization; the owner follows from it.
    #[test]
    fn tag_3_canonical_form(sets in proptest::collection::vec(pairs(), 0..4)) {
        let user = UserId::random();
        let tags = TagSet::canonical(user, &sets);
        let last = |key: &str| sets.iter().rev().find_map(|set| set.get(key).filter(|value| !value.is_empty()));
        for key in ["a", "b", "B"] {
            prop_assert_eq!(tags.get(key), last(key).map(String::as_str));
        }
        let scoped = last("scope").is_some_and(|scope| scope == "user");
        prop_assert_eq!(tags.get("scope"), Some(if scoped { "user" } else { "organization" }));
        let owner = if scoped { user.to_string() } else { String::new() };
        prop_assert_eq!(tags.get("owner"), Some(owner.as_str()));
    }

    #[test]
    fn the_indexes_answer_as_the_predicate_after_any_changes(
        changes in changes(), asked in proptest::collection::vec((0_u64..1 << PAIRS_IN_USE).prop_map(consistent), 1..8),
    ) {
        let (mut daemons, mut jobs) = (DaemonIndex::default(), JobIndex::default());
        let mut plain: BTreeMap<u16, u64> = BTreeMap::new();
        for (entry, mask) in changes {
            if let Some(mask) = mask {
                plain.insert(entry, mask);
                daemons.insert(entry, set(mask));
                jobs.insert(entry, set(mask));
            } else {
                let was = plain.remove(&entry).is_some();
                prop_assert_eq!((daemons.remove(entry), jobs.remove(entry)), (was, was));
            }
        }
        prop_assert_eq!((daemons.len(), jobs.len()), (plain.len(), plain.len()));
        for mask in asked.into_iter().chain([0, UNTAGGED]) {
            let daemons: Vec<_> = daemons.that_satisfy(&set(mask)).collect();
            let expected: Vec<_> = plain.iter().filter(|(_, has)| takes(**has, mask)).map(|(e, _)| *e).collect();
            prop_assert_eq!(daemons, expected);
            let mut jobs: Vec<_> = jobs.satisfied_by(&set(mask)).collect();
            jobs.sort_unstable();
            let expected: Vec<_> = plain.iter().filter(|(_, job)| takes(mask, **job)).map(|(e, _)| *e).collect();
            prop_assert_eq!(jobs, expected);
        }
    }
}

/// 10,000 daemons and 1,000 tag sets of jobs: every answer of both indexes equals brute force.
#[test]
fn ten_thousand_daemons_and_a_thousand_tag_sets() {
    let mut seed = 11_u64;
    let mut below = |limit: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % limit
    };
    // A scope with its owner, and up to four other pairs.
    let mut random = || {
        let scope = [0b11, 0b11, 0b11, 0b1100, 0b1_0100][usize::try_from(below(5)).unwrap()];
        let others = (0..below(5)).map(|_| 1 << (5 + below(PAIRS.len() as u64 - 5)));
        consistent(others.fold(scope, |mask: u64, pair: u64| mask | pair))
    };
    let daemon_masks: Vec<u64> = (0..10_000).map(|_| random()).collect();
    let job_masks: Vec<u64> = (0..1000).map(|_| random()).collect();
    let mut daemons = DaemonIndex::default();
    for (entry, mask) in daemon_masks.iter().enumerate() {
        daemons.insert(entry, set(*mask));
    }
    let mut jobs = JobIndex::default();
    for (entry, mask) in job_masks.iter().enumerate() {
        jobs.insert(entry, set(*mask));
    }
    let mut found: Vec<Vec<usize>> = vec![Vec::new(); daemon_masks.len()];
    for (job, mask) in job_masks.iter().enumerate() {
        let able: Vec<_> = daemons.that_satisfy(&set(*mask)).collect();
        let expected: Vec<_> =
            (0..daemon_masks.len()).filter(|daemon| takes(daemon_masks[*daemon], *mask)).collect();
        assert_eq!(able, expected);
        able.into_iter().for_each(|daemon| found[daemon].push(job));
    }
    for (daemon, expected) in found.into_iter().enumerate() {
        let mut able: Vec<_> = jobs.satisfied_by(&set(daemon_masks[daemon])).collect();
        able.sort_unstable();
        assert_eq!(able, expected);
    }
}

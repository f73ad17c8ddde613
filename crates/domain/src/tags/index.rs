//! Two indexes over the matching predicate: which daemons may run a job, and which jobs a daemon may run. Both call
//! [`TagSet::satisfies`] for each candidate; tests compare them with it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{OWNER, SCOPE, TagSet};

/// Entries by key and value of a tag.
#[derive(Clone, Debug)]
struct PairIndex<K>(HashMap<String, HashMap<String, BTreeSet<K>>>);

impl<K> Default for PairIndex<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Copy + Ord> PairIndex<K> {
    fn get(&self, key: &str, value: &str) -> Option<&BTreeSet<K>> {
        self.0.get(key)?.get(value)
    }

    fn count(&self, key: &str, value: &str) -> usize {
        self.get(key, value).map_or(0, BTreeSet::len)
    }

    fn insert(&mut self, key: &str, value: &str, entry: K) {
        let values = self.0.entry(key.to_owned()).or_default();
        values.entry(value.to_owned()).or_default().insert(entry);
    }

    fn remove(&mut self, key: &str, value: &str, entry: K) {
        let Some(values) = self.0.get_mut(key) else { return };
        if let Some(entries) = values.get_mut(value) {
            entries.remove(&entry);
            if entries.is_empty() {
                values.remove(value);
            }
        }
        if values.is_empty() {
            self.0.remove(key);
        }
    }
}

/// Tag sets of daemons, searched by the tags of a job.
///
/// A search costs as much as there are entries with the job's rarest tag; an entry takes memory for each of its tags.
#[derive(Clone, Debug)]
pub struct DaemonIndex<K> {
    sets: BTreeMap<K, TagSet>,
    untagged: BTreeSet<K>,
    pairs: PairIndex<K>,
}

impl<K> Default for DaemonIndex<K> {
    fn default() -> Self {
        Self { sets: BTreeMap::new(), untagged: BTreeSet::new(), pairs: PairIndex::default() }
    }
}

impl<K: Copy + Ord> DaemonIndex<K> {
    /// Adds an entry, or replaces its set.
    pub fn insert(&mut self, entry: K, tags: TagSet) {
        self.remove(entry);
        if tags.is_untagged() {
            self.untagged.insert(entry);
        }
        for (key, value) in tags.as_map() {
            self.pairs.insert(key, value, entry);
        }
        self.sets.insert(entry, tags);
    }

    /// Removes an entry; returns whether it existed.
    pub fn remove(&mut self, entry: K) -> bool {
        let Some(tags) = self.sets.remove(&entry) else { return false };
        self.untagged.remove(&entry);
        for (key, value) in tags.as_map() {
            self.pairs.remove(key, value, entry);
        }
        true
    }

    /// The entries that may run a job with these tags, in ascending order.
    pub fn that_satisfy(&self, job: &TagSet) -> impl Iterator<Item = K> {
        let rarest = || {
            let pairs = job.as_map().iter();
            let (key, value) = pairs.min_by_key(|(key, value)| self.pairs.count(key, value))?;
            self.pairs.get(key, value)
        };
        let (some, all) = if job.is_untagged() {
            (Some(&self.untagged), None)
        } else if job.as_map().is_empty() {
            (None, Some(self.sets.keys()))
        } else {
            (rarest(), None)
        };
        let candidates = some.into_iter().flatten().chain(all.into_iter().flatten());
        candidates.filter(|entry| self.sets.get(entry).is_some_and(|tags| tags.satisfies(job))).copied()
    }

    #[must_use]
    pub fn get(&self, entry: K) -> Option<&TagSet> {
        self.sets.get(&entry)
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }
}

/// Where a job's set is indexed: daemons that satisfy it have this tag, are untagged, or may be any.
#[derive(Clone, Debug)]
enum IndexEntry {
    Untagged,
    Empty,
    Pair(String, String),
}

/// Tag sets of jobs, searched by the tags of a daemon.
///
/// Each set is indexed once, by the one of its tags that fewest others are indexed by. A search looks at the entries of
/// the daemon's tags.
#[derive(Clone, Debug)]
pub struct JobIndex<K> {
    sets: BTreeMap<K, (TagSet, IndexEntry)>,
    untagged: BTreeSet<K>,
    empty: BTreeSet<K>,
    pairs: PairIndex<K>,
}

impl<K> Default for JobIndex<K> {
    fn default() -> Self {
        let (untagged, empty) = (BTreeSet::new(), BTreeSet::new());
        Self { sets: BTreeMap::new(), untagged, empty, pairs: PairIndex::default() }
    }
}

impl<K: Copy + Ord> JobIndex<K> {
    /// Adds an entry, or replaces its set.
    pub fn insert(&mut self, entry: K, tags: TagSet) {
        self.remove(entry);
        let entry_key = self.entry_key(&tags);
        match &entry_key {
            IndexEntry::Untagged => {
                self.untagged.insert(entry);
            }
            IndexEntry::Empty => {
                self.empty.insert(entry);
            }
            IndexEntry::Pair(key, value) => self.pairs.insert(key, value, entry),
        }
        self.sets.insert(entry, (tags, entry_key));
    }

    fn entry_key(&self, tags: &TagSet) -> IndexEntry {
        if tags.is_untagged() {
            return IndexEntry::Untagged;
        }
        // Nearly every daemon has the same scope and owner: those tags come last.
        let reserved = |key: &str| key == SCOPE || key == OWNER;
        let rank = |(key, value): &(&String, &String)| (reserved(key), self.pairs.count(key, value));
        match tags.as_map().iter().min_by_key(rank) {
            None => IndexEntry::Empty,
            Some((key, value)) => IndexEntry::Pair(key.clone(), value.clone()),
        }
    }

    /// Removes an entry; returns whether it existed.
    pub fn remove(&mut self, entry: K) -> bool {
        let Some((_, entry_key)) = self.sets.remove(&entry) else { return false };
        match entry_key {
            IndexEntry::Untagged => self.untagged.remove(&entry),
            IndexEntry::Empty => self.empty.remove(&entry),
            IndexEntry::Pair(key, value) => {
                self.pairs.remove(&key, &value, entry);
                true
            }
        }
    }

    /// The entries whose jobs a daemon with these tags may run, in no particular order.
    pub fn satisfied_by(&self, daemon: &TagSet) -> impl Iterator<Item = K> {
        let untagged = daemon.is_untagged().then_some(&self.untagged);
        let candidates =
            daemon.as_map().iter().filter_map(|(key, value)| self.pairs.get(key, value)).flatten();
        let tagged =
            candidates.filter(|entry| self.sets.get(entry).is_some_and(|(tags, _)| daemon.satisfies(tags)));
        untagged.into_iter().flatten().chain(&self.empty).chain(tagged).copied()
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every daemon of an organization has the same scope and owner: a job that is indexed by them is looked at in each search.
    #[test]
    fn jobs_are_indexed_by_what_is_their_own() {
        let set = |pairs: &[(&str, &str)]| {
            let owned = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            TagSet::from_stored(owned.collect())
        };
        let mut jobs = JobIndex::default();
        // Few jobs have this owner yet, but many have the tag.
        for entry in 0..3 {
            jobs.insert(entry, set(&[("pool", "a")]));
        }
        for reserved in [(SCOPE, "user"), (OWNER, "me")] {
            let own = [reserved, ("pool", "a")];
            let IndexEntry::Pair(key, _) = jobs.entry_key(&set(&own)) else { panic!("it has tags") };
            assert_eq!(key, "pool", "not {}", reserved.0);
        }
        // Of its own tags the one that fewest have.
        let IndexEntry::Pair(key, _) = jobs.entry_key(&set(&[("pool", "a"), ("site", "b")])) else {
            panic!("it has tags")
        };
        assert_eq!(key, "site");
    }

    /// A server runs for months, so removed entries must free their memory.
    #[test]
    fn removed_entries_leave_nothing_behind() {
        let tagged = TagSet::from_stored(BTreeMap::from([("a".to_owned(), "1".to_owned())]));
        let (mut daemons, mut jobs) = (DaemonIndex::default(), JobIndex::default());
        for (entry, tags) in [TagSet::untagged(), tagged, TagSet::default()].into_iter().enumerate() {
            daemons.insert(entry, tags.clone());
            jobs.insert(entry, tags.clone());
            // Once more, with another set in between.
            daemons.insert(entry, TagSet::untagged());
            jobs.insert(entry, TagSet::untagged());
            daemons.insert(entry, tags.clone());
            assert_eq!(daemons.get(entry), Some(&tags));
            jobs.insert(entry, tags);
        }
        assert!(!daemons.is_empty() && !jobs.is_empty());
        for entry in 0..3 {
            assert!(daemons.remove(entry) && jobs.remove(entry));
            assert_eq!(daemons.get(entry), None);
        }
        assert!(daemons.is_empty() && daemons.untagged.is_empty() && daemons.pairs.0.is_empty());
        assert!(jobs.is_empty() && jobs.untagged.is_empty());
        assert!(jobs.empty.is_empty() && jobs.pairs.0.is_empty());
    }
}

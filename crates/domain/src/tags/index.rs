//! Two fast indexes over the matching predicate: which daemons may run a job, and which jobs a daemon may run. Tests prove
//! both equal to [`TagSet::satisfies`], which they ask in the end.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{OWNER, SCOPE, TagSet};

/// Entries by key and value of a tag.
#[derive(Clone, Debug)]
struct Pairs<K>(HashMap<String, HashMap<String, BTreeSet<K>>>);

impl<K> Default for Pairs<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Copy + Ord> Pairs<K> {
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

/// Tag sets of daemons, to be asked with a job's.
///
/// A question costs about as much as there are entries with the job's rarest pair; an entry costs a place for each of
/// its pairs.
#[derive(Clone, Debug)]
pub struct DaemonIndex<K> {
    sets: BTreeMap<K, TagSet>,
    untagged: BTreeSet<K>,
    pairs: Pairs<K>,
}

impl<K> Default for DaemonIndex<K> {
    fn default() -> Self {
        Self { sets: BTreeMap::new(), untagged: BTreeSet::new(), pairs: Pairs::default() }
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

    /// Takes an entry out; says whether it was in.
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

    /// The set of an entry.
    #[must_use]
    pub fn get(&self, entry: K) -> Option<&TagSet> {
        self.sets.get(&entry)
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }
}

/// Where a job's set is filed: a daemon that satisfies it has this pair, or is untagged, or is anybody.
#[derive(Clone, Debug)]
enum Filed {
    Untagged,
    Empty,
    Pair(String, String),
}

/// Tag sets of jobs, to be asked with a daemon's.
///
/// Each set is filed once, under the one of its pairs that fewest others are filed under; a question looks at what is
/// filed under the daemon's pairs.
#[derive(Clone, Debug)]
pub struct JobIndex<K> {
    sets: BTreeMap<K, (TagSet, Filed)>,
    untagged: BTreeSet<K>,
    empty: BTreeSet<K>,
    pairs: Pairs<K>,
}

impl<K> Default for JobIndex<K> {
    fn default() -> Self {
        let (untagged, empty) = (BTreeSet::new(), BTreeSet::new());
        Self { sets: BTreeMap::new(), untagged, empty, pairs: Pairs::default() }
    }
}

impl<K: Copy + Ord> JobIndex<K> {
    /// Adds an entry, or replaces its set.
    pub fn insert(&mut self, entry: K, tags: TagSet) {
        self.remove(entry);
        let filed = self.place(&tags);
        match &filed {
            Filed::Untagged => {
                self.untagged.insert(entry);
            }
            Filed::Empty => {
                self.empty.insert(entry);
            }
            Filed::Pair(key, value) => self.pairs.insert(key, value, entry),
        }
        self.sets.insert(entry, (tags, filed));
    }

    fn place(&self, tags: &TagSet) -> Filed {
        if tags.is_untagged() {
            return Filed::Untagged;
        }
        // Nearly every daemon has the same scope and owner: those pairs come last.
        let reserved = |key: &str| key == SCOPE || key == OWNER;
        let rank = |(key, value): &(&String, &String)| (reserved(key), self.pairs.count(key, value));
        match tags.as_map().iter().min_by_key(rank) {
            None => Filed::Empty,
            Some((key, value)) => Filed::Pair(key.clone(), value.clone()),
        }
    }

    /// Takes an entry out; says whether it was in.
    pub fn remove(&mut self, entry: K) -> bool {
        let Some((_, filed)) = self.sets.remove(&entry) else { return false };
        match filed {
            Filed::Untagged => self.untagged.remove(&entry),
            Filed::Empty => self.empty.remove(&entry),
            Filed::Pair(key, value) => {
                self.pairs.remove(&key, &value, entry);
                true
            }
        }
    }

    /// The entries whose jobs a daemon with these tags may run, in no particular order.
    pub fn satisfied_by(&self, daemon: &TagSet) -> impl Iterator<Item = K> {
        let untagged = daemon.is_untagged().then_some(&self.untagged);
        let filed = daemon.as_map().iter().filter_map(|(key, value)| self.pairs.get(key, value)).flatten();
        let tagged =
            filed.filter(|entry| self.sets.get(entry).is_some_and(|(tags, _)| daemon.satisfies(tags)));
        untagged.into_iter().flatten().chain(&self.empty).chain(tagged).copied()
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Daemons come and go for months: nothing of them may stay behind.
    #[test]
    fn what_is_taken_out_leaves_nothing_behind() {
        let tagged = TagSet::from_stored(BTreeMap::from([("a".to_owned(), "1".to_owned())]));
        let (mut offers, mut demands) = (DaemonIndex::default(), JobIndex::default());
        for (entry, tags) in [TagSet::untagged(), tagged, TagSet::default()].into_iter().enumerate() {
            offers.insert(entry, tags.clone());
            demands.insert(entry, tags.clone());
            // Once more, with another set in between.
            offers.insert(entry, TagSet::untagged());
            demands.insert(entry, TagSet::untagged());
            offers.insert(entry, tags.clone());
            demands.insert(entry, tags);
        }
        for entry in 0..3 {
            assert!(offers.remove(entry) && demands.remove(entry));
        }
        assert!(offers.is_empty() && offers.untagged.is_empty() && offers.pairs.0.is_empty());
        assert!(demands.is_empty() && demands.untagged.is_empty());
        assert!(demands.empty.is_empty() && demands.pairs.0.is_empty());
    }
}

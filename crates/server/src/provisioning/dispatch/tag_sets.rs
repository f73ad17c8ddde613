//! An index of the interned tag sets in both directions: the sets whose daemons can run a job, and the sets whose jobs a
//! daemon can run, as lists of ids for the database.

use std::collections::HashMap;

use coder_domain::tags::{DaemonIndex, JobIndex, TagSet};
use coder_store::tag_sets::{self, InternedTagSet, TagSetId};
use coder_store::{Error, Tx};
use parking_lot::{Mutex, MutexGuard};

/// All tag sets that were read. Ids are assigned in the order of commits, so newer sets are found beyond the last id.
#[derive(Debug, Default)]
pub struct TagSets(Mutex<Indexes>);

#[derive(Debug, Default)]
struct Indexes {
    demands: JobIndex<TagSetId>,
    offers: DaemonIndex<TagSetId>,
    ids: HashMap<TagSet, TagSetId>,
    last: TagSetId,
}

impl TagSets {
    /// The sets whose jobs a daemon with these tags can run.
    pub async fn satisfied_by(&self, tx: &mut Tx, daemon: &TagSet) -> Result<Vec<TagSetId>, Error> {
        let fresh = self.fresh(tx).await?;
        let also = fresh.iter().filter(|set| daemon.satisfies(&set.tags)).map(|set| set.id);
        Ok(self.indexes().demands.satisfied_by(daemon).chain(also).collect())
    }

    /// As [`TagSets::satisfied_by`] without the database, and the newest known set.
    #[must_use]
    pub fn known_to_be_satisfied_by(&self, daemon: &TagSet) -> (Vec<TagSetId>, TagSetId) {
        let indexes = self.indexes();
        (indexes.demands.satisfied_by(daemon).collect(), indexes.last)
    }

    /// As [`TagSets::that_satisfy`] without the database, and the newest known set.
    #[must_use]
    pub fn known_to_satisfy(&self, job: &TagSet) -> (Vec<TagSetId>, TagSetId) {
        let indexes = self.indexes();
        (indexes.offers.that_satisfy(job).collect(), indexes.last)
    }

    /// The id of a set, if it is known.
    #[must_use]
    pub fn known_id(&self, tags: &TagSet) -> Option<TagSetId> {
        self.indexes().ids.get(tags).copied()
    }

    /// Reads new tag sets.
    pub async fn refresh(&self, tx: &mut Tx) -> Result<(), Error> {
        self.fresh(tx).await.map(|_| ())
    }

    /// The sets whose daemons can run a job with these tags.
    pub async fn that_satisfy(&self, tx: &mut Tx, job: &TagSet) -> Result<Vec<TagSetId>, Error> {
        let fresh = self.fresh(tx).await?;
        let also = fresh.iter().filter(|set| set.tags.satisfies(job)).map(|set| set.id);
        Ok(self.indexes().offers.that_satisfy(job).chain(also).collect())
    }

    /// The set with this id.
    pub async fn get(&self, tx: &mut Tx, id: TagSetId) -> Result<Option<TagSet>, Error> {
        if let Some(tags) = self.indexes().offers.get(id) {
            return Ok(Some(tags.clone()));
        }
        let fresh = self.fresh(tx).await?;
        let also = fresh.into_iter().find(|set| set.id == id).map(|set| set.tags);
        Ok(also.or_else(|| self.indexes().offers.get(id).cloned()))
    }

    /// Reads new tag sets. Inside a transaction they are returned and not kept: without its commit the ids would be assigned
    /// again.
    async fn fresh(&self, tx: &mut Tx) -> Result<Vec<InternedTagSet>, Error> {
        let known = self.indexes().last;
        let fresh = tag_sets::list_since(tx, known).await?;
        if tx.is_transaction() {
            return Ok(fresh);
        }
        let mut indexes = self.indexes();
        for set in fresh {
            // Another task may have read the same sets meanwhile.
            if set.id > indexes.last {
                indexes.last = set.id;
                indexes.ids.insert(set.tags.clone(), set.id);
                indexes.demands.insert(set.id, set.tags.clone());
                indexes.offers.insert(set.id, set.tags);
            }
        }
        Ok(Vec::new())
    }

    fn indexes(&self) -> MutexGuard<'_, Indexes> {
        self.0.lock()
    }
}

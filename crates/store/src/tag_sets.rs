//! Interned tag sets, to which jobs refer by small ids. Rust code (`coder_domain::tags`) decides which sets a daemon
//! satisfies; SQL never compares tags.

use coder_domain::tags::TagSet;

use crate::engine::{Tx, record, sql, statements, values};
use crate::{Error, Result};

/// The id of an interned set. Ids grow without gaps.
pub type TagSetId = i64;

record! {
    pub struct InternedTagSet {
        pub id: TagSetId,
        pub tags: TagSet,
    }
}

statements! { "tag_sets";
    FIND = sql("select id from tag_sets where tags = $1");
    INSERT = sql("insert into tag_sets (id, tags) select coalesce(max(id), 0) + 1, $1 from tag_sets where true
        on conflict do nothing returning id");
    LIST_SINCE = sql("select id, tags from tag_sets where id > $1 order by id").purpose(crate::engine::Purpose::Claim);
    /// For the check, which must also find rows that cannot be read.
    LIST_SINCE_TEXT = sql("select id as number, tags from tag_sets where id > $1 order by id");
}

/// How often an insertion is tried again when another writer took the next id.
const INSERT_ATTEMPTS: u32 = 100;

/// Returns the id of a set. Stores the set if it is new.
///
/// # Errors
/// [`Error::Unavailable`] when very many writers add new sets at once.
pub async fn intern(tx: &mut Tx, tags: &TagSet) -> Result<TagSetId> {
    for _ in 0..INSERT_ATTEMPTS {
        if let Some(row) = tx.fetch_opt(&FIND, values![*tags]).await? {
            return row.get("id");
        }
        // No row means that another writer took the id or stored this set, and has committed.
        if let Some(row) = tx.fetch_opt(&INSERT, values![*tags]).await? {
            return row.get("id");
        }
    }
    Err(Error::Unavailable { what: "too many new tag sets at once", source: None })
}

/// The sets with ids greater than `last`, in order; all sets for 0. Read before each claim.
///
/// # Errors
/// [`Error::Corrupt`].
pub async fn list_since(tx: &mut Tx, last: TagSetId) -> Result<Vec<InternedTagSet>> {
    tx.fetch(&LIST_SINCE, values![last]).await?.iter().map(InternedTagSet::from_row).collect()
}

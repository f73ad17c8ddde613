//! Query parameters that the lists of daemons and of jobs have in common.

use std::collections::BTreeMap;

use coder_domain::tags::TagSet;

use crate::http::params::Query;
use crate::http::{Error, Result};

/// Rows when no limit is given (DAE-1).
const DEFAULT_LIMIT: usize = 50;

/// A positive limit.
pub fn limit(query: &Query) -> Result<usize> {
    match query.read::<usize>("limit")? {
        None => Ok(DEFAULT_LIMIT),
        Some(0) => Err(invalid("limit", "it must be positive")),
        Some(limit) => Ok(limit),
    }
}

/// A list separated by commas; absent or empty means no condition.
pub fn words<T>(query: &Query, key: &str, read: impl Fn(&str) -> Option<T>) -> Result<Option<Vec<T>>> {
    let Some(text) = query.get(key).filter(|text| !text.is_empty()) else { return Ok(None) };
    let read = |word: &str| {
        read(word.trim()).ok_or_else(|| invalid(key, &format!("{word:?} is not one of its values")))
    };
    text.split(',').map(read).collect::<Result<_>>().map(Some)
}

/// A JSON object of tags; absent or without tags means no condition.
pub fn tags(query: &Query) -> Result<Option<TagSet>> {
    let Some(text) = query.get("tags").filter(|text| !text.is_empty()) else { return Ok(None) };
    let map: BTreeMap<String, String> = serde_json::from_str(text)
        .map_err(|_| invalid("tags", "it must be a JSON object whose values are texts"))?;
    Ok((!map.is_empty()).then(|| TagSet::from_stored(map)))
}

fn invalid(key: &str, detail: &str) -> Error {
    Error::bad_request("Invalid query parameters.")
        .field(key, format!("Query param {key:?} is not valid: {detail}"))
}

//! Path and query parameters in the forms clients use (http-api 1.2, 1.7).

use std::collections::HashMap;
use std::str::FromStr;

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;

use super::error::{Error, Result};

/// An id in a path: 400 when it is not a UUID.
#[derive(Debug, Clone, Copy)]
pub struct Id<T>(pub T);

impl<T: FromStr, S: Send + Sync> FromRequestParts<S> for Id<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let Names(names) = Names::from_request_parts(parts, state).await?;
        let text = names.last().map_or("", String::as_str);
        id(text).map(Self)
    }
}

/// Reads an id.
pub fn id<T: FromStr>(text: &str) -> Result<T> {
    text.parse().map_err(|_| Error::bad_request(format!("Invalid UUID {text:?}.")))
}

/// All path parameters in order, percent-decoded.
#[derive(Debug, Clone)]
pub struct Names(pub Vec<String>);

impl<S: Send + Sync> FromRequestParts<S> for Names {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let pairs = Path::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        pairs
            .map(|Path(pairs)| Self(pairs.into_iter().map(|(_, value)| value).collect()))
            .map_err(|_| Error::bad_request("The path holds bytes that are not text."))
    }
}

impl Names {
    /// The parameters of a route with `N` of them.
    pub fn take<const N: usize>(self) -> Result<[String; N]> {
        self.0
            .try_into()
            .map_err(|_| Error::internal("Internal error.", "a route has another number of parameters"))
    }
}

/// Query parameters; the first value of a repeated key counts.
#[derive(Debug, Clone, Default)]
pub struct Query(HashMap<String, String>);

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        Ok(Self::of(&parts.uri))
    }
}

impl Query {
    /// The query of a URI.
    #[must_use]
    pub fn of(uri: &http::Uri) -> Self {
        let mut values = HashMap::new();
        for (key, value) in url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            values.entry(key.into_owned()).or_insert_with(|| value.into_owned());
        }
        Self(values)
    }

    /// The value of `key`; a key without a value is empty.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// The value of `key`, empty when absent.
    #[must_use]
    pub fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or_default()
    }

    /// The value of `key` read as `T`; empty counts as absent, anything else is 400.
    pub fn read<T: FromStr>(&self, key: &str) -> Result<Option<T>> {
        let Some(text) = self.get(key).filter(|text| !text.is_empty()) else { return Ok(None) };
        let refuse = |_| {
            Error::bad_request("Invalid query parameters.")
                .field(key, format!("Query param {key:?} has the invalid value {text:?}"))
        };
        text.parse().map(Some).map_err(refuse)
    }

    /// `true` or `false`, absent being false.
    pub fn flag(&self, key: &str) -> Result<bool> {
        Ok(self.read(key)?.unwrap_or(false))
    }

    /// `limit`, `offset` and `after_id`.
    pub fn page(&self) -> Result<Pagination> {
        let number = |key| self.read::<u32>(key).map(|n| n.map_or(0, i64::from));
        Ok(Pagination { limit: number("limit")?, offset: number("offset")?, after: self.read("after_id")? })
    }

    /// Refuses keys outside `known`.
    pub fn only(&self, known: &[&str]) -> Result<()> {
        let mut unknown: Vec<_> = self.0.keys().filter(|key| !known.contains(&key.as_str())).collect();
        unknown.sort();
        match unknown.first() {
            None => Ok(()),
            Some(key) => Err(Error::bad_request("Invalid query parameters.")
                .field(key, format!("Query param {key:?} is not a valid query param"))),
        }
    }
}

/// The requested part of a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pagination {
    /// Most rows; zero means all.
    pub limit: i64,
    /// Rows to skip.
    pub offset: i64,
    /// Start after the row with this id.
    pub after: Option<uuid::Uuid>,
}

impl Pagination {
    /// Returns this part of `rows`.
    #[must_use]
    pub fn cut<T>(&self, rows: Vec<T>, id: impl Fn(&T) -> uuid::Uuid) -> Vec<T> {
        let skip = self.after.map_or(0, |after| {
            rows.iter().position(|row| id(row) == after).map_or(rows.len(), |position| position + 1)
        });
        let offset = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let limit = match usize::try_from(self.limit) {
            Ok(0) | Err(_) => usize::MAX,
            Ok(limit) => limit,
        };
        rows.into_iter().skip(skip).skip(offset).take(limit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn query(text: &str) -> Query {
        let (mut parts, ()) =
            http::Request::builder().uri(format!("/?{text}")).body(()).unwrap().into_parts();
        Query::from_request_parts(&mut parts, &()).await.unwrap()
    }

    #[tokio::test]
    async fn paging_parameters() {
        assert_eq!(query("limit=5&offset=2").await.page().unwrap().limit, 5);
        for bad in ["limit=-1", "offset=x", "after_id=1"] {
            assert_eq!(query(bad).await.page().unwrap_err().status(), 400, "{bad}");
        }
        let ids: Vec<_> = (1..=5).map(uuid::Uuid::from_u128).collect();
        let cut = |page: Pagination| page.cut(ids.clone(), |id| *id).len();
        assert_eq!(cut(Pagination::default()), 5);
        assert_eq!(cut(Pagination { limit: 2, offset: 4, after: None }), 1);
        assert_eq!(cut(Pagination { after: Some(ids[1]), ..Pagination::default() }), 3);
        assert_eq!(cut(Pagination { after: Some(uuid::Uuid::nil()), ..Pagination::default() }), 0);
    }

    #[tokio::test]
    async fn strict_lists_refuse_other_keys() {
        assert!(query("limit=1&x=2").await.only(&["limit"]).is_err());
        assert!(query("limit=1").await.only(&["limit"]).is_ok());
        assert_eq!(query("follow").await.get("follow"), Some(""));
    }
}

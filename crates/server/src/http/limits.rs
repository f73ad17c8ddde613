//! Requests per minute and caller: a sliding window over two fixed ones, in memory, bounded.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Mutex;

use axum::response::{IntoResponse, Response};
use coder_domain::Timestamp;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};

use super::error::Error;

const WINDOW_SECONDS: i64 = 60;
/// Counters per window; beyond that new callers share one, so a flood of addresses cannot fill the memory.
const MAX_COUNTERS: usize = 100_000;
const OVERFLOW: u64 = 0;

/// The three limiters (http-api 1.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Group {
    /// All of `/api/v2`.
    Api,
    /// Log-in and password checks.
    Login,
    /// Uploads and downloads.
    Files,
}

/// Counts requests.
#[derive(Debug)]
pub struct RateLimits {
    limits: Option<[u32; 3]>,
    keys: RandomState,
    windows: Mutex<Windows>,
}

#[derive(Debug, Default)]
struct Windows {
    index: i64,
    current: HashMap<u64, u32>,
    previous: HashMap<u64, u32>,
}

/// What one request met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the request may go on.
    pub allowed: bool,
    /// The limit.
    pub limit: u32,
    /// Requests left in this window.
    pub remaining: u32,
    /// When the window ends, Unix seconds.
    pub reset: i64,
    /// Seconds until then.
    pub retry_after: i64,
}

impl RateLimits {
    /// Limiters as configured.
    #[must_use]
    pub fn new(limits: &crate::config::Limits) -> Self {
        let limits = limits.rate_limits.then_some([
            limits.api_per_minute,
            limits.login_per_minute,
            limits.files_per_minute,
        ]);
        Self { limits, keys: RandomState::new(), windows: Mutex::default() }
    }

    /// Counts one request of `who` on `path`; `None` when nothing is limited.
    pub fn count(&self, group: Group, who: &impl Hash, path: &str, now: Timestamp) -> Option<Verdict> {
        let limit = self.limits?[group as usize];
        if limit == 0 {
            return None;
        }
        let key = self.keys.hash_one((group, who, path)).max(1);
        let second = now.as_second();
        let index = second.div_euclid(WINDOW_SECONDS);
        let into = second.rem_euclid(WINDOW_SECONDS);

        let mut windows = self.windows.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if windows.index != index {
            let last = std::mem::take(&mut windows.current);
            windows.previous = if windows.index + 1 == index { last } else { HashMap::new() };
            windows.index = index;
        }
        let before = windows.previous.get(&key).copied().unwrap_or(0);
        let full = windows.current.len() >= MAX_COUNTERS;
        let slot = if full && !windows.current.contains_key(&key) { OVERFLOW } else { key };
        let count = windows.current.entry(slot).or_insert(0);
        let carried = i64::from(before) * (WINDOW_SECONDS - into) / WINDOW_SECONDS;
        let used = u32::try_from(carried).unwrap_or(u32::MAX).saturating_add(*count);
        let allowed = used < limit;
        if allowed {
            *count += 1;
        }
        Some(Verdict {
            allowed,
            limit,
            remaining: limit.saturating_sub(used).saturating_sub(1),
            reset: (index + 1) * WINDOW_SECONDS,
            retry_after: WINDOW_SECONDS - into,
        })
    }
}

impl Verdict {
    /// Adds the three headers.
    pub fn describe(&self, headers: &mut HeaderMap) {
        for (name, value) in [
            ("x-ratelimit-limit", i64::from(self.limit)),
            ("x-ratelimit-remaining", i64::from(self.remaining)),
            ("x-ratelimit-reset", self.reset),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from(value));
        }
    }

    /// The 429.
    #[must_use]
    pub fn refuse(&self) -> Response {
        let message =
            format!("You've been rate limited for sending more than {} requests in 1m0s.", self.limit);
        let mut response = Error::new(StatusCode::TOO_MANY_REQUESTS, message).into_response();
        self.describe(response.headers_mut());
        response.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from(self.retry_after));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn limits(api: u32) -> RateLimits {
        RateLimits::new(&crate::config::Limits { api_per_minute: api, ..Default::default() })
    }

    #[test]
    fn the_limit_holds_per_caller_and_path() {
        let rates = limits(3);
        let ask = |who: &str, path: &str| rates.count(Group::Api, &who, path, at(600)).unwrap().allowed;
        assert!(ask("a", "/x") && ask("a", "/x") && ask("a", "/x"));
        assert!(!ask("a", "/x"));
        assert!(ask("b", "/x") && ask("a", "/y"));
    }

    #[test]
    fn the_window_slides() {
        let rates = limits(4);
        for _ in 0..4 {
            assert!(rates.count(Group::Api, &1, "/", at(600)).unwrap().allowed);
        }
        assert!(!rates.count(Group::Api, &1, "/", at(660)).unwrap().allowed, "the old minute still counts");
        assert!(rates.count(Group::Api, &1, "/", at(690)).unwrap().allowed, "half of it is gone");
        assert!(rates.count(Group::Api, &1, "/", at(1200)).unwrap().allowed);
    }

    #[test]
    fn headers_count_down() {
        let rates = limits(2);
        let first = rates.count(Group::Api, &1, "/", at(610)).unwrap();
        assert_eq!((first.remaining, first.reset, first.retry_after), (1, 660, 50));
        let refused = {
            rates.count(Group::Api, &1, "/", at(610));
            rates.count(Group::Api, &1, "/", at(610)).unwrap()
        };
        let response = refused.refuse();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["retry-after"], "50");
        assert_eq!(response.headers()["x-ratelimit-remaining"], "0");
    }

    #[test]
    fn a_flood_of_callers_shares_one_counter() {
        let rates = limits(10);
        for caller in 0..MAX_COUNTERS + 1000 {
            rates.count(Group::Api, &caller, "/", at(600));
        }
        assert!(rates.windows.lock().unwrap().current.len() <= MAX_COUNTERS + 1);
    }

    #[test]
    fn everything_can_be_turned_off() {
        let off = crate::config::Limits { rate_limits: false, ..Default::default() };
        assert_eq!(RateLimits::new(&off).count(Group::Login, &1, "/", at(0)), None);
    }
}

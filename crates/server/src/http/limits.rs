//! Requests per minute and client: a sliding window over two fixed ones, in bounded memory.
//!
//! A client is a user, an IPv4 address or an IPv6 /64 network. Each path of a client has a counter. One client never uses up
//! the limit of another: above [`CLIENT_PATHS`], all further paths of a client share one counter of that client. So do all
//! paths of new clients when the memory for paths is full. Only after hundreds of thousands of clients in one minute do
//! further clients share [`SHARED_BUCKETS`].

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};

use axum::response::{IntoResponse, Response};
use coder_domain::Timestamp;
use coder_domain::ids::UserId;
use coder_domain::key::Network;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;

use super::error::Error;

const WINDOW_SECONDS: i64 = 60;
/// Paths of one client with counters of their own. An office behind one address needs some for each person.
const CLIENT_PATHS: u32 = 4096;
/// All apps together, as a multiple of the limit for one path of the API: a page has many parts.
const APP_LIMIT_FACTOR: u32 = 10;
/// Number of locks. All counters of a client are behind one of them.
const SHARDS: usize = 16;
/// Most counters of paths in one window and shard, and most clients; about 20 bytes each.
const SHARD_COUNTERS: usize = 16 << 10;
/// Counters of a shard that further clients share when it is full.
const SHARED_BUCKETS: u64 = 4096;

/// What is limited apart (http-api 1.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Group {
    /// All of `/api/v2`.
    Api,
    /// Log-in and password checks.
    Login,
    /// Uploads and downloads.
    Files,
    /// Apps and terminals, for visitors who are not signed in.
    Apps,
}

/// The client whose requests are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Client {
    /// Requests without authentication, by network.
    Network(Network),
    /// An authenticated user.
    User(UserId),
}

/// Counts requests.
#[derive(Debug)]
pub struct RateLimits {
    limits: Option<[u32; 4]>,
    keys: RandomState,
    shards: [Mutex<Counters>; SHARDS],
}

#[derive(Debug, Default)]
struct Counters {
    index: i64,
    current: HashMap<u64, u32>,
    previous: HashMap<u64, u32>,
    /// How many paths each client and group has in `current`.
    paths: HashMap<u64, u32>,
}

/// The state of a limit after one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitStatus {
    /// Whether the request may go on.
    pub allowed: bool,
    pub limit: u32,
    /// Requests left in this window.
    pub remaining: u32,
    /// When the window ends, Unix seconds.
    pub reset: i64,
    /// Seconds until then.
    pub retry_after: i64,
}

impl RateLimits {
    #[must_use]
    pub fn new(limits: &crate::config::Limits) -> Self {
        let limits = limits.rate_limits.then_some([
            limits.api_per_minute,
            limits.login_per_minute,
            limits.files_per_minute,
            limits.api_per_minute.saturating_mul(APP_LIMIT_FACTOR),
        ]);
        Self { limits, keys: RandomState::new(), shards: Default::default() }
    }

    /// Counts one request of `client` on `path`, which is `None` for unknown routes. Returns `None` when there is no limit.
    pub fn count(
        &self,
        group: Group,
        client: Client,
        path: Option<&str>,
        now: Timestamp,
    ) -> Option<LimitStatus> {
        let limit = self.limits?[group as usize];
        if limit == 0 {
            return None;
        }
        let caller = self.keys.hash_one((group, client));
        let key = self.keys.hash_one((caller, path));
        let second = now.as_second();
        let index = second.div_euclid(WINDOW_SECONDS);
        let into = second.rem_euclid(WINDOW_SECONDS);

        let shard = &self.shards[caller as usize % SHARDS];
        let mut windows = shard.lock();
        windows.advance_to(index);
        let key = windows.counter_for(caller, key);
        let before = windows.previous.get(&key).copied().unwrap_or(0);
        let count = windows.current.entry(key).or_insert(0);
        let carried = i64::from(before) * (WINDOW_SECONDS - into) / WINDOW_SECONDS;
        let used = u32::try_from(carried).unwrap_or(u32::MAX).saturating_add(*count);
        let allowed = used < limit;
        if allowed {
            *count += 1;
        }
        Some(LimitStatus {
            allowed,
            limit,
            remaining: limit.saturating_sub(used).saturating_sub(1),
            reset: (index + 1) * WINDOW_SECONDS,
            retry_after: WINDOW_SECONDS - into,
        })
    }
}

impl Counters {
    /// Starts the next window when the current one is over.
    fn advance_to(&mut self, index: i64) {
        if self.index != index {
            let last = std::mem::take(&mut self.current);
            self.previous = if self.index + 1 == index { last } else { HashMap::new() };
            self.paths = HashMap::new();
            self.index = index;
        }
    }

    /// The counter for a path: its own, that of the client, or that of a bucket.
    fn counter_for(&mut self, caller: u64, path: u64) -> u64 {
        if self.current.contains_key(&path) {
            return path;
        }
        let full = self.current.len() >= SHARD_COUNTERS;
        if let Some(paths) = self.paths.get_mut(&caller) {
            if full || *paths >= CLIENT_PATHS {
                return caller;
            }
            *paths += 1;
            return path;
        }
        if self.paths.len() >= SHARD_COUNTERS {
            return caller % SHARED_BUCKETS;
        }
        self.paths.insert(caller, u32::from(!full));
        if full { caller } else { path }
    }
}

impl LimitStatus {
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

    fn who(number: u32) -> Client {
        Client::Network(Network::of_client(std::net::Ipv4Addr::from_bits(number).into()))
    }

    /// Whether a request in group `Api` may go on.
    fn ask(rates: &RateLimits, number: u32, path: &str) -> bool {
        rates.count(Group::Api, who(number), Some(path), at(600)).unwrap().allowed
    }

    fn counters(rates: &RateLimits) -> usize {
        let each = rates.shards.iter().map(|shard| {
            let windows = shard.lock();
            windows.current.len().max(windows.paths.len())
        });
        each.sum()
    }

    #[test]
    fn the_limit_holds_per_caller_and_path() {
        let rates = limits(3);
        assert!(ask(&rates, 1, "/x") && ask(&rates, 1, "/x") && ask(&rates, 1, "/x"));
        assert!(!ask(&rates, 1, "/x"));
        assert!(ask(&rates, 2, "/x") && ask(&rates, 1, "/y"));
    }

    #[test]
    fn the_window_slides() {
        let rates = limits(4);
        let count = |second| rates.count(Group::Api, who(1), Some("/"), at(second)).unwrap();
        for _ in 0..4 {
            assert!(count(600).allowed);
        }
        assert!(!count(660).allowed, "the old minute still counts");
        assert!(count(690).allowed, "half of it is used");
        assert!(count(1200).allowed);
    }

    #[test]
    fn headers_count_down() {
        let rates = limits(2);
        let count = || rates.count(Group::Api, who(1), Some("/"), at(610)).unwrap();
        let first = count();
        assert_eq!((first.remaining, first.reset, first.retry_after), (1, 660, 50));
        count();
        let response = count().refuse();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["retry-after"], "50");
        assert_eq!(response.headers()["x-ratelimit-remaining"], "0");
    }

    #[test]
    fn unknown_paths_share_one_counter_of_their_caller() {
        let rates = limits(2);
        let unknown = |number| rates.count(Group::Api, who(number), None, at(600)).unwrap().allowed;
        assert_eq!([unknown(1), unknown(1), unknown(1), unknown(2)], [true, true, false, true]);
        assert!(ask(&rates, 1, "/x"));
    }

    #[test]
    fn a_caller_with_many_paths_limits_only_itself() {
        let rates = limits(3);
        let refused = (0..200_000).filter(|path| !ask(&rates, 1, &format!("/{path}"))).count();
        assert_eq!(refused, 200_000 - CLIENT_PATHS as usize - 3);
        assert_eq!(counters(&rates), CLIENT_PATHS as usize + 1);
        for other in 2..1000 {
            assert!(ask(&rates, other, "/login"), "{other}");
        }
        // The other groups of the same caller, too.
        for group in [Group::Login, Group::Files] {
            assert!(rates.count(group, who(1), Some("/login"), at(600)).unwrap().allowed);
        }
        assert!(!rates.count(Group::Api, who(1), Some("/new"), at(600)).unwrap().allowed);
        assert!(ask(&rates, 1, "/0"), "a path with a counter keeps it");
    }

    #[test]
    fn a_flood_of_callers_limits_no_newcomer() {
        let rates = limits(10);
        for caller in 0..1000 {
            for path in 0..CLIENT_PATHS / 8 {
                ask(&rates, caller, &path.to_string());
            }
        }
        let refused = (1_000_000..1_010_000).filter(|newcomer| !ask(&rates, *newcomer, "/login")).count();
        assert_eq!(refused, 0);
    }

    #[test]
    fn memory_is_bounded() {
        let rates = limits(10);
        for caller in 0..500_000 {
            ask(&rates, caller, "/a");
            ask(&rates, caller, "/b");
        }
        let bound = SHARDS * (2 * SHARD_COUNTERS + SHARED_BUCKETS as usize);
        assert!(counters(&rates) <= bound, "{}", counters(&rates));
    }

    #[test]
    fn each_group_has_its_own_limit_and_zero_is_none() {
        let settings = crate::config::Limits {
            api_per_minute: 3,
            login_per_minute: 2,
            files_per_minute: 0,
            ..Default::default()
        };
        let rates = RateLimits::new(&settings);
        let limit = |group| rates.count(group, who(1), Some("/"), at(600)).map(|status| status.limit);
        let limits = [Group::Api, Group::Login, Group::Files, Group::Apps].map(limit);
        assert_eq!(limits, [Some(3), Some(2), None, Some(30)]);
    }

    #[test]
    fn only_the_minute_before_is_carried_over() {
        let rates = limits(10);
        let left = |second| rates.count(Group::Api, who(1), Some("/"), at(second)).unwrap().remaining;
        assert_eq!([left(600), left(600), left(600), left(659)], [9, 8, 7, 6]);
        // Four before; a quarter of the minute is over, so three count.
        assert_eq!([left(675), left(675), left(719)], [6, 5, 7]);
        assert_eq!(left(720), 6, "three of the minute before");
        assert_eq!(left(960), 9, "nothing in the minute before");
        assert_eq!(left(900), 9, "a clock that went back begins anew");
    }

    #[test]
    fn everything_can_be_turned_off() {
        let off = crate::config::Limits { rate_limits: false, ..Default::default() };
        assert_eq!(RateLimits::new(&off).count(Group::Login, who(1), Some("/"), at(0)), None);
    }
}

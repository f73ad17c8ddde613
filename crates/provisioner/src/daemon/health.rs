//! Whether the daemon can run jobs. While Terraform is missing it acquires none, reports the problem, and
//! checks again.

use std::convert::Infallible;
use std::time::Duration;

use coder_domain::backoff::Backoff;
use coder_wire::extension::{MAX_PROBLEM_DETAIL_SIZE, MAX_PROBLEM_SIZE};
use tokio::sync::watch;

use super::status::Status;
use crate::terraform::binary::{BinaryError, Finder};
use crate::terraform::command::environment::Environment;

/// Whether a daemon can run jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Health {
    /// Not checked yet.
    #[default]
    Unknown,
    /// Jobs can run.
    Ready,
    /// Jobs cannot run.
    Unhealthy(HealthProblem),
}

/// Why a daemon cannot run jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthProblem {
    /// A short summary.
    pub summary: String,
    /// What failed, and what to do about it.
    pub detail: String,
}

impl Health {
    /// Why jobs cannot run; `None` when they can, or before the first check.
    pub fn problem(&self) -> Option<&HealthProblem> {
        match self {
            Health::Unhealthy(problem) => Some(problem),
            Health::Unknown | Health::Ready => None,
        }
    }
}

impl HealthProblem {
    fn new(error: &BinaryError) -> Self {
        Self {
            summary: sanitize(error.summary(), MAX_PROBLEM_SIZE),
            detail: sanitize(&error.to_string(), MAX_PROBLEM_DETAIL_SIZE),
        }
    }
}

/// Replaces control characters, and truncates to `bytes`.
fn sanitize(text: &str, bytes: usize) -> String {
    let mut sanitize: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if sanitize.len() > bytes {
        sanitize.truncate(sanitize.floor_char_boundary(bytes - "…".len()));
        sanitize.push('…');
    }
    sanitize
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct CheckIntervals {
    /// After the first failure; it grows with each further one.
    pub(crate) retry: Duration,
    pub(crate) longest_retry: Duration,
    /// While healthy: programs may be removed.
    pub(crate) check: Duration,
}

/// Keeps the status up to date while it is polled.
pub(crate) async fn check_forever(
    finder: &Finder,
    environment: &Environment,
    intervals: CheckIntervals,
    status: &watch::Sender<Status>,
) -> Infallible {
    let mut backoff = Backoff::new(intervals.retry, intervals.longest_retry);
    finder.warn_of_unusable_paths(environment).await;
    loop {
        match finder.check(environment).await {
            Ok(binary) => {
                let previous = replace(status, Health::Ready);
                if previous.problem().is_some() {
                    tracing::info!(target: "provisioner", %binary, "the daemon can run jobs again");
                }
                backoff.reset();
                tokio::select! {
                    () = tokio::time::sleep(intervals.check) => {}
                    () = finder.recheck_requested() => {}
                }
            }
            Err(error) => {
                let problem = HealthProblem::new(&error);
                let now = Health::Unhealthy(problem.clone());
                if replace(status, now.clone()) != now {
                    tracing::error!(
                        target: "provisioner",
                        problem = %problem.summary,
                        %error,
                        "unhealthy: no jobs are acquired until they can run"
                    );
                }
                tokio::time::sleep(backoff.next_delay()).await;
            }
        }
    }
}

/// Stores the health in the status, and returns the previous one. Watchers are notified only of a change.
fn replace(status: &watch::Sender<Status>, health: Health) -> Health {
    let mut previous = health;
    status.send_if_modified(|status| {
        let differs = status.health != previous;
        std::mem::swap(&mut status.health, &mut previous);
        differs
    });
    previous
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fit_what_servers_take() {
        assert_eq!(sanitize("a\nb\u{1b}c", 64), "a b c");
        for bytes in [8, 9, 10] {
            let cut = sanitize("ääääääää", bytes);
            assert!(cut.len() <= bytes && cut.ends_with('…'), "{cut}");
        }
        assert_eq!(sanitize("ääää", 8), "ääää");
    }

    #[test]
    fn the_same_health_wakes_nobody() {
        let sender = watch::Sender::new(Status::default());
        let mut receiver = sender.subscribe();
        assert_eq!(replace(&sender, Health::Ready), Health::Unknown);
        assert!(receiver.has_changed().unwrap());
        receiver.mark_unchanged();
        assert_eq!(replace(&sender, Health::Ready), Health::Ready);
        assert!(!receiver.has_changed().unwrap());
    }
}

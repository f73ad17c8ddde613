//! Why a pass ended early: what is entered into the status, and when the next pass is due.

use std::time::Duration;

use coder_api::client::Error as CoderError;

use crate::access::Unavailable;
use crate::apply;
use crate::rules::conditions::{ACCESS, CONTROL_PLANE, Finding, KEY, RBAC, WORKLOAD};

/// When to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// With growing delays.
    Backoff,
    /// After a fixed time; a watch usually comes first.
    After(Duration),
}

/// The end of a pass.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) finding: Finding,
    pub(crate) retry: Retry,
}

/// Nothing changes by itself in less time.
const SLOW: Retry = Retry::After(Duration::from_secs(60));

impl Failure {
    #[must_use]
    pub(crate) const fn new(finding: Finding, retry: Retry) -> Self {
        Self { finding, retry }
    }

    /// A refusal or a failure of the server. `what` says what was attempted.
    #[must_use]
    pub(crate) fn server(what: &str, error: &CoderError) -> Self {
        let mut message = format!("cannot {what}: {error}");
        let (kind, reason, retry) = match error.status().map(|status| status.as_u16()) {
            Some(401) => (ACCESS, "OperatorTokenInvalid", SLOW),
            Some(403) => (KEY, "Forbidden", SLOW),
            Some(404) => (KEY, "OrganizationNotFound", SLOW),
            Some(429) => (KEY, "RateLimited", Retry::Backoff),
            Some(500..) | None => (CONTROL_PLANE, "ControlPlaneUnavailable", Retry::Backoff),
            Some(_) => (KEY, "ProvisionerKeyFailed", Retry::Backoff),
        };
        message.push_str(match reason {
            "OperatorTokenInvalid" => "; put another token (coder tokens create) into the Secret",
            "Forbidden" => {
                "; the token's user must be able to manage provisioner keys and to read jobs and daemons"
            }
            _ => "",
        });
        Self::new(Finding::no(kind, reason, message), retry)
    }

    /// Whether the server failed, and not the API server.
    #[must_use]
    pub(crate) fn is_of_server(&self) -> bool {
        matches!(self.finding.reason, "RateLimited" | "ControlPlaneUnavailable" | "ProvisionerKeyFailed")
    }

    /// An object that could not be applied.
    #[must_use]
    pub(crate) fn object(error: &apply::Error) -> Self {
        let message = apply::message(error);
        match error {
            apply::Error::Foreign { kind, .. } if kind.starts_with("Role") || kind == "ServiceAccount" => {
                Self::new(Finding::no(RBAC, "Conflict", message), SLOW)
            }
            apply::Error::Foreign { .. } => Self::new(Finding::no(WORKLOAD, "Conflict", message), SLOW),
            apply::Error::Api(kube::Error::Api(status))
                if matches!(status.code, 400 | 403 | 404 | 422) || is_of_wrong_type(status) =>
            {
                Self::new(Finding::no(WORKLOAD, "Rejected", message), SLOW)
            }
            apply::Error::Api(_) => {
                Self::new(Finding::no(WORKLOAD, "ApiServerUnavailable", message), Retry::Backoff)
            }
        }
    }
}

/// An object whose fields have other types than its kind; the API server calls this an error of its own (500).
fn is_of_wrong_type(status: &kube::core::Status) -> bool {
    status.message.starts_with("failed to create typed patch object")
}

impl From<Unavailable> for Failure {
    fn from(error: Unavailable) -> Self {
        match error {
            Unavailable::Missing(finding) => Self::new(finding, Retry::After(Duration::from_secs(15))),
            Unavailable::Api(error) => error.into(),
        }
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        Self::object(&apply::Error::Api(error))
    }
}

impl From<apply::Error> for Failure {
    fn from(error: apply::Error) -> Self {
        Self::object(&error)
    }
}

impl From<Finding> for Failure {
    fn from(finding: Finding) -> Self {
        Self::new(finding, SLOW)
    }
}

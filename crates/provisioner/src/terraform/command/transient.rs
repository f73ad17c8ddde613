//! Which failures of `init` are transient: those of a remote that is overloaded, broken or slow.

/// Messages of the HTTP and TLS libraries of Terraform and git, in lower case.
const SIGNS: [&str; 13] = [
    "too many requests",
    "429",
    "internal server error",
    "bad gateway",
    "service unavailable",
    "gateway timeout",
    "timed out",
    "timeout",
    "deadline exceeded",
    "connection reset",
    "unexpected eof",
    "temporary failure",
    "the requested url returned error: 5",
];

/// Status codes that must be whole words.
const CODES: [&str; 4] = ["500", "502", "503", "504"];

/// Whether an `init` with this error is worth a retry.
pub(super) fn is_transient(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let mut words = text.split(|character: char| !character.is_ascii_alphanumeric());
    SIGNS.iter().any(|sign| text.contains(sign)) || words.any(|word| CODES.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_a_remote_are_transient_and_errors_of_a_template_are_not() {
        for text in [
            "could not query provider registry: the request failed: 429 Too Many Requests",
            "failed to request discovery document: 503 Service Unavailable",
            "error: RPC failed; HTTP 502 curl 22 The requested URL returned error: 502",
            "Get \"https://registry.terraform.io/\": net/http: TLS handshake timeout",
            "context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
            "read tcp 10.0.0.1: read: connection reset by peer",
        ] {
            assert!(is_transient(text), "{text}");
        }
        for text in [
            "provider registry registry.terraform.io does not have a provider named x/y",
            "404 Not Found",
            "403 Forbidden",
            "Unsupported argument on main.tf line 1500",
            "Invalid version constraint",
        ] {
            assert!(!is_transient(text), "{text}");
        }
    }
}

//! Errors with their causes. The errors of this tree name their cause by `source` only, never in their own text.

use std::error::Error;

/// The error and its causes, the innermost last.
pub fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// The texts of the error and of its causes, joined by colons.
#[must_use]
pub fn describe(error: &(dyn Error + 'static)) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::drpc;

    #[test]
    fn the_text_has_every_cause_from_the_outermost_to_the_innermost() {
        let frame = drpc::Error::Frame(drpc::frame::FrameError::Order { at: 7 });
        let error = drpc::Error::Lost(io::Error::other(frame));
        assert_eq!(describe(&drpc::Error::NoAnswer), "the peer ended the call without an answer");
        let expected = "the connection was lost during the call: the peer broke the call protocol: \
                        the ids of a frame go back, at byte 7";
        assert_eq!(describe(&error), expected);
        assert!(causes(&error).last().is_some_and(|cause| cause.is::<drpc::frame::FrameError>()));
    }
}

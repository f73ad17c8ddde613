//! `Debug` of the messages that carry a token or a session, without either.

use std::fmt;

use crate::messages::provisionerext::v1::{
    AttachRequest, AttachResponse, HeldJob, HoldResponse, JobVerdict, JournalHeader, JournalPiece,
    LogsRequest, ProgramReport,
};

macro_rules! redacted {
    ($($message:ident: $($field:ident),*;)+) => {$(
        impl fmt::Debug for $message {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($message))$(.field(stringify!($field), &self.$field))*.finish_non_exhaustive()
            }
        }
    )+};
}

redacted! {
    HeldJob: job_id, next_sequence;
    AttachRequest: jobs;
    JobVerdict: job_id, verdict, next_sequence, canceled, reason;
    AttachResponse: jobs, grace_ms;
    HoldResponse: next_sequence;
    LogsRequest: job_id, first_sequence;
    JournalHeader: job_id, serial, lineage, size_bytes;
    ProgramReport: job_id, product, version;
}

impl fmt::Debug for JournalPiece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A state holds the secrets of a workspace.
        f.debug_struct("JournalPiece").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::provisionerext::v1::journal_piece::Piece;

    #[test]
    fn neither_token_nor_session_is_printed() {
        let job = HeldJob { job_id: "j".to_owned(), token: "geheim".into(), next_sequence: 3 };
        let text = format!("{:?}", AttachRequest { session: "versteckt".into(), jobs: vec![job] });
        assert!(text.contains("next_sequence: 3"), "{text}");
        assert!(!text.contains("geheim") && !text.contains("versteckt"), "{text}");
        let piece = JournalPiece { piece: Some(Piece::Data("geheim".into())) };
        assert_eq!(format!("{piece:?}"), "JournalPiece { .. }");
    }
}

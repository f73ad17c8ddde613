//! [`transaction!`](crate::transaction): what [`Store::write`](crate::Store::write) does, usable inside futures that must be `Send`.
//!
//! Request handlers and spawned tasks need `Send` futures. The compiler cannot prove yet that the future of a borrowed
//! async closure is `Send` for every lifetime; a plain async block has no such lifetime.

use crate::engine::Tx;
use crate::{Error, Result};

/// How often a transaction is run again after conflicts.
const TRANSACTION_ATTEMPTS: u32 = 5;

/// Ends one run of a transaction with a commit or a rollback. `None` means that it should be run again.
#[doc(hidden)]
pub async fn finish_attempt<T, E: From<Error>>(
    mut tx: Tx,
    outcome: std::result::Result<T, E>,
    attempt: &mut u32,
) -> Option<std::result::Result<T, E>> {
    let outcome = match outcome {
        Ok(value) => tx.run_deferred().await.map(|()| value).map_err(E::from),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(value) => {
            let committed: Result<()> = tx.commit().await;
            Some(committed.map(|()| value).map_err(E::from))
        }
        Err(error) => {
            let again = tx.is_conflicted() && *attempt < TRANSACTION_ATTEMPTS;
            tx.rollback().await;
            *attempt += 1;
            if again { None } else { Some(Err(error)) }
        }
    }
}

/// Runs a block as one transaction. Runs it again after a conflict with another transaction.
///
/// `transaction!(store, Error, |tx| { … })` is a `Result<_, Error>`; `?` inside the block ends the transaction. The
/// block must await nothing but the store and must have no effect outside of the transaction.
#[macro_export]
macro_rules! transaction {
    ($store:expr, $error:ty, |$tx:ident| $body:block) => {{
        let mut attempt = 1_u32;
        loop {
            let mut open = match $store.begin().await {
                Ok(open) => open,
                Err(error) => break Err(<$error>::from(error)),
            };
            let outcome: ::std::result::Result<_, $error> = {
                let $tx = &mut open;
                async { $body }.await
            };
            if let Some(done) = $crate::finish_attempt(open, outcome, &mut attempt).await {
                break done;
            }
        }
    }};
}

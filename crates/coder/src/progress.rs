//! Says what is waited for when it takes longer than a second.

use std::time::{Duration, Instant};

use crate::duration;
use crate::output::{Look, Printer};

const PATIENCE: Duration = Duration::from_secs(1);
const REDRAW: Duration = Duration::from_millis(200);

/// Waits for `work`; after a second `text` is shown, with the time that has passed when this is a terminal.
pub(crate) async fn waiting<F: Future>(printer: &Printer, text: &str, work: F) -> F::Output {
    let started = Instant::now();
    tokio::pin!(work);
    if let Ok(done) = tokio::time::timeout(PATIENCE, &mut work).await {
        return done;
    }
    if !printer.is_live() {
        printer.note(text);
        return work.await;
    }
    loop {
        let passed = duration::short(started.elapsed());
        printer.draw(&format!("{text} {}", printer.paint(Look::Faint, &passed)));
        if let Ok(done) = tokio::time::timeout(REDRAW, &mut work).await {
            printer.draw("");
            return done;
        }
    }
}

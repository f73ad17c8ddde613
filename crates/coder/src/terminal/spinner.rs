//! Shows that something runs, and for how long.

use std::time::{Duration, Instant};

use super::output::{Printer, Style};
use crate::duration;

/// Time between two drawings.
pub(crate) const REDRAW_INTERVAL: Duration = Duration::from_millis(120);
/// Shorter waits are not shown.
const DELAY: Duration = Duration::from_secs(1);
const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// The sign of a spinner that has turned for so long.
pub(crate) fn frame(elapsed: Duration) -> char {
    let turns = elapsed.as_millis() / REDRAW_INTERVAL.as_millis();
    FRAMES[usize::try_from(turns).unwrap_or_default() % FRAMES.len()]
}

/// The elapsed time, if it is long enough to be shown.
pub(crate) fn passed(elapsed: Duration) -> String {
    let seconds = Duration::from_secs(elapsed.as_secs());
    if seconds.is_zero() { String::new() } else { format!(" {}", duration::format(seconds)) }
}

/// Waits for `work`; after a second `text` is shown, on a terminal with a spinner and the time that has passed.
pub(crate) async fn waiting<F: Future>(printer: &Printer, text: &str, work: F) -> F::Output {
    let started = Instant::now();
    tokio::pin!(work);
    if let Ok(done) = tokio::time::timeout(DELAY, &mut work).await {
        return done;
    }
    if !printer.is_live() {
        printer.note(text);
        return work.await;
    }
    loop {
        let elapsed = started.elapsed();
        printer.draw_line(Style::Code, &format!("{} {text}{}", frame(elapsed), passed(elapsed)));
        if let Ok(done) = tokio::time::timeout(REDRAW_INTERVAL, &mut work).await {
            printer.draw("");
            return done;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spinner_turns() {
        assert_eq!(frame(Duration::ZERO), FRAMES[0]);
        assert_eq!(frame(REDRAW_INTERVAL * 3), FRAMES[3]);
        assert_eq!(frame(REDRAW_INTERVAL * 10), FRAMES[0]);
        assert_eq!(passed(Duration::from_millis(900)), "");
        assert_eq!(passed(Duration::from_millis(12_300)), " 12s");
    }
}

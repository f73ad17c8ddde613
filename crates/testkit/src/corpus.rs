//! Replays a fuzzing corpus: the seeds and the findings. Each input must end within its time.

use std::path::Path;
use std::time::{Duration, Instant};

/// Longest time for one input, without optimisation and on a busy machine.
const MAX_TIME: Duration = Duration::from_secs(20);

/// Passes every file of `tests/corpus/NAME` to the reader of that name. `crate_folder` is the calling crate's
/// `env!("CARGO_MANIFEST_DIR")`.
///
/// # Panics
/// When a reader panics or takes too long, and when one has no corpus.
pub fn replay<'a>(crate_folder: &str, readers: impl IntoIterator<Item = (&'a str, fn(&[u8]))>) {
    for (name, read) in readers {
        let folder = Path::new(crate_folder).join("tests/corpus").join(name);
        let mut count = 0;
        let entries = std::fs::read_dir(&folder);
        for entry in entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("the folder can be listed").path();
            let input = std::fs::read(&path).expect("the file can be read");
            let start = Instant::now();
            read(&input);
            assert!(start.elapsed() < MAX_TIME, "{}: {:?}", path.display(), start.elapsed());
            count += 1;
        }
        assert!(count > 0, "{name} has no corpus");
    }
}

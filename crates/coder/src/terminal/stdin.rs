//! Standard input as a stream of bytes.
//!
//! A thread of its own reads it: a read that waits for a person cannot be canceled, and must not keep the program from
//! ending.

use std::io::{self, Read as _};

use tokio::sync::mpsc;

/// Bytes that are read at once, and pieces that wait.
const BUFFER_BYTES: usize = 32 << 10;
const QUEUED_BUFFERS: usize = 8;

/// Begins to read. The stream ends with the input, or when the receiver is dropped.
pub(crate) fn read() -> mpsc::Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel(QUEUED_BUFFERS);
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let piece = match stdin.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => Ok(buffer[..count].to_vec()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let failed = piece.is_err();
            if sender.blocking_send(piece).is_err() || failed {
                return;
            }
        }
    });
    receiver
}

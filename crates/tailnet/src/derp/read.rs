//! Reading into the stack, so that an idle connection owns no buffer.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::ready;

use tokio::io::{AsyncRead, ReadBuf};

/// Bytes that are read at once.
const READ: usize = 32 << 10;

/// Reads what is there, on the stack, and hands it on; whether the stream has ended.
pub(crate) async fn read_some<E: From<std::io::Error>>(
    reader: &mut (impl AsyncRead + Unpin),
    mut each: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<bool, E> {
    poll_fn(|cx| {
        let mut space = [MaybeUninit::uninit(); READ];
        let mut buffer = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut *reader).poll_read(cx, &mut buffer))?;
        if buffer.filled().is_empty() {
            return std::task::Poll::Ready(Ok(true));
        }
        std::task::Poll::Ready(each(buffer.filled()).map(|()| false))
    })
    .await
}

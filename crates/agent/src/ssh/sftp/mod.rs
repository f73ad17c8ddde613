//! The SFTP server: version 3 with the extensions that OpenSSH uses. One request after the other, in the order in which they came.
//!
//! `files` holds the operations, which block; they run on threads for that.

mod files;

use std::io;
use std::path::PathBuf;

use bytes::Bytes;
use russh_sftp::protocol::{Packet, StatusCode, Version};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use self::files::Files;

/// Longest packet of a client. OpenSSH sends at most 256 KiB.
const MAX_PACKET_BYTES: u32 = 256 << 10;
/// What clients may use besides version 3.
const EXTENSIONS: [(&str, &str); 6] = [
    ("posix-rename@openssh.com", "1"),
    ("hardlink@openssh.com", "1"),
    ("fsync@openssh.com", "1"),
    ("statvfs@openssh.com", "2"),
    ("expand-path@openssh.com", "1"),
    ("limits@openssh.com", "1"),
];

/// Serves a channel until the client closes it. Relative paths are below `directory`.
pub(super) async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    directory: PathBuf,
    home: PathBuf,
) -> io::Result<()> {
    let mut files = Files::new(directory, home);
    loop {
        let Some(mut packet) = read(&mut stream).await? else { return Ok(()) };
        let answer = match Packet::try_from(&mut packet) {
            Ok(Packet::Init(_)) => {
                let extensions = EXTENSIONS.map(|(name, data)| (name.to_owned(), data.to_owned())).into();
                Packet::Version(Version { extensions, ..Version::new() })
            }
            Ok(request) => {
                let (answer, back) = tokio::task::spawn_blocking(move || (files.answer(request), files))
                    .await
                    .map_err(io::Error::other)?;
                files = back;
                answer
            }
            Err(error) => {
                // The id comes first in every request, whatever follows.
                let id = packet_id(&packet);
                Packet::status(id, StatusCode::BadMessage, &error.to_string(), "en")
            }
        };
        let bytes = Bytes::try_from(answer).map_err(io::Error::other)?;
        stream.write_all(&bytes).await?;
    }
}

fn packet_id(rest: &Bytes) -> u32 {
    rest.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// The next packet without its length; none at the end.
async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Bytes>> {
    let length = match stream.read_u32().await {
        Ok(length) => length,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    if length == 0 || length > MAX_PACKET_BYTES {
        let problem = format!("a packet of {length} bytes; at most {MAX_PACKET_BYTES} are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    // Grows as bytes arrive; nothing is allocated from the declared length alone.
    let mut packet = Vec::new();
    stream.take(length.into()).read_to_end(&mut packet).await?;
    Ok((packet.len() == length as usize).then(|| packet.into()))
}

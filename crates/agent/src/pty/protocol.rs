//! What clients of a reconnecting terminal send (agent 5).

use std::io;

use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use uuid::Uuid;

use crate::ssh::TerminalSize;

/// Longest object of a client: a large paste.
const MAX_INPUT_BYTES: usize = 1 << 20;

/// The first message.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct TerminalOpening {
    #[serde(rename = "ID")]
    pub(super) id: Uuid,
    #[serde(default)]
    height: u16,
    #[serde(default)]
    width: u16,
    /// Empty for a login shell.
    #[serde(default)]
    pub(super) command: String,
    #[serde(default)]
    pub(super) container: String,
}

impl TerminalOpening {
    pub(super) fn size(&self) -> TerminalSize {
        TerminalSize { rows: self.height.max(1), columns: self.width.max(1), ..TerminalSize::default() }
    }
}

/// Reads the first message: its length in 16 bits, little endian, and JSON.
pub(super) async fn read_opening(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<TerminalOpening> {
    let length = stream.read_u16_le().await?;
    let mut text = vec![0; length.into()];
    stream.read_exact(&mut text).await?;
    serde_json::from_slice(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Something that a client typed, or its new size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Input {
    pub(super) data: String,
    pub(super) size: Option<TerminalSize>,
}

#[derive(Debug, Deserialize)]
struct Message {
    #[serde(default)]
    data: String,
    #[serde(default)]
    height: u16,
    #[serde(default)]
    width: u16,
}

/// Splits JSON objects that follow each other without a separator.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    rest: Vec<u8>,
}

impl Decoder {
    /// Takes bytes of a client. What is complete.
    pub(super) fn take(&mut self, bytes: &[u8]) -> io::Result<Vec<Input>> {
        self.rest.extend_from_slice(bytes);
        let mut inputs = Vec::new();
        let mut objects = serde_json::Deserializer::from_slice(&self.rest).into_iter::<Message>();
        let mut used = 0;
        loop {
            match objects.next() {
                Some(Ok(message)) => {
                    used = objects.byte_offset();
                    let size = (message.height > 0 && message.width > 0).then(|| TerminalSize {
                        rows: message.height,
                        columns: message.width,
                        ..TerminalSize::default()
                    });
                    inputs.push(Input { data: message.data, size });
                }
                Some(Err(error)) if error.is_eof() => break,
                Some(Err(error)) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
                None => {
                    used = self.rest.len();
                    break;
                }
            }
        }
        self.rest.drain(..used);
        if self.rest.len() > MAX_INPUT_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "an object of more than 1 MiB"));
        }
        Ok(inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_however_they_arrive() {
        let text =
            r#"{"data":"ls é\n"}{"height":5,"width":0}  {"height":24,"width":80,"data":"}{"}"#.as_bytes();
        for piece in 1..text.len() {
            let mut decoder = Decoder::default();
            let inputs: Vec<_> = text.chunks(piece).flat_map(|piece| decoder.take(piece).unwrap()).collect();
            let data: Vec<_> = inputs.iter().map(|input| input.data.as_str()).collect();
            assert_eq!(data, ["ls é\n", "", "}{"]);
            let sizes: Vec<_> =
                inputs.iter().map(|input| input.size.map(|size| (size.rows, size.columns))).collect();
            assert_eq!(sizes, [None, None, Some((24, 80))]);
        }
    }

    #[test]
    fn garbage_and_endless_objects_are_refused() {
        assert!(Decoder::default().take(b"no json").is_err());
        assert!(Decoder::default().take(b"{\"height\":-1}").is_err());
        let mut decoder = Decoder::default();
        assert!(decoder.take(b"{\"data\":\"").is_ok());
        let endless = vec![b'x'; 64 << 10];
        assert!((0..17).any(|_| decoder.take(&endless).is_err()));
    }

    #[tokio::test]
    async fn first_message_has_its_length_in_front() {
        let text = br#"{"ID":"5d0a3a52-7a1c-4c0f-9a83-2f9d8d1e6b10","Height":20,"Width":90,"Command":"top","Container":"","ContainerUser":"","BackendType":""}"#;
        let mut bytes = u16::try_from(text.len()).unwrap().to_le_bytes().to_vec();
        bytes.extend_from_slice(text);
        let opening = read_opening(&mut bytes.as_slice()).await.unwrap();
        assert_eq!((opening.size().rows, opening.size().columns, opening.command.as_str()), (20, 90, "top"));
        assert!(read_opening(&mut &bytes[..10]).await.is_err());
        assert!(read_opening(&mut &b"\x02\0{}"[..]).await.is_err());
    }
}

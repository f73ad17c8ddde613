//! Carries a connection over standard input and output.

use anyhow::Context as _;
use coder_tailnet::node::TcpStream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::exit::ConnectionLost;
use crate::terminal::stdin;

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// Copies both ways until the workspace ends the connection.
pub(super) async fn copy(stream: TcpStream) -> anyhow::Result<()> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut input = stdin::read();
    let up = async {
        while let Some(piece) = input.recv().await {
            writer.write_all(&piece.context("read standard input")?).await.map_err(lost)?;
        }
        // The other direction goes on.
        writer.shutdown().await.map_err(lost)?;
        std::future::pending::<anyhow::Result<()>>().await
    };
    let down = async {
        let mut output = tokio::io::stdout();
        let mut piece = vec![0; BUFFER_BYTES];
        loop {
            let count = reader.read(&mut piece).await.map_err(lost)?;
            if count == 0 {
                return Ok(());
            }
            output.write_all(&piece[..count]).await.context("write to standard output")?;
            output.flush().await.context("write to standard output")?;
        }
    };
    tokio::select! {
        // What has arrived is written before an error of the other direction ends it.
        biased;
        ended = down => ended,
        ended = up => ended,
    }
}

fn lost(error: std::io::Error) -> anyhow::Error {
    ConnectionLost(error.to_string()).into()
}

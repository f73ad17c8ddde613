//! The beginning of a connection between servers: each sends its id and a random number, which with the shared secret give
//! the keys of the records. The first record of each side proves that it has the secret.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;
use uuid::Uuid;

use super::frame::Frame;
use super::record::Key;
use super::{Error, STEP, send};
use crate::key::random;

/// The version of the protocol.
pub(super) const VERSION: u8 = 1;
/// Version, id and random number.
const HELLO: usize = 1 + 16 + 32;
/// What the keys of the two directions are made of, besides the hellos.
const DIALLER: &[u8] = b"coder mesh, from the dialler";
const ACCEPTOR: &[u8] = b"coder mesh, from the acceptor";

type Hello = [u8; HELLO];

fn hello(own: Uuid) -> Hello {
    let mut hello = [0; HELLO];
    hello[0] = VERSION;
    hello[1..17].copy_from_slice(own.as_bytes());
    hello[17..].copy_from_slice(&random::<32>());
    hello
}

async fn read_hello(io: &mut (impl AsyncRead + Unpin)) -> Result<(Hello, Uuid), Error> {
    let mut hello = [0; HELLO];
    timeout(STEP, io.read_exact(&mut hello)).await.map_err(|_| Error::Stalled)??;
    if hello[0] != VERSION {
        return Err(Error::Version(hello[0]));
    }
    let id = hello[1..17].try_into().map(Uuid::from_bytes).expect("it is as long as an id");
    Ok((hello, id))
}

async fn write_hello(io: &mut (impl AsyncWrite + Unpin), hello: &Hello) -> Result<(), Error> {
    let written = async {
        io.write_all(hello).await?;
        io.flush().await
    };
    timeout(STEP, written).await.map_err(|_| Error::Stalled)?.map_err(Error::from)
}

/// Reads the record that proves the secret, and sends ours.
async fn prove(
    io: &mut (impl AsyncRead + AsyncWrite + Unpin),
    out: &mut Key,
    back: &mut Key,
) -> Result<(), Error> {
    let mut ping = Vec::new();
    Frame::Ping.encode(&mut ping);
    send(io, out, &ping).await?;
    match timeout(STEP, back.read(io)).await.map_err(|_| Error::Stalled)?? {
        Some(_) => Ok(()),
        None => Err(Error::Closed),
    }
}

/// As the side that dialled the server `other`. The key for what is sent, and that for what comes back.
pub(super) async fn dial(
    io: &mut (impl AsyncRead + AsyncWrite + Unpin),
    own: Uuid,
    other: Uuid,
    secret: &[u8],
) -> Result<(Key, Key), Error> {
    let ours = hello(own);
    write_hello(io, &ours).await?;
    let (theirs, id) = read_hello(io).await?;
    let hellos: [&[u8]; 2] = [&ours, &theirs];
    let (mut out, mut back) = (Key::derive(secret, DIALLER, &hellos), Key::derive(secret, ACCEPTOR, &hellos));
    prove(io, &mut out, &mut back).await?;
    if id == own {
        Err(Error::Itself)
    } else if id != other {
        Err(Error::OtherServer(id))
    } else {
        Ok((out, back))
    }
}

/// As the side that was dialled. The other server's id, the key for what it sends, and that for our answers.
pub(super) async fn accept(
    io: &mut (impl AsyncRead + AsyncWrite + Unpin),
    own: Uuid,
    secret: &[u8],
) -> Result<(Uuid, Key, Key), Error> {
    let (theirs, id) = read_hello(io).await?;
    let ours = hello(own);
    write_hello(io, &ours).await?;
    let hellos: [&[u8]; 2] = [&theirs, &ours];
    let (mut key, mut back) = (Key::derive(secret, DIALLER, &hellos), Key::derive(secret, ACCEPTOR, &hellos));
    prove(io, &mut back, &mut key).await?;
    if id == own { Err(Error::Itself) } else { Ok((id, key, back)) }
}

//! TCP to whichever of a host's addresses answers first, both families tried.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;
use url::{Host, Url};

use super::BoxedConn;

/// How long an address may be silent before the next one is tried as well (RFC 8305).
const NEXT_ATTEMPT: Duration = Duration::from_millis(250);
/// More addresses than this are not tried.
const MAX_ADDRESSES: usize = 16;

pub(super) async fn connect(url: &Url) -> io::Result<BoxedConn> {
    let port = url.port_or_known_default().unwrap_or(443);
    let addresses: Vec<SocketAddr> = match url.host() {
        Some(Host::Ipv4(address)) => vec![(address, port).into()],
        Some(Host::Ipv6(address)) => vec![(address, port).into()],
        Some(Host::Domain(name)) => interleave(tokio::net::lookup_host((name, port)).await?.collect()),
        None => Vec::new(),
    };
    let stream = race(addresses).await?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

/// Alternates the families, starting with the one the resolver prefers.
fn interleave(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (preferred, others): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv4() == first_is_v4);
    let (mut preferred, mut others) = (preferred.into_iter(), others.into_iter());
    let mut ordered = Vec::new();
    loop {
        let pair = [preferred.next(), others.next()];
        if pair == [None, None] {
            ordered.truncate(MAX_ADDRESSES);
            return ordered;
        }
        ordered.extend(pair.into_iter().flatten());
    }
}

/// Starts a new attempt whenever the last one failed or has been silent for [`NEXT_ATTEMPT`].
async fn race(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut waiting = addresses.into_iter();
    let mut attempts = FuturesUnordered::new();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    loop {
        let more = waiting.next();
        let exhausted = more.is_none();
        attempts.extend(more.map(TcpStream::connect));
        if attempts.is_empty() {
            return Err(last);
        }
        let next = attempts.next();
        let outcome = if exhausted {
            next.await
        } else {
            tokio::time::timeout(NEXT_ATTEMPT, next).await.unwrap_or(None)
        };
        match outcome {
            Some(Ok(stream)) => return Ok(stream),
            Some(Err(error)) => last = error,
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_alternate() {
        let parse =
            |text: &[&str]| text.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
        let ordered = interleave(parse(&["[::1]:1", "[::2]:1", "127.0.0.1:1", "127.0.0.2:1", "127.0.0.3:1"]));
        let wanted = parse(&["[::1]:1", "127.0.0.1:1", "[::2]:1", "127.0.0.2:1", "127.0.0.3:1"]);
        assert_eq!(ordered, wanted);
    }

    #[tokio::test]
    async fn a_refusing_address_does_not_stop_the_others() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gone = {
            let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            other.local_addr().unwrap()
        };
        let stream = race(vec![gone, listener.local_addr().unwrap()]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
        assert!(race(vec![gone]).await.is_err());
        assert!(race(vec![]).await.is_err());
    }
}

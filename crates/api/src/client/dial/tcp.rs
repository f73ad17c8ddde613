//! TCP to whichever of a host's addresses answers first, both families tried.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;
use url::{Host, Url};

use super::BoxedByteStream;

/// How long an address may be silent before the next one is tried as well (RFC 8305).
const NEXT_ATTEMPT: Duration = Duration::from_millis(250);
/// More addresses than this are not tried.
const MAX_ADDRESSES: usize = 16;

pub(super) async fn connect(url: &Url) -> io::Result<BoxedByteStream> {
    let port = url.port_or_known_default().unwrap_or(443);
    let addresses: Vec<SocketAddr> = match url.host() {
        Some(Host::Ipv4(address)) => vec![(address, port).into()],
        Some(Host::Ipv6(address)) => vec![(address, port).into()],
        Some(Host::Domain(name)) => interleave(tokio::net::lookup_host((name, port)).await?.collect()),
        None => Vec::new(),
    };
    let stream = race(addresses, TcpStream::connect).await?;
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
async fn race<T, F: Future<Output = io::Result<T>>>(
    addresses: Vec<SocketAddr>,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<T> {
    let mut waiting = addresses.into_iter();
    let mut attempts = FuturesUnordered::new();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    loop {
        let more = waiting.next();
        let exhausted = more.is_none();
        attempts.extend(more.map(&connect));
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

    fn address(last: u8) -> SocketAddr {
        ([127, 0, 0, last], 1).into()
    }

    /// Address 1 never answers, 2 refuses, the others connect.
    async fn behave(address: SocketAddr) -> io::Result<SocketAddr> {
        match address.to_string().as_str() {
            "127.0.0.1:1" => std::future::pending().await,
            "127.0.0.2:1" => Err(io::ErrorKind::ConnectionRefused.into()),
            _ => Ok(address),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_holds_the_others_up_for_a_quarter_second() {
        let start = tokio::time::Instant::now();
        assert_eq!(race(vec![address(1), address(2), address(3)], behave).await.unwrap(), address(3));
        assert_eq!(start.elapsed(), NEXT_ATTEMPT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusing_address_does_not_hold_the_others_up() {
        let start = tokio::time::Instant::now();
        assert_eq!(race(vec![address(2), address(3)], behave).await.unwrap(), address(3));
        assert!(start.elapsed().is_zero());
        let error = race(vec![address(2)], behave).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(race(vec![], behave).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}

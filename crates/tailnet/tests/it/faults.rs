//! Lost, swapped and doubled packets; a relay that goes; nodes that start again; new keys; sleep.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use coder_tailnet::address;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use uuid::Uuid;

use super::node::{connection, exchange, pair};
use super::rig::{Network, paused};

const AGENT: Uuid = Uuid::from_u128(0x1111_2222_3333_4444_5555_6666_7777_8888);
const LONG: Duration = Duration::from_secs(120);

#[test]
fn bytes_arrive_whatever_is_lost_swapped_or_doubled() {
    for (lost, swapped, doubled) in [(10, 0, 0), (20, 20, 10), (50, 50, 50)] {
        paused(async move {
            let network = Network::new();
            let (agent, client) = pair(&network).await;
            network.faults.lost.store(lost, Relaxed);
            network.faults.swapped.store(swapped, Relaxed);
            network.faults.doubled.store(doubled, Relaxed);
            for port in 80..83 {
                let (near, far) = connection(&agent, &client, port).await;
                exchange(near, far, 500_000).await;
            }
        });
    }
}

#[test]
fn connection_survives_the_loss_of_the_relay() {
    paused(async {
        let network = Network::new();
        let (agent, client) = pair(&network).await;
        let (mut near, mut far) = connection(&agent, &client, 80).await;
        for restart in [false, true, false] {
            network.faults.refuses.store(true, Relaxed);
            if restart {
                network.restart_relay();
            } else {
                network.cut_relay();
            }
            // Written while there is no relay.
            near.write_all(b"ping").await.unwrap();
            tokio::time::sleep(LONG).await;
            network.faults.refuses.store(false, Relaxed);
            let mut got = [0; 4];
            far.read_exact(&mut got).await.unwrap();
            far.write_all(b"pong").await.unwrap();
            near.read_exact(&mut got).await.unwrap();
            assert_eq!(&got, b"pong");
        }
        exchange(near, far, 1 << 20).await;
    });
}

#[test]
fn relay_that_goes_in_the_middle_of_a_transfer() {
    paused(async {
        let network = Network::new();
        let (agent, client) = pair(&network).await;
        let (near, far) = connection(&agent, &client, 80).await;
        let cuts = async {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_millis(20)).await;
                network.cut_relay();
                tokio::time::sleep(Duration::from_secs(20)).await;
            }
        };
        tokio::join!(exchange(near, far, 20 << 20), cuts);
    });
}

#[test]
fn restarted_agent_is_reached_again() {
    paused(async {
        let network = Network::new();
        let (agent, client) = pair(&network).await;
        let (mut near, _far) = connection(&agent, &client, 80).await;
        agent.kill();
        tokio::time::sleep(LONG).await;
        let agent = network.agent(AGENT);
        client.node.wait_reachable(address::of(AGENT), LONG).await.unwrap();
        let error = near.read(&mut [0; 10]).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the old connection ended");
        let (near, far) = connection(&agent, &client, 80).await;
        exchange(near, far, 10_000).await;
    });
}

#[test]
fn restarted_client_reaches_the_agent_again() {
    paused(async {
        let network = Network::new();
        let (agent, client) = pair(&network).await;
        let (near, _far) = connection(&agent, &client, 80).await;
        drop(near);
        client.kill();
        let client = network.client_of(AGENT);
        client.node.wait_reachable(address::of(AGENT), LONG).await.unwrap();
        let (near, far) = connection(&agent, &client, 80).await;
        exchange(near, far, 10_000).await;
    });
}

#[test]
fn vanished_client_is_forgotten_in_the_end() {
    paused(async {
        let network = Network::new();
        let (agent, client) = pair(&network).await;
        client.kill();
        tokio::time::sleep(Duration::from_secs(14 * 60)).await;
        assert_eq!(agent.node.peers(), 1);
        tokio::time::sleep(Duration::from_secs(2 * 60)).await;
        assert_eq!(agent.node.peers(), 0);
    });
}

#[test]
fn connection_of_a_vanished_client_ends_in_the_end() {
    paused(async {
        let network = Network::new();
        let (agent, client) = pair(&network).await;
        let (near, mut far) = connection(&agent, &client, 80).await;
        std::mem::forget(near);
        client.kill();
        network.cut_relay();
        let started = tokio::time::Instant::now();
        assert!(far.read(&mut [0; 10]).await.is_err());
        let after = started.elapsed();
        assert!((100..=130).contains(&(after.as_secs() / 60)), "{after:?}");
        assert_eq!(agent.node.peers(), 0);
    });
}

#[test]
fn new_keys_are_agreed_on_in_the_middle_of_a_transfer() {
    paused(async {
        let network = Network::new();
        let (agent, client) = pair(&network).await;
        let (near, far) = connection(&agent, &client, 80).await;
        let rekeys = async {
            for number in 0..20 {
                tokio::time::sleep(Duration::from_millis(2)).await;
                if number % 2 == 0 { client.node.rekey(AGENT) } else { agent.node.rekey(client.id) }
            }
        };
        tokio::join!(exchange(near, far, 10 << 20), rekeys);
        agent.node.rekey(client.id);
        client.node.rekey(AGENT);
        client.node.wait_reachable(address::of(AGENT), LONG).await.unwrap();
    });
}

#[test]
fn idle_connection_survives_an_hour_of_sleep() {
    paused(async {
        let network = Network::new();
        let (agent, client) = pair(&network).await;
        let (mut near, mut far) = connection(&agent, &client, 80).await;
        far.write_all(b"prompt").await.unwrap();
        let mut got = [0; 6];
        near.read_exact(&mut got).await.unwrap();
        // Asleep: nothing of it reaches the relay, and what the agent writes goes nowhere.
        network.faults.lost.store(1000, Relaxed);
        far.write_all(b"output").await.unwrap();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        network.faults.lost.store(0, Relaxed);
        near.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"output");
        exchange(near, far, 10_000).await;
    });
}

/// The clock of WireGuard is the machine's, so this runs in real time. `CODER_TEST_LONG` asks for the form in which keys grow old
/// in use, and expire while nothing is sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_outlives_its_keys() {
    let is_long = std::env::var_os("CODER_TEST_LONG").is_some();
    let (in_use, idle) = if is_long { (150, 200) } else { (1, 1) };
    let network = Network::new();
    let (agent, client) = pair(&network).await;
    let (mut near, far) = connection(&agent, &client, 80).await;
    let echo = tokio::spawn(async move {
        let (mut reader, mut writer) = tokio::io::split(far);
        tokio::io::copy(&mut reader, &mut writer).await.unwrap()
    });
    let started = tokio::time::Instant::now();
    let mut talk = async |seconds: u64| {
        let until = tokio::time::Instant::now() + Duration::from_secs(seconds);
        while tokio::time::Instant::now() < until {
            let mut got = [0; 1000];
            near.write_all(&[7; 1000]).await.unwrap();
            let read = tokio::time::timeout(LONG, near.read_exact(&mut got)).await;
            assert!(read.is_ok_and(|read| read.is_ok()), "after {:?}", started.elapsed());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    talk(in_use).await;
    let handshake = client.node.activity(AGENT).last_handshake.unwrap();
    assert_eq!(handshake > started + Duration::from_secs(60), is_long, "new keys after two minutes");
    tokio::time::sleep(Duration::from_secs(idle)).await;
    talk(in_use).await;
    drop(near);
    echo.await.unwrap();
}

//! Packets that wait for one receiver: bounded, and shared out fairly between senders.
//!
//! Senders take turns by bytes (deficit round robin). A full queue drops the oldest packet of the sender that has the most
//! bytes in it, so that a flood displaces only itself.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;

use crate::key::NodePublic;

/// Bytes that a sender may send in one turn.
const QUANTUM: usize = 8 << 10;

#[derive(Debug, Default)]
struct Lane {
    packets: VecDeque<Bytes>,
    bytes: usize,
    /// Bytes that it may still send in its turn.
    deficit: usize,
}

/// Packets by sender, for one receiver.
#[derive(Debug)]
pub(super) struct FairQueue {
    lanes: HashMap<NodePublic, Lane>,
    /// The senders in the order of their turns.
    turns: VecDeque<NodePublic>,
    packets: usize,
    bytes: usize,
    packet_limit: usize,
    byte_limit: usize,
}

impl FairQueue {
    pub(super) fn new(packet_limit: usize, byte_limit: usize) -> Self {
        Self { lanes: HashMap::new(), turns: VecDeque::new(), packets: 0, bytes: 0, packet_limit, byte_limit }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a packet to a queue that may have `most` bytes now, if that is less than its own limit. The number of packets dropped
    /// for it.
    pub(super) fn push(&mut self, from: NodePublic, packet: Bytes, most: usize) -> usize {
        let byte_limit = self.byte_limit.min(most);
        let lane = self.lanes.entry(from).or_insert_with(|| {
            self.turns.push_back(from);
            Lane::default()
        });
        self.packets += 1;
        self.bytes += packet.len();
        lane.bytes += packet.len();
        lane.packets.push_back(packet);
        let mut dropped = 0;
        while self.packets > self.packet_limit || self.bytes > byte_limit {
            self.drop_one();
            dropped += 1;
        }
        dropped
    }

    fn drop_one(&mut self) {
        let largest = self.lanes.iter().max_by_key(|(_, lane)| (lane.bytes, lane.packets.len()));
        let Some(key) = largest.map(|(key, _)| *key) else { return };
        self.take(key);
    }

    /// Removes the oldest packet of a sender.
    fn take(&mut self, key: NodePublic) -> Option<Bytes> {
        let lane = self.lanes.get_mut(&key)?;
        let packet = lane.packets.pop_front()?;
        lane.bytes -= packet.len();
        self.packets -= 1;
        self.bytes -= packet.len();
        if lane.packets.is_empty() {
            self.lanes.remove(&key);
            self.turns.retain(|turn| *turn != key);
        }
        Some(packet)
    }

    /// The next packet and its sender.
    pub(super) fn pop(&mut self) -> Option<(NodePublic, Bytes)> {
        loop {
            let key = *self.turns.front()?;
            let lane = self.lanes.get_mut(&key)?;
            let length = lane.packets.front()?.len();
            if lane.deficit >= length {
                lane.deficit -= length;
                return self.take(key).map(|packet| (key, packet));
            }
            lane.deficit += QUANTUM;
            self.turns.rotate_left(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> NodePublic {
        NodePublic::from_bytes([number; 32])
    }

    fn packet(size: usize, mark: u8) -> Bytes {
        Bytes::from(vec![mark; size])
    }

    #[test]
    fn one_sender_keeps_its_order() {
        let mut queue = FairQueue::new(10, 1 << 20);
        for mark in 0..5 {
            assert_eq!(queue.push(key(1), packet(1300, mark), usize::MAX), 0);
        }
        let marks: Vec<u8> = std::iter::from_fn(|| queue.pop()).map(|(_, packet)| packet[0]).collect();
        assert_eq!(marks, [0, 1, 2, 3, 4]);
        assert_eq!((queue.packets, queue.bytes(), queue.lanes.len(), queue.turns.len()), (0, 0, 0, 0));
    }

    #[test]
    fn full_queue_drops_the_oldest_of_the_flood() {
        let mut queue = FairQueue::new(8, 1 << 20);
        queue.push(key(1), packet(100, 1), usize::MAX);
        let dropped: usize = (0..20).map(|mark| queue.push(key(2), packet(100, mark), usize::MAX)).sum();
        assert_eq!(dropped, 13);
        let left: Vec<_> =
            std::iter::from_fn(|| queue.pop()).map(|(from, packet)| (from, packet[0])).collect();
        assert!(left.contains(&(key(1), 1)), "the quiet sender loses nothing");
        let flood: Vec<u8> = left.iter().filter(|(from, _)| *from == key(2)).map(|(_, mark)| *mark).collect();
        assert_eq!(flood, (13..20).collect::<Vec<_>>(), "the newest of the flood are left");
    }

    #[test]
    fn bytes_are_limited_too() {
        let mut queue = FairQueue::new(100, 10_000);
        let dropped: usize = (0..10).map(|mark| queue.push(key(1), packet(3000, mark), usize::MAX)).sum();
        assert_eq!((dropped, queue.bytes()), (7, 9000));
    }

    #[test]
    fn queue_shrinks_to_what_it_may_have_now() {
        let mut queue = FairQueue::new(100, 10_000);
        queue.push(key(1), packet(100, 1), usize::MAX);
        for _ in 0..9 {
            queue.push(key(2), packet(1000, 2), usize::MAX);
        }
        assert_eq!(queue.push(key(3), packet(100, 3), 2000), 8, "the flood gives way");
        assert_eq!(queue.bytes(), 1200);
        assert_eq!(queue.push(key(3), packet(100, 3), 50), 4, "nothing fits");
        assert_eq!(queue.bytes(), 0);
    }

    #[test]
    fn senders_get_equal_bytes_whatever_their_packets() {
        let mut queue = FairQueue::new(1000, 1 << 24);
        for _ in 0..30 {
            queue.push(key(1), packet(60_000, 1), usize::MAX);
        }
        for _ in 0..900 {
            queue.push(key(2), packet(1000, 2), usize::MAX);
        }
        let mut sent = [0_usize; 3];
        while sent[1] + sent[2] < 1_000_000 {
            let (_, packet) = queue.pop().unwrap();
            sent[usize::from(packet[0])] += packet.len();
        }
        assert!(sent[1].abs_diff(sent[2]) <= 2 * 60_000 + QUANTUM, "{sent:?}");
    }

    #[test]
    fn empty_packets_pass() {
        let mut queue = FairQueue::new(2, 10);
        queue.push(key(1), packet(0, 0), usize::MAX);
        assert_eq!(queue.pop(), Some((key(1), Bytes::new())));
        assert_eq!(queue.pop(), None);
    }
}

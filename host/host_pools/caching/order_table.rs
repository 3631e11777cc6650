//! The ordering tags of free memory: on a stream, behind an event, or idle.
//!
//! ```text
//! stream 7 ─► order 3 ── marked ──► order 5, behind an event of stream 7 ── completed ──► idle
//!                       └ marking fails ─► order 6, unmarked ── device synchronised ─┘
//! ```
//!
//! I1: memory of a stream's order may be in use by work that was submitted to this stream before;
//! memory behind an event, by work before that event; unmarked memory, by any work; idle memory, by
//! none. I2: an order is behind an event, unmarked, or a stream's own; exactly one of these.

use super::order_tag::{ANY_STREAM, Key, OrderTag};
use super::stream_cache::{StreamCache, StreamEnd};
use crate::driver::{Device, Event};
use foldhash::fast::FixedState;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

pub(super) struct OrderTable {
    of_stream: HashMap<Key, (OrderTag, Arc<StreamCache>), FixedState>,
    /// The stream is recorded as well: its events complete in the order in which they were
    /// recorded.
    behind: BTreeMap<OrderTag, (Key, Event)>,
    /// Orders of streams without a marked point (the driver call failed): idle once the device has
    /// completed all work submitted before.
    unmarked: Vec<OrderTag>,
    next: u64,
}

impl OrderTable {
    pub fn new() -> OrderTable {
        OrderTable {
            of_stream: HashMap::default(),
            behind: BTreeMap::new(),
            unmarked: Vec::new(),
            next: OrderTag::IDLE.0 + 1,
        }
    }

    fn add(&mut self) -> OrderTag {
        self.next += 1;
        OrderTag(self.next - 1)
    }

    /// The ordering tag of memory freed on that cache's stream.
    pub fn of_cache(&mut self, cache: &Arc<StreamCache>) -> OrderTag {
        if cache.key == ANY_STREAM {
            return OrderTag::IDLE;
        }
        if let Some((order, _)) = self.of_stream.get(&cache.key) {
            return *order;
        }
        let order = self.add();
        self.of_stream.insert(cache.key, (order, cache.clone()));
        order
    }

    /// The order of a stream, if memory was ever freed on it.
    pub fn of_key(&self, key: Key) -> Option<OrderTag> {
        self.of_stream.get(&key).map(|(order, _)| *order)
    }

    /// Whether at most one stream uses the pool and no memory of another stream is pending.
    pub fn has_one_stream(&self) -> bool {
        self.of_stream.len() <= 1 && self.behind.is_empty() && self.unmarked.is_empty()
    }

    /// The orders of all streams.
    pub fn of_streams(&self) -> impl Iterator<Item = OrderTag> {
        self.of_stream.values().map(|(order, _)| *order)
    }

    /// Marks the current point of a stream. Returns the order for the memory that it has freed
    /// before. `None` if the memory keeps the stream's order: the stream is about to end, and the
    /// thread that finds it ended calls this again. `None` also for an unknown stream.
    pub fn mark(&mut self, key: Key, device: &Device) -> Option<OrderTag> {
        let cache = self.of_stream.get(&key)?.1.clone();
        let event = match cache.stream(device) {
            // It has passed every point.
            Some(stream) if stream.is_idle() => return Some(OrderTag::IDLE),
            Some(stream) => stream.record().ok(),
            None => match cache.end() {
                StreamEnd::At(event) => Some(Event::new(device.clone(), event)),
                StreamEnd::NotYet => return None,
                // The driver failed to record its last point.
                StreamEnd::Unknown => None,
            },
        };
        let order = self.add();
        match event {
            Some(event) => drop(self.behind.insert(order, (key, event))),
            None => self.unmarked.push(order),
        }
        Some(order)
    }

    /// Forgets a stream that has ended.
    pub fn forget(&mut self, key: Key) {
        self.of_stream.remove(&key);
    }

    /// Forgets an order that no memory has any more.
    pub fn clear(&mut self, order: OrderTag) {
        self.behind.remove(&order);
        self.unmarked.retain(|other| *other != order);
    }

    /// The orders behind events of one stream.
    pub fn behind(&self, key: Key) -> Vec<OrderTag> {
        let own = |(order, (stream, _)): (&OrderTag, &(Key, Event))| (*stream == key).then_some(*order);
        self.behind.iter().filter_map(own).collect()
    }

    /// The orders without a known point in a stream.
    pub fn unmarked(&self) -> impl Iterator<Item = OrderTag> {
        self.unmarked.iter().copied()
    }

    /// The orders whose events have completed. Polls events until `max_busy`
    /// streams were found unfinished.
    pub fn completed(&self, max_busy: usize) -> Vec<OrderTag> {
        let (mut done, mut busy) = (Vec::new(), HashSet::new());
        for (order, (key, event)) in &self.behind {
            if busy.contains(key) {
                continue;
            }
            match event.backend().is_done() {
                Ok(true) => done.push(*order),
                _ => drop(busy.insert(*key)),
            }
            if busy.len() == max_busy {
                break;
            }
        }
        done
    }

    /// The orders behind events, oldest first.
    pub fn pending(&self) -> Vec<(OrderTag, Event)> {
        self.behind.iter().map(|(order, (_, event))| (*order, event.clone())).collect()
    }
}

#[cfg(test)]
impl OrderTable {
    /// Whether the order is known.
    pub fn has(&self, order: OrderTag) -> bool {
        let known = self.of_streams().chain(self.unmarked()).chain(self.behind.keys().copied());
        order == OrderTag::IDLE || known.into_iter().any(|other| other == order)
    }

    /// I2.
    pub fn check(&self) {
        let is_own = |order: &OrderTag| self.of_streams().any(|own| own == *order);
        assert!(!self.behind.keys().any(is_own) && !self.unmarked.iter().any(is_own), "I2");
        assert!(!self.unmarked.iter().any(|order| self.behind.contains_key(order)), "I2");
    }
}

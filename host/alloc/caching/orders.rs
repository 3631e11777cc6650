//! Whose free memory is: a stream's, behind an event, or anyone's.
//!
//! ```text
//!   stream 7 ─► order 3 ── marked ──► order 5, behind an event of stream 7 ── it has happened ──► anyone's
//!                          └ marking fails ─► order 6, unmarked ── the device has been waited for ─┘
//! ```
//!
//! I1: what is of a stream's order may be in use by work that this stream was given before; what is behind an event, by work before that; what is
//! unmarked, by any; what is anyone's, by none. I2: an order is behind an event, unmarked, or a stream's own, and only one of these.

use super::stream_cache::{ANYONE, End, Key, StreamCache};
use crate::driver::{Device, Event};
use foldhash::fast::FixedState;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Whose work may use a free piece or block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Order(pub u64);

impl Order {
    /// Anyone's: no work in flight uses it.
    pub const IDLE: Order = Order(0);
}

pub(super) struct Orders {
    of_stream: HashMap<Key, (Order, Arc<StreamCache>), FixedState>,
    /// By stream: its events happen in the order in which they were recorded.
    behind: BTreeMap<Order, (Key, Event)>,
    /// Of streams whose point could not be marked: anyone's once the device has done all that it was given before.
    unmarked: Vec<Order>,
    next: u64,
}

impl Orders {
    pub fn new() -> Orders {
        Orders {
            of_stream: HashMap::default(),
            behind: BTreeMap::new(),
            unmarked: Vec::new(),
            next: Order::IDLE.0 + 1,
        }
    }

    fn add(&mut self) -> Order {
        self.next += 1;
        Order(self.next - 1)
    }

    /// Whose what is freed on that cache's stream is.
    pub fn of_cache(&mut self, cache: &Arc<StreamCache>) -> Order {
        if cache.key == ANYONE {
            return Order::IDLE;
        }
        if let Some((order, _)) = self.of_stream.get(&cache.key) {
            return *order;
        }
        let order = self.add();
        self.of_stream.insert(cache.key, (order, cache.clone()));
        order
    }

    /// The order of a stream, if something was ever freed on it.
    pub fn of_key(&self, key: Key) -> Option<Order> {
        self.of_stream.get(&key).map(|(order, _)| *order)
    }

    /// Whether at most one stream uses the pool and no memory of another stream is pending.
    pub fn has_one_stream(&self) -> bool {
        self.of_stream.len() <= 1 && self.behind.is_empty() && self.unmarked.is_empty()
    }

    /// Of all streams.
    pub fn of_streams(&self) -> impl Iterator<Item = Order> {
        self.of_stream.values().map(|(order, _)| *order)
    }

    /// Marks the point where a stream is: the order of what it has freed before. `None` if that stays its own, for it is about to end, and
    /// whoever finds it ended comes here again; and of a stream that it does not know.
    pub fn mark(&mut self, key: Key, device: &Device) -> Option<Order> {
        let cache = self.of_stream.get(&key)?.1.clone();
        let event = match cache.stream(device) {
            // It has passed every point.
            Some(stream) if stream.is_idle() => return Some(Order::IDLE),
            Some(stream) => stream.record().ok(),
            None => match cache.end() {
                End::At(event) => Some(Event::new(device.clone(), event)),
                End::NotYet => return None,
                // Its driver has failed.
                End::Unknown => None,
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

    /// Nothing is of that order any more.
    pub fn clear(&mut self, order: Order) {
        self.behind.remove(&order);
        self.unmarked.retain(|other| *other != order);
    }

    /// The orders behind events of one stream.
    pub fn behind(&self, key: Key) -> Vec<Order> {
        let mine = |(order, (of, _)): (&Order, &(Key, Event))| (*of == key).then_some(*order);
        self.behind.iter().filter_map(mine).collect()
    }

    /// Those of which nobody knows where in a stream they are.
    pub fn unmarked(&self) -> impl Iterator<Item = Order> {
        self.unmarked.iter().copied()
    }

    /// The orders whose events have happened, as far as a look at up to `most` streams that are not done tells.
    pub fn passed(&self, most: usize) -> Vec<Order> {
        let (mut done, mut busy) = (Vec::new(), HashSet::new());
        for (order, (key, event)) in &self.behind {
            if busy.contains(key) {
                continue;
            }
            match event.is_done() {
                Ok(true) => done.push(*order),
                _ => drop(busy.insert(*key)),
            }
            if busy.len() == most {
                break;
            }
        }
        done
    }

    /// The orders behind events, the oldest first.
    pub fn pending(&self) -> Vec<(Order, Event)> {
        self.behind.iter().map(|(order, (_, event))| (*order, event.clone())).collect()
    }
}

#[cfg(test)]
impl Orders {
    /// Whether it knows whose the order is.
    pub fn has(&self, order: Order) -> bool {
        let known = self.of_streams().chain(self.unmarked()).chain(self.behind.keys().copied());
        order == Order::IDLE || known.into_iter().any(|other| other == order)
    }

    /// I2.
    pub fn check(&self) {
        let is_own = |order: &Order| self.of_streams().any(|own| own == *order);
        assert!(!self.behind.keys().any(is_own) && !self.unmarked.iter().any(is_own), "I2");
        assert!(!self.unmarked.iter().any(|order| self.behind.contains_key(order)), "I2");
    }
}

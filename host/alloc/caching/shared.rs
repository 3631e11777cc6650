//! What all streams share: the free pieces of the segments, the slabs, and whose they are.
//!
//! ```text
//!   order 0: anyone's    large pieces, small blocks by class
//!   order 3: stream 7's  large pieces, small blocks by class       its cache has overflowed, or was emptied
//!   order 5: behind an event …                                     of a stream; anyone's once the event has happened
//! ```
//!
//! A slab is a piece that was cut into equal blocks. It is a piece again when all of them are here.
//!
//! I1: each block of a slab is live, in one cache, or here once; `here` of the slab counts the last. I2: `whole` counts slabs whose blocks
//! are all here. I3: what is of a stream's order may be in use by work that this stream was given before; what is behind an
//! event, by work before that; what is anyone's, by none.
//!
//! Its lock comes after that of the source and before those of caches, of the map of blocks and of streams' ends. Under it the
//! driver is asked to mark points and to look at them, and streams are made to wait on the device: none of that waits on the host, unless a
//! driver's queue is full.

use super::class::{Classes, Need};
use super::live::{BlockId, Live};
use super::segment::{Arena, Order};
use super::stats::Counts;
use super::stream_cache::{ANYONE, End, Key, StreamCache};
use crate::driver::{Device, Event, Stream};
use crate::error::Result;
use foldhash::fast::FixedState;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Streams whose events are looked at before a first search.
pub(super) const POLLS: usize = 16;
/// Blocks of a slab, and bytes, as long as both allow.
const SLAB_BLOCKS: u64 = 64;
const SLAB_BYTES: u64 = 64 << 10;

pub(super) struct Shared {
    pub arena: Arena,
    classes: Classes,
    slabs: HashMap<u32, Slab, FixedState>,
    whole: usize,
    small: HashMap<Order, Vec<Vec<BlockId>>, FixedState>,
    of_stream: HashMap<Key, (Order, Arc<StreamCache>), FixedState>,
    /// By stream: its events happen in the order in which they were recorded.
    behind: BTreeMap<Order, (Key, Event)>,
    /// Of streams whose point could not be marked: anyone's once the device has done all that it was given before.
    unmarked: Vec<Order>,
    next: u64,
    /// Of the caches of streams that have ended.
    pub retired: Counts,
}

struct Slab {
    blocks: usize,
    here: usize,
}

/// What a request found.
pub(super) struct Found {
    pub id: BlockId,
    /// Small blocks of the same class and order.
    pub more: Vec<BlockId>,
}

impl Shared {
    pub fn new(classes: Classes) -> Shared {
        Shared {
            arena: Arena::default(),
            classes,
            slabs: HashMap::default(),
            whole: 0,
            small: HashMap::default(),
            of_stream: HashMap::default(),
            behind: BTreeMap::new(),
            unmarked: Vec::new(),
            next: Order::IDLE.0 + 1,
            retired: Counts::new(classes),
        }
    }

    fn new_order(&mut self) -> Order {
        self.next += 1;
        Order(self.next - 1)
    }

    /// Whose what is freed on that cache's stream is.
    pub fn order_of(&mut self, cache: &Arc<StreamCache>) -> Order {
        if cache.key == ANYONE {
            return Order::IDLE;
        }
        if let Some((order, _)) = self.of_stream.get(&cache.key) {
            return *order;
        }
        let order = self.new_order();
        self.of_stream.insert(cache.key, (order, cache.clone()));
        order
    }

    /// Takes blocks that nobody has.
    pub fn accept(&mut self, blocks: Vec<BlockId>, order: Order, live: &Live) {
        for id in blocks {
            let slot = live.slot(id);
            match slot.class().filter(|_| slot.is_small()) {
                Some(class) => self.accept_small(id, slot.home(), class, order),
                None => {
                    let node = slot.home();
                    live.remove(id);
                    self.arena.give(node, order);
                }
            }
        }
    }

    fn accept_small(&mut self, id: BlockId, home: u32, class: usize, order: Order) {
        self.list(order)[class].push(id);
        if let Some(slab) = self.slabs.get_mut(&home) {
            slab.here += 1;
            self.whole += usize::from(slab.here == slab.blocks);
        }
    }

    fn list(&mut self, order: Order) -> &mut Vec<Vec<BlockId>> {
        let small = self.classes.index(self.classes.slab_limit) + 1;
        self.small.entry(order).or_insert_with(|| vec![Vec::new(); small])
    }

    /// A block of one of these orders; of a small class up to `most` of them.
    pub fn find(&mut self, orders: &[Order], need: Need, most: usize, live: &Live) -> Option<Found> {
        if let (true, Some(class)) = (need.is_small, need.class) {
            return orders.iter().find_map(|order| self.find_small(*order, class, most, live));
        }
        let fits = orders.iter().filter_map(|order| self.arena.fit(*order, need.bytes, need.align));
        let node = fits.min_by_key(|node| self.arena.bytes(*node))?;
        let node = self.arena.cut(node, need.bytes, need.align);
        let id = live.insert(self.arena.start(node), need.bytes, node, (need.class, false));
        Some(Found { id, more: Vec::new() })
    }

    fn find_small(&mut self, order: Order, class: usize, most: usize, live: &Live) -> Option<Found> {
        let list = &mut self.small.get_mut(&order)?[class];
        let mut more = list.split_off(list.len().saturating_sub(most.max(1)));
        for id in &more {
            if let Some(slab) = self.slabs.get_mut(&live.slot(*id).home()) {
                self.whole -= usize::from(slab.here == slab.blocks);
                slab.here -= 1;
            }
        }
        let id = more.pop()?;
        Some(Found { id, more })
    }

    /// Cuts a slab for a class out of a piece of these orders. With `any_size`, one that is as large as there is room for.
    pub fn add_slab(&mut self, orders: &[Order], class: usize, any_size: bool, live: &Live) -> bool {
        let (bytes, align) = (self.classes.bytes(class), self.classes.align(class));
        let mut blocks = slab_blocks(bytes);
        loop {
            let fit =
                |order: &Order| self.arena.fit(*order, blocks * bytes, align).map(|node| (node, *order));
            if let Some((node, order)) = orders.iter().find_map(fit) {
                self.cut_slab(node, order, class, blocks, live);
                return true;
            }
            if !any_size || blocks == 1 {
                return false;
            }
            blocks /= 2;
        }
    }

    fn cut_slab(&mut self, node: u32, order: Order, class: usize, blocks: u64, live: &Live) {
        let (bytes, align) = (self.classes.bytes(class), self.classes.align(class));
        let node = self.arena.cut(node, blocks * bytes, align);
        let start = self.arena.start(node);
        self.slabs.insert(node, Slab { blocks: blocks as usize, here: 0 });
        // The first block on top.
        for index in (0..blocks).rev() {
            let id = live.insert(start + index * bytes, bytes, node, (Some(class), true));
            self.accept_small(id, node, class, order);
        }
    }

    /// Makes pieces of slabs whose blocks are all here: of those of one order beside anyone's, and with `to` of all, for that order.
    /// Without it, blocks of several orders stay; so they do if one of them is not one that `may`.
    pub fn dissolve(&mut self, may: impl Fn(Order) -> bool, to: Option<Order>, live: &Live) {
        if self.whole == 0 {
            return;
        }
        let mut found: HashMap<u32, HashSet<Order>> = HashMap::new();
        for (order, lists) in &self.small {
            for id in lists.iter().flatten() {
                let home = live.slot(*id).home();
                if self.slabs.get(&home).is_some_and(|slab| slab.here == slab.blocks) {
                    found.entry(home).or_default().insert(*order);
                }
            }
        }
        let target = |orders: &HashSet<Order>| {
            let mut others = orders.iter().filter(|order| **order != Order::IDLE);
            let first = others.next().copied().unwrap_or(Order::IDLE);
            let is_one = others.next().is_none();
            orders.iter().all(|order| may(*order)).then_some(())?;
            if is_one { Some(first) } else { to }
        };
        let going: HashMap<u32, Order> =
            found.iter().filter_map(|(home, orders)| Some((*home, target(orders)?))).collect();
        for list in self.small.values_mut().flatten() {
            list.retain(|id| {
                let goes = going.contains_key(&live.slot(*id).home());
                if goes {
                    live.remove(*id);
                }
                !goes
            });
        }
        for (home, order) in going {
            self.slabs.remove(&home);
            self.whole -= 1;
            self.arena.give(home, order);
        }
    }

    fn is_empty(&self, order: Order) -> bool {
        let small = self.small.get(&order);
        !self.arena.has(order) && small.is_none_or(|lists| lists.iter().all(Vec::is_empty))
    }

    /// What was of one order is of another one.
    pub fn retag(&mut self, from: Order, to: Order) {
        self.arena.retag(from, to);
        if let Some(lists) = self.small.remove(&from) {
            for (list, mut more) in self.list(to).iter_mut().zip(lists) {
                list.append(&mut more);
            }
        }
        self.behind.remove(&from);
    }

    /// Puts what is of a stream's order behind an event, so that others can tell when it is theirs.
    pub fn fence(&mut self, key: Key, device: &Device) {
        let Some((order, cache)) = self.of_stream.get(&key).cloned() else { return };
        if self.is_empty(order) {
            return;
        }
        let event = match cache.stream(device) {
            // It has passed every point.
            Some(stream) if stream.is_idle() => return self.retag(order, Order::IDLE),
            Some(stream) => stream.record().ok(),
            None => match cache.end() {
                End::At(event) => Some(Event::new(device.clone(), event)),
                // It is about to end: whoever finds it ended comes here again.
                End::NotYet => return,
                // Its driver has failed.
                End::Unknown => None,
            },
        };
        let behind = self.new_order();
        self.retag(order, behind);
        match event {
            Some(event) => drop(self.behind.insert(behind, (key, event))),
            None => self.unmarked.push(behind),
        }
    }

    /// Forgets a stream, whose order has been fenced.
    pub fn forget(&mut self, key: Key) {
        self.of_stream.remove(&key);
    }

    /// What that stream has freed is its own by its order, whatever it was put behind for others.
    pub fn reclaim(&mut self, key: Key, own: Order) {
        let mine = |(order, (of, _)): (&Order, &(Key, Event))| (*of == key).then_some(*order);
        let mine: Vec<Order> = self.behind.iter().filter_map(mine).collect();
        mine.into_iter().for_each(|order| self.retag(order, own));
    }

    /// The orders of which nobody knows where in a stream they are. Of all that were to be fenced, also those of streams that are about to end.
    pub fn unmarked(&self) -> Vec<Order> {
        let ending = self.of_stream.values().map(|(order, _)| *order).filter(|order| !self.is_empty(*order));
        self.unmarked.iter().copied().chain(ending).collect()
    }

    /// What is of that order is anyone's.
    pub fn settle(&mut self, order: Order) {
        self.retag(order, Order::IDLE);
        self.unmarked.retain(|other| *other != order);
    }

    /// Looks which events have happened, of up to `most` streams that are not done: what is behind them is anyone's.
    pub fn poll(&mut self, most: usize) {
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
        done.into_iter().for_each(|order| self.retag(order, Order::IDLE));
    }

    /// The orders behind events, the oldest first.
    pub fn pending(&self) -> Vec<(Order, Event)> {
        self.behind.iter().map(|(order, (_, event))| (*order, event.clone())).collect()
    }

    /// Whether the order could serve a request.
    pub fn serves(&self, order: Order, need: Need) -> bool {
        let blocks = self.small.get(&order).filter(|_| need.is_small);
        let is_there = blocks.zip(need.class).is_some_and(|(lists, class)| !lists[class].is_empty());
        is_there || self.arena.fit(order, need.bytes, need.align).is_some()
    }

    /// Makes `stream` come after everything that is behind events, which is then of its order.
    pub fn follow_all(&mut self, stream: &Stream, own: Order) -> Result<()> {
        for (order, event) in self.pending() {
            stream.wait(&event)?;
            self.retag(order, own);
        }
        Ok(())
    }

    /// Where the block of a piece starts that has the address.
    pub fn block_at(&self, node: u32, address: u64) -> u64 {
        let start = self.arena.start(node);
        let blocks = self.slabs.get(&node).map_or(1, |slab| slab.blocks as u64);
        let bytes = self.arena.bytes(node) / blocks;
        start + (address - start) / bytes * bytes
    }

    /// Bytes of the longest stretch that nobody has, whosever order it is, if `is_live` says which blocks someone has.
    pub fn largest(&self, live: &Live) -> u64 {
        let mut taken: HashSet<u32> = HashSet::new();
        let mut largest = 0;
        for slot in live.all().into_iter().map(|id| live.slot(id)) {
            if slot.is_live() {
                taken.insert(slot.home());
            } else {
                largest = largest.max(slot.bytes());
            }
        }
        for segment in self.arena.segments() {
            let mut run = 0;
            for node in self.arena.pieces(segment) {
                run = if taken.contains(&node) { 0 } else { run + self.arena.bytes(node) };
                largest = largest.max(run);
            }
        }
        largest
    }
}

/// Of a full slab.
fn slab_blocks(bytes: u64) -> u64 {
    (SLAB_BYTES / bytes).max(SLAB_BLOCKS.min((2 << 20) / bytes)).max(1)
}

/// What a request takes of the segments at once.
pub(super) fn room_for(need: Need) -> u64 {
    if need.is_small { need.bytes * slab_blocks(need.bytes) } else { need.bytes }
}

#[cfg(test)]
impl Shared {
    /// I1 and I2.
    pub fn check(&self, live: &Live) {
        let mut here: HashMap<u32, usize> = HashMap::new();
        let mut seen = HashSet::new();
        for id in self.small.values().flatten().flatten() {
            assert!(!live.slot(*id).is_live() && seen.insert(*id), "I1");
            *here.entry(live.slot(*id).home()).or_default() += 1;
        }
        for (node, slab) in &self.slabs {
            assert_eq!(here.remove(node).unwrap_or(0), slab.here, "I1");
            assert!(slab.here <= slab.blocks && self.arena.order(*node).is_none());
        }
        assert!(here.is_empty(), "I1: blocks of no slab");
        assert_eq!(self.slabs.values().filter(|slab| slab.here == slab.blocks).count(), self.whole, "I2");
    }
}

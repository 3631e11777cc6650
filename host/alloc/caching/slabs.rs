//! Slabs: pieces that were cut into equal blocks of a small class, and those of the blocks that nobody has.
//!
//! ```text
//!   piece 12, cut for class 2:   │ live │ here │ cached │ here │ …      here: 2
//!   here    anyone's ─► class 2: { … }      order 3 ─► class 2: { … }, class 4: { … }
//! ```
//!
//! A slab is a piece again when all of its blocks are here.
//!
//! I1: each block of a slab is live, in one cache, or here once; `here` of the slab counts the last. I2: `whole` counts slabs whose blocks
//! are all here.

use super::class::{Classes, Need};
use super::live::{BlockId, Live};
use super::orders::Order;
use foldhash::fast::FixedState;
use std::collections::{HashMap, HashSet};

/// Blocks of a slab, and bytes, as long as both allow.
const SLAB_BLOCKS: u64 = 64;
const SLAB_BYTES: u64 = 64 << 10;

/// Of a full slab.
pub(super) fn slab_blocks(bytes: u64) -> u64 {
    (SLAB_BYTES / bytes).max(SLAB_BLOCKS.min((2 << 20) / bytes)).max(1)
}

/// What a request takes of the segments at once.
pub(super) fn room_for(need: Need) -> u64 {
    if need.is_small { need.bytes * slab_blocks(need.bytes) } else { need.bytes }
}

pub(super) struct Slabs {
    classes: Classes,
    /// By the piece that each was.
    slabs: HashMap<u32, Slab, FixedState>,
    whole: usize,
    /// Blocks that nobody has, by class.
    free: HashMap<Order, Vec<Vec<BlockId>>, FixedState>,
}

struct Slab {
    blocks: usize,
    here: usize,
}

impl Slabs {
    pub fn new(classes: Classes) -> Slabs {
        Slabs { classes, slabs: HashMap::default(), whole: 0, free: HashMap::default() }
    }

    fn list(&mut self, order: Order) -> &mut Vec<Vec<BlockId>> {
        let small = self.classes.first_large();
        self.free.entry(order).or_insert_with(|| vec![Vec::new(); small])
    }

    /// Takes a block that nobody has, of the slab that `home` was.
    pub fn give(&mut self, id: BlockId, home: u32, class: usize, order: Order) {
        self.list(order)[class].push(id);
        if let Some(slab) = self.slabs.get_mut(&home) {
            slab.here += 1;
            self.whole += usize::from(slab.here == slab.blocks);
        }
    }

    /// Up to `most` blocks of a class, one at least; none if there is none.
    pub fn take(&mut self, order: Order, class: usize, most: usize, live: &Live) -> Vec<BlockId> {
        let Some(lists) = self.free.get_mut(&order) else { return Vec::new() };
        let list = &mut lists[class];
        let taken = list.split_off(list.len().saturating_sub(most.max(1)));
        for id in &taken {
            if let Some(slab) = self.slabs.get_mut(&live.slot(*id).home()) {
                self.whole -= usize::from(slab.here == slab.blocks);
                slab.here -= 1;
            }
        }
        taken
    }

    /// Cuts a piece that starts at `start` into so many blocks of a class.
    pub fn add(&mut self, (node, start): (u32, u64), blocks: u64, class: usize, order: Order, live: &Live) {
        let bytes = self.classes.bytes(class);
        self.slabs.insert(node, Slab { blocks: blocks as usize, here: 0 });
        // The first block on top.
        for index in (0..blocks).rev() {
            let id = live.insert(start + index * bytes, bytes, node, (Some(class), true));
            self.give(id, node, class, order);
        }
    }

    /// Whether no block is here.
    pub fn is_out(&self) -> bool {
        self.free.values().flatten().all(Vec::is_empty)
    }

    pub fn has(&self, order: Order) -> bool {
        self.free.get(&order).is_some_and(|lists| lists.iter().any(|list| !list.is_empty()))
    }

    pub fn has_class(&self, order: Order, class: usize) -> bool {
        self.free.get(&order).is_some_and(|lists| !lists[class].is_empty())
    }

    /// What was of one order is of another one.
    pub fn retag(&mut self, from: Order, to: Order) {
        if let Some(lists) = self.free.remove(&from) {
            for (list, mut more) in self.list(to).iter_mut().zip(lists) {
                list.append(&mut more);
            }
        }
    }

    /// Forgets slabs whose blocks are all here, of orders that [`Shared::dissolve`](super::shared::Shared::dissolve) says: the pieces that they were, and
    /// whose these are.
    #[must_use = "the pieces are nobody's until they are given to the segments"]
    pub fn dissolve(
        &mut self,
        may: impl Fn(Order) -> bool,
        to: Option<Order>,
        live: &Live,
    ) -> HashMap<u32, Order> {
        if self.whole == 0 {
            return HashMap::new();
        }
        let target = |orders: &HashSet<Order>| {
            let mut others = orders.iter().filter(|order| **order != Order::IDLE);
            let first = others.next().copied().unwrap_or(Order::IDLE);
            let is_one = others.next().is_none();
            orders.iter().all(|order| may(*order)).then_some(())?;
            if is_one { Some(first) } else { to }
        };
        let found = self.orders_of_whole(live);
        let going: HashMap<u32, Order> =
            found.iter().filter_map(|(home, orders)| Some((*home, target(orders)?))).collect();
        for list in self.free.values_mut().flatten() {
            list.retain(|id| {
                let goes = going.contains_key(&live.slot(*id).home());
                if goes {
                    live.remove(*id);
                }
                !goes
            });
        }
        for home in going.keys() {
            self.slabs.remove(home);
            self.whole -= 1;
        }
        going
    }

    /// Slabs whose blocks are all here, and whose these are.
    fn orders_of_whole(&self, live: &Live) -> HashMap<u32, HashSet<Order>> {
        let mut found: HashMap<u32, HashSet<Order>> = HashMap::new();
        for (order, lists) in &self.free {
            for id in lists.iter().flatten() {
                let home = live.slot(*id).home();
                if self.slabs.get(&home).is_some_and(|slab| slab.here == slab.blocks) {
                    found.entry(home).or_default().insert(*order);
                }
            }
        }
        found
    }
}

#[cfg(test)]
impl Slabs {
    /// Those that have blocks.
    pub fn orders(&self) -> impl Iterator<Item = Order> {
        self.free.keys().copied().filter(|order| self.has(*order))
    }

    /// I1 and I2.
    pub fn check(&self, live: &Live, is_out: impl Fn(u32) -> bool) {
        let mut here: HashMap<u32, usize> = HashMap::new();
        let mut seen = HashSet::new();
        for id in self.free.values().flatten().flatten() {
            assert!(!live.slot(*id).is_live() && seen.insert(*id), "I1");
            *here.entry(live.slot(*id).home()).or_default() += 1;
        }
        for (node, slab) in &self.slabs {
            assert_eq!(here.remove(node).unwrap_or(0), slab.here, "I1");
            assert!(slab.here <= slab.blocks && is_out(*node));
        }
        assert!(here.is_empty(), "I1: blocks of no slab");
        assert_eq!(self.slabs.values().filter(|slab| slab.here == slab.blocks).count(), self.whole, "I2");
    }
}

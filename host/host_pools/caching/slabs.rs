//! Slabs: pieces that are cut into equal blocks of a small class, and the free blocks among them.
//!
//! ```text
//! piece 12, cut for class 2:   │ live │ here │ cached │ here │ …      here: 2
//! here    idle ─► class 2: { … }      order 3 ─► class 2: { … }, class 4: { … }
//! ```
//!
//! A block is *here* if it is free and in no cache. A slab can become a piece again when all of its
//! blocks are here.
//!
//! I1: each block of a slab is live, in one cache, or here once; `here` of the slab counts the
//! blocks that are here. I2: `whole` counts the fully free slabs.

use super::block_table::{BlockId, BlockTable};
use super::class::{Classes, Need};
use super::order_table::OrderTag;
use foldhash::fast::FixedState;
use std::collections::{HashMap, HashSet};

/// Limits on blocks and on bytes of a slab; both apply.
const SLAB_BLOCKS: u64 = 64;
const SLAB_BYTES: u64 = 64 << 10;

/// Number of blocks of a full slab.
pub(super) fn slab_blocks(bytes: u64) -> u64 {
    (SLAB_BYTES / bytes).max(SLAB_BLOCKS.min((2 << 20) / bytes)).max(1)
}

/// Bytes that a request takes from the segments at once.
pub(super) fn room_for(need: Need) -> u64 {
    if need.is_small { need.bytes * slab_blocks(need.bytes) } else { need.bytes }
}

pub(super) struct Slabs {
    classes: Classes,
    /// Keyed by the piece that the slab was cut from.
    slabs: HashMap<u32, Slab, FixedState>,
    whole: usize,
    /// Free blocks, by order and class.
    free: HashMap<OrderTag, Vec<Vec<BlockId>>, FixedState>,
}

struct Slab {
    blocks: usize,
    here: usize,
}

impl Slabs {
    pub fn new(classes: Classes) -> Slabs {
        Slabs { classes, slabs: HashMap::default(), whole: 0, free: HashMap::default() }
    }

    fn list(&mut self, order: OrderTag) -> &mut Vec<Vec<BlockId>> {
        let small = self.classes.first_large();
        self.free.entry(order).or_insert_with(|| vec![Vec::new(); small])
    }

    /// Adds a free block of the slab that was cut from piece `piece`.
    pub fn give(&mut self, id: BlockId, piece: u32, class: usize, order: OrderTag) {
        self.list(order)[class].push(id);
        if let Some(slab) = self.slabs.get_mut(&piece) {
            slab.here += 1;
            self.whole += usize::from(slab.here == slab.blocks);
        }
    }

    /// Removes up to `most` blocks of a class, at least one. Returns none if the class is empty.
    pub fn take(&mut self, order: OrderTag, class: usize, most: usize, live: &BlockTable) -> Vec<BlockId> {
        let Some(lists) = self.free.get_mut(&order) else { return Vec::new() };
        let list = &mut lists[class];
        let taken = list.split_off(list.len().saturating_sub(most.max(1)));
        for id in &taken {
            if let Some(slab) = self.slabs.get_mut(&live.slot(*id).piece()) {
                self.whole -= usize::from(slab.here == slab.blocks);
                slab.here -= 1;
            }
        }
        taken
    }

    /// Cuts a piece that starts at `start` into `blocks` blocks of a class.
    pub fn add(
        &mut self,
        (node, start): (u32, u64),
        blocks: u64,
        class: usize,
        order: OrderTag,
        live: &BlockTable,
    ) {
        let bytes = self.classes.bytes(class);
        self.slabs.insert(node, Slab { blocks: blocks as usize, here: 0 });
        // The first block ends up on top.
        for index in (0..blocks).rev() {
            let id = live.insert(start + index * bytes, bytes, node, (Some(class), true));
            self.give(id, node, class, order);
        }
    }

    /// Whether no block is here.
    pub fn is_out(&self) -> bool {
        self.free.values().flatten().all(Vec::is_empty)
    }

    pub fn has(&self, order: OrderTag) -> bool {
        self.free.get(&order).is_some_and(|lists| lists.iter().any(|list| !list.is_empty()))
    }

    pub fn has_class(&self, order: OrderTag, class: usize) -> bool {
        self.free.get(&order).is_some_and(|lists| !lists[class].is_empty())
    }

    /// Changes the order of all free blocks of `from` to `to`.
    pub fn retag(&mut self, from: OrderTag, to: OrderTag) {
        if let Some(lists) = self.free.remove(&from) {
            for (list, mut more) in self.list(to).iter_mut().zip(lists) {
                list.append(&mut more);
            }
        }
    }

    /// Forgets the fully free slabs whose orders
    /// [`Shared::dissolve`](super::shared::Shared::dissolve) accepts. Returns their pieces and the
    /// order of each.
    #[must_use = "the pieces are nobody's until they are given to the segments"]
    pub fn dissolve(
        &mut self,
        may: impl Fn(OrderTag) -> bool,
        to: Option<OrderTag>,
        live: &BlockTable,
    ) -> HashMap<u32, OrderTag> {
        if self.whole == 0 {
            return HashMap::new();
        }
        let target = |orders: &HashSet<OrderTag>| {
            let mut others = orders.iter().filter(|order| **order != OrderTag::IDLE);
            let first = others.next().copied().unwrap_or(OrderTag::IDLE);
            let is_one = others.next().is_none();
            orders.iter().all(|order| may(*order)).then_some(())?;
            if is_one { Some(first) } else { to }
        };
        let found = self.orders_of_whole(live);
        let going: HashMap<u32, OrderTag> =
            found.iter().filter_map(|(piece, orders)| Some((*piece, target(orders)?))).collect();
        for list in self.free.values_mut().flatten() {
            list.retain(|id| {
                let goes = going.contains_key(&live.slot(*id).piece());
                if goes {
                    live.remove(*id);
                }
                !goes
            });
        }
        for piece in going.keys() {
            self.slabs.remove(piece);
            self.whole -= 1;
        }
        going
    }

    /// Fully free slabs, and the orders of their blocks.
    fn orders_of_whole(&self, live: &BlockTable) -> HashMap<u32, HashSet<OrderTag>> {
        let mut found: HashMap<u32, HashSet<OrderTag>> = HashMap::new();
        for (order, lists) in &self.free {
            for id in lists.iter().flatten() {
                let piece = live.slot(*id).piece();
                if self.slabs.get(&piece).is_some_and(|slab| slab.here == slab.blocks) {
                    found.entry(piece).or_default().insert(*order);
                }
            }
        }
        found
    }
}

#[cfg(test)]
impl Slabs {
    /// The orders that have blocks.
    pub fn orders(&self) -> impl Iterator<Item = OrderTag> {
        self.free.keys().copied().filter(|order| self.has(*order))
    }

    /// I1 and I2.
    pub fn check(&self, live: &BlockTable, is_out: impl Fn(u32) -> bool) {
        let mut here: HashMap<u32, usize> = HashMap::new();
        let mut seen = HashSet::new();
        for id in self.free.values().flatten().flatten() {
            assert!(!live.slot(*id).is_live() && seen.insert(*id), "I1");
            *here.entry(live.slot(*id).piece()).or_default() += 1;
        }
        for (node, slab) in &self.slabs {
            assert_eq!(here.remove(node).unwrap_or(0), slab.here, "I1");
            assert!(slab.here <= slab.blocks && is_out(*node));
        }
        assert!(here.is_empty(), "I1: blocks of no slab");
        assert_eq!(self.slabs.values().filter(|slab| slab.here == slab.blocks).count(), self.whole, "I2");
    }
}

//! Slabs: pieces that are cut into equal blocks of a small class, and the free blocks among them.
//!
//! ```text
//! piece 12, cut for class 2:   │ live │ free │ cached │ free │ …      free_blocks: 2
//! free    idle ─► class 2: { … }      order 3 ─► class 2: { … }, class 4: { … }
//! ```
//!
//! A block is *free* here if no stream's cache holds it. A slab can become a piece again when all
//! of its blocks are free.
//!
//! I1: each block of a slab is live, in one cache, or free once; `free_blocks` of the slab counts
//! the free ones. I2: `fully_free` counts the fully free slabs.

use super::arena::OrderTag;
use super::blocks::{BlockId, BlockInfo, SHARED};
use super::class::Need;
use super::context::Context;
use foldhash::fast::FixedState;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Limits on blocks and on bytes of a slab; both apply.
const SLAB_BLOCKS: u64 = 64;
const SLAB_BYTES: u64 = 64 << 10;

/// Number of blocks of a full slab.
pub(super) fn slab_blocks(bytes: u64) -> u64 {
    (SLAB_BYTES / bytes).max(SLAB_BLOCKS.min((2 << 20) / bytes)).max(1)
}

/// Bytes that a request takes from the segments at once.
pub(super) fn refill_bytes(need: Need) -> u64 {
    if need.is_small { need.bytes * slab_blocks(need.bytes) } else { need.bytes }
}

pub(super) struct Slabs {
    context: Arc<Context>,
    /// Keyed by the piece that the slab was cut from.
    slabs: HashMap<u32, Slab, FixedState>,
    fully_free: usize,
    /// Free blocks, by order and class.
    free: HashMap<OrderTag, Vec<Vec<BlockId>>, FixedState>,
}

struct Slab {
    blocks: usize,
    free_blocks: usize,
}

impl Slabs {
    pub fn new(context: Arc<Context>) -> Slabs {
        Slabs { context, slabs: HashMap::default(), fully_free: 0, free: HashMap::default() }
    }

    fn list(&mut self, order: OrderTag) -> &mut Vec<Vec<BlockId>> {
        let small = self.context.settings.classes.first_large();
        self.free.entry(order).or_insert_with(|| vec![Vec::new(); small])
    }

    /// Adds a free block of the slab that was cut from piece `piece`.
    pub fn free(&mut self, id: BlockId, piece: u32, class: usize, order: OrderTag) {
        self.list(order)[class].push(id);
        if let Some(slab) = self.slabs.get_mut(&piece) {
            slab.free_blocks += 1;
            self.fully_free += usize::from(slab.free_blocks == slab.blocks);
        }
    }

    /// Removes up to `max` blocks of a class, at least one. Returns none if the class is empty.
    pub fn alloc(&mut self, order: OrderTag, class: usize, max: usize) -> Vec<BlockId> {
        let Some(lists) = self.free.get_mut(&order) else { return Vec::new() };
        let list = &mut lists[class];
        let taken = list.split_off(list.len().saturating_sub(max.max(1)));
        for id in &taken {
            if let Some(slab) = self.slabs.get_mut(&self.context.blocks.slot(*id).piece()) {
                self.fully_free -= usize::from(slab.free_blocks == slab.blocks);
                slab.free_blocks -= 1;
            }
        }
        taken
    }

    /// Cuts a piece that starts at `start` into `blocks` blocks of a class.
    pub fn add(&mut self, (node, start): (u32, u64), blocks: u64, class: usize, order: OrderTag) {
        let bytes = self.context.settings.classes.bytes(class);
        self.slabs.insert(node, Slab { blocks: blocks as usize, free_blocks: 0 });
        // The first block ends up on top.
        for index in (0..blocks).rev() {
            let address = start + index * bytes;
            let (owner, piece) = (SHARED, node);
            let info = BlockInfo { address, bytes, owner, piece, class: Some(class), is_small: true };
            let id = self.context.blocks.insert(info);
            self.free(id, node, class, order);
        }
    }

    /// Whether no block is free.
    pub fn is_exhausted(&self) -> bool {
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
    #[must_use = "the pieces stay used until they are freed"]
    pub fn dissolve(
        &mut self,
        accepts: impl Fn(OrderTag) -> bool,
        to: Option<OrderTag>,
    ) -> HashMap<u32, OrderTag> {
        if self.fully_free == 0 {
            return HashMap::new();
        }
        let target = |orders: &HashSet<OrderTag>| {
            let mut others = orders.iter().filter(|order| **order != OrderTag::IDLE);
            let first = others.next().copied().unwrap_or(OrderTag::IDLE);
            let is_one = others.next().is_none();
            orders.iter().all(|order| accepts(*order)).then_some(())?;
            if is_one { Some(first) } else { to }
        };
        let found = self.orders_of_fully_free();
        let dissolved: HashMap<u32, OrderTag> =
            found.iter().filter_map(|(piece, orders)| Some((*piece, target(orders)?))).collect();
        let blocks = &self.context.blocks;
        for list in self.free.values_mut().flatten() {
            list.retain(|id| {
                let dissolves = dissolved.contains_key(&blocks.slot(*id).piece());
                if dissolves {
                    blocks.remove(*id);
                }
                !dissolves
            });
        }
        for piece in dissolved.keys() {
            self.slabs.remove(piece);
            self.fully_free -= 1;
        }
        dissolved
    }

    /// Fully free slabs, and the orders of their blocks.
    fn orders_of_fully_free(&self) -> HashMap<u32, HashSet<OrderTag>> {
        let mut found: HashMap<u32, HashSet<OrderTag>> = HashMap::new();
        for (order, lists) in &self.free {
            for id in lists.iter().flatten() {
                let piece = self.context.blocks.slot(*id).piece();
                if self.slabs.get(&piece).is_some_and(|slab| slab.free_blocks == slab.blocks) {
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
    pub fn check(&self, is_used: impl Fn(u32) -> bool) {
        let slot = |id: &BlockId| self.context.blocks.slot(*id);
        let mut free: HashMap<u32, usize> = HashMap::new();
        let mut seen = HashSet::new();
        for id in self.free.values().flatten().flatten() {
            assert!(!slot(id).is_live() && seen.insert(*id), "I1");
            *free.entry(slot(id).piece()).or_default() += 1;
        }
        for (node, slab) in &self.slabs {
            assert_eq!(free.remove(node).unwrap_or(0), slab.free_blocks, "I1");
            assert!(slab.free_blocks <= slab.blocks && is_used(*node));
        }
        assert!(free.is_empty(), "I1: blocks of no slab");
        assert_eq!(
            self.slabs.values().filter(|slab| slab.free_blocks == slab.blocks).count(),
            self.fully_free,
            "I2"
        );
    }
}

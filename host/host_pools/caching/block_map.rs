//! The blocks that were cut, by address, and which of them are live.
//!
//! ```text
//!   address ─ shard of a map ─► number ─► slot { address, bytes, piece, requested }
//! ```
//!
//! A block has a slot from when it is cut out of a segment until it is merged again, both while it
//! is live and while it is cached. So an allocation from a cache writes one word, and a free reads
//! the map and writes one word.
//!
//! I1: the map contains exactly the addresses of the slots in use. [`Slot`] has the invariants of a
//! slot.

use super::slot::{BlockInfo, ClaimError, Slot};
use crate::lock::{lock, read, write};
use foldhash::fast::FixedState;
use std::alloc::Layout;
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, RwLock};

/// Number of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::host_pools) struct BlockId(u32);

/// A live block as it was allocated: its number, and the value of `requested` while it is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub id: BlockId,
    requested: usize,
}

/// Slots in the first chunk; each following chunk has twice as many.
const FIRST: u32 = 1024;
const CHUNKS: usize = 22;
const SHARDS: usize = 64;

#[derive(Default)]
#[repr(align(128))]
struct Shard(RwLock<HashMap<u64, BlockId, FixedState>>);

pub(super) struct BlockMap {
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    shards: [Shard; SHARDS],
    numbers: Mutex<Numbers>,
}

#[derive(Default)]
struct Numbers {
    unused: Vec<BlockId>,
    next: u32,
}

impl BlockMap {
    pub fn new() -> BlockMap {
        BlockMap {
            chunks: [const { OnceLock::new() }; CHUNKS],
            shards: [(); SHARDS].map(|()| Shard::default()),
            numbers: Mutex::default(),
        }
    }

    #[inline]
    pub fn slot(&self, BlockId(number): BlockId) -> &Slot {
        let place = number as u64 + u64::from(FIRST);
        let chunk = place.ilog2() - FIRST.ilog2();
        let inside = place - (u64::from(FIRST) << chunk);
        let chunk = self.chunks[chunk as usize].get();
        &chunk.expect("the chunk exists before its numbers are used")[inside as usize]
    }

    #[inline]
    fn shard(&self, address: u64) -> &RwLock<HashMap<u64, BlockId, FixedState>> {
        // Neighbours of any size are in different shards.
        let mixed = (address >> 9).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58;
        &self.shards[mixed as usize].0
    }

    /// Adds a block, which is not live yet.
    pub fn insert(&self, block: BlockInfo) -> BlockId {
        let id = self.new_number(&mut lock(&self.numbers));
        self.insert_as(id, block);
        id
    }

    /// Adds a block with a number from [`take_numbers`](Self::take_numbers).
    pub fn insert_as(&self, id: BlockId, block: BlockInfo) {
        self.slot(id).fill(block);
        write(self.shard(block.address)).insert(block.address, id);
    }

    /// Removes a block that the caller owns, and returns its number to the unused ones.
    pub fn remove(&self, id: BlockId) {
        self.remove_keeping_number(id);
        lock(&self.numbers).unused.push(id);
    }

    /// Removes a block. The caller keeps the number.
    pub fn remove_keeping_number(&self, id: BlockId) {
        let slot = self.slot(id);
        let address = slot.address();
        let mut shard = write(self.shard(address));
        shard.remove(&address);
        // Under the lock: a thread that gets this address later must not find it under the old
        // number.
        slot.clear();
    }

    /// Takes `count` block numbers, for [`insert_as`](Self::insert_as).
    pub fn take_numbers(&self, count: usize) -> Vec<BlockId> {
        let mut numbers = lock(&self.numbers);
        (0..count).map(|_| self.new_number(&mut numbers)).collect()
    }

    /// Returns unused block numbers.
    pub fn return_numbers(&self, ids: impl IntoIterator<Item = BlockId>) {
        lock(&self.numbers).unused.extend(ids);
    }

    fn new_number(&self, numbers: &mut Numbers) -> BlockId {
        if let Some(id) = numbers.unused.pop() {
            return id;
        }
        let id = numbers.next;
        let place = u64::from(id) + u64::from(FIRST);
        if place.is_power_of_two() {
            let chunk = (place.ilog2() - FIRST.ilog2()) as usize;
            self.chunks[chunk].get_or_init(|| (0..place).map(|_| Slot::default()).collect());
        }
        numbers.next += 1;
        BlockId(id)
    }

    /// Makes a block live that the caller owns.
    #[inline]
    pub fn set_live(&self, id: BlockId, layout: Layout) -> Claim {
        Claim { id, requested: self.slot(id).set_live(layout) }
    }

    /// Claims a live block, if `layout` is the one it was allocated with.
    #[inline]
    pub fn claim(&self, address: u64, layout: Layout) -> Result<BlockId, ClaimError> {
        // Under the lock, so that the slot cannot pass to another block in between (I1).
        let shard = read(self.shard(address));
        let id = *shard.get(&address).ok_or(ClaimError::Unknown)?;
        self.slot(id).claim(layout).map(|()| id)
    }

    /// Claims a block by its remembered claim, without the map, and returns its slot. `None` gives
    /// no reason: [`claim`](Self::claim) determines it.
    #[inline]
    pub fn claim_known(&self, Claim { id, requested }: Claim, address: u64, layout: Layout) -> Option<&Slot> {
        Some(self.slot(id)).filter(|slot| slot.claim_known(requested, address, layout))
    }

    /// The layout of the live block that starts at `address`.
    pub fn layout_at(&self, address: u64) -> Option<Layout> {
        let shard = read(self.shard(address));
        self.slot(*shard.get(&address)?).layout()
    }

    /// The slots in use.
    pub fn slots(&self) -> Vec<&Slot> {
        let ids = self.shards.iter().flat_map(|shard| read(&shard.0).values().copied().collect::<Vec<_>>());
        ids.map(|id| self.slot(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::slot::SHARED;
    use super::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 256).unwrap()
    }

    fn block(address: u64) -> BlockInfo {
        BlockInfo { address, bytes: 512, owner: SHARED, piece: 7, class: Some(0), is_small: true }
    }

    #[test]
    fn a_block_is_claimed_once_and_only_with_its_layout() {
        let live = BlockMap::new();
        let id = live.insert(block(4096));
        assert_eq!(live.claim(4096, layout(300)), Err(ClaimError::Free));
        let first = live.set_live(id, layout(300));
        assert_eq!(live.claim(4097, layout(300)), Err(ClaimError::Unknown));
        for other in [layout(301), Layout::from_size_align(300, 8).unwrap()] {
            assert_eq!(live.claim(4096, other), Err(ClaimError::Layout(layout(300))));
        }
        assert!(live.claim_known(first, 4096, layout(301)).is_none());
        let slot = live.claim_known(first, 4096, layout(300));
        assert!(slot.is_some_and(|slot| std::ptr::eq(slot, live.slot(id))));
        assert!(live.claim_known(first, 4096, layout(300)).is_none());
        live.set_live(id, layout(300));
        assert_eq!(live.claim(4096, layout(300)), Ok(id));
        assert_eq!(live.claim(4096, layout(300)), Err(ClaimError::Free));
        live.remove(id);
        assert_eq!(live.claim(4096, layout(300)), Err(ClaimError::Unknown));
        assert_ne!(live.slot(id).address(), 4096, "an unused slot has no address");
    }

    /// A claim on a removed block does not claim the block that reuses its number.
    #[test]
    fn a_stale_claim_fails() {
        let live = BlockMap::new();
        let id = live.insert(block(4096));
        let old = live.set_live(id, layout(300));
        assert_eq!(live.claim(4096, layout(300)), Ok(id));
        live.remove(id);
        let mut wrapped = 0;
        // At the same address the generation differs until it wraps around; by then the address
        // differs.
        for address in (0..2000_u64).map(|n| if n < 100 { 4096 } else { 8192 + 512 * n }) {
            assert_eq!(live.insert(block(address)), id);
            let new = live.set_live(id, layout(300));
            wrapped += usize::from(new == old);
            assert!(live.claim_known(old, 4096, layout(300)).is_none() && live.slot(id).is_live());
            assert!(live.claim_known(new, address, layout(300)).is_some());
            live.remove(id);
        }
        assert!(wrapped > 0);
    }

    #[test]
    fn numbers_are_reused_and_continue_over_chunks() {
        let live = BlockMap::new();
        let large = |n: u64| BlockInfo { piece: n as u32, class: None, is_small: false, ..block(n * 512) };
        let all: Vec<_> = (0..5000).map(|n| live.insert(large(n))).collect();
        for (n, id) in (0..).zip(&all) {
            let slot = live.slot(*id);
            assert_eq!((slot.address(), slot.piece(), slot.class()), (n * 512, n as u32, None));
        }
        assert_eq!(live.slots().len(), 5000);
        live.remove(all[17]);
        assert_eq!(live.insert(BlockInfo { class: Some(3), ..block(1 << 40) }), all[17]);
        let slot = live.slot(all[17]);
        assert_eq!((slot.class(), slot.is_small()), (Some(3), true));
        assert!(!live.slot(all[18]).is_small());
    }
}

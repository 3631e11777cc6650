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

use crate::lock::{lock, read, write};
use foldhash::fast::FixedState;
use std::alloc::Layout;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
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

    /// Claims a block by its remembered claim, without the map. `false` gives no reason:
    /// [`claim`](Self::claim) determines it.
    #[inline]
    pub fn claim_known(&self, Claim { id, requested }: Claim, address: u64, layout: Layout) -> bool {
        self.slot(id).claim_known(requested, address, layout)
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

/// In place of an address: an unused slot.
const NO_ADDRESS: usize = usize::MAX;
/// In place of an owner: the piece is in the shared segments.
pub(super) const SHARED: u32 = 0;
/// The bits of a layout: sizes up to 2^48 and an alignment.
const LAYOUT: usize = (1 << 55) - 1;
/// In place of a class: above all classes.
const HUGE: usize = usize::MAX - 1;

/// A block: address, size, piece, class, and the layout while it is live.
///
/// One cache line each: avoids false sharing between threads that use neighbouring slots.
///
/// I1: `requested` holds a layout only while the block is live. I2: the thread that removes the
/// layout owns the block exclusively; only the owner of a block stores a layout. Each use of a slot
/// for another block has another generation in `requested`, so that a stale number claims nothing.
/// I3: the other words are written before the block map contains the address, and not while it
/// does.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Slot {
    address: AtomicUsize,
    bytes: AtomicUsize,
    /// The piece that the block is, or is part of. Bits 32 and up: the owner of the extent that
    /// contains it ([`SHARED`] if none).
    piece: AtomicUsize,
    /// Twice the class, plus 1 for a small block; [`HUGE`] above all classes.
    class: AtomicUsize,
    /// The layout while the block is live, and the generation: the number of uses of this slot,
    /// modulo a power of two.
    requested: AtomicUsize,
}

/// What a slot records of its block.
#[derive(Clone, Copy)]
pub(super) struct BlockInfo {
    pub address: u64,
    pub bytes: u64,
    pub owner: u32,
    pub piece: u32,
    pub class: Option<usize>,
    /// Whether it is a block of a slab.
    pub is_small: bool,
}

/// Why a block cannot be claimed.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::host_pools) enum ClaimError {
    /// No block starts there.
    Unknown,
    /// The block is not live.
    Free,
    /// The block was allocated with this layout.
    Layout(Layout),
}

/// ordering: relaxed is enough for every word of a slot. A thread that reads a slot got the block's
/// number under a lock, or its address from the thread that allocated it, in both cases after the
/// slot was written (I3). `requested` publishes no other data: a stale number claims nothing,
/// because its generation differs.
impl Slot {
    #[inline]
    pub fn address(&self) -> u64 {
        self.address.load(Relaxed) as u64
    }

    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed) as u64
    }

    #[inline]
    pub fn piece(&self) -> u32 {
        self.piece.load(Relaxed) as u32
    }

    /// The cache whose extent contains the piece.
    #[inline]
    pub fn owner(&self) -> u32 {
        (self.piece.load(Relaxed) >> 32) as u32
    }

    #[inline]
    pub fn class(&self) -> Option<usize> {
        let class = self.class.load(Relaxed);
        (class != HUGE).then_some(class >> 1)
    }

    /// Whether it is a block of a slab.
    #[inline]
    pub fn is_small(&self) -> bool {
        self.class.load(Relaxed) & 1 == 1
    }

    #[inline]
    pub fn is_live(&self) -> bool {
        self.requested.load(Relaxed) & LAYOUT != 0
    }

    /// The layout of a live block.
    pub fn layout(&self) -> Option<Layout> {
        let requested = self.requested.load(Relaxed);
        (requested & LAYOUT != 0).then(|| unpack(requested))
    }

    #[inline]
    fn generation(&self) -> usize {
        self.requested.load(Relaxed) & !LAYOUT
    }

    /// Records a block, which is not live yet, in an unused slot. Starts another generation.
    pub fn fill(&self, block: BlockInfo) {
        debug_assert!(!self.is_live());
        self.address.store(block.address as usize, Relaxed);
        self.bytes.store(block.bytes as usize, Relaxed);
        self.piece.store((block.owner as usize) << 32 | block.piece as usize, Relaxed);
        let class = block.class.map_or(HUGE, |class| class << 1 | usize::from(block.is_small));
        self.class.store(class, Relaxed);
        self.requested.store(self.generation().wrapping_add(LAYOUT + 1), Relaxed);
    }

    /// Removes the address. The slot is unused from now on.
    pub fn clear(&self) {
        self.address.store(NO_ADDRESS, Relaxed);
    }

    /// Makes the block live, which the caller owns (I2). Returns the value of `requested`.
    #[inline]
    pub fn set_live(&self, layout: Layout) -> usize {
        let requested = self.generation() | pack(layout);
        self.requested.store(requested, Relaxed);
        requested
    }

    /// Claims the block, if it is live with `layout`. The caller knows that the slot is in use.
    #[inline]
    pub fn claim(&self, layout: Layout) -> Result<(), ClaimError> {
        let generation = self.generation();
        match self.requested.compare_exchange(generation | pack(layout), generation, Relaxed, Relaxed) {
            Ok(_) => Ok(()),
            Err(other) if other & LAYOUT == 0 => Err(ClaimError::Free),
            Err(other) => Err(ClaimError::Layout(unpack(other))),
        }
    }

    /// Claims the block at `address`, if it is live with `layout` and `requested` is the value of
    /// `requested` since its allocation.
    #[inline]
    pub fn claim_known(&self, requested: usize, address: u64, layout: Layout) -> bool {
        let free = requested & !LAYOUT;
        // Generations wrap around. A reused slot belongs to a block at another address, and an
        // unused slot has no address: it is cleared before another slot can get the address. So if
        // the address matches, it is this block, which its owner holds until the exchange.
        let is_it = requested == free | pack(layout) && self.address() == address;
        is_it && self.requested.compare_exchange(requested, free, Relaxed, Relaxed).is_ok()
    }
}

#[inline]
const fn pack(layout: Layout) -> usize {
    layout.size() << 6 | layout.align().trailing_zeros() as usize
}

fn unpack(requested: usize) -> Layout {
    let requested = requested & LAYOUT;
    Layout::from_size_align(requested >> 6, 1 << (requested & 63)).expect("a layout that `pack` packed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 256).unwrap()
    }

    fn block(address: u64) -> BlockInfo {
        BlockInfo { address, bytes: 512, owner: SHARED, piece: 7, class: Some(0), is_small: true }
    }

    #[test]
    fn a_block_is_claimed_once_and_only_with_its_layout() {
        let blocks = BlockMap::new();
        let id = blocks.insert(block(4096));
        assert_eq!(blocks.claim(4096, layout(300)), Err(ClaimError::Free));
        let first = blocks.set_live(id, layout(300));
        assert_eq!(blocks.claim(4097, layout(300)), Err(ClaimError::Unknown));
        for other in [layout(301), Layout::from_size_align(300, 8).unwrap()] {
            assert_eq!(blocks.claim(4096, other), Err(ClaimError::Layout(layout(300))));
        }
        assert!(!blocks.claim_known(first, 4096, layout(301)));
        assert!(blocks.claim_known(first, 4096, layout(300)));
        assert!(!blocks.claim_known(first, 4096, layout(300)));
        blocks.set_live(id, layout(300));
        assert_eq!(blocks.claim(4096, layout(300)), Ok(id));
        assert_eq!(blocks.claim(4096, layout(300)), Err(ClaimError::Free));
        blocks.remove(id);
        assert_eq!(blocks.claim(4096, layout(300)), Err(ClaimError::Unknown));
        assert_ne!(blocks.slot(id).address(), 4096, "an unused slot has no address");
    }

    /// A claim on a removed block does not claim the block that reuses its number.
    #[test]
    fn a_stale_claim_fails() {
        let blocks = BlockMap::new();
        let id = blocks.insert(block(4096));
        let old = blocks.set_live(id, layout(300));
        assert_eq!(blocks.claim(4096, layout(300)), Ok(id));
        blocks.remove(id);
        let mut wrapped = 0;
        // At the same address the generation differs until it wraps around; by then the address
        // differs.
        for address in (0..2000_u64).map(|n| if n < 100 { 4096 } else { 8192 + 512 * n }) {
            assert_eq!(blocks.insert(block(address)), id);
            let new = blocks.set_live(id, layout(300));
            wrapped += usize::from(new == old);
            assert!(!blocks.claim_known(old, 4096, layout(300)) && blocks.slot(id).is_live());
            assert!(blocks.claim_known(new, address, layout(300)));
            blocks.remove(id);
        }
        assert!(wrapped > 0);
    }

    #[test]
    fn numbers_are_reused_and_continue_over_chunks() {
        let blocks = BlockMap::new();
        let large = |n: u64| BlockInfo { piece: n as u32, class: None, is_small: false, ..block(n * 512) };
        let all: Vec<_> = (0..5000).map(|n| blocks.insert(large(n))).collect();
        for (n, id) in (0..).zip(&all) {
            let slot = blocks.slot(*id);
            assert_eq!((slot.address(), slot.piece(), slot.class()), (n * 512, n as u32, None));
        }
        assert_eq!(blocks.slots().len(), 5000);
        blocks.remove(all[17]);
        assert_eq!(blocks.insert(BlockInfo { class: Some(3), ..block(1 << 40) }), all[17]);
        let slot = blocks.slot(all[17]);
        assert_eq!((slot.class(), slot.is_small()), (Some(3), true));
        assert!(!blocks.slot(all[18]).is_small());
    }
}

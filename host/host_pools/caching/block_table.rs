//! The blocks that were cut, and which of them are live.
//!
//! ```text
//!   address ── shard of a map ──► number ──► slot { address, bytes, piece, asked }
//! ```
//!
//! A block has a slot from when it is cut out of a segment until it is merged again, both while it
//! is live and while it is cached. So an allocation from a cache writes one word, and a free reads
//! the map and writes one word.
//!
//! I1: the map contains exactly the addresses of the slots in use. I2: `asked` holds a layout only
//! while the block is live. I3: the thread that removes the layout owns the block exclusively; only
//! the owner of a block stores a layout. A number that is reused for another block has another
//! generation in `asked`, so that a stale number claims nothing. I4: `address`, `bytes` and `piece`
//! are written before the map contains the address, and not while it does.

use super::super::lock;
use foldhash::fast::FixedState;
use std::alloc::Layout;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

/// Number of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::host_pools) struct BlockId(u32);

/// One cache line each: avoids false sharing between threads that use neighbouring slots.
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
    asked: AtomicUsize,
}

/// A live block as it was allocated: its number, and the value of `asked` while it is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub id: BlockId,
    asked: usize,
}

/// In place of an address: an unused block number.
const NOWHERE: usize = usize::MAX;
/// In place of an owner: the piece is in the shared segments.
pub(super) const SHARED: u32 = 0;
/// The bits of a layout: sizes up to 2^48 and an alignment.
const LAYOUT: usize = (1 << 55) - 1;
const HUGE: usize = usize::MAX - 1;

/// ordering: relaxed is enough for every word of a slot. A thread that reads a slot got the block's
/// number under a lock, or its address from the thread that allocated it, in both cases after the
/// slot was written (I4). `asked` publishes no other data: a stale number claims nothing, because
/// its generation differs.
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
        self.asked.load(Relaxed) & LAYOUT != 0
    }

    /// The generation of the number.
    #[inline]
    fn generation(&self) -> usize {
        self.asked.load(Relaxed) & !LAYOUT
    }
}

#[inline]
const fn pack(layout: Layout) -> usize {
    layout.size() << 6 | layout.align().trailing_zeros() as usize
}

fn unpack(asked: usize) -> Layout {
    let asked = asked & LAYOUT;
    Layout::from_size_align(asked >> 6, 1 << (asked & 63)).unwrap_or(Layout::new::<u8>())
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

/// Slots in the first chunk; each following chunk has twice as many.
const FIRST: u32 = 1024;
const CHUNKS: usize = 22;
const SHARDS: usize = 64;

#[derive(Default)]
#[repr(align(128))]
struct Shard(RwLock<HashMap<u64, BlockId, FixedState>>);

pub(super) struct BlockTable {
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    shards: [Shard; SHARDS],
    numbers: Mutex<Numbers>,
}

#[derive(Default)]
struct Numbers {
    unused: Vec<BlockId>,
    next: u32,
}

impl BlockTable {
    pub fn new() -> BlockTable {
        BlockTable {
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
        &chunk.expect("a number is given out with its chunk")[inside as usize]
    }

    #[inline]
    fn shard(&self, address: u64) -> &RwLock<HashMap<u64, BlockId, FixedState>> {
        // Neighbours of any size are in different shards.
        let mixed = (address >> 9).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58;
        &self.shards[mixed as usize].0
    }

    /// Creates a slot for a block, which is not live yet.
    pub fn insert(&self, address: u64, bytes: u64, piece: u32, class: (Option<usize>, bool)) -> BlockId {
        let id = self.number(&mut lock(&self.numbers));
        self.insert_as(id, (address, bytes), (SHARED, piece), class);
        id
    }

    /// Creates a slot with a block number that the caller took before.
    pub fn insert_as(
        &self,
        id: BlockId,
        (address, bytes): (u64, u64),
        (owner, piece): (u32, u32),
        (class, is_small): (Option<usize>, bool),
    ) {
        let slot = self.slot(id);
        slot.address.store(address as usize, Relaxed);
        slot.bytes.store(bytes as usize, Relaxed);
        slot.piece.store((owner as usize) << 32 | piece as usize, Relaxed);
        let class = class.map_or(HUGE, |class| class << 1 | usize::from(is_small));
        slot.class.store(class, Relaxed);
        debug_assert!(!slot.is_live());
        slot.asked.store(slot.generation().wrapping_add(LAYOUT + 1), Relaxed);
        self.shard(address).write().unwrap_or_else(PoisonError::into_inner).insert(address, id);
    }

    /// Removes the slot of a block that the caller owns, and returns its number to the unused ones.
    pub fn remove(&self, id: BlockId) {
        self.forget(id);
        lock(&self.numbers).unused.push(id);
    }

    /// Removes the slot of a block. The caller keeps the number.
    pub fn forget(&self, id: BlockId) {
        let slot = self.slot(id);
        let address = slot.address();
        let mut shard = self.shard(address).write().unwrap_or_else(PoisonError::into_inner);
        shard.remove(&address);
        // Under the lock: a thread that is given this address later must not find it under the old
        // number.
        slot.address.store(NOWHERE, Relaxed);
    }

    /// Takes `count` block numbers, for [`insert_as`](Self::insert_as).
    pub fn take_numbers(&self, count: usize) -> Vec<BlockId> {
        let mut numbers = lock(&self.numbers);
        (0..count).map(|_| self.number(&mut numbers)).collect()
    }

    /// Returns unused block numbers.
    pub fn give_numbers(&self, ids: impl IntoIterator<Item = BlockId>) {
        lock(&self.numbers).unused.extend(ids);
    }

    fn number(&self, numbers: &mut Numbers) -> BlockId {
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

    /// Makes a block live that the caller owns (I3).
    #[inline]
    pub fn set_live(&self, id: BlockId, layout: Layout) -> Claim {
        let slot = self.slot(id);
        let asked = slot.generation() | pack(layout);
        slot.asked.store(asked, Relaxed);
        Claim { id, asked }
    }

    /// Claims a live block from its owner, if `layout` is the one it was allocated with.
    #[inline]
    pub fn claim(&self, address: u64, layout: Layout) -> Result<BlockId, ClaimError> {
        // Under the lock, so that the slot cannot pass to another block in between (I1).
        let shard = self.shard(address).read().unwrap_or_else(PoisonError::into_inner);
        let id = *shard.get(&address).ok_or(ClaimError::Unknown)?;
        let (slot, generation) = (self.slot(id), self.slot(id).generation());
        match slot.asked.compare_exchange(generation | pack(layout), generation, Relaxed, Relaxed) {
            Ok(_) => Ok(id),
            Err(other) if other & LAYOUT == 0 => Err(ClaimError::Free),
            Err(other) => Err(ClaimError::Layout(unpack(other))),
        }
    }

    /// Claims a block by its remembered claim, without the map. `false` gives no reason:
    /// [`claim`](Self::claim) determines it.
    #[inline]
    pub fn claim_known(&self, Claim { id, asked }: Claim, address: u64, layout: Layout) -> bool {
        let (slot, free) = (self.slot(id), asked & !LAYOUT);
        // Generations wrap around. A reused number belongs to a block at another address, and an
        // unused number has no address: `forget` clears it before another number can get the
        // address. So if the address matches, it is this block, which its owner holds until the
        // exchange.
        let is_it = asked == free | pack(layout) && slot.address() == address;
        is_it && slot.asked.compare_exchange(asked, free, Relaxed, Relaxed).is_ok()
    }

    /// The layout of the live block that starts at `address`.
    pub fn asked(&self, address: u64) -> Option<Layout> {
        let shard = self.shard(address).read().unwrap_or_else(PoisonError::into_inner);
        let asked = self.slot(*shard.get(&address)?).asked.load(Relaxed);
        (asked & LAYOUT != 0).then(|| unpack(asked))
    }

    /// The numbers in use.
    pub fn all(&self) -> Vec<BlockId> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.0.read().unwrap_or_else(PoisonError::into_inner).values());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 256).unwrap()
    }

    #[test]
    fn a_block_is_claimed_once_and_as_it_was_allocated() {
        let live = BlockTable::new();
        let id = live.insert(4096, 512, 7, (Some(0), true));
        assert_eq!(live.claim(4096, layout(300)), Err(ClaimError::Free));
        let first = live.set_live(id, layout(300));
        assert_eq!(live.claim(4097, layout(300)), Err(ClaimError::Unknown));
        assert_eq!(live.claim(4096, layout(301)), Err(ClaimError::Layout(layout(300))));
        let other = Layout::from_size_align(300, 8).unwrap();
        assert_eq!(live.claim(4096, other), Err(ClaimError::Layout(layout(300))));
        assert!(!live.claim_known(first, 4096, layout(301)));
        assert!(live.claim_known(first, 4096, layout(300)) && !live.claim_known(first, 4096, layout(300)));
        live.set_live(id, layout(300));
        assert_eq!(live.claim(4096, layout(300)), Ok(id));
        assert_eq!(live.claim(4096, layout(300)), Err(ClaimError::Free));
        live.remove(id);
        assert_eq!(live.claim(4096, layout(300)), Err(ClaimError::Unknown));
        assert_ne!(live.slot(id).address(), 4096, "a number that is of no block has no address");
    }

    /// A claim on a block that is gone takes nothing from the block that reuses its number.
    #[test]
    fn an_old_number_claims_nothing() {
        let live = BlockTable::new();
        let id = live.insert(4096, 512, 0, (Some(0), true));
        let old = live.set_live(id, layout(300));
        assert_eq!(live.claim(4096, layout(300)), Ok(id));
        live.remove(id);
        let mut came_round = 0;
        // At the same address the generation differs until it wraps around; by then the address
        // differs.
        for address in (0..2000_u64).map(|n| if n < 100 { 4096 } else { 8192 + 512 * n }) {
            assert_eq!(live.insert(address, 512, 0, (Some(0), true)), id);
            let new = live.set_live(id, layout(300));
            came_round += usize::from(new == old);
            assert!(!live.claim_known(old, 4096, layout(300)) && live.slot(id).is_live());
            assert!(live.claim_known(new, address, layout(300)));
            live.remove(id);
        }
        assert!(came_round > 0);
    }

    #[test]
    fn numbers_are_used_again_and_go_on_over_chunks() {
        let live = BlockTable::new();
        let all: Vec<_> = (0..5000_u64).map(|n| live.insert(n * 512, 512, n as u32, (None, false))).collect();
        for (n, id) in (0..).zip(&all) {
            let slot = live.slot(*id);
            assert_eq!((slot.address(), slot.piece(), slot.class()), (n * 512, n as u32, None));
        }
        assert_eq!(live.all().len(), 5000);
        live.remove(all[17]);
        assert_eq!(live.insert(1 << 40, 1, 1, (Some(3), true)), all[17]);
        let slot = live.slot(all[17]);
        assert_eq!((slot.class(), slot.is_small()), (Some(3), true));
        assert!(!live.slot(all[18]).is_small());
    }
}

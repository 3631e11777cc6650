//! Blocks that were cut, and who has them.
//!
//! ```text
//!   address ── shard of a map ──► number ──► slot { address, bytes, home, asked }
//! ```
//!
//! A block has a slot from when it is cut out of a segment until it is merged again: while it is live, and while it is cached. So
//! an allocation from a cache writes one word, and a free reads the map and writes one word.
//!
//! I1: the map has exactly the addresses of slots in use. I2: `asked` has no layout unless the block is live. I3: who
//! takes the layout out has the block, alone; only who has a block puts one in. A number that was used for another block has another generation
//! in `asked`, so that who knows an old one claims nothing by it. I4: `address`, `bytes` and `home` are
//! written before the map has the address, and not while it has.

use super::super::lock;
use foldhash::fast::FixedState;
use std::alloc::Layout;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

/// Number of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::alloc) struct BlockId(u32);

/// A line of the cache each, so that threads that use neighbours do not disturb each other.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Slot {
    address: AtomicUsize,
    bytes: AtomicUsize,
    /// The piece that it is, or that it is a part of: its number, and above 32 bits whose extent has it ([`SHARED`] for none).
    home: AtomicUsize,
    /// Twice the class, and 1 more of a small block; [`HUGE`] above all classes.
    class: AtomicUsize,
    /// The layout while it is live, and how often the number was used, modulo a power of two.
    asked: AtomicUsize,
}

/// A live block, as it went out: its number, and what its slot says as long as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub id: BlockId,
    asked: usize,
}

/// In place of an address: the number is of no block.
const NOWHERE: usize = usize::MAX;
/// In place of a cache: the piece is one of the shared segments.
pub(super) const SHARED: u32 = 0;
/// The bits of a layout: sizes to 2^48 and an alignment.
const LAYOUT: usize = (1 << 55) - 1;
const HUGE: usize = usize::MAX - 1;

/// Relaxed is enough for all of a slot: whoever reads it got the block's number under a lock, or its address from whoever
/// allocated it, after it was written (I4); and `asked` stands for nothing but itself: a number from before claims nothing, by its generation.
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
    pub fn home(&self) -> u32 {
        self.home.load(Relaxed) as u32
    }

    /// The cache that has the piece in an extent of its own.
    #[inline]
    pub fn owner(&self) -> u32 {
        (self.home.load(Relaxed) >> 32) as u32
    }

    #[inline]
    pub fn class(&self) -> Option<usize> {
        let class = self.class.load(Relaxed);
        (class != HUGE).then_some(class >> 1)
    }

    /// Whether it is one of a slab's.
    #[inline]
    pub fn is_small(&self) -> bool {
        self.class.load(Relaxed) & 1 == 1
    }

    #[inline]
    pub fn is_live(&self) -> bool {
        self.asked.load(Relaxed) & LAYOUT != 0
    }

    /// Which use of the number it is.
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
pub(in crate::alloc) enum Wrong {
    /// No block starts there.
    Unknown,
    /// It is not live.
    Free,
    /// It was allocated so.
    Layout(Layout),
}

/// Slots in a chunk; each next chunk has twice as many.
const FIRST: u32 = 1024;
const CHUNKS: usize = 22;
const SHARDS: usize = 64;

#[derive(Default)]
#[repr(align(128))]
struct Shard(RwLock<HashMap<u64, BlockId, FixedState>>);

pub(super) struct Live {
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    shards: [Shard; SHARDS],
    numbers: Mutex<Numbers>,
}

#[derive(Default)]
struct Numbers {
    unused: Vec<BlockId>,
    next: u32,
}

impl Live {
    pub fn new() -> Live {
        Live {
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
        // Neighbours of any size lie in different shards.
        let mixed = (address >> 9).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58;
        &self.shards[mixed as usize].0
    }

    /// A slot for a block of nobody's yet.
    pub fn insert(&self, address: u64, bytes: u64, home: u32, class: (Option<usize>, bool)) -> BlockId {
        let id = self.number(&mut lock(&self.numbers));
        self.insert_as(id, (address, bytes), (SHARED, home), class);
        id
    }

    /// The same with a number that the caller has.
    pub fn insert_as(
        &self,
        id: BlockId,
        (address, bytes): (u64, u64),
        (owner, home): (u32, u32),
        (class, is_small): (Option<usize>, bool),
    ) {
        let slot = self.slot(id);
        slot.address.store(address as usize, Relaxed);
        slot.bytes.store(bytes as usize, Relaxed);
        slot.home.store((owner as usize) << 32 | home as usize, Relaxed);
        let class = class.map_or(HUGE, |class| class << 1 | usize::from(is_small));
        slot.class.store(class, Relaxed);
        debug_assert!(!slot.is_live());
        slot.asked.store(slot.generation().wrapping_add(LAYOUT + 1), Relaxed);
        self.shard(address).write().unwrap_or_else(PoisonError::into_inner).insert(address, id);
    }

    /// The opposite, for a block that the caller has.
    pub fn remove(&self, id: BlockId) {
        self.forget(id);
        lock(&self.numbers).unused.push(id);
    }

    /// The same; the caller has the number.
    pub fn forget(&self, id: BlockId) {
        let slot = self.slot(id);
        let address = slot.address();
        let mut shard = self.shard(address).write().unwrap_or_else(PoisonError::into_inner);
        shard.remove(&address);
        // Under the lock: whoever is given that address again knows this number for no block there.
        slot.address.store(NOWHERE, Relaxed);
    }

    /// So many numbers, for [`insert_as`](Self::insert_as).
    pub fn take_numbers(&self, count: usize) -> Vec<BlockId> {
        let mut numbers = lock(&self.numbers);
        (0..count).map(|_| self.number(&mut numbers)).collect()
    }

    /// Takes numbers back that are of no block.
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

    /// Makes a block live that the caller has (I3).
    #[inline]
    pub fn set_live(&self, id: BlockId, layout: Layout) -> Claim {
        let slot = self.slot(id);
        let asked = slot.generation() | pack(layout);
        slot.asked.store(asked, Relaxed);
        Claim { id, asked }
    }

    /// Takes a live block from its owner, if `layout` is its own.
    #[inline]
    pub fn claim(&self, address: u64, layout: Layout) -> Result<BlockId, Wrong> {
        // Under the lock, so that the slot is not another block's in between (I1).
        let shard = self.shard(address).read().unwrap_or_else(PoisonError::into_inner);
        let id = *shard.get(&address).ok_or(Wrong::Unknown)?;
        let (slot, generation) = (self.slot(id), self.slot(id).generation());
        match slot.asked.compare_exchange(generation | pack(layout), generation, Relaxed, Relaxed) {
            Ok(_) => Ok(id),
            Err(other) if other & LAYOUT == 0 => Err(Wrong::Free),
            Err(other) => Err(Wrong::Layout(unpack(other))),
        }
    }

    /// The same of a block as it went out. `false` says nothing: it is for [`claim`](Self::claim) to find out why.
    #[inline]
    pub fn claim_known(&self, Claim { id, asked }: Claim, address: u64, layout: Layout) -> bool {
        let (slot, free) = (self.slot(id), asked & !LAYOUT);
        // Generations come round. A number that is in use again is of a block at another address, and one that is not has none: `forget` wrote
        // that before the address could be another number's. So if it is this address, it is this block, which its owner has until the exchange.
        let is_it = asked == free | pack(layout) && slot.address() == address;
        is_it && slot.asked.compare_exchange(asked, free, Relaxed, Relaxed).is_ok()
    }

    /// The layout of the live block that starts there.
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
        let live = Live::new();
        let id = live.insert(4096, 512, 7, (Some(0), true));
        assert_eq!(live.claim(4096, layout(300)), Err(Wrong::Free));
        let first = live.set_live(id, layout(300));
        assert_eq!(live.claim(4097, layout(300)), Err(Wrong::Unknown));
        assert_eq!(live.claim(4096, layout(301)), Err(Wrong::Layout(layout(300))));
        let other = Layout::from_size_align(300, 8).unwrap();
        assert_eq!(live.claim(4096, other), Err(Wrong::Layout(layout(300))));
        assert!(!live.claim_known(first, 4096, layout(301)));
        assert!(live.claim_known(first, 4096, layout(300)) && !live.claim_known(first, 4096, layout(300)));
        live.set_live(id, layout(300));
        assert_eq!(live.claim(4096, layout(300)), Ok(id));
        assert_eq!(live.claim(4096, layout(300)), Err(Wrong::Free));
        live.remove(id);
        assert_eq!(live.claim(4096, layout(300)), Err(Wrong::Unknown));
        assert_ne!(live.slot(id).address(), 4096, "a number that is of no block has no address");
    }

    /// Whoever knows a block that is gone takes nothing from the one that has its number now.
    #[test]
    fn an_old_number_claims_nothing() {
        let live = Live::new();
        let id = live.insert(4096, 512, 0, (Some(0), true));
        let old = live.set_live(id, layout(300));
        assert_eq!(live.claim(4096, layout(300)), Ok(id));
        live.remove(id);
        let mut came_round = 0;
        // At the same address it has another generation until that comes round, and then it is at another address.
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
        let live = Live::new();
        let all: Vec<_> = (0..5000_u64).map(|n| live.insert(n * 512, 512, n as u32, (None, false))).collect();
        for (n, id) in (0..).zip(&all) {
            let slot = live.slot(*id);
            assert_eq!((slot.address(), slot.home(), slot.class()), (n * 512, n as u32, None));
        }
        assert_eq!(live.all().len(), 5000);
        live.remove(all[17]);
        assert_eq!(live.insert(1 << 40, 1, 1, (Some(3), true)), all[17]);
        let slot = live.slot(all[17]);
        assert_eq!((slot.class(), slot.is_small()), (Some(3), true));
        assert!(!live.slot(all[18]).is_small());
    }
}

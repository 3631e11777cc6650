//! Blocks that were cut, and who has them.
//!
//! ```text
//!   address ── shard of a map ──► number ──► slot { address, bytes, home, asked }
//! ```
//!
//! A block has a slot from when it is cut out of a segment until it is merged again: while it is live, and while it is cached. So
//! an allocation from a cache writes one word, and a free reads the map and writes one word.
//!
//! I1: the map has exactly the addresses of slots in use. I2: `asked` is 0 unless the block is live; then it is the layout. I3: who
//! sets it from a layout to 0 has the block, alone; only who has a block sets it from 0. I4: `address`, `bytes` and `home` are
//! written before the map has the address, and not while it has.

use super::super::lock;
use foldhash::fast::FixedState;
use std::alloc::Layout;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

/// Number of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BlockId(u32);

/// A line of the cache each, so that threads that use neighbours do not disturb each other.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Slot {
    address: AtomicUsize,
    bytes: AtomicUsize,
    /// The node of the segments that it is, or that it is a part of.
    home: AtomicUsize,
    /// Twice the class, and 1 more of a small block; [`HUGE`] above all classes.
    class: AtomicUsize,
    asked: AtomicUsize,
}

const HUGE: usize = usize::MAX - 1;

/// Relaxed is enough for all of a slot: whoever reads it got the block's number under a lock, or its address from whoever
/// allocated it, after it was written (I4); and `asked` stands for nothing but itself.
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
        self.asked.load(Relaxed) != 0
    }

    /// The caller has the block (I3).
    #[inline]
    pub fn set_live(&self, layout: Layout) {
        self.asked.store(pack(layout), Relaxed);
    }
}

#[inline]
const fn pack(layout: Layout) -> usize {
    layout.size() << 6 | layout.align().trailing_zeros() as usize
}

fn unpack(asked: usize) -> Layout {
    Layout::from_size_align(asked >> 6, 1 << (asked & 63)).unwrap_or(Layout::new::<u8>())
}

/// Why a block cannot be claimed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wrong {
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
    pub fn insert(
        &self,
        address: u64,
        bytes: u64,
        home: u32,
        (class, is_small): (Option<usize>, bool),
    ) -> BlockId {
        let id = self.number();
        let slot = self.slot(id);
        slot.address.store(address as usize, Relaxed);
        slot.bytes.store(bytes as usize, Relaxed);
        slot.home.store(home as usize, Relaxed);
        let class = class.map_or(HUGE, |class| class << 1 | usize::from(is_small));
        slot.class.store(class, Relaxed);
        debug_assert!(!slot.is_live());
        self.shard(address).write().unwrap_or_else(PoisonError::into_inner).insert(address, id);
        id
    }

    /// The opposite, for a block that the caller has.
    pub fn remove(&self, id: BlockId) {
        let address = self.slot(id).address();
        self.shard(address).write().unwrap_or_else(PoisonError::into_inner).remove(&address);
        lock(&self.numbers).unused.push(id);
    }

    fn number(&self) -> BlockId {
        let mut numbers = lock(&self.numbers);
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

    /// Takes a live block from its owner, if `layout` is its own.
    #[inline]
    pub fn claim(&self, address: u64, layout: Layout) -> Result<BlockId, Wrong> {
        // Under the lock, so that the slot is not another block's in between (I1).
        let shard = self.shard(address).read().unwrap_or_else(PoisonError::into_inner);
        let id = *shard.get(&address).ok_or(Wrong::Unknown)?;
        match self.slot(id).asked.compare_exchange(pack(layout), 0, Relaxed, Relaxed) {
            Ok(_) => Ok(id),
            Err(0) => Err(Wrong::Free),
            Err(other) => Err(Wrong::Layout(unpack(other))),
        }
    }

    /// The same with a number that was the block's not long ago. `false` says nothing: it is for [`claim`](Self::claim) to find out why.
    #[inline]
    pub fn claim_known(&self, id: BlockId, address: u64, layout: Layout) -> bool {
        let slot = self.slot(id);
        let claimed = || slot.asked.compare_exchange(pack(layout), 0, Relaxed, Relaxed).is_ok();
        if slot.address() != address || !claimed() {
            return false;
        }
        // While someone else gave the same block back, the slot may have become another block's, which stays as it was.
        let is_it = slot.address() == address;
        if !is_it {
            slot.set_live(layout);
        }
        is_it
    }

    /// The layout of the live block that starts there.
    pub fn asked(&self, address: u64) -> Option<Layout> {
        let shard = self.shard(address).read().unwrap_or_else(PoisonError::into_inner);
        let asked = self.slot(*shard.get(&address)?).asked.load(Relaxed);
        (asked != 0).then(|| unpack(asked))
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
        live.slot(id).set_live(layout(300));
        assert_eq!(live.claim(4097, layout(300)), Err(Wrong::Unknown));
        assert_eq!(live.claim(4096, layout(301)), Err(Wrong::Layout(layout(300))));
        let other = Layout::from_size_align(300, 8).unwrap();
        assert_eq!(live.claim(4096, other), Err(Wrong::Layout(layout(300))));
        assert!(!live.claim_known(id, 4096, layout(301)) && !live.claim_known(id, 8192, layout(300)));
        assert!(live.claim_known(id, 4096, layout(300)) && !live.claim_known(id, 4096, layout(300)));
        live.slot(id).set_live(layout(300));
        assert_eq!(live.claim(4096, layout(300)), Ok(id));
        assert_eq!(live.claim(4096, layout(300)), Err(Wrong::Free));
        live.remove(id);
        assert_eq!(live.claim(4096, layout(300)), Err(Wrong::Unknown));
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

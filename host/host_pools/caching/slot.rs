//! The slot of a block: address, size, piece, class, and the layout while the block is live.
//!
//! I1: `requested` holds a layout only while the block is live. I2: the thread that removes the
//! layout owns the block exclusively; only the owner of a block stores a layout. Each use of a slot
//! for another block has another generation in `requested`, so that a stale number claims nothing.
//! I3: the other words are written before the block map contains the address, and not while it
//! does.

use std::alloc::Layout;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// In place of an address: an unused slot.
const NO_ADDRESS: usize = usize::MAX;
/// In place of an owner: the piece is in the shared segments.
pub(super) const SHARED: u32 = 0;
/// The bits of a layout: sizes up to 2^48 and an alignment.
const LAYOUT: usize = (1 << 55) - 1;
/// In place of a class: above all classes.
const HUGE: usize = usize::MAX - 1;

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

//! A heap with a plain value per block.

#[path = "../support/heap.rs"]
mod heap;

use super::loom_support::Values;
use heap::OwnedHeap;
use std::alloc::Layout as Request;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use warpheap_device::heap::class::SizeClass;
use warpheap_device::heap::{HeapLayout, Searched};

/// Sizes of two classes: a slab holds four blocks of one, two of the other.
pub const QUARTER: usize = 128;
pub const HALF: usize = 256;
/// A full slab: no class has such an alignment. Only the first slab of a heap has it.
pub const SLAB: usize = 512;
/// All slabs of a heap of two.
pub const TWO_SLABS: usize = 2 * SLAB;
pub const SLAB_ALIGN: usize = 1 << 15;

/// The report of a free by a thread that has not seen the slab's entry.
pub const FAULT: &str = "a fault is recorded of threads without one";

/// A heap, and for every [`QUARTER`] bytes a plain value that only their owner may access: whether
/// they have an owner.
pub struct Shared {
    owned: OwnedHeap,
    values: Values<bool>,
}

impl Deref for Shared {
    type Target = OwnedHeap;

    fn deref(&self) -> &OwnedHeap {
        &self.owned
    }
}

/// Allocated memory.
#[derive(Clone, Copy)]
pub struct Piece {
    pub address: NonNull<u8>,
    size: usize,
}

// SAFETY: it is passed from owner to owner, or has none.
unsafe impl Send for Piece {}

/// The result of a search.
#[derive(Clone, Copy)]
pub enum Search {
    Found(Piece),
    Nothing,
    Unsure,
}

impl Search {
    pub fn found(self) -> Option<Piece> {
        if let Search::Found(piece) = self { Some(piece) } else { None }
    }

    /// Whether it proved that there is no memory.
    pub fn is_proof(self) -> bool {
        matches!(self, Search::Nothing)
    }
}

pub fn request(size: usize) -> Request {
    Request::from_size_align(size, if size >= SLAB { SLAB_ALIGN } else { 16 }).unwrap()
}

impl Shared {
    pub fn new(slabs: u32, shards: u32) -> Arc<Shared> {
        let owned = OwnedHeap::with(HeapLayout::tiny(slabs, shards));
        let values = Values::new(owned.layout.bytes() as usize / QUARTER);
        Arc::new(Shared { owned, values })
    }

    /// Allocates, and begins to use the memory as its owner.
    pub fn alloc(&self, size: usize) -> Option<Piece> {
        self.found(self.heap.alloc(request(size))?, size).found()
    }

    /// One ticket of the cursor, and the claim of its block.
    pub fn draw(&self, size: usize) -> Option<Piece> {
        self.found(self.heap.core().draw_once(SizeClass::of(size as u32))?, size).found()
    }

    /// The slot of the cursor's span, and the number of tickets left.
    pub fn slot_and_left(&self, size: usize) -> (u32, i32) {
        self.heap.core().slot_and_left(SizeClass::of(size as u32))
    }

    /// The slab of a piece.
    pub fn slab(&self, piece: Piece) -> usize {
        (piece.address.addr().get() - self.heap.base().addr()) / SLAB
    }

    /// One search for a block.
    pub fn search(&self, size: usize) -> Search {
        match self.heap.core().search_once(SizeClass::of(size as u32)) {
            Searched::Block(address) => self.found(address, size),
            Searched::Nothing => Search::Nothing,
            Searched::Unsure => Search::Unsure,
        }
    }

    /// One probe.
    pub fn probe(&self, size: usize) -> Option<Piece> {
        match self.heap.core().probe_once(SizeClass::of(size as u32)) {
            Searched::Block(address) => self.found(address, size).found(),
            Searched::Nothing | Searched::Unsure => None,
        }
    }

    /// One search for a slab.
    pub fn search_large(&self) -> Search {
        match self.heap.core().search_large_once(1) {
            Searched::Block(address) => self.found(address, SLAB),
            Searched::Nothing => Search::Nothing,
            Searched::Unsure => Search::Unsure,
        }
    }

    /// Makes a run of a free slab. Returns whether there was one.
    pub fn add_run(&self, size: usize) -> bool {
        self.heap.core().add_run(SizeClass::of(size as u32))
    }

    /// Clears the bit above the word of idle runs, if the word is zero.
    pub fn settle_idle(&self) {
        self.heap.core().settle_idle();
    }

    /// Makes the slabs of fully free runs free.
    pub fn retire(&self) {
        self.heap.core().retire_all();
    }

    fn found(&self, address: NonNull<u8>, size: usize) -> Search {
        let piece = Piece { address, size };
        assert!(!self.write(piece, true), "the memory has two owners");
        Search::Found(piece)
    }

    /// Like [`alloc`](Self::alloc), while there is only one thread: must succeed.
    pub fn take<const N: usize>(&self, size: usize) -> [Piece; N] {
        std::array::from_fn(|_| self.alloc(size).expect("there is memory, and only one thread"))
    }

    /// Writes whether the memory has an owner. Returns the previous value.
    pub fn write(&self, piece: Piece, has_owner: bool) -> bool {
        let start = piece.address.addr().get() - self.heap.base().addr();
        let quarters = start / QUARTER..(start + piece.size) / QUARTER;
        let set = |i| self.values.access(i, |value| std::mem::replace(value, has_owner));
        let had_owner: Vec<_> = quarters.map(set).collect();
        assert!(had_owner.iter().all(|had| *had == had_owner[0]), "the memory has two owners");
        had_owner[0]
    }

    /// Uses the memory for the last time and frees it.
    pub fn free(&self, piece: Piece) {
        assert!(self.write(piece, false), "the owner's value is lost");
        // SAFETY: the memory is not used any more.
        unsafe { self.heap.free(piece.address) };
    }

    /// To be called when all threads have ended: no fault, no broken invariant, and the number of
    /// live blocks of each size is that in `live`.
    pub fn check<const N: usize>(&self, live: [(usize, usize); N]) {
        assert_eq!(self.faults.count(), 0, "{FAULT}");
        self.check_blocks(live);
    }

    pub fn check_blocks<const N: usize>(&self, live: [(usize, usize); N]) {
        let live = live.into_iter().filter(|(_, count)| *count > 0);
        let live = live.map(|(size, count)| (SizeClass::of(size as u32).0, count as u32));
        self.owned.check(&live.collect::<BTreeMap<_, _>>());
    }
}

pub fn count<const N: usize>(pieces: [Option<Piece>; N]) -> usize {
    pieces.into_iter().flatten().count()
}

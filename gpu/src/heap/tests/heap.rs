//! A heap for unit tests, with runs at the slabs that a test chooses.

#[path = "../../../tests/support/heap.rs"]
#[allow(dead_code, reason = "unit tests use a part of it")]
mod owned;

use crate::heap::layout::bits::{WORD_BITS, full_word};
use crate::heap::layout::class::SizeClass;
use crate::heap::structures::heap_core::HeapCore;
use crate::heap::structures::locate::Located;
use crate::heap::{HeapLayout, Moves};
use crate::lanes::Group;
use crate::machine::Coords;
use crate::test_lanes::{Done, on_lanes};
pub use owned::OwnedHeap;
use std::vec::Vec;

/// A heap of `slabs` slabs of 16 KiB, for one SM or several.
pub fn heap(slabs: u32, multiprocessors: u32) -> OwnedHeap {
    let owned = OwnedHeap::with(HeapLayout::new(u64::from(slabs) << 14, multiprocessors).unwrap());
    assert_eq!((owned.layout.slabs, owned.layout.slab_log2), (slabs, 14));
    owned
}

impl OwnedHeap {
    /// The heap without the public calls.
    pub fn core(&self) -> &HeapCore {
        &self.heap.core
    }

    /// Makes a run of the class of free slabs.
    pub fn add_run(&self, class: SizeClass, run: u32) {
        let (heap, info) = (self.core(), self.core().class(class));
        for slab in run..run + info.slabs {
            assert_ne!(heap.free_slabs().set.remove_bits(slab / WORD_BITS, 1 << (slab % WORD_BITS)), 0);
        }
        heap.runs().dedicate(run, 1, class, info);
    }

    /// Makes a run of the class, of which only the blocks `free` are free.
    pub fn add_run_with(&self, class: SizeClass, run: u32, free: &[u32]) {
        self.add_run(class, run);
        let (runs, info) = (self.core().runs(), self.core().class(class));
        for w in 0..info.words() {
            let stays = free.iter().filter(|block| *block / WORD_BITS == w);
            let stays = stays.fold(0, |bits, block| bits | 1 << (block % WORD_BITS));
            let full = full_word(info.blocks, w);
            if full & !stays != 0 {
                assert_eq!(runs.claim(runs.first_word(run) + w, full & !stays), full);
                runs.count_claim(run, full, full);
            }
        }
    }

    /// The words of the bitmap of a run.
    pub fn words(&self, class: SizeClass, run: u32) -> Vec<u32> {
        let (runs, info) = (self.core().runs(), self.core().class(class));
        (0..info.words()).map(|w| runs.bits(runs.first_word(run) + w).load_relaxed()).collect()
    }

    /// The free blocks of a run.
    pub fn free_blocks(&self, class: SizeClass, run: u32) -> Vec<u32> {
        let words = self.words(class, run);
        (0..self.core().class(class).blocks)
            .filter(|block| words[(block / WORD_BITS) as usize] >> (block % WORD_BITS) & 1 == 1)
            .collect()
    }

    /// Whether a run is listed, and whether it is idle.
    pub fn hints(&self, class: SizeClass, run: u32) -> (bool, bool) {
        let (runs, index) = (self.core().runs(), self.layout.run_index(class, run));
        (runs.listed().contains(index), runs.idle().contains(run))
    }

    pub fn is_free_slab(&self, slab: u32) -> bool {
        self.core().free_slabs().set.contains(slab)
    }

    /// The run and the number of the block at an address.
    pub fn block_at(&self, class: SizeClass, address: u64) -> (u32, u32) {
        let Located::Block(place) = self.core().locate(address, |entry| entry.load_relaxed()) else {
            panic!("no run at {address:#x}")
        };
        assert!(place.run.class == class && place.is_start());
        (place.run.first, place.block)
    }

    /// Runs `run` on lanes of a warp.
    pub fn on_lanes<R: Send>(
        &self,
        mask: u32,
        at: Coords,
        run: impl Fn(&OwnedHeap, Group) -> R + Sync,
    ) -> Done<R> {
        on_lanes(mask, at, |group| run(self, group))
    }
}

/// The number of moves that `run` makes.
pub fn moves_of(moves: &Moves, run: impl FnOnce()) -> u32 {
    let begun = || (moves.begun(), moves.open());
    let before = begun();
    run();
    let after = begun();
    assert_eq!((before.1, after.1), (0, 0), "moves that have not ended");
    after.0.wrapping_sub(before.0)
}

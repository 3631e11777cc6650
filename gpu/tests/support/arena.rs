//! A bump arena without real memory: its addresses are never dereferenced.

use std::alloc::Layout;
// For unit tests, which have no prelude of `std`.
use std::prelude::v1::*;
use warpheap_device::bump::{Bump, Root, Shard};

/// The base address: one granule after a multiple of 2 MiB, so that large alignments need padding.
const BEFORE: u64 = 1 << 40;

pub struct Arena {
    pub bump: Box<Bump>,
    pub root: Box<Root>,
    pub shards: Vec<Shard>,
    pub granules: u64,
    pub granule: u64,
}

// SAFETY: the addresses in the handle belong to the arena.
unsafe impl Sync for Arena {}
// SAFETY: the addresses in the handle belong to the arena.
unsafe impl Send for Arena {}

impl Arena {
    /// An arena with one counter per SM for `shards` SMs, or with a single one for 0.
    pub fn new(granules: u64, granule_log2: u32, shards: u32) -> Arena {
        let root = Box::new(Root::new(granules, shards));
        let shards: Vec<Shard> = (0..shards.max(1))
            .map(|i| if shards == 0 { Shard::retired() } else { Shard::new(granules, shards, i) })
            .collect();
        let (granule, count) = (1 << granule_log2, shards.len() as u32);
        let base = std::ptr::without_provenance_mut((BEFORE + granule) as usize);
        let mut shared = Box::<Bump>::new_uninit();
        let (root_at, shards_at, shared_at) = (&raw const *root, shards.as_ptr(), shared.as_ptr());
        // SAFETY: the arena keeps all parts, which do not move on the heap; the memory is never
        // accessed.
        let bump = unsafe {
            Bump::from_raw_parts(base, granules, granule_log2, root_at, shards_at, count, shared_at)
        };
        shared.write(bump);
        // SAFETY: written above.
        let bump = unsafe { shared.assume_init() };
        Arena { bump, root, shards, granules, granule }
    }

    /// Allocates memory. Returns its offset in bytes.
    pub fn alloc(&self, size: usize, align: usize) -> Option<u64> {
        let start = self.bump.alloc(Layout::from_size_align(size, align).unwrap())?;
        Some((start.addr().get() as u64).wrapping_sub(self.bump.base().addr() as u64))
    }

    /// Granules that are not allocated: left, or wasted. To be called when no thread allocates.
    pub fn left(&self) -> u64 {
        let in_shards: u64 = self.shards.iter().map(|shard| shard.remaining().expect("settled")).sum();
        in_shards + self.root.remaining().expect("settled") + self.root.wasted()
    }
}

/// Checks that pieces (start and length in bytes) are disjoint and in bounds.
pub fn check_disjoint(arena: &Arena, mut pieces: Vec<(u64, u64)>) {
    pieces.sort();
    let mut end = 0;
    for (start, len) in &pieces {
        assert!(*start >= end, "the piece of {len} B at {start} overlaps one that ends at {end}");
        end = start + len;
    }
    assert!(end <= arena.granules * arena.granule, "{end} is beyond the arena");
}

//! Large allocations: entire slabs, for requests that no class serves.
//!
//! A search for `len` slabs sets the start of the next search `len` slabs further, so threads that
//! allocate at once look at different slabs. A free sets the start back to its slabs, if they are
//! before it.

use crate::fault::FaultCheck;
use crate::heap::layout::entry::Entry;
use crate::heap::paths::NAP_NANOS;
use crate::heap::paths::search::Found;
use crate::heap::structures::heap_core::HeapCore;
use crate::heap::structures::orderings::{FREE_LARGE, LARGE_END, STORE_LARGE};
use crate::heap::structures::slabs::Slabs;
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;
use crate::thread;

/// The number of searches for slabs while other threads hold or take some of them.
const PASSES: u32 = if NATIVE_LAYOUT { 64 } else { 3 };

impl HeapCore {
    /// Allocates `size` bytes in entire slabs. Returns the address; 0 if there are not enough
    /// consecutive free slabs.
    pub(in crate::heap) fn alloc_large(&self, size: u64, align: u64) -> u64 {
        let slab_bytes = u64::from(self.layout.slab_bytes());
        if size > self.layout.bytes() || align > crate::heap::layout::MAX_ALIGN {
            return 0;
        }
        let len = size.div_ceil(slab_bytes) as u32;
        let step = (align.div_ceil(slab_bytes) as u32).max(1);
        for _ in 0..PASSES {
            match self.search_large(len, step) {
                Found::Block(address) => return address,
                Found::Nothing => return 0,
                Found::Unsure => thread::nanosleep(NAP_NANOS),
            }
        }
        // Relaxed: statistics.
        self.contended_of(self.shard()).add_relaxed(1);
        0
    }

    /// One search for `len` consecutive free slabs, of which the first is a multiple of `step`.
    pub(in crate::heap) fn search_large(&self, len: u32, step: u32) -> Found {
        let common = self.overview().common();
        let before = common.search();
        // Relaxed: a hint.
        let start = self.overview().large_start().add_relaxed(len) % self.layout.slabs;
        let slabs = self.free_slabs().claim_aligned(start, len, step);
        if slabs.len > 0 {
            return Found::Block(self.make_large(slabs));
        }
        if self.retire_idle(Group::alone(), 0, self.layout.slabs, true) {
            return Found::Unsure;
        }
        // ordering: acquire; pairs with REMOVE and CLAIM_SLABS, as at the end of a search.
        LARGE_END.fence_acquire();
        if common.is_unchanged(before) { Found::Nothing } else { Found::Unsure }
    }

    fn make_large(&self, slabs: Slabs) -> u64 {
        for slab in slabs.first + 1..slabs.first + slabs.len {
            // Relaxed: a thread that frees the allocation got it from the caller.
            self.runs().entry(slab).store_relaxed(Entry::REST.0);
        }
        STORE_LARGE.delay();
        self.runs().entry(slabs.first).store_relaxed(Entry::large(slabs.len).0);
        self.slab_address(slabs.first)
    }

    /// Frees the large allocation at an address in a slab with this entry, which has no class.
    pub(in crate::heap) fn free_large(&self, slab: u32, entry: Entry, address: u64) {
        if entry.is_free() {
            return self.misuse(FaultCheck::EntryWasFree, address);
        }
        let len = match entry.large_slabs() {
            Some(len) if address == self.slab_address(slab) => len,
            _ => return self.misuse(FaultCheck::NotAStart, address),
        };
        FREE_LARGE.delay();
        // Relaxed: of two threads that free it, one succeeds. The insertion releases.
        if self.runs().entry(slab).cas_relaxed(entry.0, Entry::FREE.0).is_err() {
            return self.misuse(FaultCheck::EntryChanged, address);
        }
        for later in slab + 1..slab + len {
            self.runs().entry(later).store_relaxed(Entry::FREE.0);
        }
        let start = self.overview().large_start();
        // Relaxed: a hint. If other threads change it in between, searches start elsewhere. A plain
        // remainder would bring the panic handler into all kernels that free.
        if start.load_relaxed().checked_rem(self.layout.slabs).is_some_and(|start| slab < start) {
            start.store_relaxed(slab);
        }
        self.free_slabs().insert(Slabs { first: slab, len });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Entry, Found};
    use crate::heap::tests::heap::heap;
    use core::alloc::Layout;

    #[test]
    fn large_allocations_are_beside_each_other_and_reuse_the_first_slabs() {
        let owned = heap(64, 1);
        let slab_bytes = u64::from(owned.layout.slab_bytes());
        let (base, two) = (owned.heap.base() as u64, 2 * slab_bytes);
        let alloc = || owned.core().alloc_large(two, 16);
        let first = [(); 3].map(|()| alloc());
        assert_eq!(first, [0, 1, 2].map(|n| base + n * two));
        let start = || owned.core().overview().large_start().load_relaxed();
        assert_eq!(start(), 6);
        // Behind the last one, then where slabs before it were freed.
        owned.core().free_unusual(first[1]);
        assert_eq!((start(), alloc()), (2, first[1]));
        owned.core().free_unusual(first[2]);
        assert_eq!((start(), alloc()), (4, first[2]));
        // The start is modulo the number of slabs: a free of later slabs does not change it.
        let slabs = owned.layout.slabs;
        owned.core().overview().large_start().store_relaxed(3 * slabs + 1);
        owned.core().free_unusual(first[2]);
        assert_eq!((start(), alloc()), (3 * slabs + 1, first[2]));
        // Around the end of the heap.
        owned.core().free_unusual(first[0]);
        owned.core().overview().large_start().store_relaxed(slabs - 1);
        assert_eq!(alloc(), first[0]);
    }

    #[test]
    fn all_slabs_of_a_large_allocation_have_entries_until_it_is_freed() {
        let owned = heap(64, 1);
        assert_eq!(owned.core().free_slabs().claim_at(0, 5), 5);
        let entries = || [4, 5, 6, 7, 8].map(|slab| Entry(owned.core().runs().entry(slab).load_relaxed()));
        let address = owned.core().alloc_large(3 << 14, 16);
        assert_eq!(address, owned.core().slab_address(5));
        let (fresh, rest) = (Entry::FRESH, Entry::REST);
        assert_eq!(entries(), [fresh, Entry::large(3), rest, rest, fresh]);
        owned.core().free_unusual(address);
        assert_eq!(entries(), [fresh, Entry::FREE, Entry::FREE, Entry::FREE, fresh]);
    }

    #[test]
    fn only_the_start_of_a_large_allocation_frees_it() {
        let owned = heap(64, 1);
        let address = owned.core().alloc_large(3 << 14, 16);
        for wrong in [16, 1 << 14, 3 << 14] {
            owned.core().free_unusual(address + wrong);
            assert_eq!(
                owned.core().runs().entry(0).load_relaxed(),
                Entry::large(3).0,
                "{wrong} bytes behind"
            );
        }
        assert_eq!(owned.core().alloc_large(64 << 14, 16), 0);
        owned.core().free_unusual(address);
        assert_eq!(owned.core().alloc_large(64 << 14, 16), address);
    }

    #[test]
    fn a_large_allocation_that_gives_up_is_counted_apart() {
        let owned = heap(64, 1);
        let counts = || (owned.heap.failures(), owned.heap.contended_failures());
        let alloc = |slabs: usize| owned.heap.alloc(Layout::from_size_align(slabs << 14, 1 << 15).unwrap());
        assert!(alloc(64).is_some() && alloc(64).is_none());
        assert_eq!(counts(), (1, 0), "there is no slab");
        owned.core().overview().common().begin();
        assert!(alloc(64).is_none());
        assert_eq!(counts(), (2, 1), "another thread moves slabs all the time");
    }

    #[test]
    fn a_search_finds_slabs_that_only_level_0_shows() {
        let owned = heap(128, 1);
        let set = owned.core().free_slabs().set;
        (0..4).for_each(|w| assert_eq!(set.remove_bits(w, u32::MAX), u32::MAX));
        assert_eq!(owned.core().search_large(1, 1), Found::Nothing);
        // The bits above the words are clear now.
        set.word(2).store_relaxed(0b110 << 4);
        assert_eq!([1, 2, 3].map(|len| set.next(0, 128).is_some() || len == 0), [false; 3]);
        assert_eq!(owned.core().search_large(3, 1), Found::Nothing);
        assert_eq!(owned.core().search_large(2, 1), Found::Block(owned.core().slab_address(69)));
    }

    #[test]
    fn a_failed_allocation_is_counted_with_its_size() {
        let owned = heap(64, 1);
        let alloc = |bytes| owned.heap.alloc(Layout::from_size_align(bytes, 16).unwrap());
        let failed = || (owned.heap.failures(), owned.heap.last_failed_bytes());
        assert!(alloc(100).is_some() && failed() == (0, 0));
        assert!(alloc(2 << 20).is_none() && failed() == (1, 2 << 20));
        while alloc(4096).is_some() {}
        assert_eq!(failed(), (2, 4096));
        assert!(alloc(4000).is_none());
        assert_eq!(failed(), (3, 4096));
    }
}

//! Single steps of the heap's operations, for models of one structure at a time.
//!
//! Compiled only under loom. A model of whole allocations hides most orderings of a search behind
//! those of the cursor, and has too many executions to explore.

use crate::heap::layout::bits::WORD_BITS;
use crate::heap::layout::class::SizeClass;
use crate::heap::paths::probe::Probed;
use crate::heap::paths::search::Found;
use crate::heap::structures::heap_core::HeapCore;
use crate::heap::structures::slabs::SlabSearch;
use crate::lanes::Group;
use core::ptr::NonNull;

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Searched {
    /// A block that the caller owns.
    Block(NonNull<u8>),
    /// There is no free memory for the class.
    Nothing,
    /// Inconclusive: the caller must try again.
    Unsure,
}

impl Found {
    fn searched(self) -> Searched {
        match self {
            Found::Block(address) => Searched::Block(NonNull::new(address as *mut u8).unwrap()),
            Found::Nothing => Searched::Nothing,
            Found::Unsure => Searched::Unsure,
        }
    }
}

impl HeapCore {
    /// Takes one ticket of the first cursor of a class and claims its block, as the fast path does.
    /// Returns `None` if the block of the ticket is not free. The cursor's ring has a next span.
    pub fn draw_once(&self, class: SizeClass) -> Option<NonNull<u8>> {
        let group = Group::converged();
        let drawn = self.draw(group, group, true, class, 0);
        assert!(!drawn.seen.is_crossed_by(1) && drawn.stale == 0, "the group is to refill");
        NonNull::new(drawn.address as *mut u8)
    }

    /// The slot of the current span of the first cursor of a class, and its number of tickets left.
    pub fn slot_and_left(&self, class: SizeClass) -> (u32, i32) {
        let span = self.cursor(class, 0).span();
        (span.slot(), span.left())
    }

    /// Searches once for a block.
    pub fn search_once(&self, class: SizeClass) -> Searched {
        self.search(Group::alone(), true, class, 0, false).searched()
    }

    /// Probes once.
    pub fn probe_once(&self, class: SizeClass) -> Searched {
        match self.probe(Group::alone(), true, class, 0) {
            Probed::Block { address, .. } => Found::Block(address).searched(),
            Probed::Missed | Probed::Empty => Searched::Unsure,
        }
    }

    /// Searches once for the slabs of a large allocation.
    pub fn search_large_once(&self, slabs: u32) -> Searched {
        self.search_large(slabs, 1).searched()
    }

    /// Makes a run from free slabs, as a lane does. Returns whether there were any.
    pub fn add_run(&self, class: SizeClass) -> bool {
        self.make_run(class, 0).is_some()
    }

    /// Whether the run of the class at a slab is listed, as a free sees it.
    pub fn is_listed(&self, class: SizeClass, run: u32) -> bool {
        self.runs().listed().contains(self.layout.run_index(class, run))
    }

    /// Whether the list of a class has a run: by level 0, as a search proves it, or by the levels
    /// above, as it begins.
    pub fn has_listed(&self, class: SizeClass, is_exact: bool) -> bool {
        let (layout, listed) = (self.layout, self.runs().listed());
        let (start, end) = (layout.run_index(class, 0), layout.run_index(SizeClass(class.0 + 1), 0));
        let found = if is_exact { listed.scan(Group::alone(), start, end) } else { listed.next(start, end) };
        found.is_some()
    }

    /// Retires all fully free runs: their slabs become free.
    pub fn retire_all(&self) {
        self.retire_idle(Group::alone(), 0, self.layout.slabs, true);
    }

    /// Clears the bit above the word that lists the run of the class at a slab, as if the thread
    /// that listed it had not set the bit yet.
    pub fn hide_listed(&self, class: SizeClass, run: u32) {
        let (listed, w) = (self.runs().listed(), self.layout.run_index(class, run) / WORD_BITS);
        listed.at(listed.level(1).0 + w / WORD_BITS).and_acquire(!(1 << (w % WORD_BITS)));
    }

    /// Clears the bit above the first word of idle runs, as a group does that found none there.
    pub fn settle_idle(&self) {
        self.runs().idle().settle(0);
    }

    /// Claims one slab. Returns whether there was a free one.
    pub fn claim_slab(&self) -> bool {
        let free = self.free_slabs();
        let is_claimed = free.claim(Group::alone(), 0, 1, 1, SlabSearch::Full).len > 0;
        if is_claimed {
            free.moves.end();
        }
        is_claimed
    }

    /// Claims consecutive slabs as a large allocation does, and frees them again.
    pub fn borrow_slabs(&self, len: u32) {
        let slabs = self.free_slabs().claim_aligned(0, len, 1);
        if slabs.len > 0 {
            self.free_slabs().insert(slabs);
        }
    }

    /// Claims the first block of the run at a slab by a stale ticket, and releases it again.
    pub fn claim_stale(&self, run: u32) {
        let w = self.runs().first_word(run);
        let old = self.runs().claim(w, 1);
        if old & 1 != 0 {
            self.runs().put_back(w, 1, old);
        }
    }
}

//! Making slabs free: a run of which every block is a hole gives its slabs back.
//!
//! Nothing does that but the want of slabs: until then an idle run stays its class', which finds it sooner that way.

use super::class::SizeClass;
use super::entry::Entry;
use super::layout::WORD_BITS;
use super::sets::Run;
use super::{GIVE_SLAB, Heap, SWEEP_ENTRY};
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;

/// Rows that are taken of as many words of a set as there are lanes: more than they have, but for what is put in meanwhile.
const SWEEPS: u32 = if NATIVE_LAYOUT { 1 << 10 } else { 4 };

impl Heap {
    /// Makes free the idle runs of a class in words `from` to before `to` of their set, until that is `enough` slabs.
    /// Returns how many it was.
    #[inline(never)]
    pub(super) fn sweep_class(&self, lanes: Group, class: SizeClass, words: (u32, u32), enough: u32) -> u32 {
        let (mut slabs, step) = (0, self.class(class).slabs);
        for _ in 0..SWEEPS {
            if slabs >= enough {
                break;
            }
            let run = self.take_last(lanes, class, words, (enough - slabs).div_ceil(step).min(WORD_BITS));
            if run.len == 0 {
                break;
            }
            self.give_slabs_together(lanes, run);
            slabs += run.len;
        }
        slabs
    }

    /// Makes free the idle runs of all classes. Whether there were any.
    #[inline(never)]
    pub(super) fn sweep_all(&self, lanes: Group) -> bool {
        let mut any = false;
        let used = self.used_classes(lanes);
        for class in (0..self.layout.classes).map(SizeClass) {
            any |= used.has(class.0) && self.sweep_everywhere(lanes, class, u32::MAX) > 0;
        }
        any
    }

    /// Makes free the idle runs of a class, until that is `enough` slabs. Returns how many it was.
    #[inline(never)]
    pub(super) fn sweep_everywhere(&self, lanes: Group, class: SizeClass, enough: u32) -> u32 {
        // Each word once: what is put in behind is not waited for.
        let (mut slabs, mut from, len) = (0, 0, self.layout.slab_words());
        while from < len && slabs < enough {
            let Some(w) = self.idle(class).next_word_together(lanes, from) else { break };
            from = (w + lanes.count()).min(len);
            slabs += self.sweep_class(lanes, class, (w, from), enough - slabs);
            self.settle_words(lanes, class, w, from);
        }
        slabs
    }

    /// Lets the summary of a class' idle runs know which words are empty.
    pub(super) fn settle_words(&self, lanes: Group, class: SizeClass, from: u32, to: u32) {
        let w = from + lanes.rank();
        if w < to {
            self.idle(class).settle(w);
        }
        lanes.sync();
    }

    /// Returns slabs, of which no one holds anything, to the free set.
    fn give_slabs_together(&self, lanes: Group, run: Run) {
        let mut i = lanes.rank();
        while i < run.len {
            SWEEP_ENTRY.delay();
            // Relaxed: the set's release is behind it.
            self.entry(run.first + i).store_relaxed(Entry::FREE.0);
            i += lanes.count();
        }
        lanes.sync();
        // ordering: release; pairs with TAKE_SLAB: what each lane wrote and cleared, before the slabs are in the set.
        GIVE_SLAB.fence_release();
        lanes.sync();
        if lanes.leads() {
            self.free_slabs().insert_run(run);
        }
        lanes.sync();
    }

    /// Returns slabs, of which no one holds anything, to the free set.
    pub(super) fn give_slabs(&self, run: Run) {
        self.give_slabs_together(Group::alone(), run);
    }
}

//! Making slabs free: a run of which every block is a hole gives its slabs back.
//!
//! The thread whose free completes a run puts it in the idle set, and no more. Who needs slabs sweeps that set: it
//! takes all bits of each run, and if it got every one, the slabs are free.

use super::class::SizeClass;
use super::count::Count;
use super::entry::Entry;
use super::layout::{ClassInfo, WORD_BITS, full_word, words};
use super::sets::Run;
use super::{FREE, Heap, RETIRE};
use crate::lanes::Group;
use crate::sync::NATIVE_LAYOUT;
use crate::units::LaneMask;

/// Words that a lane takes at once.
const AT_ONCE: usize = if NATIVE_LAYOUT { 4 } else { 1 };

/// Runs of as many words are swept by all lanes together, one after the other; smaller ones by a lane each.
const SHARED_WORDS: u32 = 32;

impl Heap {
    /// Makes free what runs in words `from` to before `to` of the idle set hold, until that is `enough` slabs.
    /// Returns how many it was.
    #[inline(never)]
    pub(super) fn sweep(&self, lanes: Group, from: u32, to: u32, enough: u32) -> u32 {
        let (mut w, mut slabs) = (from, 0);
        while w < to && slabs < enough {
            let next = lanes.broadcast_32(if lanes.leads() {
                self.idle().next_word_before(w, to).unwrap_or(to)
            } else {
                0
            });
            if next >= to {
                break;
            }
            w = next;
            let bits =
                lanes.broadcast_32(if lanes.leads() { self.idle().claim_bits(w, u32::MAX) } else { 0 });
            slabs += self.retire_word(lanes, w, bits);
            w += 1;
        }
        slabs
    }

    /// Makes free the slabs of the runs of one word of the idle set. Returns how many they were.
    fn retire_word(&self, lanes: Group, w: u32, bits: u32) -> u32 {
        let mut slabs = 0;
        let mut rest = bits;
        while rest != 0 {
            // A lane each, as many as there are lanes.
            let mut mine = rest;
            for _ in 0..lanes.rank() {
                mine &= mine.wrapping_sub(1);
            }
            for _ in 0..lanes.count() {
                rest &= rest.wrapping_sub(1);
            }
            let run = w * WORD_BITS + mine.trailing_zeros();
            let class = if mine == 0 { None } else { self.class_of_run(run) };
            let words = class.map_or(0, |class| self.class(class).words());
            if let (Some(class), true) = (class, words < SHARED_WORDS) {
                slabs += self.retire(Group::alone(), run, class);
            }
            let mut shared = lanes.ballot(words >= SHARED_WORDS);
            while !shared.is_empty() {
                let lane = shared.leader();
                let class = SizeClass(lanes.read_32(class.map_or(0, |class| class.0), lane));
                let made = self.retire(lanes, lanes.read_32(run, lane), class);
                slabs += if lanes.leads() { made } else { 0 };
                shared = shared.without(LaneMask::only(lane));
            }
        }
        lanes.wrapping_sum(slabs)
    }

    /// The class of the run that starts at this slab, if one does.
    fn class_of_run(&self, slab: u32) -> Option<SizeClass> {
        let entry = Entry(self.entry(slab).load_relaxed());
        if entry.place() == 0 { entry.class() } else { None }
    }

    /// If all blocks of the run are holes, takes them all and gives its slabs to the free set. Returns how many it
    /// gave. Every lane of the group calls it alike.
    #[inline(never)]
    fn retire(&self, group: Group, run: u32, class: SizeClass) -> u32 {
        let info = self.class(class);
        if !self.take_all_holes(group, run, class, info) {
            return 0;
        }
        if group.leads() {
            let whole = info.words() * Count::of(1, 1).0;
            self.count(run).sub_relaxed(whole);
            self.give_slabs(Run { first: run, len: info.slabs });
        }
        info.slabs
    }

    /// Clears every bit of the run, if every one is set and it still is of the class; none otherwise.
    fn take_all_holes(&self, group: Group, run: u32, class: SizeClass, info: &ClassInfo) -> bool {
        let (first, words) = (self.word_of(run, 0), info.words());
        let (mut w, mut taken, mut all) = (group.rank(), 0, true);
        while w < words && all {
            // A few at once: their round trips are as long as one.
            let mut old = [0; AT_ONCE];
            for (i, old) in (0..).zip(&mut old) {
                if w + i * group.count() < words {
                    // ordering: acquire; pairs with FREE: what the owners wrote, before the slabs are free (I4).
                    *old = self.bits(first + w + i * group.count()).swap_acquire(0, RETIRE);
                }
            }
            for old in old {
                if w < words {
                    if all && old == full_word(info.blocks, w) {
                        taken += 1;
                    } else {
                        self.restore(first + w, old);
                        all = false;
                    }
                }
                w += group.count();
            }
        }
        // With all blocks of a slab in hand, what its entry says stays so (I5).
        all &= taken == 0 || self.is_of(class, run);
        if group.all(all) {
            // What the lanes acquired is before what the leader gives on.
            group.sync();
            return true;
        }
        (0..taken).map(|i| group.rank() + i * group.count()).for_each(|w| {
            self.restore(first + w, full_word(info.blocks, w));
        });
        group.sync();
        false
    }

    /// Sets bits of a word again that were all it had when they were taken. Its slab may be another class' than
    /// was thought.
    #[cold]
    #[inline(never)]
    fn restore(&self, word: u32, bits: u32) {
        if bits == 0 {
            return;
        }
        let Some((run, blocks)) = self.owner_of(word) else { return };
        let full = full_word(blocks, word - self.word_of(run, 0));
        // ordering: release; pairs with CLAIM and RETIRE: it hands on what the claim acquired (I4).
        let old = self.bits(word).or_release(bits, FREE);
        // The count has what the word was before it was taken.
        let change = Count::change(old, old | bits, full).plus(Count::change(bits, 0, full));
        self.add_to_count(run, blocks, change);
    }

    /// Adds to the count of a run, and notes what that makes of it. Relaxed: it only says when to look at the bits.
    pub(super) fn add_to_count(&self, run: u32, blocks: u32, change: Count) {
        let before = Count(self.count(run).add_relaxed(change.0));
        let whole = before.plus(change).whole() == words(blocks);
        if whole || before.some() == 0 {
            self.note(run, whole);
        }
    }

    /// Returns slabs, of which no one holds anything, to the free set.
    pub(super) fn give_slabs(&self, run: Run) {
        for slab in run.first..run.first + run.len {
            // Relaxed: the set's release is behind it.
            self.entry(slab).store_relaxed(Entry::FREE.0);
        }
        self.free_slabs().insert_run(run);
    }
}

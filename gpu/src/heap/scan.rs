//! The search of the whole heap after which classes are refused memory, and how all who look for memory share it. It is a
//! scan against what was freed before it; not against what others have in hand meanwhile (decision 6).

use super::class::SizeClass;
use super::overview::ClassSet;
use super::sets::IndexSet;
use super::{ARRIVE, Heap, SCAN_RESULT, SEEK};
use crate::lanes::Group;
use crate::scans::{Sites, Wait};
use crate::sync::NATIVE_LAYOUT;
use crate::thread;

/// All warps of a GPU may wait for a scan, and read one word for that; and the scan of a lone lane in a large heap takes
/// long.
const WAIT: Wait = Wait { polls: if NATIVE_LAYOUT { 1 << 12 } else { 3 }, nanos: 1 << 14, polls_first: 0 };

/// Fewer lanes than this leave a scan to others for some time: they look at fewer words at once, and all others wait.
const FEW_LANES: u32 = 8;
const LEAVE: u32 = if NATIVE_LAYOUT { 4 } else { 0 };

/// What a search of the whole heap sees of a class besides free slabs.
#[derive(Clone, Copy)]
struct Seen {
    /// Whole runs: idle, or in cursors; or the rest of one there.
    runs: bool,
    /// Holes of other runs.
    holes: bool,
    /// A group that owes a cursor its next span.
    owed: bool,
}

/// The pause while others have in hand what a class has.
const IN_HAND_NANOS: u32 = 1 << 12;

impl Heap {
    /// The classes for which a search that began after this call found nothing: another group's, or this one's own.
    #[inline(never)]
    pub(super) fn refused_classes(&self, lanes: Group) -> ClassSet {
        let sites = Sites { arrive: ARRIVE, begin: SCAN_RESULT };
        // Of the classes each is known by its bit.
        let prove = || {
            self.prove(lanes);
            true
        };
        let wait = Wait { polls_first: if lanes.count() < FEW_LANES { LEAVE } else { 0 }, ..WAIT };
        if self.overview().scans.0.ask(lanes, sites, wait, prove).is_none() {
            return ClassSet::NONE;
        }
        // ordering: acquire; pairs with that of `prove`: the bits of the search whose scan_result was seen. Those of a later
        // one say as much.
        SCAN_RESULT.fence_acquire();
        lanes.sync();
        let (full, bare) = (self.full_classes(lanes), self.bare_classes(lanes));
        if full != bare {
            // Others have something in hand, or are faster: the next look shall find what they leave.
            thread::nanosleep(IN_HAND_NANOS);
        }
        full
    }

    /// Looks for memory for all classes that have had some, and makes free what can be: what cursors have becomes holes,
    /// runs of nothing else become free slabs. Writes down for which classes there is nothing.
    #[cold]
    #[inline(never)]
    fn prove(&self, lanes: Group) {
        // ordering: acquire; pairs with the release below: what the search before has moved from place to place. And with
        // ARRIVE, as the beginning does that was before it.
        SCAN_RESULT.fence_acquire();
        lanes.sync();
        let used = self.used_classes(lanes);
        self.close_all(lanes);
        // Runs that one lane has made whole are swept by others, and slabs that one has made free are seen by others.
        lanes.sync();
        self.sweep_all(lanes);
        lanes.sync();
        let longest = self.longest_fresh(lanes).max(self.free_slabs().longest_together(lanes));
        let sought = self.sought_classes(lanes);
        let (mut full, mut bare) = (ClassSet::NONE, ClassSet::NONE);
        for class in (0..self.layout.classes).map(SizeClass) {
            if !used.has(class.0) || self.class(class).slabs <= longest {
                continue;
            }
            let seen = self.look_at(lanes, class);
            if !seen.runs {
                bare.insert(class);
            }
            if !(seen.runs || seen.holes || seen.owed || sought.has(class.0)) {
                full.insert(class);
            }
        }
        lanes.sync();
        if lanes.leads() {
            self.set_verdict(full, bare);
            // ordering: release; pairs with that of `refused_classes`, the bits before the scan_result; and with that of the
            // next search.
            SCAN_RESULT.fence_release();
        }
    }

    /// The classes for whose dry cursors a group looks for a span, or has one in hand. Behind the look at what it may have
    /// taken: so it is seen here, or what it has stored is seen in the cursor after this.
    fn sought_classes(&self, lanes: Group) -> ClassSet {
        // ordering: acquire; pairs with the beginning of a search: what it has taken, after it was counted.
        SEEK.fence_acquire();
        // What any lane has seen taken is before all lanes' looks.
        lanes.sync();
        let (mut sought, mut class) = (ClassSet::NONE, lanes.rank());
        while class < self.layout.classes {
            // ordering: acquire; pairs with the end of a search: the span that it stored.
            if self.seekers(SizeClass(class)).at(SEEK).load_acquire() != 0 {
                sought.insert(SizeClass(class));
            }
            class += lanes.count();
        }
        let sought = sought.union(lanes);
        lanes.order();
        sought
    }

    /// What a class has. Cursors first, idle runs last: others make holes of what cursors have, and of holes idle runs.
    fn look_at(&self, lanes: Group, class: SizeClass) -> Seen {
        let (spans, owed) = self.look_at_spans(lanes, class);
        let holes = self.holds_any(lanes, self.partial(class));
        Seen { runs: spans || self.holds_any(lanes, self.idle(class)), holes, owed }
    }

    /// Whether there is anything in a set.
    fn holds_any(&self, lanes: Group, set: IndexSet) -> bool {
        match set.next_word_together(lanes, 0) {
            Some(w) => lanes.lead_64(|| set.next(w).is_some().into()) == 1,
            None => false,
        }
    }

    /// Whether the class' cursors have blocks, and whether one of them has none and soon will. The lanes look at some each.
    fn look_at_spans(&self, lanes: Group, class: SizeClass) -> (bool, bool) {
        let (mut shard, mut any, mut owed) = (lanes.rank(), false, false);
        while shard < self.layout.shards {
            for span in self.spans(class, shard, lanes.count()) {
                any |= span.left().is_some_and(|left| left > 0);
                owed |= span.left().is_none();
                shard += lanes.count();
            }
        }
        (!lanes.all(!any), !lanes.all(!owed))
    }

    /// The most slabs in a row that no one has had of a shard's partition, as far as a word has bits.
    fn longest_fresh(&self, lanes: Group) -> u32 {
        let (mut shard, mut longest) = (lanes.rank(), 0);
        while shard < self.layout.shards {
            longest = longest.max(self.fresh_left(shard));
            shard += lanes.count();
        }
        lanes.longest(longest)
    }
}

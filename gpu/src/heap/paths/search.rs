//! Search: memory for a class when its cursor is exhausted and there is no run for a span.
//!
//! The lanes of a group read up to 32 words of the list at once, then the words of one run, and
//! claim as many of its free blocks as lanes ask for. They unlist the runs that they find without
//! any.
//!
//! [`prove`](HeapCore::prove) shows that there is no memory. It looks at the moves, and reads level
//! 0 of the list, of the idle set and of the free slabs: no run of the class is listed, no run is
//! idle, and no free slabs are enough for a run. Then it looks at the moves again. If there were
//! none, nothing was removed from the sets meanwhile. So all of this was true at the first look,
//! and no block of the class was free then (I5 of
//! [`Runs`](crate::heap::structures::runs::Runs)). If a full run is listed, the search unlists it,
//! and begins the proof again: meanwhile another thread may have freed a block in a run that was
//! read, and taken the last block of the full one.

use crate::heap::layout::bits::{WORD_BITS, low_bits};
use crate::heap::layout::class::{ClassInfo, SizeClass};
use crate::heap::layout::entry::Entry;
use crate::heap::layout::scatter::{hash, scaled};
use crate::heap::structures::heap_core::HeapCore;
use crate::heap::structures::orderings::SEARCH_END;
use crate::heap::structures::slabs::SlabSearch;
use crate::lanes::{Group, select_bit};
use crate::sync::NATIVE_LAYOUT;

/// The most idle runs that are looked at for one of another class.
const OTHERS: u32 = 8;

/// The attempts of a search to prove that there is no memory.
const PROOFS: u32 = if NATIVE_LAYOUT { 4 } else { 2 };

/// The most words of the idle set that a lane sweeps for runs to retire.
const PASSES: u32 = if NATIVE_LAYOUT { 8 } else { 1 };

/// In place of a slab: no run.
const NONE: u32 = u32::MAX;

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::heap) enum Found {
    /// The address of a block, which is the caller's.
    Block(u64),
    /// There is no memory for the class.
    Nothing,
    /// Other threads hold or move memory, or there is a run for a span: the caller is to try again.
    Unsure,
}

/// The result of an attempt to prove that there is no memory for a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::heap) enum Proof {
    /// There is none.
    Nothing,
    /// A run of the class is listed, at this index or after it.
    Listed(u32),
    /// There are free slabs for a run, or runs that can be made free.
    Free,
    /// A move overlapped the attempt.
    Moved,
}

/// The blocks that a group has claimed for lanes of one class.
struct Claims {
    /// Number of lanes that have a block: the first ones.
    served: u32,
    /// The address of the caller's block, or 0.
    address: u64,
}

impl Found {
    /// The block at this address, if there is one.
    fn of(address: u64) -> Self {
        if address != 0 { Found::Block(address) } else { Found::Unsure }
    }
}

impl HeapCore {
    /// Searches for free blocks for the lanes of the group that ask, each of its own class. Groups
    /// with different `salt` start at different runs and blocks.
    ///
    /// If a class has no free block, but there is memory for a run of it, this memory is left to
    /// the cursors. If `makes_runs`, the group makes a run of it, and claims blocks of that; also
    /// if other threads took the free blocks that it found.
    #[inline(never)]
    pub(in crate::heap) fn search(
        &self,
        group: Group,
        asks: bool,
        class: SizeClass,
        salt: u32,
        makes_runs: bool,
    ) -> Found {
        let (mut found, mut rest) = (Found::Unsure, group.ballot(asks));
        let salt = group.broadcast_32(hash(salt));
        // One turn for each class.
        while !rest.is_empty() {
            let searched = SizeClass(group.read_32(class.0, rest.leader()));
            let is_mine = asks && class == searched;
            let wanting = group.filter(is_mine);
            let result = self.search_class(group, wanting, searched, salt, makes_runs);
            if is_mine {
                found = result;
            }
            rest = rest.without(wanting.members());
        }
        found
    }

    /// [`search`](Self::search) for the lanes that are `wanting` blocks of one class. All lanes of
    /// the group take part.
    fn search_class(
        &self,
        group: Group,
        wanting: Group,
        class: SizeClass,
        salt: u32,
        makes_runs: bool,
    ) -> Found {
        let (runs, info) = (self.runs(), self.class(class));
        let (start, end) =
            (self.layout.run_index(class, 0), self.layout.run_index(SizeClass(class.0 + 1), 0));
        let middle = start + scaled(salt, self.layout.slabs) / WORD_BITS * WORD_BITS;
        let (mut claims, mut is_free) = (Claims { served: 0, address: 0 }, false);
        let listed = runs.listed();
        // First the runs that the levels of the list show, then all: only level 0 is exact.
        'passes: for pass in 0..2 + PROOFS {
            let is_exact = pass >= 2;
            let (mut from, to) = match pass {
                0 => (middle, end),
                1 => (start, middle),
                _ => match self.prove(group, class) {
                    Proof::Nothing => return Found::Nothing,
                    Proof::Moved => continue,
                    Proof::Listed(from) => (from, end),
                    Proof::Free => {
                        is_free = true;
                        break;
                    }
                },
            };
            let next = |from| {
                if is_exact { listed.scan(group, from, to) } else { listed.next_of(group, from, to) }
            };
            while let Some(next) = next(from) {
                // Each lane looks at the runs of a word.
                let first = next / WORD_BITS;
                let w = first + group.rank();
                let row = if w * WORD_BITS < end { listed.word(w).load_relaxed() } else { 0 };
                let open = runs.first_open(class, info, w, row);
                listed.settle(w);
                let (mut lanes, before) = (group.ballot(open.is_some()), claims.served);
                if lanes.is_empty() {
                    from = (first + group.count()) * WORD_BITS;
                    continue;
                }
                while !lanes.is_empty() && claims.served < wanting.count() {
                    let run = group.read_32(open.unwrap_or(0), lanes.leader());
                    self.claim_blocks(group, run, class, salt, wanting, &mut claims);
                    lanes = lanes.without_leader();
                }
                if claims.served == wanting.count() {
                    return Found::of(claims.address);
                }
                // If this turn served some lanes, the next one reads these words again. Otherwise
                // other threads took all blocks of these runs.
                if claims.served == before {
                    break 'passes;
                }
            }
            if claims.served > 0 {
                return Found::of(claims.address);
            }
            if is_exact && self.has_run(group, info) {
                is_free = true;
                break;
            }
        }
        // Beside many threads that search, few groups get a block of a run that they find.
        if claims.served == 0 && (is_free || makes_runs && self.has_run(group, info)) {
            let run = group.lead_32(|| self.take_run(class, info, salt, makes_runs).unwrap_or(NONE));
            if run != NONE {
                // Without it, the other lanes may not see the bits of the new run yet.
                group.sync();
                self.claim_blocks(group, run, class, salt, wanting, &mut claims);
            }
        }
        Found::of(claims.address)
    }

    /// Tries to prove that there is no memory for a class. All lanes of the group take part.
    #[inline(never)]
    pub(in crate::heap) fn prove(&self, group: Group, class: SizeClass) -> Proof {
        let (moves, common) = (self.overview().class(class), self.overview().common());
        let before = (moves.search(), common.search());
        // Beside an open move no proof is possible. The caller is not to unlist the runs that this
        // would find: that would be another move.
        if group.lead_64(|| (before.0.is_quiet() && before.1.is_quiet()).into()) == 0 {
            return Proof::Moved;
        }
        // Orders the moves that the leader saw end before the reads of all lanes.
        group.sync();
        let (start, end) =
            (self.layout.run_index(class, 0), self.layout.run_index(SizeClass(class.0 + 1), 0));
        if let Some(first) = self.runs().listed().scan(group, start, end) {
            return Proof::Listed(first);
        }
        if self.has_run(group, self.class(class)) {
            return Proof::Free;
        }
        // ordering: acquire; pairs with REMOVE and CLAIM_SLABS: the moves that hid memory from the
        // reads above, before the leader's look at the moves.
        SEARCH_END.fence_acquire();
        group.sync();
        let is_sure = || (moves.is_unchanged(before.0) && common.is_unchanged(before.1)).into();
        if group.lead_64(is_sure) == 1 { Proof::Nothing } else { Proof::Moved }
    }

    /// Claims free blocks of a run for the `wanting` lanes that are not served, by all lanes of the
    /// group.
    fn claim_blocks(
        &self,
        group: Group,
        run: u32,
        class: SizeClass,
        salt: u32,
        wanting: Group,
        claims: &mut Claims,
    ) {
        let (runs, info) = (self.runs(), self.class(class));
        let (words, most) = (info.words(), wanting.count() - claims.served);
        let mut total = 0;
        // The lanes read consecutive words, starting at one that depends on `salt`.
        let (mut round, shift) = (0, salt % words);
        while round < words && total < most {
            let i = round + group.rank();
            let w = if i + shift < words { i + shift } else { i + shift - words };
            let seen = if i < words { runs.bits(runs.first_word(run) + w).load_relaxed() } else { 0 };
            let before = total + group.prefix_sum(seen.count_ones()).before;
            let wanted = most.saturating_sub(before);
            let got = runs.claim_some(run, class, info, w, some_bits(seen, wanted, salt));
            // What the claiming lanes acquired is before the other lanes (I3 of `runs`).
            group.sync();
            let mut claimers = group.ballot(got != 0);
            while !claimers.is_empty() {
                let lane = claimers.leader();
                let (got, w) = (group.read_32(got, lane), group.read_32(w, lane));
                let mine = wanting.rank().wrapping_sub(claims.served + total);
                if wanting.is_member() && mine < got.count_ones() {
                    let block = w * WORD_BITS + select_bit(got, mine);
                    claims.address = self.block_address(info, run, block);
                }
                total += got.count_ones();
                claimers = claimers.without_leader();
            }
            round += group.count();
        }
        claims.served += total;
    }

    /// Whether there are free slabs for a run of the class, or runs that can be made free. All
    /// lanes of the group take part.
    pub(in crate::heap) fn has_run(&self, group: Group, info: &ClassInfo) -> bool {
        self.runs().idle().scan(group, 0, self.layout.slabs).is_some()
            || self.free_slabs().scan(group, info.slabs)
    }

    /// Whether there seem to be free slabs for a run of the class, or runs of other classes that
    /// can be made free.
    pub(in crate::heap) fn has_other_run(&self, class: SizeClass, info: &ClassInfo) -> bool {
        let (runs, mut from) = (self.runs(), 0);
        for _ in 0..OTHERS {
            let Some(slab) = runs.idle().next(from, self.layout.slabs) else { break };
            // Relaxed: a hint.
            if Entry(runs.entry(slab).load_relaxed()).class() != Some(class) {
                return true;
            }
            from = slab + 1;
        }
        self.free_slabs().has(info.slabs)
    }

    /// Retires idle runs and, if `makes_runs`, makes a run of the class. Returns the first slab of
    /// that run, if there were free slabs.
    fn take_run(&self, class: SizeClass, info: &ClassInfo, salt: u32, makes_runs: bool) -> Option<u32> {
        self.retire_one(salt, info.slabs);
        if makes_runs { self.make_run(class, salt) } else { None }
    }

    /// Makes a run of the class of free slabs. Returns its first slab, if there were any.
    pub(in crate::heap) fn make_run(&self, class: SizeClass, salt: u32) -> Option<u32> {
        let (info, free) = (self.class(class), self.free_slabs());
        let from = scaled(salt, self.layout.slabs) / WORD_BITS * WORD_BITS;
        let slabs = free.claim(Group::alone(), from, info.slabs, info.slabs, SlabSearch::Full);
        if slabs.len > 0 {
            self.runs().dedicate(slabs.first, 1, class, info);
            free.moves.end();
        }
        (slabs.len > 0).then_some(slabs.first)
    }

    /// Makes the slabs of fully free runs free, about `least` slabs, from slab `start` on. All
    /// lanes of the group take part, each at other words of the idle set. They look at all words if
    /// `is_exact`, otherwise at [`PASSES`] words each. Returns whether there were any.
    #[cold]
    #[inline(never)]
    pub(in crate::heap) fn retire_idle(&self, group: Group, start: u32, least: u32, is_exact: bool) -> bool {
        let (idle, slabs) = (self.runs().idle(), self.layout.slabs);
        let (mut freed, mut passes) = (0, if is_exact { slabs } else { PASSES });
        let start = start / WORD_BITS * WORD_BITS;
        let next = |from, to| {
            if is_exact { idle.scan(group, from, to) } else { idle.next_of(group, from, to) }
        };
        for (mut from, to) in [(start, slabs), (0, start)] {
            while freed < least && passes > 0 {
                let Some(slab) = next(from, to) else { break };
                let w = slab / WORD_BITS + group.rank();
                let free = if w < idle.len() { self.runs().sweep(w, idle.word(w).load_relaxed()) } else { 0 };
                idle.settle(w);
                // Equals the result of the lanes doing this one after the other.
                let before = freed + group.prefix_sum(self.slabs_of(w, free)).before;
                freed += group.wrapping_sum(self.retire(w, free, least.saturating_sub(before)));
                (from, passes) = ((slab / WORD_BITS + group.count()) * WORD_BITS, passes - 1);
            }
        }
        freed > 0
    }

    /// The slabs of the runs `bits` of word `w` of the idle set.
    fn slabs_of(&self, w: u32, bits: u32) -> u32 {
        let (runs, mut rest, mut slabs) = (self.runs(), bits, 0);
        while rest != 0 {
            // Relaxed: a hint.
            slabs += Entry(runs.entry(w * WORD_BITS + rest.trailing_zeros()).load_relaxed()).slabs();
            rest &= rest - 1;
        }
        slabs
    }

    /// Retires or sweeps the runs of one word of the idle set that depends on `salt`.
    fn retire_one(&self, salt: u32, least: u32) {
        let (idle, end) = (self.runs().idle(), self.layout.slabs);
        let middle = scaled(salt, end);
        if let Some(slab) = idle.next(middle, end).or_else(|| idle.next(0, middle)) {
            let w = slab / WORD_BITS;
            let bits = idle.word(w).load_relaxed() >> (slab % WORD_BITS) << (slab % WORD_BITS);
            self.retire(w, self.runs().sweep(w, bits), least);
        }
    }

    /// Makes the slabs of fully free runs free: of the runs `bits` of word `w` of the idle set,
    /// until there are `least` slabs or no more runs. Returns the number of slabs.
    fn retire(&self, w: u32, bits: u32, least: u32) -> u32 {
        let (runs, mut rest, mut bits, mut slabs) = (self.runs(), bits, 0, 0);
        while rest != 0 && slabs < least {
            // Relaxed: a hint.
            slabs += Entry(runs.entry(w * WORD_BITS + rest.trailing_zeros()).load_relaxed()).slabs();
            bits |= rest & rest.wrapping_neg();
            rest &= rest - 1;
        }
        if bits == 0 {
            return 0;
        }
        // Searches of every class read these moves, too: no move of the class is needed.
        self.overview().common().during(|| {
            let taken = runs.retire(w, bits);
            self.free_slabs().insert_mask(w * WORD_BITS, taken);
            taken.count_ones()
        })
    }
}

/// `n` of the set bits of a word, or all if there are fewer. `salt` decides which come first.
fn some_bits(word: u32, n: u32, salt: u32) -> u32 {
    if n == 0 || word.count_ones() <= n {
        return if n == 0 { 0 } else { word };
    }
    let turned = word.rotate_right(salt);
    (turned & low_bits(select_bit(turned, n - 1) + 1)).rotate_left(salt)
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, not(loom)))]
mod hidden_tests;

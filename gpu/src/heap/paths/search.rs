//! Search: memory for a class when its cursor is exhausted and there is no run for a span.
//!
//! The lanes of a group read up to 32 words of the list at once, then the words of one run, and
//! claim as many of its free blocks as lanes ask for. A search can also prove that there are no
//! free blocks: it unlists the runs that it finds without any. If no move by another thread
//! overlapped the search, then at its end no block of the class was free, and there were no slabs
//! for a run of it.

use crate::heap::layout::bits::{WORD_BITS, low_bits};
use crate::heap::layout::class::{ClassInfo, MAX_RUN, SizeClass};
use crate::heap::layout::scatter::{hash, scaled};
use crate::heap::structures::heap_core::HeapCore;
use crate::heap::structures::moves::Before;
use crate::heap::structures::orderings::SEARCH_END;
use crate::lanes::{Group, select_bit};

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

impl Found {
    /// The block at this address, if there is one.
    fn of(address: u64, is_nothing: bool) -> Self {
        if address != 0 {
            Found::Block(address)
        } else if is_nothing {
            Found::Nothing
        } else {
            Found::Unsure
        }
    }
}

// The slabs of the runs of a word are in 64 bits.
const _: () = assert!(WORD_BITS - 1 + MAX_RUN.0 <= u64::BITS);

impl HeapCore {
    /// Searches for free blocks for the lanes of the group that ask, each of its own class. Groups
    /// with different `salt` start at different runs and blocks.
    ///
    /// If a class has no free block, but there is memory for a run of it, this memory is left to
    /// the cursors. If `makes_runs`, the group makes one run, which a later search finds.
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
        let (moves, common) = (self.overview().class(class), self.overview().common());
        let (mut before, mut common_before) = (moves.search(), common.search());
        // Orders the moves that the leader saw end before the reads of all lanes.
        group.sync();
        let (start, end) = (self.layout.run_index(class, 0), self.layout.run_index(class, self.layout.slabs));
        let middle = start + scaled(salt, self.layout.slabs);
        let (mut served, mut address) = (0, 0);
        for (mut from, to) in [(middle, end), (start, middle)] {
            while let Some(next) = runs.listed().next_of(group, from, to, common, &mut common_before) {
                // Each lane looks at the runs of a word.
                let (first, mut own_moves) = (next / WORD_BITS, 0);
                let w = first + group.rank();
                let row = if w * WORD_BITS < end { runs.listed().word(w).load_relaxed() } else { 0 };
                let open = runs.first_open(class, info, w, row, &mut own_moves);
                before.note_own(group.wrapping_sum(own_moves));
                common_before.note_own(group.wrapping_sum(runs.listed().settle(w, common)));
                let (mut lanes, served_before) = (group.ballot(open.is_some()), served);
                if lanes.is_empty() {
                    from = (first + group.count()) * WORD_BITS;
                    continue;
                }
                while !lanes.is_empty() && served < wanting.count() {
                    let run = group.read_32(open.unwrap_or(0), lanes.leader());
                    let (got, block) = self.claim_blocks(group, run, class, salt, wanting, served);
                    if let Some(block) = block {
                        address = self.block_address(info, run, block);
                    }
                    served += got;
                    lanes = lanes.without_leader();
                }
                // If this turn served no lane, other threads took all blocks of these runs. If it
                // served some lanes, the next turn reads these words again.
                if served == wanting.count() || served == served_before {
                    return Found::of(address, false);
                }
            }
        }
        if served > 0 {
            return Found::of(address, false);
        }
        if group.lead_64(|| self.has_run(info, &mut common_before).into()) == 1 {
            if group.leads() {
                self.retire_one(salt, info.slabs);
                if makes_runs {
                    self.make_run(class, salt);
                }
            }
            return Found::Unsure;
        }
        // ordering: acquire; pairs with REMOVE, LOWER and CLAIM_SLABS: the moves that hid memory
        // from the reads above, before the leader's look at the moves.
        SEARCH_END.fence_acquire();
        group.sync();
        let is_sure = || (moves.is_unchanged(before) && common.is_unchanged(common_before)).into();
        Found::of(0, group.lead_64(is_sure) == 1)
    }

    /// Claims free blocks of a run for the `wanting` lanes that are not `served`, by all lanes of
    /// the group. Returns the number of claimed blocks, and the caller's block.
    fn claim_blocks(
        &self,
        group: Group,
        run: u32,
        class: SizeClass,
        salt: u32,
        wanting: Group,
        served: u32,
    ) -> (u32, Option<u32>) {
        let (runs, info) = (self.runs(), self.class(class));
        let (words, most) = (info.words(), wanting.count() - served);
        let (mut total, mut block) = (0, None);
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
                let mine = wanting.rank().wrapping_sub(served + total);
                if mine < got.count_ones() {
                    block = Some(w * WORD_BITS + select_bit(got, mine));
                }
                total += got.count_ones();
                claimers = claimers.without_leader();
            }
            round += group.count();
        }
        (total, block.filter(|_| wanting.is_member()))
    }

    /// Whether there are free slabs for a run of the class, or runs that can be made free.
    pub(in crate::heap) fn has_run(&self, info: &ClassInfo, before: &mut Before) -> bool {
        let idle = self.runs().idle();
        idle.next(0, self.layout.run_indices(), self.overview().common(), before).is_some()
            || self.free_slabs().has(info.slabs, before)
    }

    /// Whether there are free slabs for a run of the class, or runs that can be made free, for a
    /// caller that is not in a search.
    pub(in crate::heap) fn has_any_run(&self, info: &ClassInfo) -> bool {
        self.has_run(info, &mut self.overview().common().search())
    }

    /// Whether there are free slabs for a run of the class, or runs of other classes that can be
    /// made free.
    pub(in crate::heap) fn has_other_run(&self, class: SizeClass, info: &ClassInfo) -> bool {
        let (idle, common) = (self.runs().idle(), self.overview().common());
        let (start, end) =
            (self.layout.run_index(class, 0), self.layout.run_index(SizeClass(class.0 + 1), 0));
        let mut ignored = common.search();
        let mut next = |from| idle.next(from, self.layout.run_indices(), common, &mut ignored);
        // A second search only if the first one finds a run of the class.
        let first = next(0);
        let is_other = match first {
            Some(index) if start <= index && index < end => next(end).is_some(),
            first => first.is_some(),
        };
        is_other || self.free_slabs().has(info.slabs, &mut ignored)
    }

    /// Makes a run of the class of free slabs, if there are any.
    pub(in crate::heap) fn make_run(&self, class: SizeClass, salt: u32) {
        let (info, free) = (self.class(class), self.free_slabs());
        let from = scaled(salt, self.layout.slabs) / WORD_BITS * WORD_BITS;
        self.overview().common().during(|| {
            let slabs = free.claim(Group::alone(), from, info.slabs, info.slabs, false);
            if slabs.len > 0 {
                self.runs().dedicate(slabs.first, 1, class, info);
            }
        });
    }

    /// Retires fully free runs, from index `start` of the idle set on, until `least` slabs or all
    /// of them are free. Returns whether it freed any.
    #[cold]
    #[inline(never)]
    pub(in crate::heap) fn retire_idle(&self, start: u32, least: u32) -> bool {
        let (runs, common) = (self.runs(), self.overview().common());
        let mut freed = 0;
        let mut ignored = common.search();
        for (mut from, to) in [(start, self.layout.run_indices()), (0, start)] {
            while freed < least {
                let Some(index) = runs.idle().next(from, to, common, &mut ignored) else { break };
                freed += self.retire(index, least - freed);
                from = (index / WORD_BITS + 1) * WORD_BITS;
            }
        }
        freed > 0
    }

    /// Retires fully free runs of one word of the idle set, which depends on `salt`, until `least`
    /// slabs are free. Removes the runs that are not fully free from that word.
    fn retire_one(&self, salt: u32, least: u32) {
        let (idle, common, end) = (self.runs().idle(), self.overview().common(), self.layout.run_indices());
        let middle = scaled(salt, end);
        let mut ignored = common.search();
        let mut next = |from, to| idle.next(from, to, common, &mut ignored);
        if let Some(index) = next(middle, end).or_else(|| next(0, middle)) {
            self.retire(index, least);
        }
    }

    /// Retires fully free runs of one word of the idle set, from index `index` on, until `least`
    /// slabs or all of them are free. Returns the number of freed slabs.
    fn retire(&self, index: u32, least: u32) -> u32 {
        let (class, run) = self.layout.run_at(index);
        let (info, runs, w) = (self.class(class), self.runs(), index / WORD_BITS);
        let bits = runs.idle().word(w).load_relaxed() >> (index % WORD_BITS) << (index % WORD_BITS);
        let (mut rest, mut bits) = (runs.sweep(class, info, w, bits), 0_u32);
        while rest != 0 && bits.count_ones() * info.slabs < least {
            bits |= rest & rest.wrapping_neg();
            rest &= rest - 1;
        }
        if bits == 0 {
            return 0;
        }
        // Searches of every class look at these moves, too: no move of the class is needed.
        let taken = self.overview().common().during(|| {
            let taken = runs.retire(class, info, w, bits);
            let (mut mask, mut rest) = (0, taken);
            while rest != 0 {
                mask |= u64::from(low_bits(info.slabs)) << rest.trailing_zeros();
                rest &= rest - 1;
            }
            self.free_slabs().insert_mask(run / WORD_BITS * WORD_BITS, mask);
            taken
        });
        taken.count_ones() * info.slabs
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

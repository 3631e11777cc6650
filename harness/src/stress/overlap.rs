//! Finds blocks that share memory by sorting them: the second method, in addition to the ownership
//! map on the device.

use rayon::slice::ParallelSliceMut;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::OnceLock;

/// A block: the bytes `start..end`, and its number among all compared blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The first byte.
    pub start: u64,
    /// The first byte after its end.
    pub end: u64,
    /// Its number.
    pub place: u32,
}

/// Two blocks that share memory, in order of their starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overlap {
    /// The block that starts first.
    pub first: Span,
    /// The other block.
    pub second: Span,
}

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Overlaps {
    /// For each block that starts inside an earlier one, this pair. The first of the pair is the
    /// earlier block with the highest end.
    pub pairs: Vec<Overlap>,
    /// The number of blocks that share memory with another.
    pub blocks: u64,
}

/// From this number of blocks on, parallel sorting is faster.
const MANY: usize = 1 << 14;

/// Compares all blocks. Sorts them by their start and removes empty ones.
pub(super) fn check(spans: &mut Vec<Span>) -> Overlaps {
    spans.retain(|span| span.start < span.end);
    let key = |span: &Span| (span.start, span.end, span.place);
    match sorters().filter(|_| spans.len() >= MANY) {
        Some(sorters) => sorters.install(|| spans.par_sort_unstable_by_key(key)),
        None => spans.sort_unstable_by_key(key),
    }
    sweep(spans)
}

/// The threads that sort. None if the system cannot start them.
fn sorters() -> Option<&'static ThreadPool> {
    static SORTERS: OnceLock<Option<ThreadPool>> = OnceLock::new();
    let start = || ThreadPoolBuilder::new().build();
    let warn = |error: &_| tracing::warn!(%error, "blocks are sorted by one thread");
    SORTERS.get_or_init(|| start().inspect_err(warn).ok()).as_ref()
}

/// Compares each block with the earlier block that has the highest end. `sorted` is sorted by
/// start.
///
/// Finds every block that shares memory. Proof: let `x` share memory with a later `y`. The block
/// right after `x` starts inside `x`. If `x` does not have the highest end at that point, the block
/// that has it also ends after the start of `x`, and the overlap with `x` was found at `x`.
fn sweep(sorted: &[Span]) -> Overlaps {
    let mut found = Overlaps::default();
    let Some((first, rest)) = sorted.split_first() else { return found };
    let (mut furthest, mut counted) = (*first, false);
    for span in rest {
        let meets = span.start < furthest.end;
        if meets {
            found.pairs.push(Overlap { first: furthest, second: *span });
            found.blocks += 1 + u64::from(!counted);
            counted = true;
        }
        if span.end > furthest.end {
            (furthest, counted) = (*span, meets);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn spans(blocks: &[(u64, u64)]) -> Vec<Span> {
        let span =
            |(i, &(start, len)): (usize, &(u64, u64))| Span { start, end: start + len, place: i as u32 };
        blocks.iter().enumerate().map(span).collect()
    }

    fn share(a: &Span, b: &Span) -> bool {
        a.start.max(b.start) < a.end.min(b.end)
    }

    /// Compares all pairs of blocks.
    fn naive(spans: &[Span]) -> BTreeSet<u32> {
        let meets = |a: &&Span| spans.iter().any(|b| b.place != a.place && share(a, b));
        spans.iter().filter(meets).map(|span| span.place).collect()
    }

    #[test]
    fn neighbours_do_not_overlap() {
        assert_eq!(check(&mut spans(&[(64, 64), (0, 64), (128, 1)])), Overlaps::default());
        assert_eq!(check(&mut Vec::new()), Overlaps::default());
    }

    #[test]
    fn one_byte_is_enough_and_both_are_named() {
        let found = check(&mut spans(&[(64, 64), (0, 65)]));
        assert_eq!(found.blocks, 2);
        assert_eq!((found.pairs[0].first.place, found.pairs[0].second.place), (1, 0));
    }

    #[test]
    fn a_long_block_that_covers_many_is_counted_once() {
        assert_eq!(check(&mut spans(&[(0, 1000), (10, 1), (20, 1), (999, 5), (1003, 2)])).blocks, 5);
    }

    #[test]
    fn the_same_block_three_times() {
        let found = check(&mut spans(&[(16, 16), (16, 16), (16, 16)]));
        assert_eq!((found.blocks, found.pairs.len()), (3, 2));
    }

    proptest! {
        #[test]
        fn it_agrees_with_comparing_all_pairs(
            blocks in prop::collection::vec((0u64..200, 0u64..24), 0..40)
        ) {
            let mut all = spans(&blocks);
            let expected = naive(&all);
            let found = check(&mut all);
            prop_assert_eq!(found.blocks, expected.len() as u64);
            for pair in &found.pairs {
                prop_assert!(share(&pair.first, &pair.second));
                prop_assert!(expected.contains(&pair.first.place) && expected.contains(&pair.second.place));
            }
        }

        #[test]
        fn sorting_in_parallel_changes_nothing(seed in any::<u64>()) {
            let mut all: Vec<Span> = (0..MANY as u64 + 100)
                .map(|i| {
                    let start = warpheap_device::check::hash::absorb(seed, i) % (1 << 26);
                    Span { start, end: start + 64, place: i as u32 }
                })
                .collect();
            let found = check(&mut all);
            all.sort_by_key(|span| (span.start, span.end, span.place));
            prop_assert_eq!(found, sweep(&all));
        }
    }
}

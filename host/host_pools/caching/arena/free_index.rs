//! Free pieces sorted by size, for best fit.
//!
//! ```text
//!   bin            …  4096 to 4607   4608 to 5119   …        eight per doubling
//!   filled         …  1              0              …        one bit per bin
//!   pieces         …  (4096, start), (4200, start)           sorted by size and start
//! ```
//!
//! I1: each piece is in the bin of its size, once, and the pieces of a bin are sorted. I2: a bit of
//! `filled` is set if and only if its bin is not empty. I3: `len` is the sum over all bins.
//!
//! An insertion or removal is a binary search in one bin, and moves the pieces behind it: some
//! hundred bytes, where a tree touches several nodes.

/// Size, start and number of a piece.
pub(super) type Piece = (u64, u64, u32);

/// Bins per doubling, as a power of two.
const PER_LOG: u32 = 3;
/// All smaller pieces are in the first bin.
const LEAST_LOG: u32 = 8;

#[derive(Default)]
pub(super) struct FreeIndex {
    bins: Vec<Vec<Piece>>,
    filled: [u64; BINS.div_ceil(64)],
    len: usize,
}

const BINS: usize = bin_of(u64::MAX) + 1;

/// The bin of a size; monotonic.
const fn bin_of(bytes: u64) -> usize {
    let bytes = if bytes < 1 << LEAST_LOG { 1 << LEAST_LOG } else { bytes };
    let log = bytes.ilog2();
    let part = (bytes >> (log - PER_LOG)) as usize & ((1 << PER_LOG) - 1);
    ((log - LEAST_LOG) as usize) << PER_LOG | part
}

impl FreeIndex {
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn insert(&mut self, piece: Piece) {
        let at = bin_of(piece.0);
        if self.bins.len() <= at {
            self.bins.resize_with(at + 1, Vec::new);
        }
        let bin = &mut self.bins[at];
        let place = bin.partition_point(|other| *other < piece);
        bin.insert(place, piece);
        self.filled[at / 64] |= 1 << (at % 64);
        self.len += 1;
    }

    /// Removes a piece, if present.
    pub fn remove(&mut self, piece: &Piece) {
        let at = bin_of(piece.0);
        let Some(bin) = self.bins.get_mut(at) else { return };
        let Ok(place) = bin.binary_search(piece) else { return };
        bin.remove(place);
        if bin.is_empty() {
            self.filled[at / 64] &= !(1 << (at % 64));
        }
        self.len -= 1;
    }

    /// The first bin from `at` on that is not empty.
    fn next_filled(&self, at: usize) -> Option<usize> {
        let word = at / 64;
        let first = self.filled.get(word)? & (u64::MAX << (at % 64));
        let rest = self.filled[word + 1..].iter().copied();
        let mut words = std::iter::once(first).chain(rest).zip(word..);
        words.find_map(|(bits, word)| (bits > 0).then(|| word * 64 + bits.trailing_zeros() as usize))
    }

    /// Pieces of at least `bytes` bytes, by size, then by start.
    pub fn from(&self, bytes: u64) -> impl Iterator<Item = &Piece> {
        let first = bin_of(bytes);
        let own =
            self.bins.get(first).map_or(&[][..], |bin| &bin[bin.partition_point(|one| one.0 < bytes)..]);
        let mut at = first;
        let behind = std::iter::from_fn(move || {
            at = self.next_filled(at + 1)?;
            Some(&self.bins[at])
        });
        own.iter().chain(behind.flatten())
    }

    /// All pieces, by size, then by start.
    pub fn iter(&self) -> impl Iterator<Item = &Piece> {
        self.bins.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// I1 to I3.
    fn check(pieces: &FreeIndex) {
        for (at, bin) in pieces.bins.iter().enumerate() {
            assert!(bin.iter().all(|piece| bin_of(piece.0) == at) && bin.is_sorted(), "I1");
            assert_eq!(pieces.filled[at / 64] >> (at % 64) & 1 == 1, !bin.is_empty(), "I2");
        }
        assert_eq!(pieces.bins.iter().map(Vec::len).sum::<usize>(), pieces.len(), "I3");
    }

    #[test]
    fn bins_are_sorted_by_size() {
        let borders = (0..64).flat_map(|log| (0..8).map(move |n| (1_u64 << log) + ((1_u64 << log) >> 3) * n));
        let sizes: BTreeSet<u64> = borders.flat_map(|size| [size - 1, size, size + 1]).collect();
        assert!(sizes.iter().map(|size| bin_of(*size)).is_sorted());
        assert_eq!((bin_of(0), bin_of(287), bin_of(288), BINS), (0, 0, 1, 448));
    }

    proptest! {
        #[test]
        fn it_equals_a_sorted_set(
            steps in prop::collection::vec((0_u64..60, 0_u64..50, any::<bool>(), 0_u64..60), 1..300)
        ) {
            let (mut pieces, mut tree) = (FreeIndex::default(), BTreeSet::new());
            let size = |n: u64| (8 + n % 8) << (n / 8 + 5);
            for (number, (n, start, adds, requested)) in (0_u32..).zip(steps) {
                let piece = (size(n), start, 7);
                if adds && tree.insert(piece) {
                    pieces.insert(piece);
                } else if !adds {
                    tree.remove(&piece);
                    pieces.remove(&piece);
                }
                let requested = size(requested) - u64::from(number % 2);
                prop_assert!(pieces.from(requested).eq(tree.range((requested, 0, 0)..)));
                prop_assert!(pieces.iter().eq(&tree));
                check(&pieces);
            }
        }
    }
}

//! The address ranges of blocks, as the segments of a snapshot.

use std::collections::BTreeMap;

/// Ranges that are less than this apart belong together. Device memory is mapped in pieces of this
/// size, so nothing else can be between them.
const GAP: u64 = 2 << 20;

/// An address range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// The stream of its first block.
    pub stream: u64,
}

/// Disjoint ranges, at least [`GAP`] apart, by their start.
#[derive(Debug, Default)]
pub struct Extents(BTreeMap<u64, Extent>);

impl Extents {
    /// Adds the range of a block.
    pub fn add(&mut self, address: u64, bytes: u64, stream: u64) {
        let mut new = Extent { start: address, end: address.saturating_add(bytes), stream };
        if let Some((_, before)) = self.0.range_mut(..=address).next_back() {
            if new.end <= before.end {
                return;
            }
            if address < before.end.saturating_add(GAP) {
                new = Extent { end: new.end, ..*before };
            }
        }
        while let Some((&start, after)) = self.0.range(new.start..new.end.saturating_add(GAP)).next() {
            new.end = new.end.max(after.end);
            self.0.remove(&start);
        }
        self.0.insert(new.start, new);
    }

    /// The ranges in address order.
    pub fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        self.0.values().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(blocks: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut extents = Extents::default();
        blocks.iter().for_each(|(address, bytes)| extents.add(*address, *bytes, 1));
        extents.iter().map(|extent| (extent.start, extent.end)).collect()
    }

    #[test]
    fn ranges_close_to_each_other_are_merged() {
        assert_eq!(ranges(&[(100, 50), (100, 20), (120, 30)]), [(100, 150)]);
        assert_eq!(ranges(&[(GAP, 8), (GAP + 100, 8)]), [(GAP, GAP + 108)]);
        assert_eq!(ranges(&[(0, 8), (8 + GAP, 8)]), [(0, 8), (8 + GAP, 16 + GAP)]);
        assert_eq!(ranges(&[(0, 8), (16 + 2 * GAP, 8), (8 + GAP, 8)]).len(), 3);
        assert_eq!(ranges(&[(0, 8), (2 * GAP, 8), (GAP, 8)]), [(0, 2 * GAP + 8)], "the middle joins both");
        assert_eq!(ranges(&[(u64::MAX - 4, 100), (u64::MAX - 90, 10)]), [(u64::MAX - 90, u64::MAX)]);
    }

    #[test]
    fn an_extent_has_the_stream_of_its_first_block() {
        let mut extents = Extents::default();
        extents.add(64, 8, 7);
        extents.add(72, 8, 9);
        assert_eq!(extents.iter().map(|extent| extent.stream).collect::<Vec<_>>(), [7]);
    }
}

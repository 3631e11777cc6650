//! Which blocks a bin serves and keeps.

use super::super::slot::{BlockInfo, SHARED};
use super::*;

const MIB: u64 = 1 << 20;

struct Fixture {
    bins: Bins,
    live: BlockMap,
    classes: Classes,
    /// Sizes of the blocks that exceeded a limit.
    surplus: Vec<u64>,
}

impl Fixture {
    /// Caches large blocks of these sizes one by one.
    fn new(sizes: &[u64]) -> Fixture {
        let (classes, live) = (Classes::new(512, 1, 64 << 10).unwrap(), BlockMap::new());
        let mut of = Fixture { bins: Bins::new(classes, SHARED), live, classes, surplus: Vec::new() };
        for (n, bytes) in (0..).zip(sizes) {
            // At odd multiples of 512 B, except the first.
            of.cache(n * 256 * MIB + n.min(1) * 512, *bytes);
        }
        of
    }

    fn cache(&mut self, address: u64, bytes: u64) {
        let class = Some(self.classes.index(bytes));
        let info = BlockInfo { address, bytes, owner: SHARED, piece: 0, class, is_small: false };
        let id = self.live.insert(info);
        if let FreeOutcome::Overflow { class, limit } =
            self.bins.free((id, self.live.slot(id)), bytes, false, &self.live)
        {
            let surplus = self.bins.take_surplus(class, limit, &self.live);
            self.surplus.extend(surplus.into_iter().map(|id| self.live.slot(id).bytes()));
        }
    }

    /// Allocates, checks that the block is remembered, and returns its size.
    fn alloc(&mut self, bytes: u64, align: usize) -> Option<u64> {
        let layout = Layout::from_size_align(bytes as usize, align).unwrap();
        let address = self.bins.alloc(&self.classes.need(layout)?, layout, false, &self.live)?;
        let same_place = |other: &u64| recent_index(*other) == recent_index(address);
        let other = (1..).map(|n| address + 512 * n).find(same_place)?;
        assert!(self.bins.take_recent(other).is_none(), "another address in the same place");
        let slot = self.live.slot(self.bins.take_recent(address).expect("allocated last").id);
        assert!(slot.is_live() && self.bins.take_recent(address).is_none());
        Some(slot.bytes())
    }
}

#[test]
fn the_smallest_large_block_that_fits_is_allocated() {
    let mut of = Fixture::new(&[33 * MIB / 16, 3 * MIB, 35 * MIB / 16, 34 * MIB / 16]);
    assert!(of.surplus.is_empty());
    for (bytes, align, found, why) in [
        (34 * MIB / 16 - 5, 256, Some(34 * MIB / 16), "the smallest"),
        (2 * MIB + 1, 1 << 20, Some(33 * MIB / 16), "the aligned one"),
        (2 * MIB + 1, 256, None, "at most 1/16 too large"),
        (34 * MIB / 16, 1 << 20, None, "not aligned"),
        (34 * MIB / 16, 512, Some(35 * MIB / 16), "the next larger one"),
        (3 * MIB, 512, Some(3 * MIB), "the exact size"),
        (3 * MIB, 512, None, "none left"),
    ] {
        assert_eq!(of.alloc(bytes, align), found, "{why}");
    }
}

/// Also if the block that was freed last fits, or has the exact size.
#[test]
fn the_block_that_was_freed_last_is_allocated_only_if_it_is_the_best() {
    let mut of = Fixture::new(&[33 * MIB / 16, 34 * MIB / 16]);
    assert_eq!(of.alloc(33 * MIB / 16 - 512, 256), Some(33 * MIB / 16), "the smallest");
    let mut of = Fixture::new(&[35 * MIB / 16, 33 * MIB / 16]);
    assert_eq!(of.alloc(33 * MIB / 16, 1 << 20), Some(35 * MIB / 16), "the aligned one");
    assert_eq!(of.alloc(33 * MIB / 16, 512), Some(33 * MIB / 16), "the exact size");
}

/// I2.
#[test]
fn a_bin_keeps_the_blocks_that_were_freed_last() {
    let of = Fixture::new(&[20 * MIB, 21 * MIB, 40 * MIB]);
    assert_eq!(of.surplus, [20 * MIB], "one of each class");
    let sizes: Vec<u64> = (0..5).map(|n| 3 * MIB + n * 512).collect();
    let mut of = Fixture::new(&sizes);
    assert!(of.surplus.is_empty(), "five of 3 MiB: {:?}", of.surplus);
    // Of this size a bin keeps four.
    of.cache(1 << 50, 4 * MIB);
    assert_eq!(of.surplus, sizes[..3], "the older half");
}

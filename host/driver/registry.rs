//! Which device memory is live, so that a launch can refuse an argument that names memory that is not.
//!
//! A map from the first address of each live allocation to its length in bytes and its number.
//! I1: allocations do not overlap. I2: none is empty. I3: no two allocations ever have the same number.

use super::backend::Range;
use crate::error::Bytes;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(crate) struct Registry {
    live: Mutex<Live>,
}

#[derive(Default)]
struct Live {
    allocations: BTreeMap<u64, Allocation>,
    /// The number of the next allocation (I3).
    next: u64,
}

struct Allocation {
    bytes: u64,
    number: u64,
}

impl Registry {
    /// A panic elsewhere leaves the map whole: every change to it is one call.
    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn insert(&self, range: Range) {
        let mut live = self.live();
        let number = live.next;
        live.next += 1;
        live.allocations.insert(range.address, Allocation { bytes: range.bytes, number });
    }

    pub fn remove(&self, address: u64) {
        self.live().allocations.remove(&address);
    }

    /// Whether the range lies inside one live allocation.
    pub fn holds(&self, range: Range) -> bool {
        self.number(range).is_some()
    }

    /// The number of the live allocation that the range lies inside.
    pub fn number(&self, range: Range) -> Option<u64> {
        let end = range.address.checked_add(range.bytes)?;
        let live = self.live();
        let (start, below) = live.allocations.range(..=range.address).next_back()?;
        (end <= start + below.bytes).then_some(below.number)
    }

    /// The live allocation nearest to the address, in words.
    pub fn nearest(&self, address: u64) -> String {
        let live = self.live();
        let below = live.allocations.range(..=address).next_back();
        let above = live.allocations.range(address..).next();
        let distance = |(start, of): &(&u64, &Allocation)| match address {
            a if a < **start => **start - a,
            a => a.saturating_sub(**start + of.bytes),
        };
        let Some((start, nearest)) = below.into_iter().chain(above).min_by_key(distance) else {
            return "no allocation is live there".into();
        };
        format!("the nearest live one is {} at {start:#x}", Bytes(nearest.bytes))
    }

    /// Bytes and number of the live allocations.
    pub fn usage(&self) -> (u64, usize) {
        let live = self.live();
        (live.allocations.values().map(|of| of.bytes).sum(), live.allocations.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(address: u64, bytes: u64) -> Range {
        Range { address, bytes }
    }

    #[test]
    fn holds_ranges_inside_one_allocation_only() {
        let registry = Registry::default();
        registry.insert(range(0x1000, 0x100));
        registry.insert(range(0x1100, 0x100));
        assert!(registry.holds(range(0x1000, 0x100)));
        assert!(registry.holds(range(0x10ff, 1)));
        assert!(registry.holds(range(0x1100, 0)));
        assert!(!registry.holds(range(0x10ff, 2)), "spans two allocations");
        assert!(!registry.holds(range(0xfff, 1)));
        assert!(!registry.holds(range(0x1200, 1)));
        assert!(!registry.holds(range(0x1100, u64::MAX)), "the end wraps");
        registry.remove(0x1000);
        assert!(!registry.holds(range(0x1000, 1)));
        assert_eq!(registry.usage(), (0x100, 1));
    }

    #[test]
    fn an_address_that_is_used_again_has_another_number() {
        let registry = Registry::default();
        registry.insert(range(0x1000, 0x100));
        let first = registry.number(range(0x1010, 1)).unwrap();
        registry.remove(0x1000);
        assert_eq!(registry.number(range(0x1010, 1)), None);
        registry.insert(range(0x1000, 0x100));
        assert_ne!(registry.number(range(0x1010, 1)), Some(first));
    }

    #[test]
    fn names_the_nearest_allocation_on_either_side() {
        let registry = Registry::default();
        assert!(registry.nearest(5).contains("no allocation"));
        registry.insert(range(0x1000, 0x100));
        registry.insert(range(0x9000, 0x200));
        assert!(registry.nearest(0x1180).contains("256 B at 0x1000"), "{}", registry.nearest(0x1180));
        assert!(registry.nearest(0x8fff).contains("512 B at 0x9000"));
        assert!(registry.nearest(0).contains("0x1000"));
        assert!(registry.nearest(u64::MAX).contains("0x9000"));
    }
}

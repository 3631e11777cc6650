//! Which device memory is live, so that a launch can refuse an argument that names memory that is not.
//!
//! A map from the first address of each live allocation to its length in bytes and its number.
//! I1: allocations do not overlap. I2: none is empty. I3: no two allocations ever have the same number.
//! I4: of a reservation, the first `bytes` are live, none at first. Besides, it is held as a whole: so the handle of a
//! pool names it, which knows by itself where there is memory.

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

/// An entry.
pub(crate) struct Allocation {
    bytes: u64,
    /// As many, or more of a reservation (I4).
    reserved: u64,
    number: u64,
}

impl Registry {
    /// A panic elsewhere leaves the map whole: every change to it is one call.
    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn insert(&self, range: Range) {
        self.insert_part(range, range.bytes);
    }

    /// A reservation, of which nothing is live yet.
    pub fn reserve(&self, range: Range) {
        self.insert_part(range, 0);
    }

    fn insert_part(&self, range: Range, bytes: u64) {
        let mut live = self.live();
        let number = live.next;
        live.next += 1;
        live.allocations.insert(range.address, Allocation { bytes, reserved: range.bytes, number });
    }

    /// The reservation that starts there has so many live bytes now. Its number stays.
    pub fn resize(&self, address: u64, bytes: u64) {
        if let Some(of) = self.live().allocations.get_mut(&address) {
            of.bytes = bytes;
        }
    }

    pub fn remove(&self, address: u64) -> Option<Allocation> {
        self.live().allocations.remove(&address)
    }

    /// The opposite: it is the same one again, with its number (I3).
    pub fn put_back(&self, address: u64, entry: Option<Allocation>) {
        if let Some(entry) = entry {
            self.live().allocations.insert(address, entry);
        }
    }

    /// Whether the range lies inside one live allocation, or is one reservation.
    pub fn holds(&self, range: Range) -> bool {
        self.number(range).is_some()
    }

    /// The number of the live allocation that the range lies inside, or of the reservation that it is.
    pub fn number(&self, range: Range) -> Option<u64> {
        let end = range.address.checked_add(range.bytes)?;
        let live = self.live();
        let (start, below) = live.allocations.range(..=range.address).next_back()?;
        let is_whole = range.address == *start && range.bytes == below.reserved;
        (end <= start + below.bytes || is_whole).then_some(below.number)
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
        let of_more = match nearest.bytes < nearest.reserved {
            true => format!(", of {} that are reserved there", Bytes(nearest.reserved)),
            false => String::new(),
        };
        format!("the nearest live one is {} at {start:#x}{of_more}", Bytes(nearest.bytes))
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
        let second = registry.number(range(0x1010, 1));
        registry.put_back(0x1000, registry.remove(0x1000));
        assert_eq!(registry.number(range(0x1010, 1)), second, "it could not go");
    }

    #[test]
    fn of_a_reservation_the_live_part_is_held_and_the_whole() {
        let registry = Registry::default();
        registry.reserve(range(0x1000, 0x1000));
        let number = registry.number(range(0x1000, 0x1000)).expect("as the handle of a pool names it");
        assert!(!registry.holds(range(0x1000, 1)) && !registry.holds(range(0x1000, 0xfff)));
        assert_eq!(registry.usage(), (0, 1));
        registry.resize(0x1000, 0x200);
        assert!(registry.holds(range(0x1000, 0x200)) && !registry.holds(range(0x1000, 0x201)));
        assert!(!registry.holds(range(0x1100, 0x1000)), "the handle of no pool");
        assert_eq!(registry.number(range(0x11ff, 1)), Some(number));
        let nearest = registry.nearest(0x1300);
        assert!(nearest.contains("512 B") && nearest.contains("of 4096 B"), "{nearest}");
        registry.resize(0x1000, 0);
        assert!(!registry.holds(range(0x1000, 1)));
        registry.remove(0x1000);
        assert!(!registry.holds(range(0x1000, 0x1000)));
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

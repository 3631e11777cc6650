//! Registry of live device memory and of the launches that depend on it.
//!
//! A map from the first address of each live allocation to its length in bytes and its number, and
//! the launches that are between their check and the end of their submission.
//!
//! I1: allocations do not overlap. I2: no allocation is empty. I3: every allocation has a unique
//! number.
//! I4: only the first `bytes` of a reservation are live, initially 0. A pool knows which part of
//! its reservation is mapped, so a pool handle may name the entire reservation if it was registered
//! for that.
//! I5: a launch in `submitting` has found all memory that it names live. It may not be in a queue
//! of the device yet. Memory that was removed from the map is freed only after the launches that
//! are in `submitting` at that time ([`settle`](Registry::settle)), and then after the work of the
//! device.
//! I6: no launch that names an allocation with `holds > 0` passes its check.

use super::backend::Range;
use crate::error::Bytes;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(crate) struct Registry {
    live: Mutex<Live>,
    /// Signalled when a launch was submitted or a hold on an allocation was released.
    changed: Condvar,
}

#[derive(Default)]
struct Live {
    allocations: BTreeMap<u64, Allocation>,
    /// The number of the next allocation (I3).
    next: u64,
    /// Numbers of launches being submitted (I5), ascending.
    submitting: Vec<u64>,
    /// The number of the next launch.
    next_launch: u64,
    /// Number of threads that wait for `changed`.
    waiting: usize,
}

/// An entry of the map.
pub(crate) struct Allocation {
    bytes: u64,
    /// Equal to `bytes` for an allocation; at least `bytes` for a reservation.
    reserved: u64,
    /// Whether pool handles may name the entire reservation (I4).
    is_named_whole: bool,
    number: u64,
    /// Number of active holds that block launches (I6).
    holds: usize,
}

/// A hold: blocks launches that name one allocation.
#[derive(Clone, Copy)]
pub(super) struct Hold {
    start: u64,
    number: u64,
}

/// The registry as seen by the check of a launch.
pub(super) struct Look<'a> {
    live: &'a Live,
    is_held: bool,
}

impl Look<'_> {
    /// The number of the live allocation that contains `range`. Notes whether it is held.
    pub fn number(&mut self, range: Range) -> Option<u64> {
        let found = self.live.find(range)?;
        self.is_held |= found.holds > 0;
        Some(found.number)
    }
}

/// A launch in `submitting` (I5).
#[must_use]
pub(super) struct Submission<'a> {
    registry: &'a Registry,
    number: u64,
}

impl Drop for Submission<'_> {
    fn drop(&mut self) {
        let mut live = self.registry.live();
        live.submitting.retain(|number| *number != self.number);
        self.registry.tell(live);
    }
}

impl Live {
    /// The live allocation that contains the range, or the reservation that equals it.
    fn find(&self, range: Range) -> Option<&Allocation> {
        let end = range.address.checked_add(range.bytes)?;
        let (start, below) = self.allocations.range(..=range.address).next_back()?;
        let is_whole = below.is_named_whole && range.address == *start && range.bytes == below.reserved;
        (end <= start + below.bytes || is_whole).then_some(below)
    }
}

impl Registry {
    /// A panic elsewhere leaves the map consistent: every change to it is one call.
    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the threads that wait for a change, if there are any.
    fn tell(&self, live: MutexGuard<'_, Live>) {
        let waiting = live.waiting;
        drop(live);
        if waiting > 0 {
            self.changed.notify_all();
        }
    }

    fn wait<'a>(&self, mut live: MutexGuard<'a, Live>) -> MutexGuard<'a, Live> {
        live.waiting += 1;
        let mut live = self.changed.wait(live).unwrap_or_else(PoisonError::into_inner);
        live.waiting -= 1;
        live
    }

    pub fn insert(&self, range: Range) {
        self.add(range.address, range.bytes, range.bytes, false);
    }

    /// Registers a reservation with no live bytes yet. `is_named_whole`: pool handles may name all
    /// of it.
    pub fn reserve(&self, range: Range, is_named_whole: bool) {
        self.add(range.address, 0, range.bytes, is_named_whole);
    }

    fn add(&self, address: u64, bytes: u64, reserved: u64, is_named_whole: bool) {
        let mut live = self.live();
        let number = live.next;
        live.next += 1;
        let entry = Allocation { bytes, reserved, is_named_whole, number, holds: 0 };
        live.allocations.insert(address, entry);
    }

    /// Sets the number of live bytes of the reservation that starts at `address`. Its allocation
    /// number stays.
    pub fn resize(&self, address: u64, bytes: u64) {
        if let Some(of) = self.live().allocations.get_mut(&address) {
            of.bytes = bytes;
        }
    }

    pub fn remove(&self, address: u64) -> Option<Allocation> {
        self.live().allocations.remove(&address)
    }

    /// Undoes [`remove`](Self::remove). The allocation keeps its number (I3).
    pub fn put_back(&self, address: u64, entry: Option<Allocation>) {
        if let Some(entry) = entry {
            self.live().allocations.insert(address, entry);
        }
    }

    /// Registers a launch as being submitted once `check` passes. `check` sees the current
    /// allocations. It is called again after a wait if an allocation that it looked up is held
    /// (I6).
    pub(super) fn submit<E>(
        &self,
        mut check: impl FnMut(&mut Look<'_>) -> Result<(), E>,
    ) -> Result<Submission<'_>, E> {
        let mut live = self.live();
        loop {
            let mut look = Look { live: &live, is_held: false };
            check(&mut look)?;
            if !look.is_held {
                break;
            }
            live = self.wait(live);
        }
        let number = live.next_launch;
        live.next_launch += 1;
        live.submitting.push(number);
        Ok(Submission { registry: self, number })
    }

    /// Waits until every launch that has passed its check is submitted (I5).
    pub fn settle(&self) {
        let mut live = self.live();
        let end = live.next_launch;
        while live.submitting.iter().any(|number| *number < end) {
            live = self.wait(live);
        }
    }

    /// Makes launches that name the allocation at `address` wait until [`let_go`](Self::let_go).
    /// Launches that passed their check before are submitted when this returns. `None` if there is
    /// no allocation at `address`.
    pub(super) fn hold_off(&self, address: u64) -> Option<Hold> {
        let hold = self.live().allocations.range_mut(..=address).next_back().map(|(start, of)| {
            of.holds += 1;
            Hold { start: *start, number: of.number }
        });
        self.settle();
        hold
    }

    /// Releases a hold from [`hold_off`](Self::hold_off).
    pub(super) fn let_go(&self, hold: Hold) {
        let mut live = self.live();
        let of = live.allocations.get_mut(&hold.start).filter(|of| of.number == hold.number);
        if let Some(of) = of {
            of.holds -= 1;
        }
        self.tell(live);
    }

    /// Whether the range is inside one live allocation, or equals one reservation.
    pub fn holds(&self, range: Range) -> bool {
        self.number(range).is_some()
    }

    /// The number of the live allocation that contains the range, or of the reservation that equals
    /// it.
    pub fn number(&self, range: Range) -> Option<u64> {
        self.live().find(range).map(|of| of.number)
    }

    /// Describes the live allocation nearest to the address, for messages.
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

    /// Total bytes and count of the live allocations.
    pub fn usage(&self) -> (u64, usize) {
        let live = self.live();
        (live.allocations.values().map(|of| of.bytes).sum(), live.allocations.len())
    }
}

#[cfg(test)]
impl Registry {
    /// Threads that wait for a launch to be submitted, or for a hold to end.
    pub fn waiting(&self) -> usize {
        self.live().waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

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
        registry.reserve(range(0x1000, 0x1000), true);
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
    fn of_a_reservation_without_a_handle_the_live_part_alone_is_held() {
        let registry = Registry::default();
        registry.reserve(range(0x1000, 0x1000), false);
        assert!(!registry.holds(range(0x1000, 0x1000)));
        registry.resize(0x1000, 0x1000);
        assert!(registry.holds(range(0x1000, 0x1000)));
        registry.resize(0x1000, 0x800);
        assert!(!registry.holds(range(0x1000, 0x1000)), "a slice of what is gone");
    }

    /// A launch check that looks up `range`.
    fn find(range: Range) -> impl FnMut(&mut Look<'_>) -> Result<(), ()> {
        move |look| look.number(range).map(drop).ok_or(())
    }

    #[test]
    fn what_was_removed_is_freed_after_the_launches_that_found_it() {
        let registry = Registry::default();
        registry.insert(range(0x1000, 0x100));
        let submission = registry.submit(find(range(0x1000, 8))).unwrap();
        registry.remove(0x1000);
        assert!(registry.submit(find(range(0x1000, 8))).is_err());
        let settled = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                registry.settle();
                settled.store(true, Ordering::SeqCst);
            });
            while registry.waiting() == 0 {
                thread::yield_now();
            }
            assert!(!settled.load(Ordering::SeqCst));
            drop(submission);
        });
        registry.settle();
    }

    #[test]
    fn a_launch_waits_while_what_it_names_is_held_off() {
        let registry = Registry::default();
        registry.insert(range(0x1000, 0x100));
        registry.insert(range(0x2000, 0x100));
        let first = registry.hold_off(0x1000).unwrap();
        let second = registry.hold_off(0x1080).expect("a part of it");
        drop(registry.submit(find(range(0x2000, 8))).expect("another allocation is not held off"));
        let submitted = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                drop(registry.submit(find(range(0x1000, 8))));
                submitted.store(true, Ordering::SeqCst);
            });
            while registry.waiting() == 0 {
                thread::yield_now();
            }
            registry.let_go(first);
            while registry.waiting() == 0 {
                thread::yield_now();
            }
            assert!(!submitted.load(Ordering::SeqCst), "held off twice");
            registry.let_go(second);
        });
        assert!(submitted.load(Ordering::SeqCst));
        let third = registry.hold_off(0x1000).unwrap();
        registry.remove(0x1000);
        registry.insert(range(0x1000, 0x100));
        registry.let_go(third);
        drop(registry.submit(find(range(0x1000, 8))).expect("another allocation at that address"));
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

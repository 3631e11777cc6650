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
use crate::lock::lock;
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
pub(super) struct Lookup<'a> {
    live: &'a Live,
    is_held: bool,
}

impl Lookup<'_> {
    /// The number of the live allocation that contains `range`. Notes whether it is held.
    pub fn number(&mut self, range: Range) -> Option<u64> {
        let allocation = self.live.find(range)?;
        self.is_held |= allocation.holds > 0;
        Some(allocation.number)
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
        let mut live = lock(&self.registry.live);
        live.submitting.retain(|number| *number != self.number);
        self.registry.notify(live);
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
    /// Wakes the threads that wait for a change, if there are any.
    fn notify(&self, live: MutexGuard<'_, Live>) {
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
        let mut live = lock(&self.live);
        let number = live.next;
        live.next += 1;
        let entry = Allocation { bytes, reserved, is_named_whole, number, holds: 0 };
        live.allocations.insert(address, entry);
    }

    /// Sets the number of live bytes of the reservation that starts at `address`. Its allocation
    /// number stays.
    pub fn resize(&self, address: u64, bytes: u64) {
        if let Some(allocation) = lock(&self.live).allocations.get_mut(&address) {
            allocation.bytes = bytes;
        }
    }

    pub fn remove(&self, address: u64) -> Option<Allocation> {
        lock(&self.live).allocations.remove(&address)
    }

    /// Undoes [`remove`](Self::remove). The allocation keeps its number (I3).
    pub fn put_back(&self, address: u64, entry: Option<Allocation>) {
        if let Some(entry) = entry {
            lock(&self.live).allocations.insert(address, entry);
        }
    }

    /// Registers a launch as being submitted once `check` passes. `check` sees the current
    /// allocations. It is called again after a wait if an allocation that it looked up is held
    /// (I6).
    pub(super) fn submit<E>(
        &self,
        mut check: impl FnMut(&mut Lookup<'_>) -> Result<(), E>,
    ) -> Result<Submission<'_>, E> {
        let mut live = lock(&self.live);
        loop {
            let mut lookup = Lookup { live: &live, is_held: false };
            check(&mut lookup)?;
            if !lookup.is_held {
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
        let mut live = lock(&self.live);
        let end = live.next_launch;
        while live.submitting.iter().any(|number| *number < end) {
            live = self.wait(live);
        }
    }

    /// Makes launches that name the allocation at `address` wait until [`release`](Self::release).
    /// Launches that passed their check before are submitted when this returns. `None` if there is
    /// no allocation at `address`.
    pub(super) fn hold(&self, address: u64) -> Option<Hold> {
        let hold =
            lock(&self.live).allocations.range_mut(..=address).next_back().map(|(start, allocation)| {
                allocation.holds += 1;
                Hold { start: *start, number: allocation.number }
            });
        self.settle();
        hold
    }

    /// Releases a hold from [`hold`](Self::hold).
    pub(super) fn release(&self, hold: Hold) {
        let mut live = lock(&self.live);
        let allocation =
            live.allocations.get_mut(&hold.start).filter(|allocation| allocation.number == hold.number);
        if let Some(allocation) = allocation {
            allocation.holds -= 1;
        }
        self.notify(live);
    }

    /// Whether the range is inside one live allocation, or equals one reservation.
    pub fn holds(&self, range: Range) -> bool {
        self.number(range).is_some()
    }

    /// The number of the live allocation that contains the range, or of the reservation that equals
    /// it.
    pub fn number(&self, range: Range) -> Option<u64> {
        lock(&self.live).find(range).map(|allocation| allocation.number)
    }

    /// Describes the live allocation nearest to the address, for messages.
    pub fn nearest(&self, address: u64) -> String {
        let live = lock(&self.live);
        let below = live.allocations.range(..=address).next_back();
        let above = live.allocations.range(address..).next();
        let distance = |(start, allocation): &(&u64, &Allocation)| match address {
            a if a < **start => **start - a,
            a => a.saturating_sub(**start + allocation.bytes),
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
        let live = lock(&self.live);
        (live.allocations.values().map(|allocation| allocation.bytes).sum(), live.allocations.len())
    }
}

#[cfg(test)]
impl Registry {
    /// Threads that wait for a launch to be submitted, or for a hold to end.
    pub fn waiting(&self) -> usize {
        lock(&self.live).waiting
    }
}

#[cfg(test)]
mod tests;

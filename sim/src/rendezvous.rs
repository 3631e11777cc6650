//! The meeting point of a warp's lanes in collectives.
//!
//! ```text
//! slot 0   mask 0000ffff   arrived 0000ffff   unread 0000fffe   complete: 15 lanes must read it
//! slot 1   mask 0000ffff   arrived 00000001   unread 00000000   open: lane 0 is in the next one
//! slot 2   mask ffff0000   arrived 00ff0000   unread 00000000   open
//! ```
//!
//! Invariants:
//! - I1: a lane is in at most one slot: `arrived` of open and `unread` of complete slots are
//!   disjoint. So 32 slots are always enough.
//! - I2: open slots differ in masks or operations. Of two open slots, at most one has an arrived
//!   lane in the other's `mask`: otherwise these lanes would wait for each other (a [`Clash`]).
//! - I3: a slot is reused only after its last lane has read it.
//!
//! Only the code that runs the warp writes here; lanes only read deposits.

use std::ptr::NonNull;
use warpheap_machine::machine::{Collective, Deposits};
use warpheap_machine::units::{LaneMask, WARP_SIZE};

/// One collective. Sets have bit `i` for lane `i`.
struct Slot {
    mask: u32,
    arrived: u32,
    unread: u32,
    what: Collective,
    deposits: Deposits,
}

/// The collectives of a warp that wait for lanes or readers.
#[derive(Default)]
pub(super) struct Rendezvous {
    slots: Vec<Slot>,
    /// Slots that wait for lanes.
    open: u32,
    /// Slots that wait for lanes or for readers.
    used: u32,
}

pub(super) struct Arrival {
    pub(super) slot: u8,
    /// Whether this lane was the last.
    pub(super) complete: bool,
}

/// A deadlock: this lane and lanes that have arrived wait for each other in different collectives.
pub(super) struct Clash {
    /// One of the lanes that have arrived.
    pub(super) with: u32,
}

/// The indices of the set bits, from the lowest.
pub(super) fn bits(mut set: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros());
        set &= set.wrapping_sub(1);
        bit
    })
}

impl Rendezvous {
    pub(super) fn reset(&mut self) {
        self.open = 0;
        self.used = 0;
    }

    /// Lane `lane` arrives at a collective with `value`.
    #[inline(always)]
    pub(super) fn arrive(
        &mut self,
        lane: u32,
        mask: u32,
        what: Collective,
        value: u64,
    ) -> Result<Arrival, Clash> {
        let index = match self.find(lane, mask, what)? {
            Some(index) => index,
            None => self.open_slot(mask, what),
        };
        let slot = &mut self.slots[index];
        slot.arrived |= 1 << lane;
        slot.deposits.words[lane as usize % slot.deposits.words.len()] = value;
        slot.deposits.nonzero.0 |= u32::from(value != 0) << lane;
        slot.deposits.union |= value;
        let complete = slot.arrived == mask;
        if complete {
            slot.unread = mask;
            self.open &= !(1 << index);
        }
        Ok(Arrival { slot: index as u8, complete })
    }

    /// Finds the open slot of a collective, unless the lane would complete a deadlock (I2).
    #[inline(always)]
    fn find(&self, lane: u32, mask: u32, what: Collective) -> Result<Option<usize>, Clash> {
        let mut found = None;
        for index in bits(self.open) {
            let slot = &self.slots[index as usize];
            if slot.mask == mask && slot.what == what {
                found = Some(index as usize);
            } else if slot.mask >> lane & 1 == 1 && slot.arrived & mask != 0 {
                return Err(Clash { with: (slot.arrived & mask).trailing_zeros() });
            }
        }
        Ok(found)
    }

    fn open_slot(&mut self, mask: u32, what: Collective) -> usize {
        let index = self.used.trailing_ones() as usize;
        if index == self.slots.len() {
            let deposits = Deposits { words: [0; WARP_SIZE as usize], nonzero: LaneMask(0), union: 0 };
            self.slots.push(Slot { mask, arrived: 0, unread: 0, what, deposits });
        }
        let slot = &mut self.slots[index];
        (slot.mask, slot.what, slot.arrived) = (mask, what, 0);
        (slot.deposits.nonzero, slot.deposits.union) = (LaneMask(0), 0);
        self.open |= 1 << index;
        self.used |= 1 << index;
        index
    }

    /// Lane `lane` reads the complete slot `index`. The deposits stay valid until the next arrival.
    pub(super) fn read(&mut self, lane: u32, index: u8) -> NonNull<Deposits> {
        let slot = &mut self.slots[index as usize];
        slot.unread &= !(1 << lane);
        if slot.unread == 0 {
            self.used &= !(1 << index);
        }
        NonNull::from_ref(&slot.deposits)
    }

    /// A lane that would wait forever if `lane` ends now.
    pub(super) fn waits_for(&self, lane: u32) -> Option<u32> {
        let mut slots = bits(self.open).map(|index| &self.slots[index as usize]);
        slots.find(|slot| slot.mask >> lane & 1 == 1).map(|slot| slot.arrived.trailing_zeros())
    }
}

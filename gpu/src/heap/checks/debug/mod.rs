//! Debug heap: canaries, poison, a quarantine, and the allocation site of each block.
//!
//! A block of the heap contains its own record, and is larger than the request:
//!
//! ```text
//! block  | record | canary ...     | the user's bytes  | canary ...  |
//!        start    start + 40       user                user + size   end of the block
//! ```
//!
//! | byte | where |
//! |---|---|
//! | [`CANARY`] | before and after the user's bytes, while the block is live or in quarantine |
//! | [`UNSET`] | the user's bytes when they are allocated |
//! | [`FREED`] | the user's bytes while the block is in quarantine |
//!
//! A free checks the canaries, poisons the user's bytes and puts the block in quarantine, a
//! [`Quarantine`]. Some frees later, the block leaves the ring, its poison is checked, and it is
//! freed to the heap.
//!
//! - D1. For the heap, a block is live from its allocation until it leaves quarantine. Its state is
//!   `LIVE` first and then `QUARANTINED`. The thread that changes the state by a CAS owns the block
//!   exclusively.
//! - D2. A `QUARANTINED` block is in one slot of the ring, or one thread owns it.
//! - D3. A record with a wrong check sum was overwritten. Its other fields are not used, and its
//!   block is never allocated again.
//! - D4. Writes to a block by the thread that freed it happen before the checks of the thread that
//!   takes it out of quarantine.
//! - D5. The canaries of a `LIVE` block are intact unless a thread wrote out of bounds.
//!
//! Without the feature `debug`, all of this is unreachable: [`Debugger`] and [`CallSite`] have no
//! bytes, and [`DEBUG`] is false.
//!
//! Progress: that of the heap. The additions are wait-free, except that a thread that is out of
//! memory waits a bounded time for blocks that other threads take out of quarantine.

mod alloc;
mod fill;
mod free;
mod quarantine;
mod record;
mod site;

pub use quarantine::Quarantine;
pub use record::{RECORD_WORDS, Record, State};
pub use site::{CallSite, MAX_CALL_SITES, NAME_BYTES, SITE_WORDS, SiteTable};

use crate::fault::FaultLog;
use crate::heap::layout::MAX_ALIGN;
use crate::heap::layout::entry::Entry;
use crate::heap::structures::heap_core::HeapCore;
pub use crate::heap::structures::heap_core::{DEBUG, Debugger};
use crate::heap::structures::locate::Located;
use crate::sync::{NATIVE_LAYOUT, Site};

/// The value of the canary bytes, around the user's bytes.
pub const CANARY: u8 = 0xfd;
/// The value of the user's bytes before the first write to them.
pub const UNSET: u8 = 0xcd;
/// The value of the user's bytes after the free.
pub const FREED: u8 = 0xdd;

/// The maximum length of a canary in bytes, on either side. It bounds the work of a thread. Bytes
/// beyond it are not checked.
pub const CANARY_MOST: u64 = 4 << 10;
/// The minimum length of a canary in bytes, on either side.
pub const CANARY_LEAST: u64 = 16;
/// The maximum number of poisoned bytes, from the start of the user's bytes. It bounds the work of
/// a thread.
pub const POISON_MOST: u64 = 1 << 20;

/// The swap that puts a block in quarantine or takes one out.
const QUARANTINE: Site = Site::new("heap/quarantine");
/// The load of a slot of the quarantine.
const SEE_QUARANTINE: Site = Site::new("heap/see-quarantine");
/// The decrement of `leaving`, after a block was freed to the heap.
const LEFT: Site = Site::new("heap/left");
/// The load of `leaving`.
const SEE_LEFT: Site = Site::new("heap/see-left");
/// The names of all orderings of a debug heap, for checkers.
pub const DEBUG_ORDERINGS: [&str; 4] =
    ["heap/quarantine", "heap/see-quarantine", "heap/left", "heap/see-left"];

/// The extra metadata of a debug heap. Initially all of it is zero in device memory, except for the
/// salt, the addresses and the number of slots.
#[derive(Debug)]
#[repr(C)]
pub struct Extra {
    /// The recorded allocation sites.
    pub sites: *const SiteTable,
    /// The log of damage to blocks, found through any handle.
    pub faults: *const FaultLog,
    /// A different value in each lifetime of the heap, so that records of an earlier one are
    /// invalid.
    pub salt: u64,
    /// The quarantine.
    pub ring: Quarantine,
}

const _: () = assert!(!NATIVE_LAYOUT || size_of::<Extra>() == 56 && align_of::<Extra>() == 8);

impl Debugger {
    /// The debugger of a heap with this extra metadata; `None` in a build without the feature.
    pub const fn of(extra: *const Extra) -> Option<Debugger> {
        if DEBUG { Some(Debugger::at(extra.cast())) } else { None }
    }
}

/// A block of the heap: its start and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Whole {
    start: u64,
    bytes: u64,
}

/// The reason why no block contains an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoBlock {
    /// The address is outside the heap.
    Foreign,
    /// The address is in a free slab.
    Free,
    /// The address is after the last block of a run, or far from the start of a large allocation.
    Inside,
}

impl HeapCore {
    /// The extra metadata, for the functions of a debug heap.
    fn extra(&self) -> &Extra {
        debug_assert!(self.is_debugged());
        // SAFETY: `from_raw_parts`' promise; the callers are reached only in a debug heap.
        unsafe { &*self.parts.debugger.extra().cast::<Extra>() }
    }

    /// The block that contains an address, by the entries of the slabs. Reliable for a thread that
    /// owns the block (I2 of `runs`).
    fn whole_around(&self, address: u64) -> Result<Whole, NoBlock> {
        // Relaxed: the entry is written before a thread owns the block or receives it from the
        // owner.
        match self.locate(address, |entry| entry.load_relaxed()) {
            Located::Outside => Err(NoBlock::Foreign),
            Located::Block(place) if place.is_in_block() => {
                let bytes = u64::from(place.run.class.bytes());
                let start = self.slab_address(place.run.first) + u64::from(place.block) * bytes;
                Ok(Whole { start, bytes })
            }
            Located::Block(_) => Err(NoBlock::Inside),
            Located::Slab(_, entry) if entry.is_free() => Err(NoBlock::Free),
            Located::Slab(slab, _) => self.large_around(slab),
        }
    }

    /// The large allocation that contains a slab near its start: the user's bytes begin at most
    /// [`MAX_ALIGN`] after that start.
    fn large_around(&self, slab: u32) -> Result<Whole, NoBlock> {
        let furthest = (MAX_ALIGN >> self.layout.slab_log2) as u32;
        for first in (slab.saturating_sub(furthest)..=slab).rev() {
            // Relaxed: as in `whole_around`.
            let entry = Entry(self.runs().entry(first).load_relaxed());
            if let Some(slabs) = entry.large_slabs() {
                let bytes = u64::from(slabs) << self.layout.slab_log2;
                return Ok(Whole { start: self.slab_address(first), bytes });
            }
            if entry != Entry::REST {
                break;
            }
        }
        Err(NoBlock::Inside)
    }
}

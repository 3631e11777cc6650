//! What a debug heap adds to the heap: canaries, poison, a quarantine, and where each block was allocated.
//!
//! A block of the heap contains its own record, and is longer than the request:
//!
//! ```text
//! block  | record | canary ...     | the user's bytes  | canary ...  |
//!        start    start + 40       user                user + size   end of the block
//! ```
//!
//! | byte | where |
//! |---|---|
//! | [`CANARY`] | before the user's bytes and behind them, as long as the block is the user's or in quarantine |
//! | [`UNSET`] | the user's bytes when they are allocated |
//! | [`FREED`] | the user's bytes while the block is in quarantine |
//!
//! A free checks the canaries, poisons the user's bytes and puts the block in quarantine, a [`Ring`],
//! from where the block goes back to the heap some frees later. There the poison is checked.
//!
//! - D1. To the heap a block is live from its allocation until it leaves quarantine: its state is `LIVE`, and then
//!   `QUARANTINED`. Who changes the state by a CAS has the block, alone.
//! - D2. A block that is `QUARANTINED` is in one slot of the ring, or in the hands of one thread.
//! - D3. A record that does not have its check sum was written over. Nothing else of it is believed, and its block
//!   is never handed out again.
//! - D4. What the thread that freed a block wrote to it is before the checks of the thread that takes it out.
//! - D5. The canaries of a block that is `LIVE` are whole, if no one wrote out of bounds.
//!
//! Without the feature `debug` all of this is unreachable: [`Debugger`] and [`CallSite`] have no bytes then, and
//! [`DEBUG`] is false.
//!
//! Progress: the heap's; what is added is wait-free, but for a thread that was refused memory and waits a bounded time
//! for blocks that others take out of quarantine.

mod alloc;
mod fill;
mod free;
mod quarantine;
mod record;
mod site;

pub use quarantine::Ring;
pub use record::{RECORD_WORDS, Record, State};
pub use site::{CallSite, NAME_BYTES, SITE_WORDS, SITES, SiteTable};

use crate::fault::FaultLog;
use crate::heap::layout::entry::Entry;
use crate::heap::structures::heap_core::Located;
pub use crate::heap::structures::heap_core::{DEBUG, Debugger};
use crate::heap::{Heap, MAX_ALIGN};
use crate::sync::{NATIVE_LAYOUT, Site};

/// The byte around the user's bytes.
pub const CANARY: u8 = 0xfd;
/// The value of the user's bytes before they are written.
pub const UNSET: u8 = 0xcd;
/// The value of the user's bytes after they were freed.
pub const FREED: u8 = 0xdd;

/// The most bytes of a canary, on either side, which bounds the work of a thread. Bytes beyond are
/// not checked.
pub const CANARY_MOST: u64 = 4 << 10;
/// The fewest bytes of a canary, on either side.
pub const CANARY_LEAST: u64 = 16;
/// The most bytes that are poisoned, from the start of a block, which bounds the work of a thread.
pub const POISON_MOST: u64 = 1 << 20;

/// A block that enters the quarantine or leaves it.
const QUARANTINE: Site = Site::new("heap/quarantine");
/// The look at a slot of the quarantine.
const SEE_QUARANTINE: Site = Site::new("heap/see-quarantine");
/// The end of a block's way out of the quarantine.
const LEFT: Site = Site::new("heap/left");
/// The look at the number of blocks on their way out.
const SEE_LEFT: Site = Site::new("heap/see-left");
/// Every named ordering of a debug heap, for checkers.
pub const DEBUG_SITES: [&str; 4] = ["heap/quarantine", "heap/see-quarantine", "heap/left", "heap/see-left"];

/// The extra metadata of a debug heap. Initially all of it is zero in device memory, except for the
/// salt, the addresses and the number of slots.
#[derive(Debug)]
#[repr(C)]
pub struct Extra {
    /// The recorded allocation sites.
    pub sites: *const SiteTable,
    /// The faults of blocks, found by any handle.
    pub faults: *const FaultLog,
    /// Differs for each life of the heap, so that records of an earlier one are invalid.
    pub salt: u64,
    /// The quarantine.
    pub ring: Ring,
}

const _: () = assert!(!NATIVE_LAYOUT || size_of::<Extra>() == 56 && align_of::<Extra>() == 8);

impl Debugger {
    /// That of a heap with this extra; `None` in a build without the feature.
    pub const fn of(extra: *const Extra) -> Option<Debugger> {
        if DEBUG { Some(Debugger::at(extra.cast())) } else { None }
    }
}

/// A block of the heap: its start, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Whole {
    start: u64,
    bytes: u64,
}

/// Why there is no block around an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoBlock {
    /// It is not in the heap.
    Foreign,
    /// It is in a free slab.
    Free,
    /// It is behind the last block of a run, or deep inside of an allocation of slabs.
    Inside,
}

impl Heap {
    /// The extra, for the functions of a debug heap.
    fn extra(&self) -> &Extra {
        debug_assert!(self.core.is_debugged());
        // SAFETY: `from_raw_parts`' promise; the callers are reached in a debug heap alone.
        unsafe { &*self.core.parts.debugger.extra().cast::<Extra>() }
    }

    /// The block that an address lies in, by the entries of slabs. Certain for a thread that owns
    /// the block (I2 of `runs`).
    fn whole_around(&self, address: u64) -> Result<Whole, NoBlock> {
        // Relaxed: the entry happens before a thread owns the block or receives it from the owner.
        match self.core.locate(address, |entry| entry.load_relaxed()) {
            Located::Outside => Err(NoBlock::Foreign),
            Located::Block(place) if place.is_in_block() => {
                let bytes = u64::from(place.run.class.bytes());
                let start = self.core.slab_address(place.run.first) + u64::from(place.block) * bytes;
                Ok(Whole { start, bytes })
            }
            Located::Block(_) => Err(NoBlock::Inside),
            Located::Slab(_, entry) if entry.is_free() => Err(NoBlock::Free),
            Located::Slab(slab, _) => self.large_around(slab),
        }
    }

    /// The allocation of slabs that a slab is of, near its start: the user's bytes begin at most
    /// [`MAX_ALIGN`] behind that.
    fn large_around(&self, slab: u32) -> Result<Whole, NoBlock> {
        let furthest = (MAX_ALIGN >> self.core.layout.slab_log2) as u32;
        for first in (slab.saturating_sub(furthest)..=slab).rev() {
            // Relaxed: as in `whole_around`.
            let entry = Entry(self.core.runs().entry(first).load_relaxed());
            if let Some(slabs) = entry.large_slabs() {
                let bytes = u64::from(slabs) << self.core.layout.slab_log2;
                return Ok(Whole { start: self.core.slab_address(first), bytes });
            }
            if entry != Entry::REST {
                break;
            }
        }
        Err(NoBlock::Inside)
    }
}

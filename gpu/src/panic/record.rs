//! The record: a count of panics, and a description of one of them.
//!
//! ```text
//! PanicRecord  | count | claimed | published | grid ended | module | ends grid
//!              | block, thread | described | line, column | file | message
//!              | taken | reported
//! ```
//!
//! Epoch `e` begins when `taken` becomes `e`. In it, at most one thread describes its panic, and
//! the host then takes that description, which begins epoch `e + 1`.
//!
//! I1. `taken <= published <= claimed <= taken + 1`.
//! I2. The thread that sets `claimed` to `e + 1` is the only one that writes the description in
//!     epoch `e`. It sets `described` to `e + 1` when only the message is missing, and then
//!     `published` to `e + 1`.
//! I3. Threads write all words but `taken` and `reported`, which only the host writes. So no word
//!     needs an atomic read-modify-write between host and device, which few links have.
//! I4. Each panic is included in the count read by the next take, or the thread reads the new
//!     `taken` and a later description follows.
//!
//! By I4 no panic is lost. While threads panic at the time of a take, one of them can be both
//! counted and described.
//!
//! Loom checks this for the memory model of C++. On a GPU it assumes that `fence.sc.sys` of a
//! thread and the sequentially consistent fence of the host order each other: the scope `.sys`
//! includes the threads of the host program (PTX ISA, Memory Consistency Model, Scope), but the
//! model does not specify fences of the host.
//!
//! Bounded: a thread that panics makes two read-modify-writes, a fence and two loads in the memory
//! of the host. One thread also writes the description.

use super::PanicSettings;
use super::text::{Text, Writer};
use crate::sync::{NATIVE_LAYOUT, Site, SystemAtomicU64, system_fence_acq_rel};
use crate::thread;
use core::panic::Location;

/// Words of the name of the file. Of a longer one the end is kept.
const FILE_WORDS: usize = if NATIVE_LAYOUT { 32 } else { 1 };
/// Words of the message. Of a longer one the start is kept.
const MESSAGE_WORDS: usize = if NATIVE_LAYOUT { 64 } else { 1 };

/// The time between two looks at `published` in [`PanicRecord::wait`].
const NAP_NANOS: u32 = 1000;
/// Maximum naps of a thread that waits for the description of another: some milliseconds, for an
/// operation of microseconds.
const NAPS: u32 = 4096;

const COUNTED: Site = Site::new("panic/counted");
const EPOCH: Site = Site::new("panic/epoch");
const DESCRIBE: Site = Site::new("panic/describe");
const DESCRIBED: Site = Site::new("panic/described");
const PUBLISH: Site = Site::new("panic/publish");

/// The operations of the record whose order matters.
pub const ORDERINGS: [&str; 8] = [
    "panic/counted",
    "panic/epoch",
    "panic/describe",
    "panic/described",
    "panic/publish",
    "panic/published",
    "panic/take",
    "panic/taken",
];

/// The panics of the kernels of a device. All zeros is an empty record.
#[derive(Debug)]
#[repr(C)]
pub struct PanicRecord {
    count: SystemAtomicU64,
    claimed: SystemAtomicU64,
    published: SystemAtomicU64,
    grid_ended: SystemAtomicU64,
    module: SystemAtomicU64,
    ends_grid: SystemAtomicU64,
    place: SystemAtomicU64,
    described: SystemAtomicU64,
    position: SystemAtomicU64,
    file: Text<FILE_WORDS>,
    message: Text<MESSAGE_WORDS>,
    taken: SystemAtomicU64,
    reported: SystemAtomicU64,
}

const _: () = assert!(!NATIVE_LAYOUT || size_of::<PanicRecord>() == 8 * (13 + FILE_WORDS + MESSAGE_WORDS));

/// Two 32-bit numbers in one word.
fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// What threads do.
impl PanicRecord {
    /// Counts a panic of the calling thread at `at`, in a module with these settings. Describes it,
    /// unless another panic is described and not taken yet. `message` writes the message. Returns
    /// the number of the description that stands for this panic.
    ///
    /// If `message` panics, the description has no message.
    #[inline(always)]
    pub fn add(
        &self,
        settings: &PanicSettings,
        at: &Location<'_>,
        message: impl FnOnce(&mut dyn core::fmt::Write),
    ) -> u64 {
        self.count.add_relaxed(1);
        // ordering: sequentially consistent; pairs with the fence in `take`: the increment before
        // the read of `taken` (I4).
        COUNTED.system_fence_seq_cst();
        // ordering: acquire; pairs with the release of `take`: the host has read the last
        // description before this thread writes the next one.
        let taken = self.taken.at(EPOCH).load_acquire();
        let epoch = taken.wrapping_add(1);
        // Relaxed: it only selects the thread (I2).
        if self.claimed.cas_relaxed(taken, epoch).is_ok() {
            self.describe(settings, at, epoch);
            self.message.set(|writer: &mut Writer<'_>| message(writer));
            self.publish(epoch);
        } else if self.describes(epoch) {
            // This thread panicked in `message`.
            self.publish(epoch);
        }
        epoch
    }

    #[inline(always)]
    fn describe(&self, settings: &PanicSettings, at: &Location<'_>, epoch: u64) {
        // Relaxed: `publish` orders these for the host.
        self.module.store_relaxed(settings.module);
        self.ends_grid.store_relaxed(settings.ends_grid);
        self.position.store_relaxed(pair(at.line(), at.column()));
        self.file.set(|writer| {
            let file = at.file().as_bytes();
            let start = file.len().saturating_sub(8 * FILE_WORDS);
            writer.push(file.get(start..).unwrap_or_default());
        });
        self.message.set(|_| ());
        self.place.store_relaxed(here());
        // ordering: release; pairs with the acquire of `describes`: the place and the rest of the
        // description.
        self.described.at(DESCRIBE).store_release(epoch);
    }

    /// Whether the calling thread describes its panic in the epoch before this one. Also true for a
    /// thread of another grid with the same place: then the description lacks only its message.
    #[inline(always)]
    fn describes(&self, epoch: u64) -> bool {
        // ordering: acquire; pairs with the release of `describe`: a place of an earlier epoch is
        // not compared. If a later epoch has written it, this one is published.
        self.described.at(DESCRIBED).load_acquire() == epoch && self.place.load_relaxed() == here()
    }

    /// Publishes the description of this number, unless that was done before.
    #[inline(always)]
    fn publish(&self, epoch: u64) {
        // ordering: release; pairs with the acquire of `read`: the description before its number.
        // A failure means that a panic in `message` has published it.
        let _ = self.published.at(PUBLISH).cas_release(epoch.wrapping_sub(1), epoch);
    }

    /// Notes that the calling thread is about to end its grid, because of the panic for which the
    /// description with this number stands. Waits until that is published, which a trap of the
    /// describing thread's grid would prevent.
    #[inline(always)]
    pub fn end_grid(&self, epoch: u64) {
        self.wait(epoch);
        // Relaxed: the host relies on it after the driver has reported the trap.
        self.grid_ended.store_relaxed(epoch);
        // Not an order between threads: the trap must not come before the store.
        system_fence_acq_rel();
    }

    /// Waits until the description with this number is published. Gives up after some milliseconds.
    #[inline(always)]
    fn wait(&self, epoch: u64) {
        for _ in 0..NAPS {
            // Relaxed: this thread reads nothing else of the description.
            if self.published.load_relaxed() >= epoch {
                return;
            }
            thread::nanosleep(NAP_NANOS);
        }
    }
}

/// Block and thread of the calling thread.
#[inline(always)]
fn here() -> u64 {
    pair(thread::block_index(), thread::index_in_block())
}

#[cfg(not(target_arch = "nvptx64"))]
mod host;
#[cfg(not(target_arch = "nvptx64"))]
pub use host::RecordedPanic;

#[cfg(all(test, not(loom)))]
mod tests;

//! The record: a count of panics, and a description of one of them.
//!
//! ```text
//! PanicRecord  | count | claimed | published | module | ends grid | block, thread
//!              | line, column | file | message | taken | reported
//! ```
//!
//! Epoch `e` begins when `taken` becomes `e`. In it, at most one thread describes its panic, and
//! the host then takes that description, which begins epoch `e + 1`.
//!
//! I1. `taken <= published <= claimed <= taken + 1`.
//! I2. The thread that sets `claimed` to `e + 1` is the only one that writes the description in
//!     epoch `e`. It sets `published` to `e + 1` after that.
//! I3. Threads write all words but `taken` and `reported`, which only the host writes. So no word
//!     needs an atomic read-modify-write between host and device, which few links have.
//! I4. A thread that is not part of the `count` that the host reads after it set `taken` to `e`
//!     reads `taken >= e`. So either it describes its panic in a later epoch, or another thread
//!     does.
//!
//! By I4 no panic is lost: it is in the count of the description that the host takes next, or a
//! later description follows. While threads panic at the time of a take, one of them can be both
//! counted and described.
//!
//! Bounded: a thread that panics makes two atomic operations and a fence in the memory of the host,
//! about a microsecond each, and one of them writes the description.

use super::PanicSettings;
use super::text::{Text, Writer};
use crate::sync::{NATIVE_LAYOUT, Site, SystemAtomicU64};
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
const PUBLISH: Site = Site::new("panic/publish");
const PUBLISHED: Site = Site::new("panic/published");
const TAKE: Site = Site::new("panic/take");
const TAKEN: Site = Site::new("panic/taken");

/// The operations of the record whose order matters.
pub const SITES: [&str; 6] =
    ["panic/counted", "panic/epoch", "panic/publish", "panic/published", "panic/take", "panic/taken"];

/// The panics of the kernels of a device. All zeros is an empty record.
#[derive(Debug)]
#[repr(C)]
pub struct PanicRecord {
    count: SystemAtomicU64,
    claimed: SystemAtomicU64,
    published: SystemAtomicU64,
    module: SystemAtomicU64,
    ends_grid: SystemAtomicU64,
    place: SystemAtomicU64,
    position: SystemAtomicU64,
    file: Text<FILE_WORDS>,
    message: Text<MESSAGE_WORDS>,
    taken: SystemAtomicU64,
    reported: SystemAtomicU64,
}

const _: () = assert!(!NATIVE_LAYOUT || size_of::<PanicRecord>() == 8 * (11 + FILE_WORDS + MESSAGE_WORDS));

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
            self.describe(settings, at);
            self.message.set(|writer: &mut Writer<'_>| message(writer));
            self.publish(epoch);
        } else if self.place.load_relaxed() == here() {
            // This thread panicked in `message`. Or a thread of another grid has the same number,
            // and the description lacks only its message.
            self.publish(epoch);
        }
        epoch
    }

    #[inline(always)]
    fn describe(&self, settings: &PanicSettings, at: &Location<'_>) {
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
    }

    /// Publishes the description of this number, unless that was done before.
    #[inline(always)]
    fn publish(&self, epoch: u64) {
        // ordering: release; pairs with the acquire of `read`: the description before its number.
        // A failure means that a panic in `message` has published it.
        let _ = self.published.at(PUBLISH).cas_release(epoch.wrapping_sub(1), epoch);
    }

    /// Waits until the description with this number is published: a trap would prevent that. Gives
    /// up after some milliseconds.
    #[inline(always)]
    pub fn wait(&self, epoch: u64) {
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

/// A description, as the host has taken it.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedPanic {
    /// The number of the module, from [`PanicSettings`](super::PanicSettings).
    pub module: u64,
    /// Whether the panic ended the grid.
    pub ends_grid: bool,
    /// The file, or its end if the path is long.
    pub file: std::string::String,
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
    /// The thread's index in its block.
    pub thread: u32,
    /// The block's index in its grid.
    pub block: u32,
    /// The message, or its start if it is long. Empty without the feature `panic-message`.
    pub message: std::string::String,
    /// Number of other threads that panicked since the last take.
    pub others: u64,
}

/// What the host does. One thread at a time.
#[cfg(not(target_arch = "nvptx64"))]
impl PanicRecord {
    /// An empty record.
    pub fn empty() -> Self {
        let word = || SystemAtomicU64::new(0);
        PanicRecord {
            count: word(),
            claimed: word(),
            published: word(),
            module: word(),
            ends_grid: word(),
            place: word(),
            position: word(),
            file: Text::empty(),
            message: Text::empty(),
            taken: word(),
            reported: word(),
        }
    }

    /// Takes the description of a panic since the last take, if there is one.
    pub fn take(&self) -> Option<RecordedPanic> {
        self.take_after(|_| ())
    }

    /// As [`take`](Self::take). Calls `read` while no thread writes the next description.
    pub fn take_after(&self, read: impl FnOnce(&RecordedPanic)) -> Option<RecordedPanic> {
        let mut panic = self.read()?;
        read(&panic);
        // ordering: release; pairs with the acquire of `add`: these reads before the next
        // description.
        self.taken.at(TAKE).store_release(self.taken.load_relaxed() + 1);
        // ordering: sequentially consistent; pairs with the fence in `add`: `taken` before the read
        // of the count (I4).
        TAKEN.system_fence_seq_cst();
        let count = self.count.load_relaxed();
        panic.others = (count - self.reported.load_relaxed()).saturating_sub(1);
        self.reported.store_relaxed(count);
        Some(panic)
    }

    /// As [`take`](Self::take), without taking it.
    pub fn peek(&self) -> Option<RecordedPanic> {
        let panic = self.read()?;
        let new = self.count.load_relaxed() - self.reported.load_relaxed();
        Some(RecordedPanic { others: new.saturating_sub(1), ..panic })
    }

    fn read(&self) -> Option<RecordedPanic> {
        // ordering: acquire; pairs with the release of `publish`: the description.
        if self.published.at(PUBLISHED).load_acquire() == self.taken.load_relaxed() {
            return None;
        }
        let halves = |word: &SystemAtomicU64| {
            let word = word.load_relaxed();
            [(word >> 32) as u32, word as u32]
        };
        let ([line, column], [block, thread]) = (halves(&self.position), halves(&self.place));
        let (file, message) = (self.file.get(), self.message.get());
        let (module, ends_grid) = (self.module.load_relaxed(), self.ends_grid.load_relaxed() != 0);
        Some(RecordedPanic { module, ends_grid, file, line, column, thread, block, message, others: 0 })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

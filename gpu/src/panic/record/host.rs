//! What the host does with the record.

use super::super::text::Text;
use super::PanicRecord;
use crate::sync::{Site, SystemAtomicU64};
use std::string::String;

const PUBLISHED: Site = Site::new("panic/published");
const TAKE: Site = Site::new("panic/take");
const TAKEN: Site = Site::new("panic/taken");

/// A description, as the host has taken it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedPanic {
    /// The number of the module, from [`PanicSettings`](super::PanicSettings).
    pub module: u64,
    /// The number of the description.
    pub number: u64,
    /// Whether the panic ended the grid.
    pub ends_grid: bool,
    /// The file, or its end if the path is long.
    pub file: String,
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
    /// The thread's index in its block.
    pub thread: u32,
    /// The block's index in its grid.
    pub block: u32,
    /// The message, or its start if it is long. Empty without the feature `panic-message`.
    pub message: String,
    /// Number of other threads that panicked since the last take.
    pub others: u64,
}

/// One thread at a time.
impl PanicRecord {
    /// An empty record.
    pub fn empty() -> Self {
        let word = || SystemAtomicU64::new(0);
        PanicRecord {
            count: word(),
            claimed: word(),
            published: word(),
            grid_ended: word(),
            module: word(),
            ends_grid: word(),
            place: word(),
            described: word(),
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

    /// Takes the panic as [`take`](Self::take) does. Calls `read` while no thread writes the next
    /// description.
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

    /// Whether there is a description to take.
    pub fn is_pending(&self) -> bool {
        // Relaxed: `read` looks again.
        self.published.load_relaxed() != self.taken.load_relaxed()
    }

    /// The number of the description that stands for the panic which ended a grid. 0 if none did.
    pub fn ended(&self) -> u64 {
        // Relaxed: see `end_grid`.
        self.grid_ended.load_relaxed()
    }

    /// The panic that [`take`](Self::take) would return, which stays.
    pub fn peek(&self) -> Option<RecordedPanic> {
        let panic = self.read()?;
        let new = self.count.load_relaxed() - self.reported.load_relaxed();
        Some(RecordedPanic { others: new.saturating_sub(1), ..panic })
    }

    fn read(&self) -> Option<RecordedPanic> {
        // ordering: acquire; pairs with the release of `publish`: the description.
        let number = self.published.at(PUBLISHED).load_acquire();
        if number == self.taken.load_relaxed() {
            return None;
        }
        let halves = |word: &SystemAtomicU64| {
            let word = word.load_relaxed();
            [(word >> 32) as u32, word as u32]
        };
        let ([line, column], [block, thread]) = (halves(&self.position), halves(&self.place));
        let (file, message) = (self.file.get(), self.message.get());
        let (module, ends_grid) = (self.module.load_relaxed(), self.ends_grid.load_relaxed() != 0);
        let described = RecordedPanic {
            module,
            number,
            ends_grid,
            file,
            line,
            column,
            thread,
            block,
            message,
            others: 0,
        };
        Some(described)
    }
}

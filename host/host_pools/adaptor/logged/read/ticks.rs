//! Orders rows with the same time.

use super::{LogAction, LogRecord};
use std::collections::HashSet;

/// Moves an allocation of a live address behind its free, within one clock tick. Other rows keep
/// the order in which they were written. An allocation is written before the block can be freed.
#[derive(Debug, Default)]
pub struct LogTicks {
    /// Addresses that are live after the rows so far.
    live: HashSet<u64>,
}

impl LogTicks {
    /// Passes the rows of the next tick to `next`, in order. `record` is the record of a row.
    pub fn order<T>(
        &mut self,
        tick: impl IntoIterator<Item = T>,
        record: impl Fn(&T) -> &LogRecord,
        mut next: impl FnMut(T),
    ) {
        let mut waiting: Vec<T> = Vec::new();
        for row in tick {
            let (action, pointer) = (record(&row).action, record(&row).pointer);
            match action {
                LogAction::Allocate if !self.live.insert(pointer) => waiting.push(row),
                LogAction::Free => {
                    self.live.remove(&pointer);
                    next(row);
                    if let Some(place) = waiting.iter().position(|row| record(row).pointer == pointer) {
                        self.live.insert(pointer);
                        next(waiting.remove(place));
                    }
                }
                _ => next(row),
            }
        }
        // Allocated twice: the reader of the log must see this.
        waiting.into_iter().for_each(next);
    }
}

//! The times of rows: the time of day, the days of a log, and the order of rows with the same time.

use super::super::{LogAction, LogRecord};
use std::collections::HashSet;

const HOUR: u64 = 3600 * 1_000_000_000;
const DAY: u64 = 24 * HOUR;

/// Nanoseconds since midnight, from `12:34:56.789012` or `12:34:56:789012`.
pub(super) fn time_of_day(text: &str) -> Option<u64> {
    let mut parts = text.split([':', '.']);
    let mut next = || parts.next().and_then(|part| part.parse::<u64>().ok());
    let (hours, minutes, seconds, micros) = (next()?, next()?, next()?, next()?);
    let within = hours < 24 && minutes < 60 && seconds <= 60 && micros < 1_000_000;
    // Exactly six digits: any other number of digits is ambiguous.
    let is_whole = parts.next().is_none() && text.len() - text.rfind([':', '.'])? == 7;
    (within && is_whole).then(|| (((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros) * 1000)
}

/// Continues the time of day after midnight.
///
/// A day begins when the time drops by more than 12 hours. A smaller drop is a row that was written
/// late, and so is a rise by more than 23 hours after the first day: its time is before midnight.
#[derive(Debug, Default)]
pub(super) struct Days {
    /// The newest time so far, since midnight before the first row.
    newest: u64,
}

impl Days {
    /// The time of the next row since midnight before the first row, from its time of day.
    pub fn continued(&mut self, of_day: u64) -> u64 {
        let midnight = self.newest - self.newest % DAY;
        let today = midnight.saturating_add(of_day);
        let time = if self.newest.saturating_sub(today) > DAY / 2 {
            today.saturating_add(DAY)
        } else if midnight > 0 && today.saturating_sub(self.newest) > DAY - HOUR {
            today - DAY
        } else {
            today
        };
        self.newest = self.newest.max(time);
        time
    }
}

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

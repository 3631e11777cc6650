//! The blocks of a log over time: a stream of events for exports.
//!
//! ```text
//!   file ── LogReader ── Window ── late rows merged ── clock ticks ── Matcher ── Filter ── Events
//!           one row      sorts                         sorted         live       window of time
//! ```
//!
//! Memory is bounded by the live blocks and by the window, not by the rows. Rows are sorted inside
//! a window of 16,384 rows. A row of a call that took longer than that many rows is *late*:
//! [`Log::scan`], the first of two passes over the file, collects these rows, and the second pass
//! merges them. A thread makes one call at a time, so there are at most `threads * rows / 16,384`.
//! More than 1,048,576 are rejected. All rows of one clock tick are in memory too.

mod event;
mod events;
mod rows;
#[cfg(test)]
mod tests;

pub use event::{Block, Event, EventKind, EventsSummary, Tag};
pub use events::{Events, Filter};

use rows::{Ordered, Row, Window};
use std::io::{Read, Seek};
use warpheap::{Error, Result};

/// Rows that are sorted in memory.
const WINDOW: usize = 16_384;

/// A valid log whose events can be read.
#[derive(Debug)]
pub struct Log<R> {
    from: R,
    window: usize,
    late: Vec<Row>,
    begin: u64,
    rows: u64,
    has_tags: bool,
}

impl<R: Read + Seek> Log<R> {
    /// Checks every row of a log written by [`Logged`](warpheap::host_pools::Logged) or by RMM.
    ///
    /// # Errors
    /// [`Error::AllocLog`] if the input is not a log, with line and column, has no rows, or has
    /// more late rows than fit into memory.
    pub fn scan(from: R) -> Result<Log<R>> {
        Log::scan_with(from, WINDOW)
    }

    fn scan_with(mut from: R, window: usize) -> Result<Log<R>> {
        let mut sorted = Window::new(rewound(&mut from)?, window)?;
        let (mut begin, mut rows) = (None, 0);
        while let Some(row) = sorted.next()? {
            begin.get_or_insert(row.time());
            rows += 1;
        }
        let has_tags = sorted.has_tags();
        let mut late = sorted.into_late();
        late.sort();
        rows += late.len() as u64;
        let begin = late.first().map(Row::time).into_iter().chain(begin).min().ok_or_else(|| {
            let advice = "record a log of a program that allocates";
            Error::AllocLog { what: "exported", why: "it has no rows".into(), advice }
        })?;
        Ok(Log { from, window, late, begin, rows, has_tags })
    }

    /// Whether the log has the column `tag`.
    pub fn has_tags(&self) -> bool {
        self.has_tags
    }

    /// Number of rows, without the header.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The events that pass `filter`, in order of time.
    ///
    /// # Errors
    /// [`Error::AllocLog`] if the input cannot be read again.
    pub fn events(&mut self, filter: Filter) -> Result<Events<&mut R>> {
        let late = self.late.clone();
        let window = Window::new(rewound(&mut self.from)?, self.window)?;
        Ok(Events::new(Ordered::new(window, late), filter, self.begin))
    }
}

fn rewound<R: Seek>(from: &mut R) -> Result<&mut R> {
    from.rewind().map_err(|error| Error::AllocLog {
        what: "read",
        why: format!("it is read twice, but cannot be read from its start: {error}"),
        advice: "specify a file, not a pipe",
    })?;
    Ok(from)
}

//! The rows of a log in order of time.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::io::Read;
use std::iter::Peekable;
use std::vec::IntoIter;
use warpheap::host_pools::{LogReader, LogRecord, LogRow, LogTicks};
use warpheap::{Error, Result};

/// Most late rows of a log, in windows. More are not a few slow calls: the log is not in order of
/// time.
pub(super) const LATE_WINDOWS: usize = 64;

/// A row. Rows are ordered by time, then by line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row(LogRow);

impl Row {
    pub fn record(&self) -> &LogRecord {
        &self.0.record
    }

    pub fn time(&self) -> u64 {
        self.0.record.time
    }

    fn key(&self) -> (u64, u64) {
        (self.time(), self.0.line)
    }
}

impl Ord for Row {
    fn cmp(&self, other: &Row) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Row {
    fn partial_cmp(&self, other: &Row) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Sorts rows in a window.
///
/// - I1: `heap` has at most `capacity` rows, all of them after `last`.
/// - I2: `late` has at most `capacity * LATE_WINDOWS` rows.
/// - I3: the rows that [`next`](Window::next) returns are in order. Those of the input that are not
///   returned are in `late`.
pub(super) struct Window<R> {
    reader: LogReader<R>,
    heap: BinaryHeap<Reverse<Row>>,
    capacity: usize,
    /// Time and line of the last returned row.
    last: (u64, u64),
    late: Vec<Row>,
    is_ended: bool,
}

impl<R> fmt::Debug for Window<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window").field("last", &self.last).finish_non_exhaustive()
    }
}

impl<R: Read> Window<R> {
    pub fn new(from: R, capacity: usize) -> Result<Window<R>> {
        let (reader, heap) = (LogReader::new(from)?, BinaryHeap::new());
        Ok(Window { reader, heap, capacity, last: (0, 0), late: Vec::new(), is_ended: false })
    }

    pub fn has_tags(&self) -> bool {
        self.reader.has_tags()
    }

    /// The rows that were not returned, in the order of the file.
    pub fn into_late(self) -> Vec<Row> {
        self.late
    }

    /// The next row in order, without late ones.
    pub fn next(&mut self) -> Result<Option<Row>> {
        while !self.is_ended && self.heap.len() < self.capacity {
            let Some(row) = self.reader.read()? else {
                self.is_ended = true;
                break;
            };
            let row = Row(row);
            if row.key() < self.last {
                self.late(row)?;
            } else {
                self.heap.push(Reverse(row));
            }
        }
        let Some(Reverse(row)) = self.heap.pop() else { return Ok(None) };
        self.last = row.key();
        Ok(Some(row))
    }

    fn late(&mut self, row: Row) -> Result<()> {
        let most = self.capacity.saturating_mul(LATE_WINDOWS);
        if self.late.len() < most {
            self.late.push(row);
            return Ok(());
        }
        let (window, line) = (self.capacity, row.0.line);
        let why = format!(
            "more than {most} of its rows are out of place by more than {window} rows, the last of them in \
             line {line}"
        );
        Err(Error::AllocLog { what: "exported", why, advice: "sort its rows by time" })
    }
}

/// The rows of a window merged with the late ones of an earlier pass, with clock ticks in order.
#[derive(Debug)]
pub(super) struct Ordered<R> {
    window: Window<R>,
    late: Peekable<IntoIter<Row>>,
    /// The next row of the window.
    ahead: Option<Row>,
    ticks: LogTicks,
    /// The rest of the current tick.
    ready: VecDeque<Row>,
    /// The first row of the next tick.
    next: Option<Row>,
    most_held: usize,
}

impl<R: Read> Ordered<R> {
    /// `late` must be sorted.
    pub fn new(window: Window<R>, late: Vec<Row>) -> Ordered<R> {
        let (late, ticks, ready) = (late.into_iter().peekable(), LogTicks::default(), VecDeque::new());
        Ordered { window, late, ahead: None, ticks, ready, next: None, most_held: 0 }
    }

    /// The largest number of rows in memory so far.
    pub fn most_held(&self) -> usize {
        self.most_held
    }

    /// The next row. `None` at the end.
    pub fn next(&mut self) -> Result<Option<Row>> {
        if self.ready.is_empty() {
            let Some(first) = self.next.take().map_or_else(|| self.merged(), |row| Ok(Some(row)))? else {
                return Ok(None);
            };
            let mut tick = vec![first];
            self.next = self.merged()?;
            while let Some(row) = self.next.take_if(|row| row.time() == tick[0].time()) {
                tick.push(row);
                self.next = self.merged()?;
            }
            self.ticks.order(tick, Row::record, |row| self.ready.push_back(row));
            let held = self.window.heap.len() + self.late.len() + self.ready.len();
            self.most_held = self.most_held.max(held);
        }
        Ok(self.ready.pop_front())
    }

    fn merged(&mut self) -> Result<Option<Row>> {
        if self.ahead.is_none() {
            self.ahead = self.window.next()?;
        }
        // The first pass has collected them.
        self.window.late.clear();
        let is_late_next = match (self.late.peek(), &self.ahead) {
            (Some(late), Some(row)) => late < row,
            (late, _) => late.is_some(),
        };
        Ok(if is_late_next { self.late.next() } else { self.ahead.take() })
    }
}

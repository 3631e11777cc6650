//! The events of a log inside a part of the time.

use super::matcher::{Block, Matcher};
use super::rows::Ordered;
use super::{Filter, Row};
use std::collections::VecDeque;
use std::io::Read;
use warpheap::Result;

/// A change of a block, or a failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Nanoseconds, as in the log.
    pub time: u64,
    /// What happened.
    pub kind: EventKind,
    /// The calling thread, as in the log.
    pub thread: u64,
    /// The stream of the call, as in the log.
    pub stream: u64,
    /// The block. For a failed call without a live block, the requested one.
    pub block: Block,
}

/// What happened to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// It was allocated. Blocks that are live at the start of the filter are allocated then.
    Alloc,
    /// It was freed.
    Free,
    /// Its address was allocated again, without a free in the log.
    Lost,
    /// The allocation failed.
    AllocFailure,
    /// The free failed.
    FreeFailure,
}

impl Event {
    /// The allocation of `block`, shown at `time`.
    pub(super) fn alloc(time: u64, block: &Block) -> Event {
        let Block { thread, stream, .. } = *block;
        Event { time, kind: EventKind::Alloc, thread, stream, block: block.clone() }
    }
}

/// What the rows so far contained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventsSummary {
    /// Rows.
    pub rows: u64,
    /// Allocations.
    pub allocations: u64,
    /// Frees of live blocks.
    pub frees: u64,
    /// Failed calls.
    pub failures: u64,
    /// Calls of zero bytes, which are not exported.
    pub empty: u64,
    /// Frees of addresses that were not live, which are not exported.
    pub unmatched_frees: u64,
    /// Allocations of a live address. The earlier block ends there.
    pub allocated_twice: u64,
    /// Exported events.
    pub events: u64,
    /// The largest number of live blocks, exported or not.
    pub peak_live_blocks: usize,
    /// The largest number of rows in memory.
    pub most_held_rows: usize,
}

/// The events that pass a filter, in order of time.
#[derive(Debug)]
pub struct Events<R> {
    rows: Ordered<R>,
    matcher: Matcher,
    /// First and last exported time.
    window: (u64, u64),
    state: State,
    ready: VecDeque<Event>,
    summary: EventsSummary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first exported time.
    Before,
    Inside,
    Ended,
}

impl<R: Read> Events<R> {
    pub(super) fn new(rows: Ordered<R>, filter: Filter, begin: u64) -> Events<R> {
        let time = |offset: u64| begin.saturating_add(offset);
        let window = (time(filter.from.unwrap_or(0)), filter.to.map_or(u64::MAX, time));
        let (state, matcher) = (State::Before, Matcher::new(filter));
        Events { rows, matcher, window, state, ready: VecDeque::new(), summary: EventsSummary::default() }
    }

    /// Figures of the rows so far.
    pub fn summary(&self) -> EventsSummary {
        EventsSummary { most_held_rows: self.rows.most_held(), ..self.summary }
    }

    /// The exported blocks that are live after the events so far, in the order of their allocation.
    pub fn live(&self) -> Vec<Block> {
        self.matcher.live()
    }

    /// Whether there is another event. Reads the rows up to it.
    ///
    /// # Errors
    /// [`Error::AllocLog`](warpheap::Error::AllocLog) if the input cannot be read again.
    pub fn has_next(&mut self) -> Result<bool> {
        while self.ready.is_empty() && self.state != State::Ended {
            self.advance().inspect_err(|_| self.state = State::Ended)?;
        }
        Ok(!self.ready.is_empty())
    }

    /// Adds the events of the next row to `ready`.
    fn advance(&mut self) -> Result<()> {
        let (begin, end) = self.window;
        let row = self.rows.next()?;
        if self.state == State::Before && row.as_ref().is_some_and(|row| row.time() >= begin) {
            self.state = State::Inside;
            let live = self.matcher.live();
            self.ready.extend(live.iter().map(|block| Event::alloc(begin, block)));
        }
        match row.filter(|row| row.time() <= end) {
            Some(row) => self.row(row),
            None => self.state = State::Ended,
        }
        Ok(())
    }

    fn row(&mut self, row: Row) {
        let (ready, is_inside) = (&mut self.ready, self.state == State::Inside);
        self.matcher.row(row, &mut self.summary, |event| {
            if is_inside {
                ready.push_back(event);
            }
        });
    }
}

impl<R: Read> Iterator for Events<R> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Result<Event>> {
        if let Err(error) = self.has_next() {
            return Some(Err(error));
        }
        let event = self.ready.pop_front()?;
        self.summary.events += 1;
        Some(Ok(event))
    }
}

//! The events of a log that pass a filter.
//!
//! I1: `live` has the address of each live block of the log; the block too, if it is exported.

use super::event::{Block, Event, EventKind, EventsSummary, Tag};
use super::rows::{Ordered, Row};
use std::collections::{HashMap, VecDeque};
use std::io::Read;
use warpheap::Result;
use warpheap::host_pools::{LogAction, LogRecord};

/// Selects blocks by their allocation, and a part of the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Smallest size in bytes.
    pub min_size: Option<u64>,
    /// Largest size in bytes.
    pub max_size: Option<u64>,
    /// Start, in nanoseconds after the first row of the log. Blocks that are live then are
    /// allocated at this time.
    pub from: Option<u64>,
    /// End, in nanoseconds after the first row of the log.
    pub to: Option<u64>,
    /// Streams of the allocations, as in the log. Empty for all.
    pub streams: Vec<u64>,
    /// Tags. Empty for all, also for blocks without a tag.
    pub tags: Vec<String>,
}

impl Filter {
    /// Whether the block of an allocation is exported.
    fn accepts(&self, row: &Row) -> bool {
        let LogRecord { size, stream, tag, .. } = row.record();
        let has_size =
            self.min_size.is_none_or(|min| *size >= min) && self.max_size.is_none_or(|max| *size <= max);
        let has_tag = || tag.as_ref().is_some_and(|tag| self.tags.iter().any(|one| **one == **tag));
        has_size
            && (self.streams.is_empty() || self.streams.contains(stream))
            && (self.tags.is_empty() || has_tag())
    }
}

/// Matches frees with allocations.
#[derive(Debug)]
struct Matcher {
    filter: Filter,
    live: HashMap<u64, Option<Block>>,
    blocks: u64,
}

impl Matcher {
    fn new(filter: Filter) -> Matcher {
        Matcher { filter, live: HashMap::new(), blocks: 0 }
    }

    /// The exported blocks that are live, in the order of their allocation.
    fn live(&self) -> Vec<Block> {
        let mut live: Vec<Block> = self.live.values().flatten().cloned().collect();
        live.sort_by_key(|block| block.id);
        live
    }

    /// Passes the events of a row to `add`.
    fn row(&mut self, row: Row, summary: &mut EventsSummary, add: impl FnMut(Event)) {
        summary.rows += 1;
        // A live block is not empty. A program that does not know its size may free it with 0.
        let is_free = row.record().action == LogAction::Free;
        let is_of_block = is_free && self.live.contains_key(&row.record().pointer);
        match row.record().action {
            _ if row.record().size == 0 && !is_of_block => summary.empty += 1,
            LogAction::Allocate => self.allocate(row, summary, add),
            LogAction::Free => self.free(&row, summary, add),
            LogAction::AllocateFailure | LogAction::FreeFailure => self.fail(row, summary, add),
        }
    }

    fn allocate(&mut self, row: Row, summary: &mut EventsSummary, mut add: impl FnMut(Event)) {
        summary.allocations += 1;
        let is_accepted = self.filter.accepts(&row);
        let block = self.block(&row);
        let event = Event::alloc(block.allocated, &block);
        let before = self.live.insert(block.address, is_accepted.then_some(block));
        summary.allocated_twice += u64::from(before.is_some());
        if let Some(block) = before.flatten() {
            add(Event { kind: EventKind::Lost, block, ..event });
        }
        if is_accepted {
            add(event);
        }
        summary.peak_live_blocks = summary.peak_live_blocks.max(self.live.len());
    }

    fn free(&mut self, row: &Row, summary: &mut EventsSummary, mut add: impl FnMut(Event)) {
        let LogRecord { time, thread, stream, pointer, .. } = *row.record();
        match self.live.remove(&pointer) {
            None => summary.unmatched_frees += 1,
            Some(block) => {
                summary.frees += 1;
                if let Some(block) = block {
                    add(Event { time, kind: EventKind::Free, thread, stream, block });
                }
            }
        }
    }

    /// A failed free is that of its live block, if there is one.
    fn fail(&mut self, row: Row, summary: &mut EventsSummary, mut add: impl FnMut(Event)) {
        summary.failures += 1;
        let LogRecord { time, thread, stream, pointer, action, .. } = *row.record();
        let (kind, live) = match action {
            LogAction::FreeFailure => (EventKind::FreeFailure, self.live.get(&pointer).cloned()),
            _ => (EventKind::AllocFailure, None),
        };
        let block = match live {
            Some(block) => block,
            None => self.filter.accepts(&row).then(|| self.block(&row)),
        };
        if let Some(block) = block {
            add(Event { time, kind, thread, stream, block });
        }
    }

    fn block(&mut self, row: &Row) -> Block {
        self.blocks += 1;
        let LogRecord { time, thread, stream, pointer, size, align, .. } = *row.record();
        let (id, address, bytes, allocated) = (self.blocks, pointer, size, time);
        let tag = row.record().tag.clone().map(Tag);
        Block { id, address, bytes, align, thread, stream, allocated, tag }
    }
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

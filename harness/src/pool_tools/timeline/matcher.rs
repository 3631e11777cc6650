//! Matches frees with allocations.
//!
//! I1: `live` has the address of each live block of the log; the block too, if it is exported.

use super::events::{Event, EventKind};
use super::rows::Row;
use super::{EventsSummary, Filter, Tag};
use std::collections::HashMap;
use warpheap::host_pools::{LogAction, LogRecord};

/// An allocated block.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Block {
    /// Number of the block, from 1. No two blocks of a log have the same.
    pub id: u64,
    /// Its address.
    pub address: u64,
    /// Requested bytes.
    pub bytes: u64,
    /// Requested alignment.
    pub align: u64,
    /// The thread that allocated it, as in the log.
    pub thread: u64,
    /// The stream that it was allocated on, as in the log.
    pub stream: u64,
    /// Time of the allocation in nanoseconds, as in the log.
    pub allocated: u64,
    /// Its name.
    pub tag: Option<Tag>,
}

#[derive(Debug)]
pub(super) struct Matcher {
    filter: Filter,
    live: HashMap<u64, Option<Block>>,
    blocks: u64,
}

impl Matcher {
    pub fn new(filter: Filter) -> Matcher {
        Matcher { filter, live: HashMap::new(), blocks: 0 }
    }

    /// The exported blocks that are live, in the order of their allocation.
    pub fn live(&self) -> Vec<Block> {
        let mut live: Vec<Block> = self.live.values().flatten().cloned().collect();
        live.sort_by_key(|block| block.id);
        live
    }

    /// Passes the events of a row to `add`.
    pub fn row(&mut self, row: Row, summary: &mut EventsSummary, add: impl FnMut(Event)) {
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

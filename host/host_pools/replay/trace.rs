//! Converts the rows of a log to calls: matches frees with allocations, and collects
//! inconsistencies.

use super::script::Script;
use crate::bytes::Bytes;
use crate::error::{Error, Result};
use crate::host_pools::{LogAction, LogRow, read_rows};
use serde::Serialize;
use std::alloc::Layout;
use std::collections::HashMap;
use std::io::Read;

/// Maximum number of findings of each kind that are kept as text.
const KEPT: usize = 5;

/// A log that can be replayed.
#[derive(Debug)]
pub struct Trace {
    pub(super) script: Script,
    summary: TraceSummary,
}

/// Contents of a log. Each of its rows is counted in one of `allocations`, `frees`, `failures`,
/// `empty` and `unmatched_frees`.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct TraceSummary {
    /// Rows, without the header.
    pub rows: u64,
    /// Allocations, all of which are replayed.
    pub allocations: u64,
    /// Frees of these allocations, all of which are replayed.
    pub frees: u64,
    /// Calls that failed when the log was written. They had no effect, and are not replayed.
    pub failures: u64,
    /// Allocations and frees of zero bytes, which are not replayed.
    pub empty: u64,
    /// Number of calling threads.
    pub threads: usize,
    /// Number of streams.
    pub streams: usize,
    /// Seconds from the first row to the last.
    pub seconds: f64,
    /// High-water mark of live bytes.
    pub peak_live_bytes: u64,
    /// Frees of addresses that were not live. They are not replayed.
    pub unmatched_frees: Findings,
    /// Frees with a size that differs from the allocation. They are replayed with the size of the
    /// allocation.
    pub other_sizes: Findings,
    /// Allocations at an address that was live. They are replayed; the earlier block is never freed
    /// in the log.
    pub allocated_twice: Findings,
    /// Blocks that were live at the end, including those of addresses that were allocated twice. A
    /// replay frees them after the last call.
    pub leaks: Findings,
}

/// Inconsistencies of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Findings {
    /// Their number.
    pub count: u64,
    /// Their bytes, at most 2^64 - 1.
    pub bytes: u64,
    /// The first of them, at most five.
    pub first: Vec<Finding>,
}

/// An inconsistent row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// Line number in the file.
    pub line: u64,
    /// Description of the inconsistency.
    pub what: String,
}

impl Findings {
    fn add(&mut self, row: &LogRow, what: impl FnOnce() -> String) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(row.record.size);
        if self.first.len() < KEPT {
            self.first.push(Finding { line: row.line, what: what() });
        }
    }
}

impl Trace {
    /// Reads a log written by [`Logged`](crate::host_pools::Logged) or by RMM.
    ///
    /// # Errors
    /// [`Error::AllocLog`] if the input is not a log, with line and column, or if it allocates
    /// nothing.
    pub fn read(from: impl Read) -> Result<Trace> {
        let rows = read_rows(from)?;
        let mut matcher = Matcher::default();
        rows.iter().try_for_each(|row| matcher.row(row))?;
        let trace = matcher.end(&rows);
        if trace.summary.allocations > 0 {
            return Ok(trace);
        }
        Err(Error::AllocLog {
            what: "replayed",
            why: format!("nothing is allocated in its {} rows", trace.summary.rows),
            advice: "record a log of a program that allocates",
        })
    }

    /// Summary of the log.
    pub fn summary(&self) -> &TraceSummary {
        &self.summary
    }
}

#[derive(Default)]
struct Matcher<'a> {
    script: Script,
    summary: TraceSummary,
    /// Live addresses: the slot, and the row that allocated it.
    live: HashMap<u64, (usize, &'a LogRow)>,
    lost: Vec<&'a LogRow>,
    /// For each address that is no longer live, the line of its last free.
    freed: HashMap<u64, u64>,
    threads: Numbers,
    streams: Numbers,
}

/// Numbers names from 0, in the order of their first appearance.
#[derive(Default)]
struct Numbers(HashMap<u64, usize>);

impl Numbers {
    fn of(&mut self, name: u64) -> usize {
        let next = self.0.len();
        *self.0.entry(name).or_insert(next)
    }
}

impl<'a> Matcher<'a> {
    fn row(&mut self, row: &'a LogRow) -> Result<()> {
        self.summary.rows += 1;
        match row.record.action {
            LogAction::AllocateFailure | LogAction::FreeFailure => self.summary.failures += 1,
            _ if row.record.size == 0 => self.summary.empty += 1,
            LogAction::Allocate => self.allocate(row)?,
            LogAction::Free => self.free(row),
        }
        Ok(())
    }

    fn allocate(&mut self, row: &'a LogRow) -> Result<()> {
        let record = &row.record;
        let layout = usize::try_from(record.size).ok().zip(usize::try_from(record.align).ok());
        let layout = layout.and_then(|(size, align)| Layout::from_size_align(size, align).ok());
        let layout = layout.ok_or_else(|| Error::AllocLog {
            what: "read",
            why: format!(
                "line {}, column `size`: {} aligned to {} exceed the address space",
                row.line,
                Bytes(record.size),
                record.align
            ),
            advice: "correct or remove that line",
        })?;
        let (thread, stream) = (self.threads.of(record.thread), self.streams.of(record.stream));
        let slot = self.script.alloc(thread, stream, layout);
        self.summary.allocations += 1;
        if let Some((_, before)) = self.live.insert(record.pointer, (slot, row)) {
            let line = before.line;
            self.summary.allocated_twice.add(row, || {
                format!("{:#x} is allocated, but has been live since line {line}", record.pointer)
            });
            self.lost.push(before);
        }
        Ok(())
    }

    fn free(&mut self, row: &'a LogRow) {
        let record = &row.record;
        let Some((slot, allocated)) = self.live.remove(&record.pointer) else {
            let why = self.freed.get(&record.pointer).map_or_else(
                || "it was never allocated".into(),
                |line| format!("it was freed in line {line}"),
            );
            let what = || format!("{:#x} is freed, but is not live: {why}", record.pointer);
            return self.summary.unmatched_frees.add(row, what);
        };
        if allocated.record.size != record.size {
            let (line, size) = (allocated.line, Bytes(allocated.record.size));
            self.summary
                .other_sizes
                .add(row, || format!("{} are freed, but line {line} allocated {size}", Bytes(record.size)));
        }
        let (thread, stream) = (self.threads.of(record.thread), self.streams.of(record.stream));
        self.script.free(thread, stream, slot);
        self.freed.insert(record.pointer, row.line);
        self.summary.frees += 1;
    }

    fn end(mut self, rows: &[LogRow]) -> Trace {
        let mut leaked: Vec<_> = self.live.values().map(|(_, row)| *row).chain(self.lost).collect();
        leaked.sort_by_key(|row| row.line);
        let summary = &mut self.summary;
        for row in leaked {
            let (size, pointer) = (Bytes(row.record.size), row.record.pointer);
            summary.leaks.add(row, || format!("{size} at {pointer:#x} are never freed"));
        }
        if let [first, .., last] = rows {
            summary.seconds = (last.record.time - first.record.time) as f64 / 1e9;
        }
        (summary.threads, summary.streams) = (self.script.threads, self.script.streams);
        summary.peak_live_bytes = self.script.demand(None).map_or(0, |demand| demand.peak_bytes);
        Trace { script: self.script, summary: self.summary }
    }
}

//! Findings: what the checks of a run have found; and the state of a pool at the end of a round.

use super::plan::Plan;
use serde::{Deserialize, Serialize};
use std::fmt;
use warpheap::device_pools::Violation;
use warpheap_device::check::Owner;
use warpheap_device::check::log::{Breach, BreachKind};
use warpheap_device::check::record::Record;
use warpheap_device::fault::{Fault, FaultKind};

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FindingKind {
    /// Two live blocks share memory.
    Overlap,
    /// A block is not fully inside the pool.
    OutOfBounds,
    /// A block does not have the requested alignment.
    Misaligned,
    /// The content of a block is not the pattern that its owner wrote.
    Torn,
    /// Memory is neither free nor part of a live block.
    Lost,
    /// A block was freed twice.
    DoubleFree,
    /// An address that does not belong to the pool was freed.
    ForeignFree,
    /// An address inside a block was freed.
    InteriorFree,
    /// The allocator's counts contradict each other or the number of live blocks.
    CountMismatch,
    /// The two independent overlap checks have different results.
    ChecksDisagree,
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A fault that a check has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// The round at the end of which it was found, from 0.
    pub round: u64,
    /// The stream that uses the block in this round, if the block has an owner.
    pub stream: Option<u32>,
    /// The address, if known.
    pub address: Option<u64>,
    /// The message: what was found, where, and both owners.
    pub message: String,
}

/// The number of differences between the metadata and the live blocks that are listed. All lost
/// blocks are counted.
pub(super) const LISTED: usize = 8;

/// The content of a table of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    /// The slots of all threads.
    Slots,
    /// The blocks of an exhausted pool, in allocation order.
    Exhausted,
}

/// The records of all blocks at the end of a round. Creates findings about them.
#[derive(Debug)]
pub struct RoundState<'a> {
    pub(super) plan: &'a Plan,
    pub(super) round: u64,
    pub(super) pool_start: u64,
    pub(super) records: &'a [Record],
    /// The content of `records`.
    pub(super) table: Table,
}

impl RoundState<'_> {
    /// All records at the end of the round, including empty ones.
    pub fn records(&self) -> &[Record] {
        self.records
    }

    /// A finding of this round.
    pub fn finding(&self, kind: FindingKind, address: Option<u64>, message: String) -> Finding {
        Finding { kind, round: self.round, stream: None, address, message }
    }

    /// The stream that uses the record in this round.
    fn stream(&self, place: u32) -> u32 {
        let streams = u64::from(self.plan.streams);
        let set = u64::from(place / self.plan.set_len());
        ((set + streams - self.round % streams) % streams) as u32
    }

    /// Formats an owner, for example `stream 1, thread 5, slot 2`.
    pub(super) fn owner(&self, owner: Owner) -> String {
        let Some(place) = owner.record() else { return "no owner".into() };
        if self.table == Table::Exhausted {
            return format!("allocation {place} of the exhausted pool");
        }
        let within = place % self.plan.set_len();
        let (slot, thread) = (within / self.plan.threads, within % self.plan.threads);
        format!("stream {}, thread {thread}, slot {slot}", self.stream(place))
    }

    /// Formats the block of the record with index `place`.
    pub(super) fn block(&self, place: u32, record: Record) -> String {
        format!(
            "{} B at {} (generation {}) of {}",
            record.bytes(),
            self.place_in_pool(record.address()),
            record.generation(),
            self.owner(Owner::of_record(place))
        )
    }

    /// Formats an address with its position in the pool.
    pub fn place_in_pool(&self, address: u64) -> String {
        let end = self.pool_start + self.plan.pool_bytes;
        if !(self.pool_start..end).contains(&address) {
            return format!("{address:#x}, outside the pool at {:#x}..{end:#x}", self.pool_start);
        }
        let offset = address - self.pool_start;
        let Some(stride) = self.plan.block_bytes.filter(|stride| *stride != 0) else {
            return format!("{address:#x} (offset {offset:#x})");
        };
        let (block, within) = (offset / stride, offset % stride);
        let within = if within == 0 { String::new() } else { format!(" + {within}") };
        format!("{address:#x} (block {block}{within})")
    }

    /// Formats the block that the other owner of a breach holds now.
    fn other(&self, other: Owner) -> String {
        let record = other.record().and_then(|place| Some((place, *self.records.get(place as usize)?)));
        match record.filter(|(_, record)| record.is_live()) {
            Some((place, record)) => self.block(place, record),
            None => self.owner(other),
        }
    }

    /// The live records, with their indices.
    pub(super) fn live(&self) -> impl Iterator<Item = (u32, &Record)> {
        (0..).zip(self.records).filter(|(_, record)| record.is_live())
    }

    /// A finding for a broken invariant of the allocator's metadata.
    pub fn violation(&self, violation: &Violation) -> Finding {
        let message =
            format!("invariant {} of the metadata is broken: {}", violation.invariant, violation.found);
        self.finding(FindingKind::CountMismatch, None, message)
    }

    /// A finding for a block that is allocated in the metadata and in no live record.
    pub(super) fn lost(&self, address: u64) -> Finding {
        let message = format!("a block is neither free nor live: {}", self.place_in_pool(address));
        self.finding(FindingKind::Lost, Some(address), message)
    }

    /// A finding for a live block that is not allocated in the metadata.
    pub(super) fn counted_as_free(&self, address: u64) -> Finding {
        let place = self.place_in_pool(address);
        let message = format!("a live block is free in the metadata, and may be allocated again: {place}");
        self.finding(FindingKind::CountMismatch, Some(address), message)
    }

    /// A finding for a breach that the device has logged.
    pub(super) fn breach(&self, breach: &Breach) -> Finding {
        let Breach { owner, other, address, bytes, offset, expected, found, .. } = *breach;
        let block = format!("{bytes} B at {} of {}", self.place_in_pool(address), self.owner(owner));
        let owned = || format!("byte {offset} belonged to {}", self.other(other));
        let (kind, message) = match breach.kind {
            BreachKind::OutOfBounds => (
                FindingKind::OutOfBounds,
                format!("an allocated block is not fully inside the pool: {block}"),
            ),
            BreachKind::Misaligned => (
                FindingKind::Misaligned,
                format!("an allocated block is not aligned to the requested {expected} B: {block}"),
            ),
            BreachKind::Torn => (
                FindingKind::Torn,
                format!(
                    "the content of a live block was overwritten: {block}; at byte {offset}, expected {expected:#x}, \
                     found {found:#x}"
                ),
            ),
            BreachKind::Usurped => (
                FindingKind::Overlap,
                format!("a block was allocated again before its owner freed it: {block}; {}", owned()),
            ),
            _ => (FindingKind::Overlap, format!("live memory was allocated again: {block}; {}", owned())),
        };
        let stream = owner.record().map(|place| self.stream(place));
        Finding { stream, ..self.finding(kind, Some(address), message) }
    }

    /// A finding for a fault that the allocator has recorded.
    pub(super) fn fault(&self, fault: &Fault) -> Finding {
        let Fault { thread, block, address, detail, .. } = *fault;
        let place = self.place_in_pool(address);
        let by = format!("by thread {thread} of block {block} of its grid; {}", evidence(fault));
        let (kind, message) = match fault.kind {
            FaultKind::DoubleFree => (
                FindingKind::DoubleFree,
                format!("a free block was freed again: {place}, index {detail} in the metadata, {by}"),
            ),
            FaultKind::ForeignFree => (
                FindingKind::ForeignFree,
                format!("an address that is not that of a block was freed: {place}, {by}"),
            ),
            FaultKind::InteriorFree => {
                (FindingKind::InteriorFree, format!("an address inside a block was freed: {place}, {by}"))
            }
            _ => (
                FindingKind::CountMismatch,
                format!("region {detail} counts a free block that its bitmap does not have, found {by}"),
            ),
        };
        self.finding(kind, Some(address).filter(|address| *address != 0), message)
    }
}

/// Formats what a fault's check saw, and where and when.
fn evidence(fault: &Fault) -> String {
    let Fault { check, sm, nanos, seen, later, .. } = fault;
    let word = |name: &str, seen: Option<u64>, later: Option<u64>| {
        seen.zip(later).map_or(String::new(), |(seen, later)| format!(", {name} {seen:#x}, later {later:#x}"))
    };
    let words = word("word", seen.word, later.word) + &word("entry", seen.entry, later.entry);
    format!("{check}{words}; on multiprocessor {sm} at {nanos} of the global clock")
}

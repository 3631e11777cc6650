//! Findings of a run and their messages.

use super::plan::Plan;
use serde::Serialize;
use std::fmt;
use warpheap_device::check::Owner;
use warpheap_device::check::log::{Breach, BreachKind};
use warpheap_device::check::record::Record;
use warpheap_device::fault::{Fault, FaultKind};

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
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
    /// The allocator's own counts contradict each other, or the live blocks.
    CountMismatch,
    /// The two independent overlap checks have different results.
    ChecksDisagree,
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            FindingKind::Overlap => "overlap",
            FindingKind::OutOfBounds => "out-of-bounds",
            FindingKind::Misaligned => "misaligned",
            FindingKind::Torn => "torn",
            FindingKind::Lost => "lost",
            FindingKind::DoubleFree => "double-free",
            FindingKind::ForeignFree => "foreign-free",
            FindingKind::InteriorFree => "interior-free",
            FindingKind::CountMismatch => "count-mismatch",
            FindingKind::ChecksDisagree => "checks-disagree",
        })
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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

/// The content of a table of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    /// The slots of all threads.
    Slots,
    /// The blocks of an exhausted pool, in allocation order.
    Grabbed,
}

/// The live blocks at the end of a round. Formats findings about them.
#[derive(Debug)]
pub struct Narrator<'a> {
    pub(super) plan: &'a Plan,
    pub(super) round: u64,
    pub(super) pool_start: u64,
    pub(super) records: &'a [Record],
    /// The content of `records`.
    pub(super) table: Table,
}

impl Narrator<'_> {
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
        let Some(place) = owner.record() else { return "no one".into() };
        if self.table == Table::Grabbed {
            return format!("grant {place} of the emptied pool");
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
            return format!("{address:#x}, outside the pool at {:#x}..{end:#x},", self.pool_start);
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

    /// A finding for a breach that the device has logged.
    pub(super) fn breach(&self, breach: &Breach) -> Finding {
        let Breach { owner, other, address, bytes, offset, expected, found, .. } = *breach;
        let block = format!("{bytes} B at {} of {}", self.place_in_pool(address), self.owner(owner));
        let (kind, message) = match breach.kind {
            BreachKind::OutOfBounds => {
                (FindingKind::OutOfBounds, format!("a block reaches out of the pool: {block}"))
            }
            BreachKind::Misaligned => {
                (FindingKind::Misaligned, format!("a block is not aligned as asked (to {expected}): {block}"))
            }
            BreachKind::Torn => (
                FindingKind::Torn,
                format!(
                    "a block does not hold what its owner wrote: {block} should have {expected:#x} at byte \
                     {offset} and has {found:#x}"
                ),
            ),
            BreachKind::Usurped => (
                FindingKind::Overlap,
                format!(
                    "a block was someone else's before its owner gave it back: {block}; byte {offset} \
                     belonged to {}",
                    self.other(other)
                ),
            ),
            _ => (
                FindingKind::Overlap,
                format!(
                    "a block was handed out that was still someone's: {block}; byte {offset} belonged to {}",
                    self.other(other)
                ),
            ),
        };
        let stream = owner.record().map(|place| self.stream(place));
        Finding { kind, round: self.round, stream, address: Some(address), message }
    }

    /// A finding for a fault that the allocator has recorded.
    pub(super) fn fault(&self, fault: &Fault) -> Finding {
        let Fault { thread, block, address, detail, .. } = *fault;
        let place = self.place_in_pool(address);
        let by = format!("by thread {thread} of block {block} of its grid");
        let (kind, message) = match fault.kind {
            FaultKind::DoubleFree => (
                FindingKind::DoubleFree,
                format!(
                    "a block was given back that was free already: {place}, number {detail} where the allocator looked, {by}"
                ),
            ),
            FaultKind::ForeignFree => (
                FindingKind::ForeignFree,
                format!("an address was given back that no block has: {place} {by}"),
            ),
            FaultKind::InteriorFree => {
                (FindingKind::InteriorFree, format!("an address inside a block was given back: {place} {by}"))
            }
            _ => (
                FindingKind::CountMismatch,
                format!("region {detail} promised a block that its bitmap does not have, found {by}"),
            ),
        };
        let address = Some(address).filter(|address| *address != 0);
        self.finding(kind, address, message)
    }
}

//! The host side of a debug heap: its part of the metadata, and the analysis of block records.

use super::Heap;
use super::memory::MetadataOffsets;
use crate::device_pools::shared::Violation;
use crate::driver::DeviceMemory;
use crate::error::Result;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use warpheap_device::heap::debug::{
    CANARY, Extra, MAX_CALL_SITES, NAME_BYTES, RECORD_WORDS, Record, SITE_WORDS, State,
};

const RECORD_BYTES: u64 = 8 * RECORD_WORDS as u64;
/// Records of blocks at most `NEAR` bytes apart are read at once, up to `AT_ONCE` bytes.
const NEAR: u64 = 64 << 10;
const AT_ONCE: u64 = 4 << 20;

/// Number of resets of debug heaps in this process, including the first. Makes each salt unique.
static LIVES: Mutex<u64> = Mutex::new(0);

impl Heap {
    /// Resets the debug part of the metadata, which is already zeroed.
    pub(super) fn reset_debug(&mut self) -> Result<()> {
        let Some(offsets) = self.offsets.debug else { return Ok(()) };
        let mut lives = LIVES.lock().unwrap_or_else(PoisonError::into_inner);
        *lives += 1;
        self.salt = *lives;
        let at = |offset: u64| self.metadata.address() + offset;
        let faults = at(self.offsets.faults);
        let ring = [at(offsets.slots), offsets.slot_count.into(), 0, 0];
        let [slots, slot_count, next, leaving] = ring;
        let extra = [at(offsets.sites), faults, self.salt, slots, slot_count, next, leaving];
        const { assert!(size_of::<Extra>() == 7 * 8) };
        self.metadata.write(offsets.extra, &extra)
    }
}

/// A call in the source code that allocates.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct AllocationSite {
    /// The file name as passed to the compiler; the last 232 bytes of a longer name.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

impl fmt::Display for AllocationSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// The origin of a block: the allocation site and thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// The number of the allocation site: [`HeapSnapshot::site`](super::HeapSnapshot::site)
    /// resolves it.
    pub site: u32,
    /// Index of the thread in its block.
    pub thread: u32,
    /// Index of the block in its grid.
    pub block: u32,
}

/// A block that is live according to the heap's metadata.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub start: u64,
    pub bytes: u64,
}

/// A copy of a part of the heap's memory.
struct Copied {
    from: u64,
    bytes: Vec<u8>,
}

impl Copied {
    /// Copies the range, clipped to the memory: corrupted metadata may specify more.
    fn of(memory: &DeviceMemory, from: u64, to: u64) -> Result<Copied> {
        let end = memory.address() + memory.bytes();
        let mut bytes = vec![0; to.min(end).saturating_sub(from) as usize];
        if !bytes.is_empty() {
            memory.fetch(from - memory.address(), &mut bytes)?;
        }
        Ok(Copied { from, bytes })
    }

    /// The bytes between two addresses, if all of them were copied.
    fn part(&self, from: u64, to: u64) -> Option<&[u8]> {
        let start = from.checked_sub(self.from)? as usize;
        self.bytes.get(start..start + (to - from) as usize)
    }
}

/// The records of all blocks that are live according to the heap, the quarantine, and the sites.
pub(super) struct Debugged {
    records: BTreeMap<u64, Option<(Record, State)>>,
    quarantined: BTreeSet<u64>,
    /// Blocks that occur in the quarantine more than once.
    twice: Vec<u64>,
    /// The first overwritten byte of each damaged canary, with the record of its block.
    damaged: Vec<(u64, Record)>,
    sites: BTreeMap<u32, AllocationSite>,
}

impl Debugged {
    /// Reads the records of these blocks, ordered by address, from the heap's memory. Reads
    /// everything else from a copy of its metadata.
    pub fn read(
        blocks: &[Block],
        memory: &DeviceMemory,
        metadata: &[u64],
        at: &MetadataOffsets,
        salt: u64,
    ) -> Result<Option<Self>> {
        let Some(offsets) = at.debug else { return Ok(None) };
        let word = |offset: u64| (offset / 8) as usize;
        let mut debugged = Debugged {
            records: BTreeMap::new(),
            quarantined: BTreeSet::new(),
            twice: Vec::new(),
            damaged: Vec::new(),
            sites: sites(&metadata[word(offsets.sites)..][..MAX_CALL_SITES * SITE_WORDS]),
        };
        for slot in &metadata[word(offsets.slots)..][..offsets.slot_count as usize] {
            if *slot != 0 && !debugged.quarantined.insert(*slot) {
                debugged.twice.push(*slot);
            }
        }
        let near = |a: &Block, b: &Block| b.start - a.start <= NEAR && a.start / AT_ONCE == b.start / AT_ONCE;
        for group in blocks.chunk_by(near) {
            debugged.read_group(group, memory, salt)?;
        }
        Ok(Some(debugged))
    }

    fn read_group(&mut self, blocks: &[Block], memory: &DeviceMemory, salt: u64) -> Result<()> {
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { return Ok(()) };
        let near = Copied::of(memory, first.start, last.start + last.bytes.min(NEAR))?;
        for block in blocks {
            let mut words = [0; RECORD_WORDS];
            let record = near.part(block.start, block.start + RECORD_BYTES).unwrap_or_default();
            for (word, bytes) in words.iter_mut().zip(record.chunks_exact(8)) {
                *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
            }
            let record =
                Record::read(words, block.start, salt).filter(|(record, _)| record.fits(block.bytes));
            self.records.insert(block.start, record);
            if let Some((record, State::Live)) = record {
                self.look_at_canaries(&record, *block, memory, &near)?;
            }
        }
        Ok(())
    }

    fn look_at_canaries(
        &mut self,
        record: &Record,
        block: Block,
        memory: &DeviceMemory,
        near: &Copied,
    ) -> Result<()> {
        for (from, to) in record.canaries(block.start, block.bytes) {
            let other = |bytes: &[u8]| bytes.iter().position(|byte| *byte != CANARY);
            // The canaries of a large block are far from its record.
            let found = match near.part(from, to) {
                Some(bytes) => other(bytes),
                None => other(&Copied::of(memory, from, to)?.bytes),
            };
            self.damaged.extend(found.map(|at| (from + at as u64, *record)));
        }
        Ok(())
    }

    pub fn is_quarantined(&self, start: u64) -> bool {
        self.quarantined.contains(&start)
    }

    /// The record of a live block.
    pub fn record(&self, start: u64) -> Option<Record> {
        self.records.get(&start).copied().flatten().map(|(record, _)| record)
    }

    pub fn site(&self, number: u32) -> Option<&AllocationSite> {
        self.sites.get(&number)
    }

    /// Violations in the records and the quarantine.
    pub fn violations(&self) -> Vec<Violation> {
        let wrong_state = self.records.iter().filter_map(|(start, record)| {
            let state = record.as_ref()?.1;
            let expected = if self.is_quarantined(*start) { State::Quarantined } else { State::Live };
            (state != expected)
                .then(|| violation("D1", format!("{start:#x} is {state:?}, and should be {expected:?}")))
        });
        let strangers = self.quarantined.iter().filter(|start| !self.records.contains_key(start));
        let lost = strangers
            .map(|start| violation("D2", format!("{start:#x} is in quarantine, but is not a live block")));
        let twice =
            self.twice.iter().map(|start| violation("D2", format!("{start:#x} is in quarantine twice")));
        let without = self.records.iter().filter(|(_, record)| record.is_none());
        let overwritten = without.map(|(start, _)| {
            let cause =
                "a write far before the start of an allocation, or far past the end of the previous one";
            violation("D3", format!("the record at {start:#x} was overwritten by {cause}"))
        });
        let damaged = self.damaged.iter().map(|(byte, record)| {
            let site = self.site(record.site).map_or("an unknown site".into(), AllocationSite::to_string);
            let block = format!("an allocation of {} bytes at {site}", record.size);
            violation("D5", format!("{byte:#x}, out of bounds of {block}, was written to"))
        });
        wrong_state.chain(lost).chain(twice).chain(overwritten).chain(damaged).collect()
    }
}

fn violation(invariant: &'static str, found: String) -> Violation {
    Violation { invariant, found }
}

/// The sites of a table, by number.
fn sites(table: &[u64]) -> BTreeMap<u32, AllocationSite> {
    let used = (1..).zip(table.chunks_exact(SITE_WORDS)).filter(|(_, site)| site[0] != 0);
    let read = used.map(|(number, site)| {
        let name: Vec<u8> = site[3..].iter().flat_map(|word| word.to_le_bytes()).collect();
        let name = &name[..(site[2] as usize).min(NAME_BYTES)];
        let file = String::from_utf8_lossy(name).into_owned();
        (number, AllocationSite { file, line: site[1] as u32, column: (site[1] >> 32) as u32 })
    });
    read.collect()
}

//! A debug heap on the host: its part of the metadata, and what the records of its blocks say.

use super::{Heap, HeapBuilder, Places, Violation, heap, refuse};
use crate::driver::DeviceMemory;
use crate::error::Result;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use warpheap_device::heap::debug::{
    CANARY, Extra, NAME_BYTES, RECORD_WORDS, Record, SITE_WORDS, SITES, State,
};

/// Blocks that a debug heap keeps in quarantine, unless set.
const QUARANTINE: u32 = 1024;
/// The most that it may be set to.
const MAX_QUARANTINE: u32 = 1 << 20;

const RECORD_BYTES: u64 = 8 * RECORD_WORDS as u64;
/// Records that lie no further apart are read at once, up to so many bytes.
const NEAR: u64 = 64 << 10;
const AT_ONCE: u64 = 4 << 20;

impl HeapBuilder {
    /// Whether the heap finds writes out of bounds and after the free, and remembers who allocated:
    /// a debug heap; not unless set. It needs the feature `debug` of `warpheap`, and of the
    /// `warpheap-device` of every kernel crate that uses the heap: a launch of kernels without it
    /// is refused ([`Error::InvalidModule`](crate::Error::InvalidModule)). The guide of the heap
    /// says what it finds and what that costs.
    pub fn debug(mut self, debug: bool) -> Self {
        self.debug = debug;
        self
    }

    /// How many frees of others a debug heap keeps a freed block from being handed out again; 1024 unless set. 0 for
    /// none.
    pub fn quarantine(mut self, blocks: u32) -> Self {
        self.quarantine = Some(blocks);
        self
    }

    /// The slots of a debug heap's quarantine.
    pub(super) fn debug_quarantine(&self) -> Result<Option<u32>> {
        if self.debug && !heap::DEBUG {
            let why = "this program was built without the feature `debug` of warpheap; build it with that";
            return refuse("debug", true, why);
        }
        match self.quarantine {
            Some(blocks) if !self.debug => {
                refuse("quarantine", blocks, "only a debug heap has one: set `debug`, too")
            }
            Some(blocks) if blocks > MAX_QUARANTINE => {
                refuse("quarantine", blocks, format!("it is from 0 to {MAX_QUARANTINE} blocks"))
            }
            blocks => Ok(self.debug.then_some(blocks.unwrap_or(QUARANTINE))),
        }
    }
}

/// Where the parts of a debug heap lie in the metadata, in bytes from its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct DebugPlaces {
    pub extra: u64,
    pub slots: u64,
    pub slot_count: u32,
    pub sites: u64,
}

impl DebugPlaces {
    /// With a part for each, which `part` places.
    pub fn new(slot_count: u32, mut part: impl FnMut(u64) -> u64) -> DebugPlaces {
        DebugPlaces {
            extra: part(size_of::<Extra>() as u64),
            slots: part(8 * u64::from(slot_count)),
            slot_count,
            sites: part(8 * (SITES * SITE_WORDS) as u64),
        }
    }
}

/// How many lives of debug heaps this program has begun.
static LIVES: Mutex<u64> = Mutex::new(0);

impl Heap {
    /// Makes the debug heap's part of the metadata new, which is all zeroes.
    pub(super) fn reset_debug(&mut self) -> Result<()> {
        let Some(places) = self.places.debug else { return Ok(()) };
        let mut lives = LIVES.lock().unwrap_or_else(PoisonError::into_inner);
        *lives += 1;
        self.salt = *lives;
        let at = |place: u64| self.metadata.address() + place;
        let faults = at(self.places.faults);
        let ring = [at(places.slots), places.slot_count.into(), 0, 0];
        let [slots, slot_count, next, leaving] = ring;
        let extra = [at(places.sites), faults, self.salt, slots, slot_count, next, leaving];
        const { assert!(size_of::<Extra>() == 7 * 8) };
        self.metadata.write(places.extra, &extra)
    }
}

/// A call in the source that allocates.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct AllocationSite {
    /// The file, as the compiler was given it; of a longer name the last 232 bytes.
    pub file: String,
    /// From 1.
    pub line: u32,
    /// From 1.
    pub column: u32,
}

impl fmt::Display for AllocationSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Who allocated a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// The number of the call: [`HeapSnapshot::site`](super::HeapSnapshot::site) says where that is.
    pub site: u32,
    /// The thread in its block.
    pub thread: u32,
    /// The block in its grid.
    pub block: u32,
}

/// A block that the heap takes for live.
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
    /// What there is of it: metadata that was written over may say more.
    fn of(memory: &DeviceMemory, from: u64, to: u64) -> Result<Copied> {
        let end = memory.address() + memory.bytes();
        let mut bytes = vec![0; to.min(end).saturating_sub(from) as usize];
        if !bytes.is_empty() {
            memory.read(from - memory.address(), &mut bytes)?;
        }
        Ok(Copied { from, bytes })
    }

    /// What is between two addresses, if all of that was copied.
    fn part(&self, from: u64, to: u64) -> Option<&[u8]> {
        let start = from.checked_sub(self.from)? as usize;
        self.bytes.get(start..start + (to - from) as usize)
    }
}

/// The records of all blocks that the heap takes for live, the quarantine, and the sites.
pub(super) struct Debugged {
    records: BTreeMap<u64, Option<(Record, State)>>,
    quarantined: BTreeSet<u64>,
    /// Blocks that are in the quarantine more than once.
    twice: Vec<u64>,
    /// The first byte of each canary that was written to, and whose that is.
    damaged: Vec<(u64, Record)>,
    sites: BTreeMap<u32, AllocationSite>,
}

impl Debugged {
    /// Of these blocks, in the order of their addresses, in the memory of a heap; the rest is in a copy of its metadata.
    pub fn read(
        blocks: &[Block],
        memory: &DeviceMemory,
        metadata: &[u64],
        at: &Places,
        salt: u64,
    ) -> Result<Option<Self>> {
        let Some(places) = at.debug else { return Ok(None) };
        let word = |place: u64| (place / 8) as usize;
        let mut debugged = Debugged {
            records: BTreeMap::new(),
            quarantined: BTreeSet::new(),
            twice: Vec::new(),
            damaged: Vec::new(),
            sites: sites(&metadata[word(places.sites)..][..SITES * SITE_WORDS]),
        };
        for slot in &metadata[word(places.slots)..][..places.slot_count as usize] {
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
            // Those of a large block are far from its record.
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

    /// What is wrong with records and quarantine.
    pub fn violations(&self) -> Vec<Violation> {
        let wrong_state = self.records.iter().filter_map(|(start, record)| {
            let state = record.as_ref()?.1;
            let expected = if self.is_quarantined(*start) { State::Quarantined } else { State::Live };
            (state != expected)
                .then(|| violation("D1", format!("{start:#x} is {state:?}, and should be {expected:?}")))
        });
        let strangers = self.quarantined.iter().filter(|start| !self.records.contains_key(start));
        let lost =
            strangers.map(|start| violation("D2", format!("{start:#x} is in quarantine, and no live block")));
        let twice =
            self.twice.iter().map(|start| violation("D2", format!("{start:#x} is in quarantine twice")));
        let without = self.records.iter().filter(|(_, record)| record.is_none());
        let overwritten = without.map(|(start, _)| {
            let site = "something wrote far before the start of an allocation, or far behind the end of the one before";
            violation("D3", format!("the record at {start:#x} is written over: {site}"))
        });
        let damaged = self.damaged.iter().map(|(byte, record)| {
            let site = self.site(record.site).map_or("an unknown site".into(), AllocationSite::to_string);
            let whose = format!("an allocation of {} bytes at {site}", record.size);
            violation("D5", format!("{byte:#x}, out of bounds of {whose}, was written to"))
        });
        wrong_state.chain(lost).chain(twice).chain(overwritten).chain(damaged).collect()
    }
}

fn violation(invariant: &'static str, found: String) -> Violation {
    Violation { invariant, found }
}

/// The sites of a table, by their numbers.
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

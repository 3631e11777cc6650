//! A debug heap on the host: its part of the metadata, and what the records of its blocks say.

use super::{Heap, Places, Violation};
use crate::driver::DeviceMemory;
use crate::error::Result;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use warpheap_device::heap::debug::{Extra, NAME_BYTES, RECORD_WORDS, Record, SITE_WORDS, SITES, State};

/// Blocks that a debug heap keeps in quarantine, unless set.
pub(super) const QUARANTINE: u32 = 1024;
/// The most that it may be set to.
pub(super) const MAX_QUARANTINE: u32 = 1 << 20;

const RECORD_BYTES: u64 = 8 * RECORD_WORDS as u64;
/// Records that lie no further apart are read at once, up to so many bytes.
const NEAR: u64 = 64 << 10;
const AT_ONCE: u64 = 4 << 20;

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

/// The records of all blocks that the heap takes for live, the quarantine, and the sites.
pub(super) struct Debugged {
    records: BTreeMap<u64, Option<(Record, State)>>,
    quarantined: BTreeSet<u64>,
    /// Blocks that are in the quarantine more than once.
    twice: Vec<u64>,
    sites: BTreeMap<u32, AllocationSite>,
}

impl Debugged {
    /// Of the blocks at `starts`, in their order, in the memory of a heap; the rest is in a copy of its metadata.
    pub fn read(
        starts: &[u64],
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
            sites: sites(&metadata[word(places.sites)..][..SITES * SITE_WORDS]),
        };
        for slot in &metadata[word(places.slots)..][..places.slot_count as usize] {
            if *slot != 0 && !debugged.quarantined.insert(*slot) {
                debugged.twice.push(*slot);
            }
        }
        let near = |a: &u64, b: &u64| b - a <= NEAR;
        for group in starts.chunk_by(near).flat_map(|group| group.chunk_by(|a, b| a / AT_ONCE == b / AT_ONCE))
        {
            debugged.read_group(group, memory, salt)?;
        }
        Ok(Some(debugged))
    }

    fn read_group(&mut self, starts: &[u64], memory: &DeviceMemory, salt: u64) -> Result<()> {
        let [first, .., last] = starts else {
            return starts.first().map_or(Ok(()), |only| self.read_group(&[*only, *only], memory, salt));
        };
        let mut bytes = vec![0_u8; (last - first + RECORD_BYTES) as usize];
        memory.read(first - memory.address(), &mut bytes)?;
        for start in starts {
            let record = &bytes[(start - first) as usize..][..RECORD_BYTES as usize];
            let mut words = [0; RECORD_WORDS];
            for (word, bytes) in words.iter_mut().zip(record.chunks_exact(8)) {
                *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
            }
            self.records.insert(*start, Record::read(words, *start, salt));
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
        wrong_state.chain(lost).chain(twice).chain(overwritten).collect()
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

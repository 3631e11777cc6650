//! All metadata of a heap at one moment, and what it says.

use super::super::Violation;
use super::debug::{AllocationSite, Block, Debugged, Origin};
use super::stats::{HeapStats, Tally};
use super::{Heap, heap};
use crate::error::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use warpheap_device::heap::debug::Debugger;
use warpheap_device::heap::{self as device, LargeAudit, RunAudit, Visitor};
use warpheap_device::kernel::{Arg, DeviceData};

/// How many violations are told one by one. A heap that was written over has as many as it has
/// blocks.
const TOLD: usize = 256;

/// A piece of the metadata, as aligned as any part of it.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
struct Line([u64; Line::WORDS]);

impl Line {
    const WORDS: usize = 16;
    const BYTES: u64 = 8 * Line::WORDS as u64;
}

// SAFETY: integers, with nothing between or behind them.
unsafe impl DeviceData for Line {}

/// A copy of a heap's metadata. It answers as the heap would have at that moment, and needs the
/// device no more.
#[must_use = "it is a copy, which changes nothing"]
pub struct HeapSnapshot {
    /// The copy, which `heap` reads.
    _lines: Vec<Line>,
    /// A handle over the copy. What it hands out is not there: its base is an address of the
    /// device.
    heap: Arg<device::Heap>,
    present: u32,
    faults: u64,
    debugged: Option<Debugged>,
}

/// A block that someone has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Leak {
    /// Its address on the device.
    pub address: u64,
    /// Its length: what was asked for, rounded up to a size class or to whole slabs; in a debug
    /// heap as it was asked for.
    pub bytes: u64,
    /// Who allocated it, in a debug heap; `None` if that was written over.
    pub origin: Option<Origin>,
}

/// Blocks of one allocation site that someone has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SiteLeaks {
    /// Where they were allocated; `None` for what is not known.
    pub site: Option<AllocationSite>,
    /// How many there are.
    pub count: u64,
    /// How many bytes were asked for.
    pub bytes: u64,
}

/// Blocks that someone has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Leaks {
    /// How many there are.
    pub count: u64,
    /// How long they are together.
    pub bytes: u64,
    /// The first of them, by their addresses: as many as were asked for.
    pub first: Vec<Leak>,
    /// Of a debug heap: all of them by the calls that allocated them, those with the most bytes
    /// first.
    pub sites: Vec<SiteLeaks>,
}

impl Heap {
    /// Waits for the device, and copies all metadata to the host: about a 120th of the heap's size,
    /// most of it a bit for every 16 bytes. Launches that are given the heap wait meanwhile. Of a
    /// debug heap it also copies those parts of the memory that live blocks are in.
    ///
    /// # Errors
    /// What failed since; [`NotReset`](crate::Error::NotReset) after a reset that failed.
    pub fn snapshot(&self) -> Result<HeapSnapshot> {
        self.check_reset()?;
        let _held = self.memory().hold_off_launches()?;
        let places = self.places;
        let mut lines = vec![Line([0; Line::WORDS]); (places.end / Line::BYTES) as usize];
        self.metadata.read(0, &mut lines)?;
        let faults = (places.faults / Line::BYTES) as usize;
        let faults = lines[faults].0[0];
        let copy = lines.as_mut_ptr().expose_provenance() as u64;
        let mut parts = places.parts(self.memory().address(), copy);
        parts.debugger = Debugger::NONE;
        // SAFETY: the copy has every part at its place, and lives as long as the handle; a snapshot
        // only reads it. Of the memory, and of the handle in the copy, which names the device's
        // metadata, it touches nothing.
        let heap = unsafe { heap::Heap::from_raw_parts(parts, self.layout, places.cursor_stride_log2) };
        // SAFETY: the same.
        let heap = unsafe { Arg::new(heap) };
        let mut snapshot =
            HeapSnapshot { _lines: lines, heap, present: self.present, faults, debugged: None };
        if places.debug.is_some() {
            let mut blocks = Vec::new();
            snapshot.for_each_live(|leak| blocks.push(Block { start: leak.address, bytes: leak.bytes }));
            let words: Vec<u64> = snapshot._lines.iter().flat_map(|line| line.0).collect();
            snapshot.debugged = Debugged::read(&blocks, self.memory(), &words, &places, self.salt)?;
        }
        Ok(snapshot)
    }

    /// Walks all metadata after the work that the device was given before, and reports what is
    /// broken. See [`snapshot`](Self::snapshot) for what that costs.
    ///
    /// # Errors
    /// What failed since.
    pub fn check(&self) -> Result<Vec<Violation>> {
        Ok(self.snapshot()?.check())
    }

    /// What the heap holds, after the work that the device was given before. See
    /// [`snapshot`](Self::snapshot) for what that costs.
    ///
    /// # Errors
    /// What failed since.
    pub fn stats(&self) -> Result<HeapStats> {
        Ok(self.snapshot()?.stats())
    }

    /// The blocks that were not given back, after the work that the device was given before: how
    /// many, and the first `limit`. See [`snapshot`](Self::snapshot) for what that costs.
    ///
    /// # Errors
    /// What failed since.
    pub fn leaks(&self, limit: usize) -> Result<Leaks> {
        Ok(self.snapshot()?.leaks(limit))
    }
}

impl HeapSnapshot {
    /// The heap over the copy.
    fn copy(&self) -> device::Heap {
        // SAFETY: the copy lives as long as `self`, by whose methods alone the handle is used, to
        // read metadata.
        unsafe { self.heap.into_inner() }
    }
}

impl fmt::Debug for HeapSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = self.copy().layout();
        let mut shown = f.debug_struct("HeapSnapshot");
        shown.field("slabs", &self.present).field("slab_bytes", &layout.slab_bytes());
        shown.field("faults", &self.faults).finish_non_exhaustive()
    }
}

impl HeapSnapshot {
    /// Every broken invariant, with its number at the head of [`warpheap_device::heap`]. None in a
    /// heap that was used as it should be. Of many the first 256 are told, and how many more there
    /// are.
    pub fn check(&self) -> Vec<Violation> {
        let mut broken = Broken::default();
        self.audit(&mut broken);
        broken.told.extend(self.debugged.iter().flat_map(Debugged::violations).take(TOLD));
        if let Some(invariant) = broken.next {
            let found = format!("and {} more of this and other kinds", broken.count - TOLD);
            broken.told.push(Violation { invariant, found });
        }
        broken.told
    }

    /// What the heap held.
    pub fn stats(&self) -> HeapStats {
        let mut tally = Tally::new(&self.copy().layout(), self.present, self.debugged.as_ref());
        self.audit(&mut tally);
        tally.finish(self.faults, &self.copy())
    }

    /// The blocks that someone had: how many, and the first `limit`.
    pub fn leaks(&self, limit: usize) -> Leaks {
        let mut leaks = Leaks::default();
        let mut sites = BTreeMap::<Option<&AllocationSite>, (u64, u64)>::new();
        self.for_each_live(|leak| {
            leaks.count += 1;
            leaks.bytes += leak.bytes;
            let sum = sites.entry(leak.origin.and_then(|origin| self.site(origin.site.into()))).or_default();
            *sum = (sum.0 + 1, sum.1 + leak.bytes);
            if leaks.first.len() < limit {
                leaks.first.push(leak);
            }
        });
        if self.debugged.is_some() {
            let sites = sites.into_iter();
            leaks.sites.extend(sites.map(|(site, (count, bytes))| SiteLeaks {
                site: site.cloned(),
                count,
                bytes,
            }));
            leaks.sites.sort_by_key(|site| std::cmp::Reverse(site.bytes));
        }
        leaks
    }

    /// The allocation site of this number: that of an [`Origin`], or the [`detail`] of a fault that
    /// a debug heap found.
    ///
    /// [`detail`]: warpheap_device::fault::Fault::detail
    pub fn site(&self, number: u64) -> Option<&AllocationSite> {
        self.debugged.as_ref()?.site(u32::try_from(number).ok()?)
    }

    /// Calls `f` with every block that someone had, in the order of their addresses. Blocks in
    /// quarantine are no one's.
    pub fn for_each_live(&self, f: impl FnMut(Leak)) {
        self.audit(&mut Live {
            f,
            slab_bytes: self.copy().layout().slab_bytes().into(),
            debugged: self.debugged.as_ref(),
        });
    }

    pub(super) fn audit(&self, visitor: &mut impl Visitor) {
        let mut held = vec![0; self.copy().layout().slabs as usize];
        self.copy().audit(self.present, &mut held, visitor).expect("a word for each slab");
    }
}

/// What is broken.
#[derive(Default)]
struct Broken {
    told: Vec<Violation>,
    count: usize,
    /// The invariant of the first that is not told.
    next: Option<&'static str>,
}

impl Visitor for Broken {
    fn violation(&mut self, violation: device::Violation) {
        let invariant = violation.invariant().number();
        self.count += 1;
        if self.told.len() < TOLD {
            self.told.push(Violation { invariant, found: violation.to_string() });
        } else {
            self.next.get_or_insert(invariant);
        }
    }
}

/// Live blocks.
struct Live<'a, F> {
    f: F,
    slab_bytes: u64,
    debugged: Option<&'a Debugged>,
}

impl<F: FnMut(Leak)> Live<'_, F> {
    /// A block that is live to the heap.
    fn block(&mut self, start: u64, bytes: u64) {
        let mut leak = Leak { address: start, bytes, origin: None };
        if let Some(debugged) = self.debugged {
            if debugged.is_quarantined(start) {
                return;
            }
            if let Some(record) = debugged.record(start) {
                leak.address += u64::from(record.front);
                leak.bytes = record.size;
                leak.origin = Some(Origin { site: record.site, thread: record.thread, block: record.block });
            }
        }
        (self.f)(leak);
    }
}

impl<F: FnMut(Leak)> Visitor for Live<'_, F> {
    fn violation(&mut self, _: device::Violation) {}

    fn run(&mut self, run: &RunAudit<'_>) {
        let bytes = run.info.bytes.into();
        run.live_blocks().for_each(|start| self.block(start, bytes));
    }

    fn large(&mut self, large: LargeAudit) {
        self.block(large.address, u64::from(large.slabs) * self.slab_bytes);
    }
}

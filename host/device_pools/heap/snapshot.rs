//! A copy of all metadata of a heap at one moment, and its analysis.

use super::debug::{AllocationSite, Block, Debugged, Origin};
use super::pool::Heap;
use super::stats::{HeapStats, Tally};
use crate::device_pools::shared::Violation;
use crate::error::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;
use warpheap_device::heap::debug::Debugger;
use warpheap_device::heap::{self as device, LargeAudit, RunAudit, Visitor};
use warpheap_device::kernel::{Arg, DeviceData};

/// Maximum number of violations reported one by one. A corrupted heap may have one per block.
const TOLD: usize = 256;

/// A piece of the metadata, aligned as strictly as any part of it.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
struct Line([u64; Line::WORDS]);

impl Line {
    const WORDS: usize = 16;
    const BYTES: u64 = 8 * Line::WORDS as u64;
}

// SAFETY: an array of integers without padding.
unsafe impl DeviceData for Line {}

/// A copy of a heap's metadata at one moment. Its methods do not access the device.
#[must_use = "it is a copy, which changes nothing"]
pub struct HeapSnapshot {
    /// The copy that `heap` reads.
    _lines: Vec<Line>,
    /// A handle for the copy. Its blocks do not exist on the host: the base is a device address.
    heap: Arg<device::Heap>,
    present: u32,
    faults: u64,
    debugged: Option<Debugged>,
    taken_at: SystemTime,
}

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Leak {
    /// The device address.
    pub address: u64,
    /// The size: the request rounded up to a size class or to whole slabs. In a debug heap, the
    /// requested size.
    pub bytes: u64,
    /// The allocation's origin in a debug heap; `None` if the record was overwritten.
    pub origin: Option<Origin>,
}

/// The live blocks of one allocation site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SiteLeaks {
    /// The allocation site; `None` if unknown.
    pub site: Option<AllocationSite>,
    /// Number of blocks.
    pub count: u64,
    /// Total requested bytes.
    pub bytes: u64,
}

/// Live blocks of a heap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Leaks {
    /// Number of blocks.
    pub count: u64,
    /// Total bytes of the blocks.
    pub bytes: u64,
    /// The first blocks in address order, up to the requested limit.
    pub first: Vec<Leak>,
    /// In a debug heap: all blocks grouped by allocation site, those with the most bytes first.
    pub sites: Vec<SiteLeaks>,
}

impl Heap {
    /// Waits for the device and copies all metadata to the host: about 1/100 of the heap's size,
    /// mostly one bit per 16 bytes. Launches that use the heap wait until the copy is done. For a
    /// debug heap it also copies the parts of the memory that contain live blocks.
    ///
    /// # Errors
    /// An earlier failure of the device; [`NotReset`](crate::Error::NotReset) after a failed reset.
    pub fn snapshot(&self) -> Result<HeapSnapshot> {
        self.check_reset()?;
        let _held = self.memory().block_launches()?;
        let offsets = self.offsets;
        let mut lines = vec![Line([0; Line::WORDS]); (offsets.end / Line::BYTES) as usize];
        self.metadata.fetch(0, &mut lines)?;
        let faults = (offsets.faults / Line::BYTES) as usize;
        let faults = lines[faults].0[0];
        let copy = lines.as_mut_ptr().expose_provenance() as u64;
        let mut parts = offsets.parts(self.memory().address(), copy);
        parts.debugger = Debugger::NONE;
        // SAFETY: the copy has every part at its place and lives as long as the handle. A snapshot
        // only reads it. It does not access the heap's memory, nor the handle inside the copy,
        // which names the device's metadata.
        let heap = unsafe { device::Heap::from_raw_parts(parts, self.layout) };
        // SAFETY: the handle is used only by methods of this snapshot, which keep the copy alive.
        let heap = unsafe { Arg::new(heap) };
        let (present, taken_at) = (self.present, SystemTime::now());
        let mut snapshot = HeapSnapshot { _lines: lines, heap, present, faults, debugged: None, taken_at };
        if offsets.debug.is_some() {
            let mut blocks = Vec::new();
            snapshot.for_each_live(|leak| blocks.push(Block { start: leak.address, bytes: leak.bytes }));
            let words: Vec<u64> = snapshot._lines.iter().flat_map(|line| line.0).collect();
            snapshot.debugged = Debugged::read(&blocks, self.memory(), &words, &offsets, self.salt)?;
        }
        Ok(snapshot)
    }

    /// Waits for the device, then checks all metadata and reports violated invariants. See
    /// [`snapshot`](Self::snapshot) for the cost.
    ///
    /// # Errors
    /// An earlier failure of the device.
    pub fn check(&self) -> Result<Vec<Violation>> {
        Ok(self.snapshot()?.check())
    }

    /// Waits for the device, then returns statistics of the heap. See [`snapshot`](Self::snapshot)
    /// for the cost.
    ///
    /// # Errors
    /// An earlier failure of the device.
    pub fn stats(&self) -> Result<HeapStats> {
        Ok(self.snapshot()?.stats())
    }

    /// Waits for the device, then returns the live blocks: their number, and the first `limit` of
    /// them. See [`snapshot`](Self::snapshot) for the cost.
    ///
    /// # Errors
    /// An earlier failure of the device.
    pub fn leaks(&self, limit: usize) -> Result<Leaks> {
        Ok(self.snapshot()?.leaks(limit))
    }
}

impl HeapSnapshot {
    /// A device heap for the copy.
    pub(super) fn copy(&self) -> device::Heap {
        // SAFETY: the copy lives as long as `self`. Only methods of `self` use the handle, to read
        // metadata.
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
    /// Checks all invariants. They are numbered at the heads of the modules of
    /// [`warpheap_device::heap`]. Returns an empty list for a heap that was used correctly. At most
    /// 256 violations are listed, followed by the number of the others.
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

    /// Statistics of the heap.
    pub fn stats(&self) -> HeapStats {
        let mut tally = Tally::new(&self.copy().layout(), self.present, self.debugged.as_ref());
        self.audit(&mut tally);
        tally.finish(self.faults, &self.copy())
    }

    /// The live blocks: their number, and the first `limit` of them.
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

    /// The allocation site with this number, from an [`Origin`] or from the [`detail`] of a fault
    /// that a debug heap detected.
    ///
    /// [`detail`]: warpheap_device::fault::Fault::detail
    pub fn site(&self, number: u64) -> Option<&AllocationSite> {
        self.debugged.as_ref()?.site(u32::try_from(number).ok()?)
    }

    /// Calls `f` for every live block in address order. Blocks in quarantine are not live.
    pub fn for_each_live(&self, f: impl FnMut(Leak)) {
        self.audit(&mut Live {
            f,
            slab_bytes: self.copy().layout().slab_bytes().into(),
            debugged: self.debugged.as_ref(),
        });
    }

    pub(super) fn debugged(&self) -> Option<&Debugged> {
        self.debugged.as_ref()
    }

    pub(super) fn taken_at(&self) -> SystemTime {
        self.taken_at
    }

    pub(super) fn audit(&self, visitor: &mut impl Visitor) {
        self.copy().audit(self.present, visitor);
    }
}

/// The violations found.
#[derive(Default)]
struct Broken {
    told: Vec<Violation>,
    count: usize,
    /// The invariant of the first violation that is not listed.
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

/// Visits live blocks.
struct Live<'a, F> {
    f: F,
    slab_bytes: u64,
    debugged: Option<&'a Debugged>,
}

impl<F: FnMut(Leak)> Live<'_, F> {
    /// A block that is live according to the heap.
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

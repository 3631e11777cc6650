//! A copy of all metadata of a heap at one moment, and its analysis.
//!
//! [`HeapStats`]: `usage.reserved = live + large + quarantined + free_block + slack + free_slab +
//! fresh`, all in bytes.

use super::Heap;
use super::debug::{AllocationSite, Block, Debugged, Origin};
use crate::device_pools::shared::Violation;
use crate::error::Result;
use crate::usage::Usage;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;
use warpheap_device::heap::class::SizeClass;
use warpheap_device::heap::debug::Debugger;
use warpheap_device::heap::{self as device, FreeSlab, HeapLayout, LargeAudit, RunAudit, Visitor};
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

/// Statistics of a heap. Bytes are those of blocks and slabs, not of the requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HeapStats {
    /// `used_bytes` counts live blocks, including large ones. `reserved_bytes` counts mapped
    /// memory. `largest_free_bytes` is the largest size that one allocation may get: consecutive
    /// slabs without a live block, or a block of a size class.
    pub usage: Usage,
    /// Maximum size of the heap in bytes, a multiple of the slab size. It can grow to this size.
    pub max_bytes: u64,
    /// Bytes per slab.
    pub slab_bytes: u64,
    /// Number of live blocks, including large allocations.
    pub live_blocks: u64,
    /// Bytes of the live blocks of size classes.
    pub live_bytes: u64,
    /// Number of large allocations, which take entire slabs.
    pub large_blocks: u64,
    /// Bytes of the large allocations.
    pub large_bytes: u64,
    /// Freed blocks that a debug heap keeps in quarantine. They are not live.
    pub quarantined_blocks: u64,
    /// Bytes of the blocks in quarantine.
    pub quarantined_bytes: u64,
    /// Bytes of the free blocks of runs. Any thread can allocate them, from their class. When all
    /// blocks of a run are free, other classes can take its slabs.
    pub free_block_bytes: u64,
    /// Unused bytes after the last block of a run.
    pub slack_bytes: u64,
    /// Bytes of free slabs that were used before.
    pub free_slab_bytes: u64,
    /// Bytes of slabs that were never used since the heap was built or reset.
    pub fresh_bytes: u64,
    /// All bytes that can be allocated: free and fresh slabs, free blocks, and the slack of runs
    /// without a live block.
    pub free_bytes: u64,
    /// `1 - usage.largest_free_bytes / free_bytes`; 0 if nothing is free.
    pub fragmentation: f64,
    /// High-water mark: bytes of slabs that were in use at any time since the heap was built or
    /// reset. An upper bound of the bytes in use at one time.
    pub high_water_bytes: u64,
    /// Failed allocations by kernels and by the host since the heap was built or reset, modulo
    /// 2^32.
    pub failed_allocations: u64,
    /// Those of them that gave up after many attempts, none of which proved that there was no
    /// memory. Modulo 2^32.
    pub contended_failures: u64,
    /// Bytes of the last failed allocation, rounded up to the size class if it has one (not in a
    /// debug heap); 0 if there is none.
    pub last_failed_bytes: u64,
    /// Number of faults, including failed allocations of the global allocator: [`Faults::count`].
    ///
    /// [`Faults::count`]: crate::device_pools::Faults::count
    pub faults: u64,
    /// The classes with slabs, smallest first.
    pub classes: Vec<HeapClassStats>,
}

/// Statistics of a size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HeapClassStats {
    /// Bytes per block.
    pub class_bytes: u64,
    /// Number of slabs of the class.
    pub slabs: u32,
    /// Number of live blocks.
    pub live_blocks: u64,
    /// Freed blocks that a debug heap keeps in quarantine.
    pub quarantined_blocks: u64,
    /// Number of free blocks.
    pub free_blocks: u64,
}

/// Accumulates statistics during the walk.
pub(super) struct Tally<'a> {
    layout: HeapLayout,
    stats: HeapStats,
    debugged: Option<&'a Debugged>,
    /// Consecutive slabs without a live block: the end and the number of slabs.
    row: (u32, u32),
    longest_row: u32,
    /// The longest part of a row in one word of the set of free slabs, as a run of a class is.
    longest_in_word: u32,
    /// The largest class with a free block.
    largest_block: u32,
}

impl<'a> Tally<'a> {
    pub fn new(layout: &HeapLayout, present: u32, debugged: Option<&'a Debugged>) -> Tally<'a> {
        let slab_bytes = layout.slab_bytes().into();
        let class = |class: u32| HeapClassStats {
            class_bytes: SizeClass(class).bytes().into(),
            ..HeapClassStats::default()
        };
        let stats = HeapStats {
            usage: Usage { reserved_bytes: u64::from(present) * slab_bytes, ..Usage::default() },
            max_bytes: layout.bytes(),
            slab_bytes,
            classes: (0..layout.classes).map(class).collect(),
            ..HeapStats::default()
        };
        let row = (0, 0);
        Tally { layout: *layout, stats, debugged, row, longest_row: 0, longest_in_word: 0, largest_block: 0 }
    }

    pub fn finish(mut self, faults: u64, heap: &device::Heap) -> HeapStats {
        let mut stats = std::mem::take(&mut self.stats);
        let largest = self.largest_free(stats.slab_bytes);
        if stats.free_bytes > 0 {
            stats.fragmentation = 1.0 - largest as f64 / stats.free_bytes as f64;
        }
        stats.usage.used_bytes = stats.live_bytes + stats.large_bytes;
        stats.usage.largest_free_bytes = Some(largest);
        stats.high_water_bytes = stats.usage.reserved_bytes.saturating_sub(stats.fresh_bytes);
        stats.faults = faults;
        stats.failed_allocations = heap.failures().into();
        stats.contended_failures = heap.contended_failures().into();
        stats.last_failed_bytes = heap.last_failed_bytes();
        stats.classes.retain(|class| class.slabs > 0);
        stats
    }

    /// A row of slabs larger than the largest class is allocated as one piece. A smaller size takes
    /// a run of its class, in one word of the set of free slabs.
    fn largest_free(&self, slab_bytes: u64) -> u64 {
        let row = u64::from(self.longest_row) * slab_bytes;
        if row > self.layout.small_bytes.into() {
            return row;
        }
        let classes = (0..self.layout.classes).map(|class| self.layout.class(SizeClass(class)));
        let in_row = classes.filter(|info| info.slabs <= self.longest_in_word).map(|info| info.bytes).max();
        in_row.unwrap_or(0).max(self.largest_block).into()
    }

    fn is_quarantined(&self, start: u64) -> bool {
        self.debugged.is_some_and(|debugged| debugged.is_quarantined(start))
    }

    /// Adds slabs without a live block to the current row.
    fn extend_row(&mut self, slab: u32, slabs: u32) {
        let before = if self.row.0 == slab { self.row.1 } else { 0 };
        self.row = (slab + slabs, before + slabs);
        self.longest_row = self.longest_row.max(self.row.1);
        let (end, len) = self.row;
        for word in slab / u32::BITS..end.div_ceil(u32::BITS) {
            let (first, last) = (word * u32::BITS, (word + 1) * u32::BITS);
            self.longest_in_word = self.longest_in_word.max(end.min(last) - first.max(end - len));
        }
    }
}

impl Visitor for Tally<'_> {
    fn violation(&mut self, _: device::Violation) {}

    fn run(&mut self, run: &RunAudit<'_>) {
        let quarantined = run.live_blocks().filter(|start| self.is_quarantined(*start)).count() as u32;
        let live = run.live - quarantined;
        let (info, stats) = (&run.info, &mut self.stats);
        let bytes = |blocks: u32| u64::from(blocks) * u64::from(info.bytes);
        let slack = u64::from(info.slabs) * stats.slab_bytes - bytes(info.blocks);
        stats.live_blocks += u64::from(live);
        stats.live_bytes += bytes(live);
        stats.quarantined_blocks += u64::from(quarantined);
        stats.quarantined_bytes += bytes(quarantined);
        stats.free_block_bytes += bytes(run.free);
        stats.slack_bytes += slack;
        stats.free_bytes += bytes(run.free);
        let class = &mut stats.classes[run.class.0 as usize];
        class.slabs += info.slabs;
        class.live_blocks += u64::from(live);
        class.quarantined_blocks += u64::from(quarantined);
        class.free_blocks += u64::from(run.free);
        if run.live == 0 {
            stats.free_bytes += slack;
            self.extend_row(run.slab, info.slabs);
        } else if run.live < info.blocks {
            self.largest_block = self.largest_block.max(info.bytes);
        }
    }

    fn large(&mut self, large: LargeAudit) {
        let bytes = u64::from(large.slabs) * self.stats.slab_bytes;
        if self.is_quarantined(large.address) {
            self.stats.quarantined_blocks += 1;
            self.stats.quarantined_bytes += bytes;
            return;
        }
        self.stats.live_blocks += 1;
        self.stats.large_blocks += 1;
        self.stats.large_bytes += bytes;
    }

    fn free(&mut self, slab: u32, place: FreeSlab) {
        let stats = &mut self.stats;
        match place {
            FreeSlab::Used => stats.free_slab_bytes += stats.slab_bytes,
            FreeSlab::Fresh => stats.fresh_bytes += stats.slab_bytes,
            FreeSlab::Withheld | FreeSlab::Lost => return,
        }
        stats.free_bytes += stats.slab_bytes;
        self.extend_row(slab, 1);
    }
}

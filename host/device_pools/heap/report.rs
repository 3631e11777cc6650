//! Why a heap ran out of memory: a report from its map.

use super::Heap;
use super::debug::AllocationSite;
use super::map::{HeapMap, MapPart, MapTotals, SlabContent};
use super::snapshot::HeapSnapshot;
use crate::error::Result;
use crate::report::{Extent, HeldBy, MemoryReport, Space, Withheld};
use crate::usage::Usage;

/// Name of the large allocations among the classes.
const LARGE: &str = "whole slabs";
const UNKNOWN_SITE: &str = "an unknown site";

impl Heap {
    /// Waits for the device, then returns a report: what is in use, what is free, what holds the
    /// memory, and why allocations failed, as far as the state of the heap shows it. See
    /// [`snapshot`](Self::snapshot) for the cost.
    ///
    /// In a debug heap, live blocks are grouped by the call that allocated them, otherwise by size
    /// class. Of failed allocations, the heap has the number and the size of the last one.
    /// `{report:#}` prints one line.
    ///
    /// ```
    /// use std::alloc::Layout;
    /// use warpheap::Device;
    /// use warpheap::device_pools::Heap;
    ///
    /// let heap = Heap::builder(1 << 20).build(&Device::cpu())?;
    /// while heap.allocate(Layout::new::<[u8; 4096]>())?.is_some() {}
    /// let report = heap.report()?;
    /// assert_eq!((report.failed_allocations, report.last_failed_bytes), (Some(1), Some(4096)));
    /// assert_eq!(report.advice[0], "Not fragmented: too little memory is free.");
    /// println!("{report}");
    /// # Ok::<(), warpheap::Error>(())
    /// ```
    ///
    /// # Errors
    /// An earlier failure of the device; [`NotReset`](crate::Error::NotReset) after a failed reset.
    pub fn report(&self) -> Result<MemoryReport> {
        Ok(self.snapshot()?.report())
    }
}

impl HeapSnapshot {
    /// The report of the heap at the moment of the snapshot; see [`Heap::report`].
    #[must_use]
    pub fn report(&self) -> MemoryReport {
        let report = self.map("").report();
        if self.debugged().is_none() {
            return report;
        }
        let (base, mut blocks) = (self.copy().base() as u64, Vec::new());
        self.for_each_live(|leak| {
            let site = leak.origin.and_then(|origin| self.site(origin.site.into()));
            let name = site.map_or_else(|| UNKNOWN_SITE.into(), AllocationSite::to_string);
            blocks.push((name, leak.address.wrapping_sub(base), 1, leak.bytes));
        });
        let report = report.held_by(HeldBy::Site, blocks, |site| (site, None));
        MemoryReport { withheld: Withheld::InQuarantine, ..report }.concluded()
    }
}

impl HeapMap {
    /// The report of the map, with the live blocks by size class; see [`Heap::report`]. The figures
    /// of an [invalid](Self::validate) map are meaningless.
    #[must_use]
    pub fn report(&self) -> MemoryReport {
        let totals: MapTotals = self.totals();
        let usage = Usage {
            used_bytes: totals.live_bytes,
            reserved_bytes: self.mapped_bytes,
            largest_free_bytes: None,
        };
        let extent = |part: &MapPart| Extent {
            start: u64::from(part.first_slab).saturating_mul(self.slab_bytes),
            bytes: u64::from(part.slabs).saturating_mul(self.slab_bytes),
        };
        let used = self.parts.iter().filter(|part| !part.is_free() && part.content != SlabContent::Unmapped);
        let space = Space::new(
            vec![Extent { start: 0, bytes: self.mapped_bytes }],
            used.clone().map(extent).collect(),
        );
        let live = used.clone().filter_map(|part| Some((part, part.live()?)));
        let drawn = used.map(|part| (extent(part), part.drawn_bytes(extent(part).bytes)));
        let holders = live.map(|(part, live)| (live.name, extent(part).start, live.blocks, live.bytes));
        let heap = match self.label.as_str() {
            "" => "a heap".to_owned(),
            label => format!("a heap, {label}"),
        };
        let report = MemoryReport::new(heap, usage).with_space(space, drawn);
        let report = report.held_by(HeldBy::Class, holders, |class| (class, None));
        MemoryReport {
            failed_allocations: Some(self.failed_allocations),
            last_failed_bytes: (self.last_failed_bytes > 0).then_some(self.last_failed_bytes),
            limit_bytes: Some(self.heap_bytes),
            ..report
        }
        .concluded()
    }
}

/// The live blocks of a part.
struct Live {
    name: String,
    blocks: u64,
    bytes: u64,
}

impl MapPart {
    fn live(&self) -> Option<Live> {
        let (name, blocks, bytes) = match self.content {
            SlabContent::Run { block_bytes, blocks, free_blocks, quarantined_blocks } => {
                let live = u64::from(blocks.saturating_sub(free_blocks).saturating_sub(quarantined_blocks));
                (format!("{block_bytes} B"), live, live.saturating_mul(block_bytes))
            }
            SlabContent::Large { bytes, is_quarantined: false } => (LARGE.into(), 1, bytes),
            _ => return None,
        };
        (blocks > 0).then_some(Live { name, blocks, bytes })
    }

    /// Bytes that a picture shows as used: those of live blocks, and all of a part without any.
    fn drawn_bytes(&self, all: u64) -> u64 {
        self.live().map_or(all, |live| live.bytes)
    }
}

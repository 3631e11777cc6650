//! Makes a map from a snapshot.

use super::super::debug::Debugged;
use super::super::snapshot::HeapSnapshot;
use super::{HeapMap, MapPart, MapSpan, SlabContent};
use std::time::SystemTime;
use warpheap_device::heap::{FreeSlab, LargeAudit, RunAudit, SpanAudit, Violation, Visitor};

impl HeapSnapshot {
    /// What each slab contains: the map of the heap, with a label for people. It can be serialised,
    /// and `warpheap map` draws it.
    #[must_use]
    pub fn map(&self, label: impl Into<String>) -> HeapMap {
        let stats = self.stats();
        let slab_bytes = stats.slab_bytes;
        let mut walk = Walk { slab_bytes, debugged: self.debugged(), next: 0, parts: vec![], spans: vec![] };
        self.audit(&mut walk);
        let taken = self.taken_at().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        walk.skip_to((stats.max_bytes / slab_bytes) as u32);
        HeapMap {
            schema: HeapMap::SCHEMA.into(),
            label: label.into(),
            unix_seconds: taken.as_secs(),
            subsec_nanos: taken.subsec_nanos(),
            heap_bytes: stats.max_bytes,
            slab_bytes,
            mapped_bytes: stats.usage.reserved_bytes,
            failed_allocations: stats.failed_allocations,
            last_failed_bytes: stats.last_failed_bytes,
            faults: stats.faults,
            parts: walk.parts,
            spans: walk.spans,
        }
    }
}

/// Collects the parts and the spans.
struct Walk<'a> {
    slab_bytes: u64,
    debugged: Option<&'a Debugged>,
    /// The slab after the last part.
    next: u32,
    parts: Vec<MapPart>,
    spans: Vec<MapSpan>,
}

impl Walk<'_> {
    fn is_quarantined(&self, start: u64) -> bool {
        self.debugged.is_some_and(|debugged| debugged.is_quarantined(start))
    }

    /// The audit visits no slab with contradictory metadata.
    fn skip_to(&mut self, slab: u32) {
        let slabs = slab.saturating_sub(self.next);
        if slabs > 0 {
            self.add(self.next, slabs, SlabContent::Unknown);
        }
    }

    /// Adds slabs. Those without a run or an allocation extend the last part if it is the same.
    fn add(&mut self, first_slab: u32, slabs: u32, content: SlabContent) {
        self.next = first_slab + slabs;
        let is_one_object = matches!(content, SlabContent::Run { .. } | SlabContent::Large { .. });
        match self.parts.last_mut() {
            Some(last) if last.content == content && !is_one_object => last.slabs += slabs,
            _ => self.parts.push(MapPart { first_slab, slabs, content }),
        }
    }

    fn visit(&mut self, first_slab: u32, slabs: u32, content: SlabContent) {
        self.skip_to(first_slab);
        self.add(first_slab, slabs, content);
    }
}

impl Visitor for Walk<'_> {
    fn violation(&mut self, _: Violation) {}

    fn run(&mut self, run: &RunAudit<'_>) {
        let quarantined = run.live_blocks().filter(|start| self.is_quarantined(*start)).count();
        let content = SlabContent::Run {
            block_bytes: run.info.bytes.into(),
            blocks: run.info.blocks,
            free_blocks: run.free,
            quarantined_blocks: quarantined as u32,
        };
        self.visit(run.slab, run.info.slabs, content);
    }

    fn large(&mut self, large: LargeAudit) {
        let bytes = u64::from(large.slabs) * self.slab_bytes;
        let is_quarantined = self.is_quarantined(large.address);
        self.visit(large.slab, large.slabs, SlabContent::Large { bytes, is_quarantined });
    }

    fn free(&mut self, slab: u32, place: FreeSlab) {
        let content = match place {
            FreeSlab::Fresh => SlabContent::Fresh,
            FreeSlab::Used => SlabContent::Free,
            FreeSlab::Withheld => SlabContent::Unmapped,
            FreeSlab::Lost => SlabContent::Unknown,
        };
        self.visit(slab, 1, content);
    }

    fn span(&mut self, span: SpanAudit) {
        let SpanAudit { class, shard, slab: first_slab, slabs, is_current } = span;
        let block_bytes = class.bytes().into();
        self.spans.push(MapSpan { block_bytes, shard, first_slab, slabs, is_current });
    }
}

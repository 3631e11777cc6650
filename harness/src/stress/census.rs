//! Compares all live blocks for overlaps while no kernel runs. Two methods must agree: a cleared
//! ownership map on the device, and sorting on the host.

use super::finding::{FindingKind, Narrator};
use super::overlap::{self, Overlaps, Span};
use super::plan::{BLOCK_THREADS, Plan};
use super::report::StressReport;
use super::tables::Map;
use crate::Result;
use crate::kernels::stress::overlap_claim;
use std::time::Instant;
use warpheap::driver::{Device, DeviceBuffer, LaunchConfig, Module, Stream};
use warpheap::kernel_names;
use warpheap_device::check::log::LogView;
use warpheap_device::check::record::Record;

/// The kernels that a comparison launches.
pub(super) const LAUNCHED: [&str; 1] = kernel_names![overlap_claim];

/// The number of findings that name their blocks. All are counted.
const NAMED: usize = 16;

/// Memory of the device comparison: a map that is cleared before each comparison, and one mark per
/// record for the largest number of records.
pub(super) struct Census {
    map: Map,
    marks: DeviceBuffer<u32>,
}

/// The result of the comparison on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct CensusResult {
    /// Blocks that it compared.
    pub checked: u64,
    /// Blocks that share memory with another.
    pub overlapping: u64,
    /// Blocks outside the pool, or not at the start of a granule.
    pub misplaced: u64,
}

impl CensusResult {
    pub fn is_clean(self) -> bool {
        self.overlapping == 0 && self.misplaced == 0
    }
}

impl Census {
    pub fn new(device: &Device, plan: &Plan, pool_start: u64, records: usize) -> Result<Census> {
        Ok(Census { map: Map::new(device, plan, pool_start)?, marks: device.zeroed(records)? })
    }

    /// Compares all live records on the device.
    pub fn on_device(
        &self,
        module: &Module,
        stream: &Stream,
        records: &DeviceBuffer<Record>,
        report: &mut StressReport,
    ) -> Result<CensusResult> {
        self.map.clear(stream)?;
        // SAFETY: nothing else uses the marks: no kernel runs.
        unsafe { stream.fill_bytes(&self.marks, 0) }?;
        let grid = LaunchConfig::linear(records.len() as u32, BLOCK_THREADS);
        let before = stream.record()?;
        let args = (records.slice(), self.map.handle(), self.marks.slice());
        // SAFETY: no kernel writes the records now. There are at least as many marks as records,
        // all 0, and nothing else uses the marks.
        unsafe { stream.launch(module, overlap_claim, &grid, args) }?;
        let after = stream.record()?;
        stream.synchronize()?;
        report.check_seconds += after.elapsed(&before)?.as_secs_f64();
        let words = self.map.read_log()?;
        let log = LogView::new(&words).expect("the buffer is as long as a log");
        let checked = log.checked();
        report.blocks_checked += checked;
        let overlaps = log.count(warpheap_device::check::log::BreachKind::Overlap);
        Ok(CensusResult { checked, overlapping: log.overlapping(), misplaced: log.total() - overlaps })
    }
}

/// The result of the comparison on the host.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    pub overlaps: Overlaps,
    pub live: u64,
    /// Indices of records with a block outside the pool, or not at the start of a granule.
    pub misplaced: Vec<u32>,
}

/// Compares all live records on the host, rounded to granules as on the device.
pub(super) fn on_host(plan: &Plan, narrator: &Narrator<'_>, report: &mut StressReport) -> Sorted {
    let started = Instant::now();
    let granule = 1u64 << plan.granule_log2;
    let mut sorted = Sorted::default();
    let mut spans = Vec::with_capacity(narrator.records.len());
    for (place, record) in narrator.records.iter().enumerate().filter(|(_, record)| record.is_live()) {
        let place = place as u32;
        sorted.live += 1;
        // Granules are counted from the start of the pool, whatever its alignment.
        let start = record.address().checked_sub(narrator.pool_start);
        let end = start.and_then(|start| start.checked_add(record.bytes().into()));
        let end = end.and_then(|end| end.checked_next_multiple_of(granule));
        match start.zip(end) {
            Some((start, end)) if end <= plan.pool_bytes && start.is_multiple_of(granule) => {
                spans.push(Span { start, end, place });
            }
            _ => sorted.misplaced.push(place),
        }
    }
    sorted.overlaps = overlap::check(&mut spans);
    report.blocks_sorted += sorted.live;
    report.host_check_seconds += started.elapsed().as_secs_f64();
    sorted
}

/// Adds the findings of the host, and differences between host and device.
pub(super) fn compare(
    result: CensusResult,
    sorted: &Sorted,
    narrator: &Narrator<'_>,
    report: &mut StressReport,
) {
    let named = |place: u32| narrator.block(place, narrator.records[place as usize]);
    for pair in sorted.overlaps.pairs.iter().take(NAMED) {
        let (first, second) = (named(pair.first.place), named(pair.second.place));
        let message = format!("two live blocks share memory: {first}, and {second}");
        let address = narrator.pool_start + pair.second.start;
        let finding = narrator.finding(FindingKind::Overlap, Some(address), message);
        report.add(vec![finding], 1);
    }
    report.add(Vec::new(), sorted.overlaps.pairs.len().saturating_sub(NAMED) as u64);
    for place in sorted.misplaced.iter().take(NAMED) {
        let address = narrator.records[*place as usize].address();
        let message = format!("a live block is not where a block can be: {}", named(*place));
        report.add(vec![narrator.finding(FindingKind::OutOfBounds, Some(address), message)], 1);
    }
    let host = (sorted.live, sorted.overlaps.blocks, sorted.misplaced.len() as u64);
    let device = (result.checked, result.overlapping, result.misplaced);
    if host != device {
        let message = format!(
            "the host compared {} blocks and found {} that share memory and {} misplaced; the device compared \
             {} and found {} and {}",
            host.0, host.1, host.2, device.0, device.1, device.2
        );
        report.add(vec![narrator.finding(FindingKind::ChecksDisagree, None, message)], 1);
    }
}

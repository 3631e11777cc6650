//! Compares all live blocks for overlaps while no kernel runs. Two methods must agree: a cleared
//! ownership map on the device, and sorting on the host.

use super::finding::FindingKind;
use super::overlap::{self, Overlaps, Span};
use super::plan::Plan;
use super::report::StressReport;
use super::round_state::RoundState;
use super::tables::Map;
use super::validate::BLOCK_THREADS;
use crate::kernels::stress::overlap_claim;
use crate::{Error, Result};
use std::time::Instant;
use warpheap::driver::{Device, DeviceBuffer, LaunchConfig, Module, Stream};
use warpheap::kernel_names;
use warpheap_device::check::log::{BreachKind, LogView};
use warpheap_device::check::record::Record;

/// The kernels that a comparison launches.
pub(super) const LAUNCHED: [&str; 1] = kernel_names![overlap_claim];

/// The number of listed findings. All are counted.
const LISTED: usize = 16;

/// A thread for each record of a table. Fails if their numbers have more than 32 bits.
pub(super) fn record_grid(records: u64) -> Result<LaunchConfig> {
    let threads = u32::try_from(records).map_err(|_| {
        Error::invalid_stress(format!("a pool of {records} blocks"), "use a smaller pool, or larger sizes")
    })?;
    Ok(LaunchConfig::linear(threads, BLOCK_THREADS))
}

/// Memory of the device comparison: a map that is cleared before each comparison, and one mark per
/// record for the largest number of records.
pub(super) struct DeviceCheck {
    map: Map,
    marks: DeviceBuffer<u32>,
}

/// The result of the comparison on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceResult {
    /// Blocks that it compared.
    pub checked: u64,
    /// Blocks that share memory with another.
    pub overlapping: u64,
    /// Blocks outside the pool, or not at the start of a granule.
    pub misplaced: u64,
}

impl DeviceResult {
    pub fn is_clean(self) -> bool {
        self.overlapping == 0 && self.misplaced == 0
    }
}

impl DeviceCheck {
    pub fn new(device: &Device, plan: &Plan, pool_start: u64, records: usize) -> Result<DeviceCheck> {
        Ok(DeviceCheck { map: Map::new(device, plan, pool_start)?, marks: device.zeroed(records)? })
    }

    /// Compares all live records on the device.
    pub fn compare(
        &self,
        module: &Module,
        stream: &Stream,
        records: &DeviceBuffer<Record>,
        report: &mut StressReport,
    ) -> Result<DeviceResult> {
        self.map.clear(stream)?;
        // SAFETY: nothing else uses the marks: no kernel runs.
        unsafe { stream.fill_bytes(&self.marks, 0) }?;
        let grid = record_grid(records.len() as u64)?;
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
        let overlaps = log.count(BreachKind::Overlap);
        Ok(DeviceResult { checked, overlapping: log.overlapping(), misplaced: log.total() - overlaps })
    }
}

/// The result of the comparison on the host.
#[derive(Debug, Default)]
pub(super) struct HostResult {
    pub overlaps: Overlaps,
    pub live: u64,
    /// Indices of records with a block outside the pool, or not at the start of a granule.
    pub misplaced: Vec<u32>,
}

/// Compares all live records on the host, rounded to granules as on the device.
pub(super) fn check_on_host(plan: &Plan, state: &RoundState<'_>, report: &mut StressReport) -> HostResult {
    let started = Instant::now();
    let granule = 1u64 << plan.granule_log2;
    let mut result = HostResult::default();
    let mut spans = Vec::with_capacity(state.records.len());
    for (place, record) in state.live() {
        result.live += 1;
        // Granules are counted from the start of the pool, whatever its alignment.
        let start = record.address().checked_sub(state.pool_start);
        let end = start.and_then(|start| start.checked_add(record.bytes().into()));
        let end = end.and_then(|end| end.checked_next_multiple_of(granule));
        match start.zip(end) {
            Some((start, end)) if end <= plan.pool_bytes && start.is_multiple_of(granule) => {
                spans.push(Span { start, end, place });
            }
            _ => result.misplaced.push(place),
        }
    }
    result.overlaps = overlap::check(&mut spans);
    report.blocks_sorted += result.live;
    report.host_check_seconds += started.elapsed().as_secs_f64();
    result
}

/// Adds the findings of the host, and differences between host and device.
pub(super) fn report_differences(
    device: DeviceResult,
    host: &HostResult,
    state: &RoundState<'_>,
    report: &mut StressReport,
) {
    let block = |place: u32| state.block(place, state.records[place as usize]);
    for pair in host.overlaps.pairs.iter().take(LISTED) {
        let (first, second) = (block(pair.first.place), block(pair.second.place));
        let message = format!("two live blocks overlap: {first}, and {second}");
        let address = state.pool_start + pair.second.start;
        report.add_one(state.finding(FindingKind::Overlap, Some(address), message));
    }
    for place in host.misplaced.iter().take(LISTED) {
        let address = state.records[*place as usize].address();
        let message =
            format!("a live block is outside the pool, or does not start at a granule: {}", block(*place));
        report.add_one(state.finding(FindingKind::OutOfBounds, Some(address), message));
    }
    let counts = [host.overlaps.pairs.len(), host.misplaced.len()];
    report.add_unlisted(counts.map(|count| count.saturating_sub(LISTED)).iter().sum());
    let found = [
        [host.live, host.overlaps.blocks, host.misplaced.len() as u64],
        [device.checked, device.overlapping, device.misplaced],
    ];
    if found[0] != found[1] {
        let [host, device] = found.map(|[checked, overlapping, misplaced]| {
            format!(
                "compared {checked} blocks and found {overlapping} that overlap and {misplaced} misplaced"
            )
        });
        let message = format!("the two overlap checks disagree: the host {host}; the device {device}");
        report.add_one(state.finding(FindingKind::ChecksDisagree, None, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_records_than_a_grid_has_threads_are_an_error() {
        assert_eq!(record_grid(1000).unwrap(), LaunchConfig::linear(1000, BLOCK_THREADS));
        assert!(record_grid(u32::MAX.into()).is_ok());
        assert!(record_grid(1 << 32).unwrap_err().to_string().contains("smaller pool"));
    }
}

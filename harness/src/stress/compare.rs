//! Compares all live blocks for overlaps while no kernel runs. Two methods must agree: a cleared
//! ownership map on the device, and sorting on the host.

use super::finding::{FindingKind, RoundState};
use super::plan::{BLOCK_THREADS, Plan};
use super::report::StressReport;
use super::tables::Map;
use crate::kernels::stress::overlap_claim;
use crate::{Error, Result};
use rayon::slice::ParallelSliceMut;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::OnceLock;
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
    result.overlaps = check(&mut spans);
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

/// A block: the bytes `start..end`, and its number among all compared blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The first byte.
    pub start: u64,
    /// The first byte after its end.
    pub end: u64,
    /// Its number.
    pub place: u32,
}

/// Two blocks that share memory, in order of their starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overlap {
    /// The block that starts first.
    pub first: Span,
    /// The other block.
    pub second: Span,
}

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Overlaps {
    /// For each block that starts inside an earlier one, this pair. The first of the pair is the
    /// earlier block with the highest end.
    pub pairs: Vec<Overlap>,
    /// The number of blocks that share memory with another.
    pub blocks: u64,
}

/// From this number of blocks on, parallel sorting is faster.
const MANY: usize = 1 << 14;

/// Compares all blocks. Sorts them by their start and removes empty ones.
pub(super) fn check(spans: &mut Vec<Span>) -> Overlaps {
    spans.retain(|span| span.start < span.end);
    let key = |span: &Span| (span.start, span.end, span.place);
    match sorters().filter(|_| spans.len() >= MANY) {
        Some(sorters) => sorters.install(|| spans.par_sort_unstable_by_key(key)),
        None => spans.sort_unstable_by_key(key),
    }
    sweep(spans)
}

/// The threads that sort. None if the system cannot start them.
fn sorters() -> Option<&'static ThreadPool> {
    static SORTERS: OnceLock<Option<ThreadPool>> = OnceLock::new();
    let start = || ThreadPoolBuilder::new().build();
    let warn = |error: &_| tracing::warn!(%error, "blocks are sorted by one thread");
    SORTERS.get_or_init(|| start().inspect_err(warn).ok()).as_ref()
}

/// Compares each block with the earlier block that has the highest end. `sorted` is sorted by
/// start.
///
/// Finds every block that shares memory. Proof: let `x` share memory with a later `y`. The block
/// right after `x` starts inside `x`. If `x` does not have the highest end at that point, the block
/// that has it also ends after the start of `x`, and the overlap with `x` was found at `x`.
fn sweep(sorted: &[Span]) -> Overlaps {
    let mut found = Overlaps::default();
    let Some((first, rest)) = sorted.split_first() else { return found };
    let (mut furthest, mut counted) = (*first, false);
    for span in rest {
        let meets = span.start < furthest.end;
        if meets {
            found.pairs.push(Overlap { first: furthest, second: *span });
            found.blocks += 1 + u64::from(!counted);
            counted = true;
        }
        if span.end > furthest.end {
            (furthest, counted) = (*span, meets);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn more_records_than_a_grid_has_threads_are_an_error() {
        assert_eq!(record_grid(1000).unwrap(), LaunchConfig::linear(1000, BLOCK_THREADS));
        assert!(record_grid(u32::MAX.into()).is_ok());
        assert!(record_grid(1 << 32).unwrap_err().to_string().contains("smaller pool"));
    }

    fn spans(blocks: &[(u64, u64)]) -> Vec<Span> {
        let span =
            |(i, &(start, len)): (usize, &(u64, u64))| Span { start, end: start + len, place: i as u32 };
        blocks.iter().enumerate().map(span).collect()
    }

    fn share(a: &Span, b: &Span) -> bool {
        a.start.max(b.start) < a.end.min(b.end)
    }

    /// Compares all pairs of blocks.
    fn naive(spans: &[Span]) -> BTreeSet<u32> {
        let meets = |a: &&Span| spans.iter().any(|b| b.place != a.place && share(a, b));
        spans.iter().filter(meets).map(|span| span.place).collect()
    }

    #[test]
    fn neighbours_do_not_overlap() {
        assert_eq!(check(&mut spans(&[(64, 64), (0, 64), (128, 1)])), Overlaps::default());
        assert_eq!(check(&mut Vec::new()), Overlaps::default());
    }

    #[test]
    fn one_byte_is_enough_and_both_are_named() {
        let found = check(&mut spans(&[(64, 64), (0, 65)]));
        assert_eq!(found.blocks, 2);
        assert_eq!((found.pairs[0].first.place, found.pairs[0].second.place), (1, 0));
    }

    #[test]
    fn a_long_block_that_covers_many_is_counted_once() {
        assert_eq!(check(&mut spans(&[(0, 1000), (10, 1), (20, 1), (999, 5), (1003, 2)])).blocks, 5);
    }

    #[test]
    fn the_same_block_three_times() {
        let found = check(&mut spans(&[(16, 16), (16, 16), (16, 16)]));
        assert_eq!((found.blocks, found.pairs.len()), (3, 2));
    }

    proptest! {
        #[test]
        fn it_agrees_with_comparing_all_pairs(
            blocks in prop::collection::vec((0u64..200, 0u64..24), 0..40)
        ) {
            let mut all = spans(&blocks);
            let expected = naive(&all);
            let found = check(&mut all);
            prop_assert_eq!(found.blocks, expected.len() as u64);
            for pair in &found.pairs {
                prop_assert!(share(&pair.first, &pair.second));
                prop_assert!(expected.contains(&pair.first.place) && expected.contains(&pair.second.place));
            }
        }

        #[test]
        fn sorting_in_parallel_changes_nothing(seed in any::<u64>()) {
            let mut all: Vec<Span> = (0..MANY as u64 + 100)
                .map(|i| {
                    let start = warpheap_device::check::hash::absorb(seed, i) % (1 << 26);
                    Span { start, end: start + 64, place: i as u32 }
                })
                .collect();
            let found = check(&mut all);
            all.sort_by_key(|span| (span.start, span.end, span.place));
            prop_assert_eq!(found, sweep(&all));
        }
    }
}

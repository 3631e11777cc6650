//! The heap over its load, and as it ages.
//!
//! | file | what |
//! |---|---|
//! | `over_load` | fills of a new heap, and turns over the load |
//! | `drift` | one size after the other, with survivors; wrong and persistent failures |
//! | `places` | the blocks of all places, and their checks |

mod drift;
mod over_load;
mod places;
#[cfg(test)]
mod tests;

use super::contenders::Setup;
use super::extent::LoadExtent;
use super::results::Results;
use crate::Result;
use crate::bench::context::GIB;
use crate::bench::results::{Bar, Figure};
use crate::bench::results::{Drift, Survivors};
use crate::kernels::bench::{
    Draw, bench_heap_free_sparse, bench_load_fill, bench_load_turn, bench_load_turn_floor,
};
use warpheap::device_pools::Heap;
use warpheap::kernel_names;

/// The kernels that are launched.
pub(super) const LAUNCHED: [&str; 4] =
    kernel_names![bench_heap_free_sparse, bench_load_fill, bench_load_turn, bench_load_turn_floor];

/// The smallest and the largest size of blocks.
const SIZES: [(u32, u32); 3] = [(64, 64), (16, 512), (16, 4096)];

/// The largest heap that is measured over its load: its places have numbers of 32 bits.
pub const MOST_HEAP_BYTES: u64 = 128 * GIB;

/// Measures all heaps.
pub(super) fn measure(setup: &Setup<'_>, results: &mut Results<'_>) -> Result<()> {
    for bytes in &setup.extent.load.heaps {
        let what = format!("load in {}", binary(*bytes));
        if *bytes > MOST_HEAP_BYTES {
            results.leave_out(format!("{what}: it has more places than {}", u32::MAX));
            continue;
        }
        let heap = setup.bench.heap(*bytes).map_err(Into::into);
        if let Some(mut heap) = results.keep(&what, heap)? {
            over_loads(setup, &mut heap, results)?;
            drifts(setup, &mut heap, results)?;
        }
    }
    Ok(())
}

/// Measures fills and turns of all sizes at all loads.
fn over_loads(setup: &Setup<'_>, heap: &mut Heap, results: &mut Results<'_>) -> Result<()> {
    let (extent, timer) = (&setup.extent.load, &setup.bench.timer);
    for (min, max) in SIZES {
        let sizes = Draw { min, max, seed: 0 };
        let range = if min == max { format!("{min} B") } else { format!("{min}-{max} B") };
        // The driver loads kernels when they are launched first, so nothing of this is kept.
        let warm_up = LoadExtent { turns: 1, ..extent.clone() };
        let name = format!("load, {range}, warm-up");
        let measured = over_load::measure(timer, &warm_up, heap, sizes, 1, &name);
        if results.keep(&name, measured)?.is_none() {
            continue;
        }
        for percent in &extent.percents {
            let name = format!("load, {range} in {}, {percent} %", binary(heap.capacity()));
            if !results.may_begin(&name, ", and more") {
                return Ok(());
            }
            let measured = over_load::measure(timer, extent, heap, sizes, *percent, &name);
            let measured = results.keep(&name, measured)?;
            results.report.load.extend(measured);
        }
    }
    Ok(())
}

/// Measures all drifts.
fn drifts(setup: &Setup<'_>, heap: &mut Heap, results: &mut Results<'_>) -> Result<()> {
    let (extent, timer) = (&setup.extent.load, &setup.bench.timer);
    if heap.capacity() > extent.drift_most {
        return Ok(());
    }
    for survivors in [Survivors::Oldest, Survivors::Random] {
        for threads in &extent.drift_threads {
            let of = survivors.name();
            let name = format!("drift in {}, {of}, {threads} threads", binary(heap.capacity()));
            if !results.may_begin(&name, ", and more") {
                return Ok(());
            }
            let measured = drift::measure(timer, heap, &drift::SIZES, survivors, *threads, &name);
            let measured = results.keep(&name, measured)?;
            results.report.drift.extend(measured.into_iter().flatten());
        }
    }
    Ok(())
}

/// A figure for each drift: no allocation may fail wrongly.
pub(super) fn figures(drifts: &[Drift]) -> impl Iterator<Item = Figure> {
    let totals = drifts.iter().filter(|drift| drift.bytes.is_none());
    totals.map(|drift| {
        let (heap, of) = (binary(drift.heap_bytes), drift.survivors.name());
        let name = format!("heap drift, wrong failures, {heap}, {of}, {} threads", drift.threads);
        let Drift { wrong, contended, requests, .. } = drift;
        let checked = format!(
            "{wrong} wrong failures of {requests} requests, {contended} without a proof, no two blocks overlap"
        );
        let figure = Figure::plain(&name, drift.threads, "all requests").checked(checked);
        figure.measured_by(drift.wrong_percent, "%", Bar::AtMost, 0.0)
    })
}

/// `256 MiB`, `16 GiB`.
fn binary(bytes: u64) -> String {
    let is_whole = bytes.is_multiple_of(GIB);
    if is_whole { format!("{} GiB", bytes / GIB) } else { format!("{} MiB", bytes >> 20) }
}

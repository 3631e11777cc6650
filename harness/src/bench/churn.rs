//! Churn: every thread repeatedly allocates a block, stores 8 bytes and frees it.
//!
//! A pool with two blocks per thread is timed. In a *tight* pool, with one block per resident
//! thread, failed allocations are counted. A thread holds no block while it allocates, so a block
//! is always free; a failure means that the retry limit was reached.

use super::context::{Bench, Plan, THREADS};
use super::load::{Load, Pool, one_size};
use super::results::{Bar, Figure};
use crate::Result;
use crate::kernels::bench::{bench_churn_floor, bench_freelist_churn};
use crate::summary::Timing;
use warpheap::device_pools::FreeList;
use warpheap::driver::DeviceInfo;
use warpheap::kernel_names;

/// Allocation and free pairs per thread.
const TURNS: u32 = 64;
/// Pairs per thread in a tight pool.
const TIGHT_TURNS: u32 = 16;
const BLOCK_BYTES: u32 = 64;
/// Maximum failures of the tight churn per million allocations. In 3 + 20 rounds of 2^24
/// allocations that is 385; one group of 32 that fails once is 0.08.
const MAX_FAILED_PPM: f64 = 1.0;

const LAUNCHED: [&str; 2] = kernel_names![bench_churn_floor, bench_freelist_churn];

pub(super) fn plans() -> [Plan; 2] {
    [
        Plan::new("free list churn, 64 B", &LAUNCHED, Bench::freelist_churn),
        Plan::new("free list tight churn, 64 B", &LAUNCHED, Bench::freelist_tight_churn),
    ]
}

impl Bench {
    /// A load and its floor.
    fn freelist_churn_load(&self, turns: u32) -> Result<(Load<'_>, Timing)> {
        let load = self.load(THREADS, one_size(BLOCK_BYTES))?;
        let base = load.churn_floor(turns)?;
        Ok((load, base))
    }

    fn freelist_churn(&self, name: &str) -> Result<Figure> {
        let (load, base) = self.freelist_churn_load(TURNS)?;
        let pool = self.freelist(2 * load.threads(), BLOCK_BYTES.into())?;
        let time = time_churn(&load, &pool, TURNS)?;
        let checked = load.check(name, &pool)?;
        Ok(load.churn_figure(name, TURNS, time, ("stores alone", base), 40.0).checked(checked))
    }

    fn freelist_tight_churn(&self, name: &str) -> Result<Figure> {
        let (load, base) = self.freelist_churn_load(TIGHT_TURNS)?;
        // 0 on the CPU, which does not report resident threads.
        let blocks = match resident_threads(&self.timer.device.info()?) {
            0 => load.threads(),
            resident => resident,
        };
        let pool = self.freelist(blocks, BLOCK_BYTES.into())?;
        let time = time_churn(&load, &pool, TIGHT_TURNS)?;
        let requested = u64::from(self.timer.launches()) * u64::from(load.threads()) * u64::from(TIGHT_TURNS);
        let failed = load.failures()?;
        let checked = format!("{}, {failed} of {requested} allocations failed", pool.check_freed(name)?);
        let figure = Figure::ratio(name, load.threads(), time, "stores alone", base, 0.0).checked(checked);
        Ok(figure.measured_by(per_million(failed, requested), "ppm", Bar::AtMost, MAX_FAILED_PPM))
    }
}

fn time_churn(load: &Load<'_>, pool: &FreeList, turns: u32) -> Result<Timing> {
    // SAFETY: the pool and the counter are live, and only this stream uses them.
    unsafe { load.time(bench_freelist_churn, (pool.handle(), turns, load.counter())) }
}

/// Maximum number of threads that the device runs at once.
fn resident_threads(device: &DeviceInfo) -> u32 {
    device.multiprocessors * device.max_threads_per_multiprocessor
}

fn per_million(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64 * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpheap::driver::Device;

    #[test]
    fn a_tight_pool_has_a_block_for_each_resident_thread() {
        let mut h200 = Device::cpu().info().unwrap();
        (h200.multiprocessors, h200.max_threads_per_multiprocessor) = (132, 2048);
        assert_eq!(resident_threads(&h200), 270_336);
        assert!(resident_threads(&h200) < THREADS, "nothing would be tight");
    }

    #[test]
    fn failures_are_compared_with_the_bar() {
        let time = Timing { median_us: 8.0, min_us: 7.0, max_us: 9.0 };
        let base = Timing { median_us: 2.0, ..time };
        let figure = Figure::ratio("x", THREADS, time, "stores alone", base, 0.0);
        assert_eq!((figure.value, &*figure.unit, figure.passed), (Some(4.0), "x", false));
        let failed = |count| {
            figure.clone().measured_by(per_million(count, 1 << 24), "ppm", Bar::AtMost, MAX_FAILED_PPM)
        };
        assert_eq!((failed(0).value, failed(0).passed), (Some(0.0), true));
        assert_eq!((failed(16).value, failed(16).passed), (Some(16e6 / f64::from(1 << 24)), true));
        assert!(!failed(17).passed);
        let unknown = figure.clone().measured_by(f64::NAN, "ppm", Bar::AtMost, MAX_FAILED_PPM);
        assert_eq!((unknown.value, unknown.passed), (None, false));
        assert!(figure.clone().measured_by(41.0, "G pairs/s", Bar::AtLeast, 40.0).passed);
        assert!(!figure.measured_by(39.0, "G pairs/s", Bar::AtLeast, 40.0).passed);
    }

    #[test]
    fn a_figure_is_written_with_all_fields() {
        let time = Timing { median_us: 8.0, min_us: 7.0, max_us: 9.0 };
        let figure =
            Figure::ratio("tight", THREADS, time, "stores alone", time, 0.0).checked("all free".into());
        let figure = figure.measured_by(0.5, "ppm", Bar::AtMost, MAX_FAILED_PPM);
        let json = serde_json::to_value(&figure).unwrap();
        for (field, value) in [("unit", "ppm"), ("holds", "at_most"), ("checked", "all free")] {
            assert_eq!(json[field], value);
        }
        assert_eq!((json["value"].as_f64(), json["bar"].as_f64()), (Some(0.5), Some(1.0)));
        assert_eq!(json["passed"], true);
    }
}

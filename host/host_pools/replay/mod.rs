//! Replays a log of allocations, or other calls, against any pool. [`POOLS`] has the pools that can
//! be built by name.
//!
//! ```text
//!   a log of allocations ── Trace ─┐
//!   calls of a program ────────────┴─ Script ── play ── any pool ── times, and memory held
//! ```
//!
//! Addresses of the log are mapped to those that the pool returns. Thread, stream and order of the
//! calls are those of the log, sorted by time; pauses between calls are not replayed.
//! Inconsistencies of the log are kept and reported: nothing is skipped silently.

mod kinds;
mod player;
mod script;
mod trace;

pub use kinds::{BLOCKS, CACHING, DRIVER, DRIVER_POOL, POOLS, PoolKind};
pub use player::{Failed, Hosts, Played, play, time};
pub use script::{Action, Demand, Script, Step};
pub use trace::{Finding, Findings, Trace, TraceSummary};

use crate::driver::Device;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Settings of a replay.
#[derive(Clone, Copy, Debug)]
pub struct ReplayConfig {
    /// Limit on the memory that each pool takes from the device, in bytes; `None` for as much as it
    /// needs.
    pub bytes: Option<u64>,
    /// The host threads that make the calls.
    pub hosts: Hosts,
}

/// Durations of calls, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
    /// The shortest.
    pub min: f64,
}

impl Spread {
    /// Statistics of times in any order. All are 0 if there are no times.
    pub fn of(mut nanos: Vec<f64>) -> Spread {
        nanos.sort_by(f64::total_cmp);
        let [min, .., max] = nanos[..] else {
            let only = nanos.first().copied().unwrap_or_default();
            return Spread { median: only, p99: only, max: only, min: only };
        };
        let (count, middle) = (nanos.len(), (nanos[(nanos.len() - 1) / 2] + nanos[nanos.len() / 2]) / 2.0);
        Spread { median: middle, p99: nanos[(count * 990).div_ceil(1000) - 1], max, min }
    }
}

/// Result of a pool. Sizes are in bytes, and times are host times.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
#[must_use = "it says whether the replay was clean"]
pub struct ReplayReport {
    /// The pool's name.
    pub pool: &'static str,
    /// Why the pool could not be built or failed. If set, no other field is valid.
    pub error: Option<String>,
    /// Successful allocations and frees.
    pub operations: u64,
    /// Seconds in all calls of the pool.
    pub seconds: f64,
    /// Nanoseconds per call.
    pub call_ns: Spread,
    /// Nanoseconds per allocation.
    pub alloc_ns: Spread,
    /// Nanoseconds per free.
    pub free_ns: Spread,
    /// Overhead of the clock in each of those times.
    pub clock_ns: f64,
    /// High-water mark of live bytes, by requested sizes.
    pub peak_live_bytes: u64,
    /// High-water mark of live bytes, as rounded up by the pool.
    pub peak_used_bytes: u64,
    /// High-water mark of bytes that the pool reserved on the device.
    pub peak_reserved_bytes: u64,
    /// 1 - peak live / peak reserved.
    pub fragmentation: f64,
    /// Allocations that failed because the pool was out of memory or does not support them.
    pub failed_allocations: Failed,
    /// Frees that were skipped because the allocation had failed.
    pub frees_left_out: u64,
    /// Frees that the pool rejected although the block was live.
    pub failed_frees: Failed,
    /// Bytes in use after all blocks were freed, as reported by the pool.
    pub used_at_end_bytes: u64,
}

impl ReplayReport {
    /// Whether the pool behaved correctly. A failed allocation is not a fault.
    pub fn is_clean(&self) -> bool {
        self.error.is_none() && self.failed_frees.count == 0 && self.used_at_end_bytes == 0
    }
}

/// Replays `trace` against two new pools of that kind: once to warm up, and once for the result.
///
/// # Errors
/// Errors that make the device unusable, and host threads that cannot be started. Errors of the
/// pool are in the report.
pub fn replay(device: &Device, kind: &PoolKind, trace: &Trace, config: ReplayConfig) -> Result<ReplayReport> {
    player::check_threads(config.hosts, trace.script.threads)?;
    match play_twice(device, kind, trace, config) {
        Ok(played) => Ok(report(kind, played)),
        Err(error) if error.is_fatal() || matches!(error, Error::NoThread { .. }) => Err(error),
        Err(error) => Ok(ReplayReport { error: Some(error.to_string()), ..report(kind, Played::default()) }),
    }
}

fn play_twice(device: &Device, kind: &PoolKind, trace: &Trace, config: ReplayConfig) -> Result<Played> {
    let Some(demand) = trace.script.demand(config.bytes) else {
        return Err(Error::AllocLog {
            what: "replayed",
            why: "nothing is allocated in it".into(),
            advice: "record a log of a program that allocates",
        });
    };
    let mut played = Played::default();
    for _ in 0..2 {
        let pool = kind.make(device, &demand)?;
        played = play(&trace.script, &pool, config.hosts)?;
    }
    Ok(played)
}

fn report(kind: &PoolKind, played: Played) -> ReplayReport {
    let calls = [&played.alloc_nanos[..], &played.free_nanos].concat();
    ReplayReport {
        pool: kind.name,
        error: None,
        operations: calls.len() as u64,
        seconds: played.nanos / 1e9,
        call_ns: Spread::of(calls),
        alloc_ns: Spread::of(played.alloc_nanos),
        free_ns: Spread::of(played.free_nanos),
        clock_ns: clock_nanos(),
        peak_live_bytes: played.peak_live,
        peak_used_bytes: played.peak_used,
        peak_reserved_bytes: played.peak_reserved,
        fragmentation: fragmentation(played.peak_live, played.peak_reserved),
        failed_allocations: played.failed_allocations,
        frees_left_out: played.frees_left_out,
        failed_frees: played.failed_frees,
        used_at_end_bytes: played.used_at_end,
    }
}

/// The share of the reserved bytes that was never live; 0 if nothing was reserved.
fn fragmentation(live: u64, reserved: u64) -> f64 {
    if reserved == 0 { 0.0 } else { 1.0 - live as f64 / reserved as f64 }
}

/// Time between two reads of the clock: the median of many.
fn clock_nanos() -> f64 {
    let look = |_| {
        let start = Instant::now();
        start.elapsed().as_nanos() as f64
    };
    Spread::of((0..1001).map(look).collect()).median
}

#[cfg(test)]
mod tests;

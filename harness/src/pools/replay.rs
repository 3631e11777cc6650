//! A log of allocations, replayed against any pool.
//!
//! Addresses of the log stand for those that the pool gives out now. Who calls, on which stream and in which order is as in the
//! log, by its times; how long was waited between two calls is not. What does not fit together in the log is kept and told:
//! nothing is left out in silence.

mod trace;

pub use super::play::{Failed, Hosts};
pub use trace::{Finding, Findings, Trace, TraceSummary};

use super::play::{Played, play};
use super::{PoolKind, Spread};
use serde::Serialize;
use std::time::Instant;
use warpheap::driver::Device;
use warpheap::{Error, Result};

/// How a log is replayed.
#[derive(Clone, Copy, Debug)]
pub struct ReplayConfig {
    /// What each pool may take of the device, in bytes; `None` for what it needs.
    pub bytes: Option<u64>,
    /// On which host threads.
    pub hosts: Hosts,
}

/// What a pool made of a log. Sizes are in bytes, and times those of the host.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
#[must_use = "it says whether the replay was clean"]
pub struct ReplayReport {
    /// The pool's name.
    pub pool: &'static str,
    /// Why it could not be made or went wrong; then nothing else counts.
    pub error: Option<String>,
    /// Allocations and frees that went well.
    pub operations: u64,
    /// Seconds in all calls of the pool.
    pub seconds: f64,
    /// Nanoseconds of a call.
    pub call_ns: Spread,
    /// The same of allocations alone.
    pub alloc_ns: Spread,
    /// The same of frees alone.
    pub free_ns: Spread,
    /// What the clock takes of each of those.
    pub clock_ns: f64,
    /// The most that was live, by the sizes asked for.
    pub peak_live_bytes: u64,
    /// The most that was live, by what the pool rounds it up to.
    pub peak_used_bytes: u64,
    /// The most that the pool had of the device.
    pub peak_reserved_bytes: u64,
    /// 1 - peak live / peak reserved.
    pub fragmentation: f64,
    /// Allocations that the pool had no room for, or does not serve.
    pub refused: Failed,
    /// Frees that were not made, since the allocation was refused.
    pub frees_left_out: u64,
    /// Frees that the pool did not take, though the block was live.
    pub failed_frees: Failed,
    /// What the pool says is used after all was given back.
    pub used_at_end_bytes: u64,
}

impl ReplayReport {
    /// Whether the pool did nothing wrong. To refuse an allocation is not wrong.
    pub fn is_clean(&self) -> bool {
        self.error.is_none() && self.failed_frees.count == 0 && self.used_at_end_bytes == 0
    }
}

/// Replays `trace` against a pool of that kind: once to warm up, and once more, which counts, against another one, as empty as the
/// first was.
///
/// # Errors
/// What makes the device useless. What the pool cannot do is in the report.
pub fn replay(device: &Device, kind: &PoolKind, trace: &Trace, config: ReplayConfig) -> Result<ReplayReport> {
    match play_twice(device, kind, trace, config) {
        Ok(played) => Ok(report(kind, played)),
        Err(error) if error.is_fatal() => Err(error),
        Err(error) => Ok(ReplayReport { error: Some(error.to_string()), ..report(kind, Played::default()) }),
    }
}

fn play_twice(device: &Device, kind: &PoolKind, trace: &Trace, config: ReplayConfig) -> Result<Played> {
    let Some(demand) = trace.script.demand(config.bytes) else {
        return Err(Error::AllocLog {
            what: "replayed",
            why: "nothing is allocated in it".into(),
            advice: "record one of a program that allocates",
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
        refused: played.refused,
        frees_left_out: played.frees_left_out,
        failed_frees: played.failed_frees,
        used_at_end_bytes: played.used_at_end,
    }
}

/// The part of what was reserved that was never live; 0 where nothing was.
pub(super) fn fragmentation(live: u64, reserved: u64) -> f64 {
    if reserved == 0 { 0.0 } else { 1.0 - live as f64 / reserved as f64 }
}

/// What lies between two looks at the clock: the median of many.
fn clock_nanos() -> f64 {
    let look = |_| {
        let start = Instant::now();
        start.elapsed().as_nanos() as f64
    };
    Spread::of((0..1001).map(look).collect()).median
}

#[cfg(test)]
mod tests;

//! `reports`: the report of a failed allocation names the cause, for an injected fragmentation and
//! an injected leak.

use super::calls::{MIB, layout};
use super::stage::{Demo, Stage};
use warpheap::host_pools::{CachingPool, Tagged, tag};
use warpheap::{Error, Result, report_out_of_memory};

/// It is the last one: its reports stay on.
pub const DEMO: Demo = Demo {
    name: "reports",
    shows: "why an allocation failed: an injected fragmentation, and an injected leak",
    steps: &[fragmentation, leak],
};

/// Blocks of the pool, of 1 MiB each.
const BLOCKS: usize = 64;
/// Of these, one in so many is never freed and fragments the pool.
const SPREAD: usize = 4;

fn pool(stage: &Stage) -> Result<Tagged<CachingPool>> {
    report_out_of_memory(true);
    let bytes = (BLOCKS * MIB) as u64;
    Ok(Tagged::new(CachingPool::builder().name("activations").max_bytes(bytes).build(&stage.device)?))
}

/// Whether the advice in the report of the error contains all of these words.
fn advises(error: &Error, words: &[&str]) -> bool {
    let advice = error.report().map(|report| report.advice.join(" ")).unwrap_or_default();
    words.iter().all(|words| advice.contains(words))
}

/// Small blocks with the tag `index` outlive the blocks between them.
fn fragmentation(stage: &mut Stage) -> Result<()> {
    let (pool, stream) = (pool(stage)?, stage.stream.clone());
    let (mut kept, mut batches) = (Vec::new(), Vec::new());
    for number in 0..BLOCKS {
        let is_kept = number % SPREAD == 0;
        let _scope = tag(if is_kept { "index" } else { "batch" });
        let block = stage.allocate(&pool, layout(MIB), &stream)?;
        if is_kept { kept.push(block) } else { batches.push(block) }
    }
    for block in batches {
        stage.free(&pool, block, layout(MIB), &stream)?;
    }
    let scope = tag("result");
    let outcome = stage.allocate(&pool, layout(16 * MIB), &stream);
    drop(scope);
    stage.check_fails("16 MiB from a pool with 48 MiB free", outcome, |error| {
        advises(error, &["Fragmented: 48.0 MiB are free", "Blocks with the tag `index` separate them"])
    });
    kept.into_iter().try_for_each(|block| stage.free(&pool, block, layout(MIB), &stream))
}

/// Each request allocates 4 MiB and frees them, and leaks 1 MiB with the tag `request log`.
fn leak(stage: &mut Stage) -> Result<()> {
    let (pool, stream) = (pool(stage)?, stage.stream.clone());
    let scope = tag("weights");
    let weights = stage.allocate(&pool, layout(8 * MIB), &stream)?;
    drop(scope);
    let mut leaked = Vec::new();
    let outcome = loop {
        let scope = tag("request");
        match stage.allocate(&pool, layout(4 * MIB), &stream) {
            Ok(block) => stage.free(&pool, block, layout(4 * MIB), &stream)?,
            failed => break failed,
        }
        drop(scope);
        let _scope = tag("request log");
        leaked.push(stage.allocate(&pool, layout(MIB), &stream)?);
    };
    stage.check_fails("request 54 of a program with a leak", outcome, |error| {
        advises(error, &["Blocks with the tag `request log` hold 86 %", "none was freed"])
    });
    stage.check_reported("requests before that", leaked.len(), 53);
    stage.free(&pool, weights, layout(8 * MIB), &stream)?;
    leaked.into_iter().try_for_each(|block| stage.free(&pool, block, layout(MIB), &stream))
}

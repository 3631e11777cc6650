//! Why an allocation failed: reports of a fragmented pool, and of a pool with a leak.
//!
//! `cargo run --release -p warpheap-examples --bin out_of_memory` prints on the CPU:
//!
//! ```text
//! device: CPU …
//! 16 MiB from a pool with 48 MiB free: the caching pool `activations` …
//!   by tag           bytes    blocks     freed  ends ranges
//!                 16.0 MiB        16         0           15  index
//!   advice     Fragmented: 48.0 MiB are free, but in 16 ranges of at most 3.0 MiB.
//!              Blocks with the tag `index` separate them: …
//! request 54: the caching pool `activations` …
//!   by tag           bytes    blocks     freed  ends ranges
//!                 53.0 MiB        53         0            0  request log
//!                  8.0 MiB         1         0            0  weights
//!   advice     Not fragmented: too little memory is free.
//!              Blocks with the tag `request log` hold 86 % of the bytes in use, …
//! ```

use std::mem::MaybeUninit;
use warpheap::host_pools::{CachingPool, PoolBuffer, Tagged, tag};
use warpheap::{Device, Error, Stream, report_out_of_memory};
use warpheap_examples::{Result, device};

/// Limit of a pool.
const POOL_MIB: usize = 64;

type Pool = Tagged<CachingPool>;
type Block<'a> = PoolBuffer<MaybeUninit<u8>, &'a Pool>;

fn main() -> Result {
    run(&device()?)
}

/// Lets a pool run out of memory for each of two causes. Each report names the cause.
pub fn run(device: &Device) -> Result {
    // The environment variable WARPHEAP_OOM_REPORT=1 does the same.
    report_out_of_memory(true);
    let stream = device.stream()?;
    fragmentation(&pool(device)?, &stream)?;
    leak(&pool(device)?, &stream)
}

fn pool(device: &Device) -> warpheap::Result<Pool> {
    let bytes = (POOL_MIB << 20) as u64;
    Ok(Tagged::new(CachingPool::builder().name("activations").max_bytes(bytes).build(device)?))
}

fn allocate<'a>(pool: &'a Pool, tagged: &str, mib: usize, stream: &Stream) -> warpheap::Result<Block<'a>> {
    let _scope = tag(tagged);
    PoolBuffer::<u8, _>::new_uninit(pool, mib << 20, stream)
}

/// Prints the error with its report, and checks that the advice names the cause.
fn explain(what: &str, error: &Error, cause: &[&str]) -> Result {
    println!("{what}: {error}");
    let advice = error.report().ok_or("the error has no report")?.advice.join(" ");
    match cause.iter().find(|words| !advice.contains(**words)) {
        None => Ok(()),
        Some(words) => Err(format!("the advice has no {words:?}: {advice}").into()),
    }
}

/// Blocks with the tag `index` outlive the blocks between them.
fn fragmentation(pool: &Pool, stream: &Stream) -> Result {
    let (mut index, mut batches) = (Vec::new(), Vec::new());
    for number in 0..POOL_MIB {
        match number % 4 {
            0 => index.push(allocate(pool, "index", 1, stream)?),
            _ => batches.push(allocate(pool, "batch", 1, stream)?),
        }
    }
    drop(batches);
    let Err(error) = allocate(pool, "result", 16, stream) else { return Err("it is not fragmented".into()) };
    let cause = ["Fragmented: 48.0 MiB are free", "Blocks with the tag `index` separate them"];
    explain("16 MiB from a pool with 48 MiB free", &error, &cause)
}

/// Each request allocates 4 MiB and frees them. Its log of 1 MiB is never freed.
fn leak(pool: &Pool, stream: &Stream) -> Result {
    let _weights = allocate(pool, "weights", 8, stream)?;
    let mut logs = Vec::new();
    let error = loop {
        match allocate(pool, "request", 4, stream) {
            Ok(request) => drop(request),
            Err(error) => break error,
        }
        logs.push(allocate(pool, "request log", 1, stream)?);
    };
    let cause = ["Blocks with the tag `request log` hold 86 %", "none was freed"];
    explain(&format!("request {}", logs.len() + 1), &error, &cause)
}

//! Device memory from the host: a pool in stream order, tags that say what its memory is used for,
//! statistics, and a report of why it ran out of memory.
//!
//! The program serves requests. It caches each answer and never evicts one, until the pool is out
//! of memory. The report names the tag of the cache.
//!
//! `cargo run --release -p warpheap-examples --bin host_pools` prints on the CPU:
//!
//! ```text
//! device: CPU …
//! request 14 failed: the caching pool `requests` …
//!   in use     64.0 MiB of 64.0 MiB
//!   by tag           bytes    blocks     freed  ends ranges
//!                 56.0 MiB        14         0            0  cache
//!                  4.0 MiB         1        14            0  scratch
//!                  4.0 MiB         1         0            0  weights
//!   advice     Not fragmented: too little memory is free.
//!              Blocks with the tag `cache` hold 87 % of the bytes in use, …
//! - 14680064 values of 14 answers are as the host computes them
//! - 1048576 values of a request after all answers were evicted …
//! tag weights: allocations 1, failed 0, peak 4194304 B (4.0 MiB)
//! tag scratch: allocations 16, failed 0, peak 4194304 B (4.0 MiB)
//! tag cache: allocations 15, failed 1, peak 58720256 B (56.0 MiB)
//! - all 32 blocks were freed
//! ```

use warpheap::host_pools::{CachingPool, PoolBuffer, Statistics, Tagged, tag};
use warpheap::{Bytes, Device, Module, Stream, kernel_names, report_out_of_memory};
use warpheap_examples::kernels::square::square;
use warpheap_examples::{Result, check_same, device, grid, load};

/// Limit of the pool.
const POOL_BYTES: u64 = 64 << 20;
/// Values of the weights and of an answer: 4 MiB.
const VALUES: usize = 1 << 20;
/// Threads of a request's kernel. Each computes several values.
const THREADS: usize = 1 << 12;

type Pool = Tagged<Statistics<CachingPool>>;
type Buffer<'a> = PoolBuffer<f32, &'a Pool>;

fn main() -> Result {
    run(&device()?)
}

/// What a request needs.
struct Server<'a> {
    pool: &'a Pool,
    module: Module,
    stream: Stream,
    weights: Buffer<'a>,
}

/// Serves requests until the pool is out of memory, evicts all answers, and serves one more.
pub fn run(device: &Device) -> Result {
    // Errors of failed allocations have a report. The environment variable WARPHEAP_OOM_REPORT=1
    // does the same.
    report_out_of_memory(true);
    let pool = CachingPool::builder().name("requests").max_bytes(POOL_BYTES).build(device)?;
    let pool = Tagged::new(Statistics::new(pool));
    let (module, stream) = (load(device, &kernel_names![square])?, device.stream()?);
    let values: Vec<f32> = (0..VALUES).map(|i| (i % 1000) as f32).collect();
    let weights_tag = tag("weights");
    let weights = PoolBuffer::from_slice(&pool, &values, &stream)?;
    drop(weights_tag);
    let server = Server { pool: &pool, module, stream, weights };

    let mut cache = Vec::new();
    let error = loop {
        match server.serve(cache.len() as f32) {
            Ok(answer) => cache.push(answer),
            Err(error) => break error,
        }
    };
    println!("request {} failed: {error}\n", cache.len());
    let report = error.report().ok_or("the error has no report")?;
    if !report.advice.iter().any(|advice| advice.contains("`cache`")) {
        return Err(format!("the report does not name the cache: {:?}", report.advice).into());
    }
    let (mut found, mut expected) = (Vec::new(), Vec::new());
    for (number, values_of) in cache.iter().enumerate() {
        found.extend(values_of.copy_to_vec()?);
        expected.extend(answer(number as f32, &values));
    }
    check_same(&format!("values of {} answers", cache.len()), &found, &expected)?;
    cache.clear();
    let found = server.serve(1.0)?.copy_to_vec()?;
    check_same("values of a request after all answers were evicted", &found, &answer(1.0, &values))?;
    drop(server);
    check_freed(&pool)
}

impl<'a> Server<'a> {
    /// Computes the answer to a request. Its scratch memory is freed in the order of the stream:
    /// while kernels may still use it, and without waiting on the host.
    fn serve(&self, factor: f32) -> warpheap::Result<Buffer<'a>> {
        let scratch_tag = tag("scratch");
        let scratch = PoolBuffer::<f32, _>::new_uninit(self.pool, VALUES, &self.stream)?;
        drop(scratch_tag);
        let args = (self.weights.slice(), factor, scratch.slice_to_init());
        // SAFETY: the weights were written, and nothing else accesses the scratch memory. Both are
        // freed on this stream.
        unsafe { self.stream.launch(&self.module, square, &grid(THREADS), args) }?;
        // SAFETY: the kernel writes all values, on the buffer's stream.
        let scratch = unsafe { scratch.assume_init() };

        let _cache_tag = tag("cache");
        let answer = PoolBuffer::<f32, _>::new_uninit(self.pool, VALUES, &self.stream)?;
        let args = (scratch.slice(), 1.0, answer.slice_to_init());
        // SAFETY: the kernel before writes the scratch memory, and nothing else accesses the
        // answer. Both are freed on this stream.
        unsafe { self.stream.launch(&self.module, square, &grid(THREADS), args) }?;
        // SAFETY: the kernel writes all values, on the buffer's stream.
        Ok(unsafe { answer.assume_init() })
    }
}

/// The answer to a request, computed on the host.
fn answer(factor: f32, weights: &[f32]) -> Vec<f32> {
    let squared = |factor: f32, value: f32| factor * value * value;
    weights.iter().map(|weight| squared(1.0, squared(factor, *weight))).collect()
}

/// Prints the statistics of the pool, and checks that all blocks were freed.
fn check_freed(pool: &Pool) -> Result {
    for of in pool.tags() {
        let (name, peak) = (of.name.as_deref().unwrap_or("none"), Bytes(of.peak_bytes));
        println!("tag {name}: allocations {}, failed {}, peak {peak}", of.allocs, of.failed_allocs);
    }
    let stats = pool.upstream().stats();
    if (stats.live_blocks, stats.failed_allocs, stats.allocs) != (0, 1, stats.frees) {
        return Err(format!("not all blocks were freed, or more allocations failed: {stats:?}").into());
    }
    println!("- all {} blocks were freed", stats.frees);
    Ok(())
}

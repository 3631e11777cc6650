//! A hash table that all threads of a kernel insert into. Each chain grows by nodes from the heap.
//!
//! `cargo run --release -p warpheap-examples --bin table` prints on the CPU:
//!
//! ```text
//! device: CPU …
//! - the heap is empty again; no allocation failed
//! - 8192 counts, half of them of missing keys, are as the host computes them
//! 4096 insertions of 2042 keys: the most frequent key came 11 times
//! ```

use std::collections::HashMap;
use warpheap::{Device, kernel_names};
use warpheap_examples::kernels::table::{Table, table_clear, table_count, table_get};
use warpheap_examples::{
    Result, check_empty, check_same, device, heap, load, run_kernel, scrambled, threads,
};

fn main() -> Result {
    let device = device()?;
    run(&device, threads(&device))
}

/// Counts as many keys as there are threads, looks up each of them and as many others, and frees
/// the table.
pub fn run(device: &Device, threads: u32) -> Result {
    let module = load(device, &kernel_names![table_count, table_get, table_clear])?;
    let (stream, heap) = (device.stream()?, heap(device, threads)?);
    let keys = keys(threads.into());
    let queries: Vec<u64> =
        keys.iter().copied().chain((0..threads.into()).map(|i| u64::from(threads) + i)).collect();

    let (on_device, requested) = (device.from_slice(&keys)?, device.from_slice(&queries)?);
    let buckets = device.zeroed::<u64>((keys.len() / 8).max(1))?;
    let counts = device.zeroed::<u64>(queries.len())?;
    let table = Table { buckets: buckets.slice() };
    let args = (heap.handle(), table, on_device.slice());
    // SAFETY: heap and buffers outlive the kernel, and nothing else accesses them.
    unsafe { run_kernel(&module, &stream, table_count, keys.len(), args) }?;
    let args = (table, requested.slice(), counts.slice());
    // SAFETY: the buffers outlive the kernel, and nothing else accesses them.
    unsafe { run_kernel(&module, &stream, table_get, queries.len(), args) }?;
    // SAFETY: heap and buckets outlive the kernel, and nothing else accesses them.
    unsafe { run_kernel(&module, &stream, table_clear, buckets.len(), (heap.handle(), table)) }?;

    check_empty(&heap)?;
    let mut expected = HashMap::<u64, u64>::new();
    keys.iter().for_each(|key| *expected.entry(*key).or_default() += 1);
    let expected_counts: Vec<u64> =
        queries.iter().map(|key| expected.get(key).copied().unwrap_or(0)).collect();
    let found = counts.copy_to_vec()?;
    check_same("counts, half of them of missing keys,", &found, &expected_counts)?;
    let most = expected.values().max().copied().unwrap_or(0);
    println!("{threads} insertions of {} keys: the most frequent key came {most} times", expected.len());
    Ok(())
}

/// A few frequent keys and many rare ones, for chains of about four nodes.
fn keys(count: u64) -> Vec<u64> {
    (0..count).map(|i| scrambled(i) % (1 + scrambled(!i) % count)).collect()
}

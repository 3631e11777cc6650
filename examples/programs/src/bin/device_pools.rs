//! Pools that kernels allocate from: a bump pool that serves exactly its capacity, on one stream
//! and on several, and a free list whose blocks any thread of any kernel may free.
//!
//! `cargo run --release -p warpheap-examples --bin device_pools` prints on the CPU:
//!
//! ```text
//! device: CPU …
//! 1024 threads with 4 B each, of 4096 B: 1024 blocks, 0 failed, 4096 B in use
//! 2048 threads with 4 B each, of 4096 B: 1024 blocks, 1024 failed, 4096 B in use
//! 1000 threads with 4 B each, of 8192 B: 1000 blocks, 0 failed, 4000 B in use
//! 4000 B of 4096 B: 1 blocks, 0 failed, 4000 B in use
//! then 200 B: 0 blocks, 1 failed, 4000 B in use
//! then 96 B: 1 blocks, 0 failed, 4096 B in use
//! 1 streams share a pool: 1024 blocks, 0 failed, 4096 B in use
//! 32 streams share a pool: 32768 blocks, 0 failed, 131072 B in use
//! a pool for each of 8 streams: 1024 blocks, 0 failed, 4096 B in use
//! free list of 1000 blocks, 1024 threads: 1000 blocks, 24 failed
//! free list of 1000 blocks after 1000 frees by a kernel, 1024 threads: 1000 blocks, 24 failed
//! ```

use warpheap::device_pools::{Bump, FreeList};
use warpheap::{Device, DeviceBuffer, Module, Stream, kernel_names};
use warpheap_examples::kernels::pools::{NONE, bump_take, list_free, list_take};
use warpheap_examples::{Result, device, grid, load, run_kernel};

/// Threads on each stream.
const THREADS: u32 = 1024;
const WORD: u32 = size_of::<u32>() as u32;
/// Blocks of the free list.
const BLOCKS: usize = 1000;

fn main() -> Result {
    run(&device()?)
}

/// Allocates from both pools, and checks each block.
pub fn run(device: &Device) -> Result {
    let module = load(device, &kernel_names![bump_take, list_take, list_free])?;
    one_stream(device, &module)?;
    several_streams(device, &module)?;
    free_list(device, &module)
}

/// A pool of so many bytes. Without shards, it serves requests to the last byte.
fn pool(device: &Device, bytes: u32) -> warpheap::Result<Bump> {
    Bump::builder(bytes.into()).min_align(WORD.into()).shards(0).build(device)
}

/// Launches `threads` threads, numbered from `first`, that allocate `bytes` each. Returns their
/// offsets.
fn take(
    stream: &Stream,
    module: &Module,
    pool: &Bump,
    (threads, bytes, first): (u32, u32, u32),
) -> warpheap::Result<DeviceBuffer<u64>> {
    let offsets = stream.device().zeroed(threads as usize)?;
    let args = (pool.handle(), threads, bytes, first, offsets.slice());
    // SAFETY: the pool and the offsets are live until the kernel has ended: their drops wait.
    unsafe { stream.launch(module, bump_take, &grid(threads as usize), args) }?;
    Ok(offsets)
}

/// Checks that so many of the threads have a block, which holds their number: so no two of them
/// have the same one. Checks the bytes in use.
fn check(what: &str, pool: &Bump, offsets: &[u64], blocks: usize, used: u64) -> Result {
    let mut words = vec![0_u32; pool.memory().bytes() as usize / size_of::<u32>()];
    pool.memory().read(0, &mut words)?;
    let taken = offsets.iter().zip(1_u32..).filter(|(offset, _)| **offset != NONE);
    let is_wrong = |(offset, number): &(&u64, u32)| words[(**offset / u64::from(WORD)) as usize] != *number;
    if let Some((offset, number)) = taken.clone().find(is_wrong) {
        return Err(format!("{what}: the block at {offset} is not that of thread {number} alone").into());
    }
    let found = (taken.count(), pool.stats()?.usage.used_bytes);
    if found != (blocks, used) {
        return Err(format!("{what}: blocks and bytes in use {found:?} instead of {blocks}, {used}").into());
    }
    println!("{what}: {blocks} blocks, {} failed, {used} B in use", offsets.len() - blocks);
    Ok(())
}

fn one_stream(device: &Device, module: &Module) -> Result {
    let stream = device.stream()?;
    for (threads, bytes, blocks) in [(1024, 4096, 1024), (2048, 4096, 1024), (1000, 8192, 1000)] {
        let pool = pool(device, bytes)?;
        let offsets = take(&stream, module, &pool, (threads, WORD, 1))?.copy_to_vec()?;
        let what = format!("{threads} threads with {WORD} B each, of {bytes} B");
        check(&what, &pool, &offsets, blocks, blocks as u64 * u64::from(WORD))?;
    }
    // A failed allocation takes nothing: the rest still serves a smaller one.
    let pool = pool(device, 4096)?;
    for (what, bytes, blocks, used) in
        [("4000 B of 4096 B", 4000, 1, 4000), ("then 200 B", 200, 0, 4000), ("then 96 B", 96, 1, 4096)]
    {
        let offsets = take(&stream, module, &pool, (1, bytes, 1))?.copy_to_vec()?;
        check(what, &pool, &offsets, blocks, used)?;
    }
    Ok(())
}

fn several_streams(device: &Device, module: &Module) -> Result {
    for count in [1, 2, 4, 8, 32] {
        let pool = pool(device, count * THREADS * WORD)?;
        let streams = (0..count).map(|_| device.stream()).collect::<warpheap::Result<Vec<_>>>()?;
        let takes = (0..)
            .zip(&streams)
            .map(|(number, stream)| take(stream, module, &pool, (THREADS, WORD, number * THREADS + 1)));
        let takes = takes.collect::<warpheap::Result<Vec<_>>>()?;
        let offsets = takes.iter().map(DeviceBuffer::copy_to_vec).collect::<warpheap::Result<Vec<_>>>()?;
        let (what, blocks) = (format!("{count} streams share a pool"), (count * THREADS) as usize);
        check(&what, &pool, &offsets.concat(), blocks, pool.memory().bytes())?;
    }
    let mut takes = Vec::new();
    for _ in 0..8 {
        let (pool, stream) = (pool(device, THREADS * WORD)?, device.stream()?);
        takes.push((take(&stream, module, &pool, (THREADS, WORD, 1))?, pool));
    }
    for (offsets, pool) in &takes {
        check("a pool for each of 8 streams", pool, &offsets.copy_to_vec()?, 1024, 4096)?;
    }
    Ok(())
}

fn free_list(device: &Device, module: &Module) -> Result {
    let (list, stream) = (FreeList::builder(BLOCKS as u64, 64).build(device)?, device.stream()?);
    let threads = THREADS as usize;
    let blocks = device.zeroed::<u64>(threads)?;
    for when in ["", " after 1000 frees by a kernel"] {
        // SAFETY: list and blocks outlive the kernel, and nothing else uses the blocks.
        unsafe { run_kernel(module, &stream, list_take, threads, (list.handle(), blocks.slice())) }?;
        // SAFETY: the same; the kernel before has ended, and has allocated the blocks.
        unsafe { run_kernel(module, &stream, list_free, threads, (list.handle(), blocks.slice())) }?;
        let numbers = blocks.copy_to_vec()?;
        let taken = numbers.iter().zip(0..).filter(|(number, _)| **number != NONE);
        if let Some((number, thread)) = taken.clone().find(|(number, thread)| **number != *thread) {
            return Err(format!("the block of thread {thread} holds {number}").into());
        }
        let (taken, stats) = (taken.count(), list.stats()?);
        if (taken, stats.free_blocks, stats.live_blocks) != (BLOCKS, BLOCKS as u64, 0) {
            return Err(format!("{taken} blocks of {BLOCKS}, then {stats:?}").into());
        }
        println!(
            "free list of {BLOCKS} blocks{when}, {threads} threads: {taken} blocks, {} failed",
            threads - taken
        );
    }
    match list.check()?.first() {
        None => Ok(()),
        Some(violation) => Err(format!("the list's metadata is not intact: {violation:?}").into()),
    }
}

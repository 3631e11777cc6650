//! A pool of equal blocks: 100 blocks of 4096 B from one allocation, which kernels fill.
//!
//! A handle frees its block in the order of its stream. The next owner of the block, on any stream,
//! is ordered after the work that used it.
//!
//! `cargo run --release -p warpheap-examples --bin blocks` prints on the CPU:
//!
//! ```text
//! device: CPU …
//! 100 blocks are live, 0 are free; another allocation fails:
//!   a block pool of 100 blocks of 4096 B (4.0 KiB) cannot allocate …
//! - 102400 words of the blocks are as the host computes them
//! - 1024 words of a block that was reused on another stream are as the host computes them
//! 0 blocks are live, 100 are free; a second free of a block fails:
//!   a block pool of 100 blocks of 4096 B (4.0 KiB) cannot free …
//! ```

use std::alloc::Layout;
use warpheap::host_pools::{BlockPool, DeviceAllocator, PoolBuffer};
use warpheap::{Device, Module, Stream, kernel_names};
use warpheap_examples::kernels::fill::fill_integers;
use warpheap_examples::{Result, check_same, device, grid, load};

const BLOCKS: usize = 100;
const BYTES: usize = 4096;
/// Integers in a block.
const WORDS: usize = BYTES / size_of::<u32>();

fn main() -> Result {
    run(&device()?)
}

/// A block, all of its words filled by a kernel.
fn filled<'a>(
    pool: &'a BlockPool,
    stream: &Stream,
    module: &Module,
    value: u32,
) -> warpheap::Result<PoolBuffer<u32, &'a BlockPool>> {
    let block = PoolBuffer::<u32, _>::new_uninit(pool, WORDS, stream)?;
    // SAFETY: the block is freed on this stream, and nothing else accesses it.
    unsafe { stream.launch(module, fill_integers, &grid(WORDS), (block.slice_to_init(), value)) }?;
    // SAFETY: the kernel writes all words, on the block's stream.
    Ok(unsafe { block.assume_init() })
}

/// Prints the numbers of live and of free blocks.
fn print_counts(pool: &BlockPool, what: &str) {
    let free = pool.stats().free_blocks;
    println!("{} blocks are live, {free} are free; {what}", BLOCKS as u64 - free);
}

/// Allocates all blocks, reuses one on another stream, frees all.
pub fn run(device: &Device) -> Result {
    let layout = Layout::from_size_align(BYTES, 256)?;
    let pool = BlockPool::builder(layout, BLOCKS).build(device)?;
    let (module, first, second) =
        (load(device, &kernel_names![fill_integers])?, device.stream()?, device.stream()?);
    let numbers = 1..=BLOCKS as u32;
    let blocks = numbers.clone().map(|number| filled(&pool, &first, &module, number));
    let mut blocks: Vec<_> = blocks.collect::<warpheap::Result<_>>()?;
    print_counts(&pool, "another allocation fails:");
    let Err(error) = filled(&pool, &first, &module, 0) else { return Err("a block too many".into()) };
    println!("  {error}");
    let (mut found, mut expected) = (Vec::new(), Vec::new());
    for (block, number) in blocks.iter().zip(numbers) {
        found.extend(block.copy_to_vec()?);
        expected.extend([number; WORDS]);
    }
    check_same("words of the blocks", &found, &expected)?;

    // The kernel of the last owner may still run when its block is freed, and when the second
    // stream allocates it: the pool is full, so it is the same block.
    blocks.pop();
    drop(filled(&pool, &first, &module, 7)?);
    let reused = filled(&pool, &second, &module, 8)?;
    check_same("words of a block that was reused on another stream", &reused.copy_to_vec()?, &[8; WORDS])?;
    drop((blocks, reused));

    // Handles free their blocks once. Calls of the allocator itself are checked.
    let block = pool.allocate(layout, &first)?;
    // SAFETY: nothing uses the block.
    unsafe { pool.deallocate(block, layout, &first) }?;
    print_counts(&pool, "a second free of a block fails:");
    // SAFETY: nothing uses the block; that it is free already is an error.
    let Err(error) = (unsafe { pool.deallocate(block, layout, &first) }) else {
        return Err("a block was freed twice".into());
    };
    println!("  {error}");
    if pool.stats().free_blocks != BLOCKS as u64 {
        return Err("a failed free changed the count".into());
    }
    Ok(())
}

//! A kernel that writes past the end of its block, inside a pool: compute-sanitizer finds it if the
//! program has the feature `nvtx`.
//!
//! ```sh
//! cargo build --release -p warpheap-examples --features nvtx --bin overrun
//! compute-sanitizer --tool memcheck target/release/overrun cuda
//! ```
//!
//! Without a tool it prints, on the CPU:
//!
//! ```text
//! device: CPU …
//! the next kernel, fill_integers, writes 4004 B to a block of 4000 B
//! no tool observes the memory: nothing reports it
//! - 1000 words of the other block are as the host computes them
//! ```

use std::alloc::Layout;
use warpheap::host_pools::{Annotated, BlockPool, DeviceAllocator, PoolBuffer, SyncDriverAllocator};
use warpheap::{Device, kernel_names, nvtx};
use warpheap_device::kernel::DeviceSlice;
use warpheap_examples::kernels::fill::fill_integers;
use warpheap_examples::{Result, check_same, device, load, run_kernel};

/// Integers in a block: 4000 B. A block of the pool has 96 B more, so the overrun damages no other
/// block.
const WORDS: usize = 1000;

fn main() -> Result {
    run(&device()?)
}

/// Fills two blocks, and one word past the end of the first.
pub fn run(device: &Device) -> Result {
    let (module, stream) = (load(device, &kernel_names![fill_integers])?, device.stream()?);
    let block = Layout::from_size_align(4096, 256)?;
    let build = |memory| BlockPool::builder(block, 2).build_over(memory);
    let pool = Annotated::over("overrun", SyncDriverAllocator::new(device), build)?;
    let (first, second) = (
        PoolBuffer::<u32, _>::zeroed(&pool, WORDS, &stream)?,
        PoolBuffer::from_slice(&pool, &[2_u32; WORDS], &stream)?,
    );
    // SAFETY: the pool's block has room for one more word.
    let too_long = unsafe { DeviceSlice::from_raw_parts(first.slice().as_ptr(), WORDS as u64 + 1) };
    println!("the next kernel, fill_integers, writes 4004 B to a block of 4000 B");
    println!(
        "{}",
        match nvtx::observed().memory {
            true => "a tool observes the memory: it reports the kernel, and may end the program",
            false => "no tool observes the memory: nothing reports it",
        }
    );
    // SAFETY: the words are memory of the pool and of no other block, and outlive the kernel.
    unsafe { run_kernel(&module, &stream, fill_integers, WORDS + 1, (too_long, 1)) }?;
    check_same("words of the other block", &second.copy_to_vec()?, &[2; WORDS])?;
    drop((first, second));
    if pool.usage().used_bytes > 0 {
        return Err("a block was not freed".into());
    }
    Ok(())
}

//! A caching pool: size classes, reuse in stream order, its limit, and a hook that frees memory.
//!
//! `cargo run --release -p warpheap-examples --bin caching` prints on the CPU:
//!
//! ```text
//! device: CPU …
//! rounded: 1 B to 512 B, 513 B to 1024 B (1.0 KiB), 1048577 B to 2097152 B (2.0 MiB);
//! of 4 classes a doubling, to 1310720 B (1.2 MiB)
//! - a block of 1 MiB is allocated again at the same address; its memory took 1 call of the driver
//! - a block that is freed behind a kernel is reused at once on its own stream
//! - 262144 words of the next owner on another stream are as the host computes them
//! the fifth of four blocks fails: a caching pool (at most 268435456 B (256.0 MiB)) …
//! - the hook freed a block, and the allocation succeeded
//! all blocks are free, 0 B are wasted
//! ```

use std::alloc::Layout;
use std::sync::{Arc, Mutex};
use warpheap::host_pools::{CachingPool, DeviceAllocator, PoolBuffer};
use warpheap::{Bytes, Device, Stream, kernel_names};
use warpheap_device::kernel::{DevicePtr, DeviceSlice};
use warpheap_examples::kernels::fill::fill_integers;
use warpheap_examples::{Result, check_same, device, grid, load};

const MIB: usize = 1 << 20;
/// Integers in a block of 1 MiB.
const WORDS: usize = MIB / size_of::<u32>();
/// Of the pool's four largest blocks.
const LARGE: usize = 64 * MIB;

fn main() -> Result {
    run(&device()?)
}

/// Shows each property, and checks it.
pub fn run(device: &Device) -> Result {
    let stream = device.stream()?;
    classes(device)?;
    let pool = || CachingPool::builder().max_bytes(4 * LARGE as u64).build(device);
    reuse(&pool()?, device, &stream)?;
    let pool = pool()?;
    limit(&pool, &stream)?;
    hook(device, &stream)?;
    let stats = pool.stats();
    if stats.live_blocks > 0 || stats.wasted_bytes > 0 {
        return Err(format!("something is left: {stats:?}").into());
    }
    println!("all blocks are free, {} are wasted", Bytes(stats.wasted_bytes));
    Ok(())
}

/// Sizes are rounded up to classes, of which a doubling may have several.
fn classes(device: &Device) -> Result {
    let build = |classes| CachingPool::builder().classes_per_doubling(classes).build(device);
    let (coarse, fine) = (build(1)?, build(4)?);
    let rounded = [1, 513, MIB as u64 + 1].map(|bytes| coarse.rounded(bytes));
    let finer = fine.rounded(MIB as u64 + 1);
    let [small, medium, large] = rounded.map(Bytes);
    println!(
        "rounded: 1 B to {small}, 513 B to {medium}, {} B to {large};\nof 4 classes a doubling, to {}",
        MIB + 1,
        Bytes(finer)
    );
    let expected = ([512, 1024, 2 << 20], 5 << 18);
    if (rounded, finer) == expected { Ok(()) } else { Err(format!("instead of {expected:?}").into()) }
}

/// A block is reused at once on the stream of its free, and behind that free on another stream.
fn reuse(pool: &CachingPool, device: &Device, stream: &Stream) -> Result {
    let (module, other) = (load(device, &kernel_names![fill_integers])?, device.stream()?);
    let layout = Layout::from_size_align(MIB, 256)?;
    let first = pool.allocate(layout, stream)?;
    let calls = pool.stats().upstream_allocs;
    // SAFETY: nothing uses the block.
    unsafe { pool.deallocate(first, layout, stream) }?;
    let again = pool.allocate(layout, stream)?;
    if (again.0, pool.stats().upstream_allocs) != (first.0, calls) {
        return Err("the block was not reused".into());
    }
    println!(
        "- a block of 1 MiB is allocated again at the same address; its memory took {calls} call of the driver"
    );

    let fill = |to: DevicePtr<u8>, value: u32, on: &Stream| {
        // SAFETY: the block has so many words.
        let words = unsafe { DeviceSlice::from_raw_parts(to.0.cast::<u32>(), WORDS as u64) };
        // SAFETY: the block is live, and was allocated for work on this stream.
        unsafe { on.launch(&module, fill_integers, &grid(WORDS), (words, value)) }
    };
    fill(again, 1, stream)?;
    // SAFETY: the kernel was submitted to this stream before.
    unsafe { pool.deallocate(again, layout, stream) }?;
    let third = pool.allocate(layout, stream)?;
    if third.0 != first.0 {
        return Err("a pending free was not reused on its own stream".into());
    }
    println!("- a block that is freed behind a kernel is reused at once on its own stream");
    fill(third, 2, stream)?;
    // SAFETY: the kernel was submitted to this stream before.
    unsafe { pool.deallocate(third, layout, stream) }?;
    // Other blocks of the pool, or this one behind the free.
    let next = PoolBuffer::<u32, _>::new_uninit(pool, WORDS, &other)?;
    // SAFETY: the buffer is live and of this stream.
    unsafe { other.launch(&module, fill_integers, &grid(WORDS), (next.slice_to_init(), 3)) }?;
    // SAFETY: the kernel writes all words, on the buffer's stream.
    let next = unsafe { next.assume_init() };
    check_same("words of the next owner on another stream", &next.copy_to_vec()?, &[3; WORDS])
}

/// An allocation beyond the limit is an error that names the request, the free memory and the
/// largest block.
fn limit(pool: &CachingPool, stream: &Stream) -> Result {
    let large = || PoolBuffer::<u8, _>::new_uninit(pool, LARGE, stream);
    let blocks = (0..4).map(|_| large()).collect::<warpheap::Result<Vec<_>>>()?;
    let Err(error) = large() else { return Err("a fifth block was allocated".into()) };
    println!("the fifth of four blocks fails: {error}");
    drop(blocks);
    Ok(())
}

/// A hook frees a block when the pool is out of memory, and the allocation succeeds.
fn hook(device: &Device, stream: &Stream) -> Result {
    let layout = Layout::from_size_align(LARGE, 256)?;
    let spare = Arc::new(Mutex::new(None::<Spare>));
    let kept = spare.clone();
    let free_spare = move |_| kept.lock().ok().and_then(|mut spare| spare.take()).is_some();
    let pool =
        Arc::new(CachingPool::builder().max_bytes(LARGE as u64).on_exhausted(free_spare).build(device)?);
    let block = pool.allocate(layout, stream)?;
    *spare.lock().map_err(|_| "the lock is poisoned")? =
        Some(Spare { pool: Arc::downgrade(&pool), block, layout, stream: stream.clone() });
    let second = pool.allocate(layout, stream)?;
    if pool.stats().rungs.hooked != 1 {
        return Err("the hook did not help".into());
    }
    // SAFETY: nothing uses the block.
    unsafe { pool.deallocate(second, layout, stream) }?;
    println!("- the hook freed a block, and the allocation succeeded");
    Ok(())
}

/// A block that is freed when this is dropped.
struct Spare {
    pool: std::sync::Weak<CachingPool>,
    block: DevicePtr<u8>,
    layout: Layout,
    stream: Stream,
}

impl Drop for Spare {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        // SAFETY: nothing uses the block, which was allocated with this layout.
        if let Err(error) = unsafe { pool.deallocate(self.block, self.layout, &self.stream) } {
            eprintln!("{error}");
        }
    }
}

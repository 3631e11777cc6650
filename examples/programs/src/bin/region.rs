//! A bump pool of the host: one region that is allocated from start to end, and then reset.
//!
//! `cargo run --release -p warpheap-examples --bin region` prints on the CPU:
//!
//! ```text
//! device: CPU …
//! 10000000 floats in 32 MB: a bump pool of 32000000 B …
//! - 10000000 floats in 40 MB are as the host computes them
//! reset while the floats are live: …
//! reset after their free: the next owner has the same address
//! - 10000000 floats of the next owner are as the host computes them
//! ```

use std::alloc::Layout;
use warpheap::host_pools::{BumpPool, PoolBuffer};
use warpheap::{Device, Module, Stream, kernel_names};
use warpheap_examples::kernels::fill::fill_floats;
use warpheap_examples::{Result, check_same, device, grid, load};

const FLOATS: usize = 10_000_000;
/// Threads of a kernel. Each fills several floats.
const THREADS: usize = 1 << 12;

fn main() -> Result {
    run(&device()?)
}

fn pool(device: &Device, bytes: usize) -> Result<BumpPool> {
    Ok(BumpPool::builder(Layout::from_size_align(bytes, 256)?).build(device)?)
}

/// Floats that a kernel sets to `value`.
fn filled<'a>(
    pool: &'a BumpPool,
    stream: &Stream,
    module: &Module,
    value: f32,
) -> warpheap::Result<PoolBuffer<f32, &'a BumpPool>> {
    let floats = PoolBuffer::<f32, _>::new_uninit(pool, FLOATS, stream)?;
    // SAFETY: the floats are freed on this stream, and nothing else accesses them.
    unsafe { stream.launch(module, fill_floats, &grid(THREADS), (floats.slice_to_init(), value)) }?;
    // SAFETY: the kernel writes all floats, on their stream.
    Ok(unsafe { floats.assume_init() })
}

/// Fills a region, resets it, and fills it again on another stream.
pub fn run(device: &Device) -> Result {
    let (module, first, second) =
        (load(device, &kernel_names![fill_floats])?, device.stream()?, device.stream()?);
    let small = pool(device, 32_000_000)?;
    let Err(error) = filled(&small, &first, &module, 1.0) else { return Err("they do not fit".into()) };
    println!("{FLOATS} floats in 32 MB: {error}");
    if small.stats().granted != 0 {
        return Err("the failed allocation moved the cursor".into());
    }

    let pool = pool(device, 40_000_000)?;
    let floats = filled(&pool, &first, &module, 1.0)?;
    check_same("floats in 40 MB", &floats.copy_to_vec()?, &vec![1.0; FLOATS])?;
    let Err(error) = pool.reset(&first) else { return Err("a reset with live blocks".into()) };
    println!("reset while the floats are live: {error}");
    let address = floats.address();
    drop(floats);
    pool.reset(&first)?;
    // This kernel may still run when its memory is freed, and at the reset. The next owner is
    // ordered after it, on any stream.
    drop(filled(&pool, &first, &module, 2.0)?);
    pool.reset(&second)?;
    let floats = filled(&pool, &second, &module, 3.0)?;
    if floats.address() != address {
        return Err("the region does not begin again".into());
    }
    println!("reset after their free: the next owner has the same address");
    check_same("floats of the next owner", &floats.copy_to_vec()?, &vec![3.0; FLOATS])
}

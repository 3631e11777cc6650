//! Memory of the driver: allocated synchronously and in the order of a stream, the figures of a
//! pool of the driver, and a block that two streams use.
//!
//! `cargo run --release -p warpheap-examples --bin stream_ordered` prints on the CPU, which makes
//! fewer turns:
//!
//! ```text
//! device: CPU …
//! 10 turns of 4 MiB: synchronous …
//! at first: 0 B used, 0 B reserved
//! with 100 MB: …
//! after their free: 0 B used, …
//! after a trim: 0 B used, 0 B reserved
//! - 1048576 floats of the second stream are as the host computes them
//! - 1048576 floats of the next owner on the first stream are as the host computes them
//! ```

use std::time::Instant;
use warpheap::host_pools::{DeviceAllocator, DriverPool, PoolBuffer, SyncDriverAllocator};
use warpheap::{Backend, Bytes, Device, DeviceBuffer, Module, Stream, kernel_names};
use warpheap_device::kernel::DeviceSlice;
use warpheap_examples::kernels::fill::{count_others, fill_floats};
use warpheap_examples::{Result, check_same, device, grid, load};

const FLOATS: usize = 1 << 20;
/// Threads of a kernel. Each fills several floats.
const THREADS: usize = 1 << 12;
const MB: u64 = 1_000_000;

fn main() -> Result {
    run(&device()?)
}

/// Compares both kinds of memory, then shows the pool's figures and its order between streams.
pub fn run(device: &Device) -> Result {
    let module = load(device, &kernel_names![fill_floats, count_others])?;
    let pool = DriverPool::builder().release_threshold(256 * MB).build(device)?;
    compare(device, &module, &pool)?;
    let pool = DriverPool::builder().release_threshold(256 * MB).build(device)?;
    show_figures(device, &pool)?;
    cross_streams(device, &module, &pool)
}

fn fill(stream: &Stream, module: &Module, floats: DeviceSlice<f32>, value: f32) -> warpheap::Result<()> {
    // SAFETY: the floats are freed on this stream, or on one that waits for it, and only work in
    // the order of these streams accesses them.
    unsafe { stream.launch(module, fill_floats, &grid(THREADS), (floats, value)) }
}

/// Microseconds for each of `count` turns that allocate, fill, check and free a block. Counts wrong
/// floats in `wrong`.
fn turns<A: DeviceAllocator>(
    memory: &A,
    module: &Module,
    count: u32,
    wrong: &DeviceBuffer<u64>,
) -> Result<f64> {
    let (stream, start) = (memory.device().stream()?, Instant::now());
    for turn in 0..count {
        let floats = PoolBuffer::<f32, _>::new_uninit(memory, FLOATS, &stream)?;
        fill(&stream, module, floats.slice_to_init(), turn as f32)?;
        let args = (floats.slice_to_init(), turn as f32, wrong.ptr());
        // SAFETY: the kernel before wrote the floats, and the count outlives this kernel.
        unsafe { stream.launch(module, count_others, &grid(THREADS), args) }?;
    }
    stream.synchronize()?;
    Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(count))
}

fn compare(device: &Device, module: &Module, pool: &DriverPool) -> Result {
    let count = if device.backend() == Backend::Cpu { 10 } else { 100 };
    let (memory, wrong) = (SyncDriverAllocator::new(device), device.zeroed(1)?);
    // Also warms up both kinds of memory.
    turns(&memory, module, count / 10, &wrong)?;
    turns(pool, module, count / 10, &wrong)?;
    let slow = turns(&memory, module, count, &wrong)?;
    let fast = turns(pool, module, count, &wrong)?;
    println!(
        "{count} turns of 4 MiB: synchronous {slow:.1} us each, stream-ordered {fast:.1} us, {:.2} times as fast",
        slow / fast
    );
    match wrong.copy_to_vec()?[0] {
        0 => Ok(()),
        wrong => Err(format!("{wrong} floats are wrong").into()),
    }
}

/// Prints and checks what the pool has while 100 MB are allocated, and after that.
fn show_figures(device: &Device, pool: &DriverPool) -> Result {
    let stream = device.stream()?;
    let show = |when: &str, used: u64| -> Result<u64> {
        stream.synchronize()?;
        device.synchronize()?;
        let usage = pool.stats()?.usage;
        let (found, reserved) = (usage.used_bytes, usage.reserved_bytes);
        println!("{when}: {} used, {} reserved", Bytes(found), Bytes(reserved));
        match found >= used && (used > 0 || found == 0) && reserved >= found {
            true => Ok(reserved),
            false => Err(format!("{when}: {found} B are used instead of {used} B").into()),
        }
    };
    show("at first", 0)?;
    let block = PoolBuffer::<u8, _>::new_uninit(pool, 100 * MB as usize, &stream)?;
    show("with 100 MB", 100 * MB)?;
    drop(block);
    let kept = show("after their free", 0)?;
    pool.trim_to(0)?;
    let left = show("after a trim", 0)?;
    if left >= kept.max(1) {
        return Err(format!("a trim left {left} of {kept} reserved bytes").into());
    }
    Ok(())
}

/// The second stream uses and frees a block of the first one. The first stream waits for that free
/// before it gets the memory again.
fn cross_streams(device: &Device, module: &Module, pool: &DriverPool) -> Result {
    let (first, second) = (device.stream()?, device.stream()?);
    let floats = PoolBuffer::<f32, _>::new_uninit(pool, FLOATS, &first)?;
    fill(&first, module, floats.slice_to_init(), 1.0)?;
    // SAFETY: the kernel writes all floats, on their stream.
    let mut floats = unsafe { floats.assume_init() };
    // Records an event on the first stream, and makes the second one wait for it.
    floats.move_to(&second)?;
    let wrong = device.zeroed::<u64>(1)?;
    // SAFETY: the second stream waits for the kernel that wrote the floats; the count outlives this
    // kernel.
    unsafe { second.launch(module, count_others, &grid(THREADS), (floats.slice(), 1.0, wrong.ptr())) }?;
    fill(&second, module, floats.slice(), 2.0)?;
    check_same("floats of the second stream", &floats.copy_to_vec()?, &vec![2.0; FLOATS])?;
    if wrong.copy_to_vec()? != [0] {
        return Err("the second stream did not wait".into());
    }
    // These floats are freed on the second stream, while its kernel may still run.
    fill(&second, module, floats.slice(), 3.0)?;
    drop(floats);
    let floats = PoolBuffer::<f32, _>::new_uninit(pool, FLOATS, &first)?;
    fill(&first, module, floats.slice_to_init(), 4.0)?;
    // SAFETY: the kernel writes all floats, on their stream.
    let floats = unsafe { floats.assume_init() };
    check_same("floats of the next owner on the first stream", &floats.copy_to_vec()?, &vec![4.0; FLOATS])
}

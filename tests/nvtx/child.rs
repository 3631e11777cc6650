//! The programs that the recorder observes.

use crate::allocations::count;
use crate::program::{PART, SAYS};
use std::alloc::Layout;
use warpheap::device_pools::{Bump, FreeList, Heap};
use warpheap::host_pools::{
    Annotated, BlockPool, BumpPool, CachingPool, DeviceAllocator, SyncDriverAllocator, tag,
};
use warpheap::{Device, LaunchConfig, Result, Stream, nvtx};
use warpheap_device::kernel;

kernel! {
    /// Does nothing.
    ///
    /// # Safety
    /// None is needed.
    pub unsafe fn nothing(_unused: u32) {}

    /// Takes some time.
    ///
    /// # Safety
    /// None is needed.
    pub unsafe fn sleep(millis: u64) {
        std::thread::sleep(std::time::Duration::from_millis(millis));
    }
}

/// Runs the part that the environment selects; none as a test of its own.
#[test]
fn child() {
    let Ok(part) = std::env::var(PART) else { return };
    // A subscriber may use annotated pools.
    let writer = || {
        nvtx::observed();
        std::io::stderr()
    };
    tracing_subscriber::fmt().with_writer(writer).with_ansi(false).init();
    let device = Device::cpu();
    let stream = device.stream().unwrap();
    let done = match part.as_str() {
        "blocks" => blocks(&device, &stream),
        "ranges" => ranges(&device, &stream),
        "pending" => pending(&device, &stream),
        "frees" => frees(&device, &stream),
        "device pools" => device_pools(&device),
        "names only" => names_only(&device, &stream),
        "allocations" => allocations(&device, &stream),
        "observed" => {
            println!("\n{SAYS}{:?}", (nvtx::observed(), nvtx::observed()).0);
            Ok(())
        }
        other => panic!("there is no part {other}"),
    };
    done.unwrap();
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 256).unwrap()
}

/// Allocates and frees a block.
fn pair(pool: &impl DeviceAllocator, bytes: usize, stream: &Stream) -> Result<()> {
    let block = pool.allocate(layout(bytes), stream)?;
    // SAFETY: allocated above, and nothing uses it.
    unsafe { pool.deallocate(block, layout(bytes), stream) }
}

fn blocks(device: &Device, stream: &Stream) -> Result<()> {
    let memory = SyncDriverAllocator::new(device);
    let pool = Annotated::over("activations", memory, |memory| {
        BlockPool::builder(layout(4096), 2).build_over(memory)
    })?;
    let _scope = tag("layer 3");
    let block = pool.allocate(layout(1000), stream)?;
    println!("\n{SAYS}{:#x}\n{SAYS}{:#x}", pool.upstream().address(), block.0.addr());
    // SAFETY: allocated above, and nothing uses it.
    unsafe { pool.deallocate(block, layout(1000), stream) }?;
    assert_eq!(pool.upstream().stats().free_blocks, 2);
    Ok(())
}

fn ranges(device: &Device, stream: &Stream) -> Result<()> {
    let memory = SyncDriverAllocator::new(device);
    let builder = CachingPool::builder().name("cached");
    let pool = Annotated::over("cache", memory, |memory| builder.build_over(memory))?;
    // Grows the pool.
    pair(&pool, 700, stream)?;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..8).try_for_each(|_| pair(&pool, 700, &device.stream()?)).unwrap());
        }
    });
    let module = device.native_module()?;
    // SAFETY: the kernel has no requirement.
    unsafe { stream.launch(&module, nothing, &LaunchConfig::linear(1, 1), (0,)) }?;
    stream.synchronize()?;
    pool.upstream().trim()?;
    Ok(())
}

/// Frees a block behind a kernel.
fn pending(device: &Device, stream: &Stream) -> Result<()> {
    let memory = SyncDriverAllocator::new(device);
    let build = |memory| BlockPool::builder(layout(4096), 2).build_over(memory);
    let pool = Annotated::over("pending", memory, build)?;
    let block = pool.allocate(layout(4096), stream)?;
    let module = device.native_module()?;
    // SAFETY: the kernel has no requirement.
    unsafe { stream.launch(&module, sleep, &LaunchConfig::linear(1, 1), (200,)) }?;
    let was_pending = !stream.is_done()?;
    // SAFETY: allocated above, and only the kernel before could use it.
    unsafe { pool.deallocate(block, layout(4096), stream) }?;
    println!("\n{SAYS}{was_pending}\n{SAYS}{}", stream.is_done()?);
    stream.synchronize()
}

fn frees(device: &Device, stream: &Stream) -> Result<()> {
    let memory = SyncDriverAllocator::new(device);
    let build = |memory| BumpPool::builder(layout(4096)).build_over(memory);
    let pool = Annotated::over("arena", memory, build)?;
    let scope = tag("first");
    let block = pool.allocate(layout(100), stream)?;
    drop(scope);
    println!("\n{SAYS}{:#x}\n{SAYS}{:#x}", block.0.addr(), block.0.addr());
    let scope = tag("freeing thread");
    // SAFETY: nothing uses the block, and the free fails because of its layout.
    assert!(unsafe { pool.deallocate(block, layout(300), stream) }.is_err());
    drop(scope);
    // SAFETY: nothing uses the block.
    unsafe { pool.upstream().reset_unchecked(stream) }?;
    let next = pool.allocate(layout(200), stream)?;
    assert_eq!(next.0, block.0);
    // SAFETY: allocated above, and nothing uses it.
    unsafe { pool.deallocate(next, layout(200), stream) }
}

fn device_pools(device: &Device) -> Result<()> {
    drop(Bump::builder(1 << 20).build(device)?);
    drop(FreeList::builder(64, 64).build(device)?);
    let mut heap = Heap::builder(64 << 20).initial(16 << 20).build(device)?;
    heap.grow_to(64 << 20)?;
    heap.reset()?;
    Ok(())
}

fn names_only(device: &Device, stream: &Stream) -> Result<()> {
    let pool = Annotated::new("names", BlockPool::builder(layout(4096), 2).build(device)?);
    pair(&pool, 1000, stream)
}

/// Counts the allocations of 100 pairs.
fn allocations(device: &Device, stream: &Stream) -> Result<()> {
    let memory = SyncDriverAllocator::new(device);
    let build = |memory| BlockPool::builder(layout(4096), 2).build_over(memory);
    let pool = Annotated::over("counted", memory, build)?;
    let _scope = tag("layer 3");
    // The first call loads the library.
    pair(&pool, 1000, stream)?;
    let mut done = Ok(());
    let allocations = count(|| done = (0..100).try_for_each(|_| pair(&pool, 1000, stream)));
    println!("\n{SAYS}{allocations}");
    done
}

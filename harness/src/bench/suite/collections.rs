//! Rust's collections in kernels, over the heap and over CUDA's `malloc`.

use super::contenders::Setup;
use super::malloc::Malloc;
use super::report::Collection;
use super::run::{Results, outcome};
use crate::bench::context::Bench;
use crate::bench::load::{Load, Pool, one_size};
use crate::bench::timing::Timing;
use crate::kernels::examples::collections::{
    example_collect_map, example_collect_string, example_collect_vec, sum_of_map, sum_of_string, sum_of_vec,
};
use crate::{Error, Result};
use warpheap::driver::Module;
use warpheap_device::kernel::{DeviceSlice, Kernel};

/// Items in the collection of each thread.
const ITEMS: u32 = 64;

/// Measures each collection over both allocators.
pub(super) fn measure(setup: &Setup<'_>, malloc: &Malloc, results: &mut Results<'_>) -> Result<()> {
    measure_one(setup, malloc, "Vec push", (example_collect_vec, sum_of_vec), results)?;
    measure_one(setup, malloc, "BTreeMap insert", (example_collect_map, sum_of_map), results)?;
    measure_one(setup, malloc, "String push", (example_collect_string, sum_of_string), results)
}

fn measure_one<K>(
    setup: &Setup<'_>,
    malloc: &Malloc,
    name: &'static str,
    (kernel, sum): (K, fn(u32, u32) -> u64),
    results: &mut Results<'_>,
) -> Result<()>
where
    K: Kernel<Args = (u32, DeviceSlice<u64>)>,
{
    (results.progress)(name);
    if let Some(why) = results.out_of_time() {
        results.leave_out(format!("{name}: {why}"));
        return Ok(());
    }
    let threads = setup.extent.collections;
    let measured = over_heap(setup, name, kernel, sum)
        .and_then(|heap| Ok((heap, time(setup.bench, &malloc.module, threads, name, kernel, sum)?)));
    let Some((heap, malloc)) = outcome(measured, || name.to_owned(), results)? else { return Ok(()) };
    let (heap_us, cuda_malloc_us) = (heap.median_us, malloc.median_us);
    let ratio = cuda_malloc_us / heap_us;
    results.report.collections.push(Collection { name, threads, heap_us, cuda_malloc_us, ratio });
    Ok(())
}

/// Times the kernel of the module whose global allocator is a heap.
pub(super) fn over_heap<K>(
    setup: &Setup<'_>,
    name: &str,
    kernel: K,
    sum: fn(u32, u32) -> u64,
) -> Result<Timing>
where
    K: Kernel<Args = (u32, DeviceSlice<u64>)>,
{
    let (bench, threads) = (setup.bench, setup.extent.collections);
    let heap = bench.heap(setup.extent.room(threads, 4096))?;
    let module = &bench.timer.module;
    module.set_global_heap(&heap)?;
    let timing = time(bench, module, threads, name, kernel, sum)?;
    module.clear_global_heap()?;
    heap.check_freed(name)?;
    Ok(timing)
}

/// Times the kernel of `module`, and compares its sums with those of the host.
fn time<K>(
    bench: &Bench,
    module: &Module,
    threads: u32,
    name: &str,
    kernel: K,
    sum: fn(u32, u32) -> u64,
) -> Result<Timing>
where
    K: Kernel<Args = (u32, DeviceSlice<u64>)>,
{
    let load: Load<'_> = bench.load(threads, one_size(0))?;
    let args = (ITEMS, load.out.slice());
    // SAFETY: `out` is live, and only this stream uses it.
    let timing = bench.timer.time(|| Ok(()), || unsafe { load.launch_in(module, kernel, args) })?;
    let sums = load.out.copy_to_vec()?;
    match (0..threads).zip(&sums).find(|(i, found)| sum(*i, ITEMS) != **found) {
        None => Ok(timing),
        Some((i, found)) => Err(Error::wrong(name, format!("the sum of thread {i} is {found}"))),
    }
}

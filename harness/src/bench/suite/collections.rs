//! Rust's collections in kernels, over the heap and over CUDA's `malloc`.

use super::contenders::Setup;
use super::malloc::Malloc;
use super::results::Results;
use crate::bench::context::Bench;
use crate::bench::load::{Pool, one_size};
use crate::bench::results::Collection;
use crate::kernels::collections::{
    collect_map, collect_string, collect_vec, sum_of_map, sum_of_string, sum_of_vec,
};
use crate::summary::Timing;
use crate::{Error, Result};
use std::cell::RefCell;
use warpheap::driver::Module;
use warpheap_device::kernel::{DeviceSlice, Kernel};

/// Items in the collection of each thread.
pub(super) const ITEMS: u32 = 64;

/// The names of the measurements.
pub(super) const NAMES: [&str; 3] = ["Vec push", "BTreeMap insert", "String push"];

/// Measures each collection over both allocators.
pub(super) fn measure(setup: &Setup<'_>, malloc: &Malloc, results: &mut Results<'_>) -> Result<()> {
    let [vec, map, string] = NAMES;
    measure_one(setup, malloc, vec, (collect_vec, sum_of_vec), results)?;
    measure_one(setup, malloc, map, (collect_map, sum_of_map), results)?;
    measure_one(setup, malloc, string, (collect_string, sum_of_string), results)
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
    if !results.may_begin(name, "") {
        return Ok(());
    }
    let threads = setup.extent.collections;
    let sums: Vec<u64> = (0..threads).map(|i| sum(i, ITEMS)).collect();
    let measured = over_heap(setup, name, kernel, &sums)
        .and_then(|heap| Ok((heap, time(setup.bench, &malloc.module, name, kernel, &sums)?)));
    let Some((heap, malloc)) = results.keep(name, measured)? else { return Ok(()) };
    let (heap_us, cuda_malloc_us) = (heap.median_us, malloc.median_us);
    let ratio = Some(cuda_malloc_us / heap_us).filter(|ratio| ratio.is_finite());
    let name = name.into();
    results.report.collections.push(Collection { name, threads, heap_us, cuda_malloc_us, ratio });
    Ok(())
}

/// Times the kernel of the module whose global allocator is a heap.
pub(super) fn over_heap<K>(setup: &Setup<'_>, name: &str, kernel: K, sums: &[u64]) -> Result<Timing>
where
    K: Kernel<Args = (u32, DeviceSlice<u64>)>,
{
    let bench = setup.bench;
    let heap = bench.heap(setup.extent.room(sums.len() as u32, 4096))?;
    let module = &bench.timer.module;
    module.set_global_heap(&heap)?;
    let timing = time(bench, module, name, kernel, sums);
    if matches!(&timing, Err(error) if error.is_fatal()) {
        return timing;
    }
    module.clear_global_heap()?;
    heap.check_freed(name)?;
    timing
}

/// Times the kernel of `module`, and compares the sums of every round with `sums`.
pub(super) fn time<K>(bench: &Bench, module: &Module, name: &str, kernel: K, sums: &[u64]) -> Result<Timing>
where
    K: Kernel<Args = (u32, DeviceSlice<u64>)>,
{
    let load = RefCell::new(bench.load(sums.len() as u32, one_size(0))?);
    // No entry is a thread's sum until the thread stores it.
    let missing: Vec<u64> = sums.iter().map(|sum| !sum).collect();
    bench.timer.time_and_look(
        || load.borrow_mut().out.copy_from_slice(&missing),
        || {
            let load = load.borrow();
            // SAFETY: `out` is live, and only this stream uses it.
            unsafe { load.launch_in(module, kernel, (ITEMS, load.out.slice())) }
        },
        || check_sums(name, sums, &load.borrow().out.copy_to_vec()?),
    )
}

/// Compares the sums of the threads with those of the host.
fn check_sums(name: &str, sums: &[u64], found: &[u64]) -> Result<()> {
    let mut pairs = (0_u32..).zip(sums.iter().zip(found));
    let Some((i, (sum, found))) = pairs.find(|(_, (sum, found))| sum != found) else { return Ok(()) };
    let what = if *found == !sum {
        format!("thread {i} stored no sum, as after a failed allocation")
    } else {
        format!("the sum of thread {i} is {found}")
    };
    Err(Error::wrong(name, what))
}

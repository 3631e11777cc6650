//! Rust's collections in kernels, over the heap and over CUDA's `malloc`.

use super::{Collection, Setup};
use crate::bench::engine::{Bench, Run, Subject, one_size};
use crate::kernels::collections::{
    collect_map, collect_string, collect_vec, sum_of_map, sum_of_string, sum_of_vec,
};
use crate::summary::Timing;
use crate::{Error, Result};
use std::cell::RefCell;
use warpheap::driver::Module;
use warpheap::kernel_names;
use warpheap_device::kernel::{DeviceSlice, Kernel};

/// The kernels that are launched, also in the module of CUDA's `malloc`.
pub(super) const LAUNCHED: [&str; 3] = kernel_names![collect_vec, collect_map, collect_string];

/// Items in the collection of each thread.
pub(super) const ITEMS: u32 = 64;

/// The names of the measurements.
pub(super) const NAMES: [&str; 3] = ["Vec push", "BTreeMap insert", "String push"];

/// Measures each collection over both allocators. None without CUDA's `malloc`.
pub(super) fn measure(setup: &Setup<'_>, run: &mut Run<'_>) -> Result<Vec<Collection>> {
    let [vec, map, string] = NAMES;
    let all = [
        measure_one(setup, vec, (collect_vec, sum_of_vec), run)?,
        measure_one(setup, map, (collect_map, sum_of_map), run)?,
        measure_one(setup, string, (collect_string, sum_of_string), run)?,
    ];
    Ok(all.into_iter().flatten().collect())
}

fn measure_one<K>(
    setup: &Setup<'_>,
    name: &'static str,
    (kernel, sum): (K, fn(u32, u32) -> u64),
    run: &mut Run<'_>,
) -> Result<Option<Collection>>
where
    K: Kernel<Args = (u32, DeviceSlice<u64>)>,
{
    let Some(malloc) = setup.malloc else { return Ok(None) };
    let threads = setup.extent.collections;
    let measured = run.measure(name, || {
        let sums: Vec<u64> = (0..threads).map(|i| sum(i, ITEMS)).collect();
        let heap = over_heap(setup, name, kernel, &sums)?;
        Ok((heap, time(setup.bench, &malloc.module, name, kernel, &sums)?))
    })?;
    Ok(measured.map(|(heap, malloc)| {
        let (heap_us, cuda_malloc_us) = (heap.median_us, malloc.median_us);
        let ratio = Some(cuda_malloc_us / heap_us).filter(|ratio| ratio.is_finite());
        Collection { name: name.into(), threads, heap_us, cuda_malloc_us, ratio }
    }))
}

/// Times the kernel of the module whose global allocator is a heap.
fn over_heap<K>(setup: &Setup<'_>, name: &str, kernel: K, sums: &[u64]) -> Result<Timing>
where
    K: Kernel<Args = (u32, DeviceSlice<u64>)>,
{
    let bench = setup.bench;
    let heap = bench.heap(setup.extent.room(sums.len() as u32, 4096))?;
    let module = &bench.module;
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
    let times = bench.times(
        || load.borrow_mut().out.copy_from_slice(&missing),
        || {
            let load = load.borrow();
            // SAFETY: `out` is live, and only this stream uses it.
            unsafe { load.launch_in(module, kernel, (ITEMS, load.out.slice())) }
        },
        || check_sums(name, sums, &load.borrow().out.copy_to_vec()?),
    )?;
    Ok(Timing::of(times))
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

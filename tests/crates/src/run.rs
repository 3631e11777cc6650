//! Runs one crate.

use crate::list::{self, Entry};
use crate::record::{GpuRun, Record, Run};
use std::time::{Duration, Instant};
use warpheap::device_pools::Heap;
use warpheap::simt::{Executor, Mode};
use warpheap::{Device, LaunchConfig, Module, Watchdog};
use warpheap_crates_kernels::Visitor;
use warpheap_device::kernel::{DeviceSlice, Kernel};

/// On the CPU each thread is a coroutine.
const CPU_THREADS: u32 = 48;
const CPU_MEMORY_BYTES: u64 = 256 << 20;
/// Code that is not optimised needs more than on a GPU.
const CPU_STACK_BYTES: usize = 2 << 20;

const GPU_THREADS: u32 = 4096;
/// Memory of the heap besides that of the threads: slabs of many classes.
const SPARE_BYTES: u64 = 256 << 20;
const CPU_SPARE_BYTES: u64 = 64 << 20;

/// Most threads of a block. A kernel that needs many registers may allow fewer.
const BLOCK: u32 = 128;

/// The exit status of a process that the watchdog ends.
const HUNG: i32 = 4;

/// Names of the crates of this build.
pub fn built() -> Vec<&'static str> {
    struct Names(Vec<&'static str>);
    impl Visitor for Names {
        fn visit<K>(&mut self, name: &'static str, _: fn(u64) -> u64, _: K)
        where
            K: Kernel<Args = (DeviceSlice<u64>,)>,
        {
            self.0.push(name);
        }
    }
    let mut names = Names(Vec::new());
    warpheap_crates_kernels::visit(&mut names);
    names.0
}

/// Runs `name`, from a cubin if `cubin`, or ends the process after `limit`.
pub fn run(name: &str, limit: Duration, cubin: bool) -> Result<Record, String> {
    let entry = list::find(name).ok_or(format!("there is no crate {name}"))?;
    let advice = "If it was only slow, allow more time with --limit.";
    let watchdog = Watchdog::start(limit, format!("the kernel of {name}"), advice, HUNG);
    let mut one = One { entry, cubin, result: None };
    warpheap_crates_kernels::visit(&mut one);
    watchdog.disarm();
    one.result.ok_or(format!("{name} is not built"))
}

/// The crate to run, and its record.
struct One {
    entry: &'static Entry,
    cubin: bool,
    result: Option<Record>,
}

impl Visitor for One {
    fn visit<K>(&mut self, name: &'static str, checksum: fn(u64) -> u64, kernel: K)
    where
        K: Kernel<Args = (DeviceSlice<u64>,)>,
    {
        if name == self.entry.name {
            let mut record = Record::new(self.entry);
            let result = has_ptx(&record)
                .and_then(|()| on_cpu(&mut record, self.entry, checksum, kernel))
                .and_then(|()| on_gpu(&mut record, self.entry, self.cubin, checksum, kernel));
            record.error = result.err();
            self.result = Some(record);
        }
    }
}

/// Whether the environment does not require a compiler for kernels, or there was one.
fn has_ptx(record: &Record) -> Result<(), String> {
    match (is_set("WARPHEAP_REQUIRE_COMPILER"), record.ptx_bytes) {
        (true, None) => Err("WARPHEAP_REQUIRE_COMPILER=1, but there is no PTX".into()),
        _ => Ok(()),
    }
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value == "1")
}

fn on_cpu<K>(record: &mut Record, entry: &Entry, checksum: fn(u64) -> u64, kernel: K) -> Result<(), String>
where
    K: Kernel<Args = (DeviceSlice<u64>,)>,
{
    let executor = Executor::new(Mode::Parallel { workers: 2 }).with_stack_bytes(CPU_STACK_BYTES);
    let device = Device::cpu_with_executor(executor, CPU_MEMORY_BYTES);
    let module = device.native_module().map_err(|error| error.to_string())?;
    let heap_bytes = CPU_SPARE_BYTES + u64::from(CPU_THREADS) * entry.heap_bytes;
    let (run, _) = launch(&module, kernel, CPU_THREADS, heap_bytes, checksum)
        .map_err(|error| format!("on the CPU: {error}"))?;
    record.cpu = Some(run);
    Ok(())
}

/// Does nothing without a GPU or PTX, unless the environment requires a GPU.
fn on_gpu<K>(
    record: &mut Record,
    entry: &Entry,
    from_cubin: bool,
    checksum: fn(u64) -> u64,
    kernel: K,
) -> Result<(), String>
where
    K: Kernel<Args = (DeviceSlice<u64>,)>,
{
    let required = is_set("WARPHEAP_REQUIRE_CUDA");
    let ptx = crate::PTX.iter().find(|(name, ..)| *name == entry.name);
    let (device, ptx, cubin) = match (Device::cuda(0), ptx) {
        (Ok(device), Some((_, ptx, cubin))) => (device, ptx, if from_cubin { *cubin } else { &[] }),
        (Err(error), _) if required => return Err(format!("WARPHEAP_REQUIRE_CUDA=1, but {error}")),
        (Ok(_), None) if required => return Err("WARPHEAP_REQUIRE_CUDA=1, but there is no PTX".into()),
        _ => return Ok(()),
    };
    if from_cubin && !entry.assembles {
        return Err("--cubin, but NVIDIA's assembler does not compile its PTX".into());
    }
    if from_cubin && cubin.is_empty() {
        return Err("--cubin, but it was built without a cubin: set WARPHEAP_CRATES_CUBIN=sm_90".into());
    }
    let result = || {
        let stack_bytes = device.set_stack_bytes(entry.stack_bytes)?;
        let began = Instant::now();
        let module = device.load_module_with_cubins(ptx, &[cubin])?;
        let attributes = module.attributes(kernel)?;
        let load_ms = milliseconds(began.elapsed());
        let heap_bytes = SPARE_BYTES + u64::from(GPU_THREADS) * entry.heap_bytes;
        let (run, time) = launch(&module, kernel, GPU_THREADS, heap_bytes, checksum)?;
        let (registers, local_bytes) = (attributes.registers, attributes.local_bytes);
        let run_ms = milliseconds(time);
        let (device, cubin) = (device.to_string(), module.cubin_arch().map(str::to_owned));
        let run = GpuRun { device, run, cubin, load_ms, run_ms, registers, local_bytes, stack_bytes };
        Ok::<_, warpheap::Error>(run)
    };
    let run = result().map_err(|error| format!("on the GPU: {error}"))?;
    let has_cubin = run.cubin.is_some();
    record.gpu = Some(run);
    match from_cubin && !has_cubin {
        true => Err("--cubin, but its cubin is not for this GPU, or the driver rejects it".into()),
        false => Ok(()),
    }
}

fn milliseconds(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}

/// Runs `threads` threads of `kernel`, and compares their results with those of `checksum`.
fn launch<K>(
    module: &Module,
    kernel: K,
    threads: u32,
    heap_bytes: u64,
    checksum: fn(u64) -> u64,
) -> warpheap::Result<(Run, Duration)>
where
    K: Kernel<Args = (DeviceSlice<u64>,)>,
{
    let device = module.device();
    let heap = Heap::builder(heap_bytes).build(device)?;
    module.set_global_heap(&heap)?;
    let (stream, out) = (device.stream()?, device.zeroed::<u64>(threads as usize)?);
    let block = BLOCK.min(module.attributes(kernel)?.max_threads_per_block);
    let began = Instant::now();
    // SAFETY: the heap and the buffer live until the stream is synchronised, and nothing else
    // accesses the buffer.
    unsafe { stream.launch(module, kernel, &LaunchConfig::linear(threads, block), (out.slice(),)) }?;
    stream.synchronize()?;
    let time = began.elapsed();
    module.clear_global_heap()?;
    let results = (0..).zip(out.copy_to_vec()?);
    let wrong = results.filter(|(seed, result)| *result != checksum(*seed)).count() as u32;
    let (faults, live_blocks) = (heap.faults()?.count, heap.stats()?.live_blocks);
    let violations = heap.check()?.len();
    Ok((Run { threads, wrong, faults, live_blocks, violations }, time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::LIST;
    use std::collections::HashSet;

    struct Check;

    impl Visitor for Check {
        fn visit<K>(&mut self, name: &'static str, checksum: fn(u64) -> u64, _: K)
        where
            K: Kernel<Args = (DeviceSlice<u64>,)>,
        {
            assert_eq!(K::NAME, format!("kernel_{}", name.replace('-', "_")));
            // A function that returns early, for a reason that is always the same, tests nothing.
            let different: HashSet<u64> = (0..16).map(checksum).collect();
            assert_eq!(different.len(), 16, "{name}");
        }
    }

    #[test]
    fn each_checksum_depends_on_its_seed() {
        warpheap_crates_kernels::visit(&mut Check);
    }

    #[test]
    fn the_list_has_the_crates_that_are_built_with_their_versions() {
        let all = cfg!(feature = "all");
        let expected: Vec<_> =
            LIST.iter().filter(|entry| entry.is_small || all).map(|entry| entry.name).collect();
        assert_eq!(built(), expected);
        for name in expected {
            assert!(list::version(name).starts_with(|c: char| c.is_ascii_digit()), "{name}");
        }
    }
}

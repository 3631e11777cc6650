//! Runs the tests of one group on one device, in this process.

use crate::list;
use crate::parent::NO_MODULE;
use crate::record::Outcome;
use std::io::{self, Write};
use std::time::{Duration, Instant};
use warpheap::simt::{Executor, Mode};
use warpheap::{__private::launch_test, Backend, Device, Module, Watchdog};
use warpheap_alloc_std::Visitor;
use warpheap_device::kernel::Kernel;

/// Two full warps.
pub const THREADS: u32 = 64;

/// Of large tests on the CPU.
const FEW_THREADS: u32 = 2;

/// Bytes of the heap. On the CPU, memory that no test uses costs nothing.
const CPU_HEAP_BYTES: u64 = 512 << 20;
const GPU_HEAP_BYTES: u64 = 1 << 30;
const CPU_MEMORY_BYTES: u64 = 2 << 30;
/// Code that is not optimised needs more than on a GPU.
const CPU_STACK_BYTES: usize = 2 << 20;

/// A driver compiles a module for minutes.
const LOAD_LIMIT: Duration = Duration::from_secs(1200);

/// The exit status of a process that the watchdog ends.
pub const HUNG: i32 = 4;

/// The PTX of each group. Empty without a compiler for kernels.
pub const PTX: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/ptx.rs"));

/// The modules that run each test in turn.
fn modules(group: &str, device: Backend) -> Result<Vec<Module>, String> {
    if device == Backend::Cpu {
        let modes = [Mode::Parallel { workers: 2 }, Mode::Replay { seed: 1 }];
        let module = |mode| {
            let executor = Executor::new(mode).with_stack_bytes(CPU_STACK_BYTES);
            Device::cpu_with_executor(executor, CPU_MEMORY_BYTES).native_module()
        };
        return modes.into_iter().map(module).collect::<Result<_, _>>().map_err(|error| error.to_string());
    }
    let (_, ptx) = PTX.iter().find(|(name, _)| *name == group).ok_or("built without kernels for GPUs")?;
    let watchdog = Watchdog::start(LOAD_LIMIT, format!("loading the module {group}"), "", NO_MODULE.into());
    let module = Device::cuda(0).and_then(|device| device.load_module(ptx));
    watchdog.disarm();
    Ok(vec![module.map_err(|error| error.to_string())?])
}

/// Runs the tests `names` of `group`, and prints the outcome of each. Ends at the first that fails
/// on a GPU, which may be unusable then.
///
/// # Errors
/// If the module cannot be loaded.
pub fn run(group: &str, names: &[&str], device: Backend, limit: Duration) -> Result<(), String> {
    let modules = modules(group, device)?;
    list::visit(&mut Runner { group, names, device, limit, modules });
    Ok(())
}

struct Runner<'a> {
    group: &'a str,
    names: &'a [&'a str],
    device: Backend,
    limit: Duration,
    modules: Vec<Module>,
}

impl Visitor for Runner<'_> {
    fn visit<K>(&mut self, group: &'static str, paths: &'static [&'static str], kernel: K)
    where
        K: Kernel<Args = (u32,)>,
    {
        let chosen = (0..).zip(paths).filter(|(_, path)| group == self.group && self.names.contains(path));
        for (number, path) in chosen {
            let began = Instant::now();
            let watchdog = Watchdog::start(self.limit, *path, "", HUNG);
            let (threads, heap_bytes) = match self.device {
                Backend::Cpu if list::large().any(|large| large == *path) => (FEW_THREADS, CPU_HEAP_BYTES),
                Backend::Cpu => (THREADS, CPU_HEAP_BYTES),
                _ => (THREADS, GPU_HEAP_BYTES),
            };
            let test = Test { number, threads, heap_bytes };
            let error = self.modules.iter().find_map(|module| test.run(kernel, module).err());
            watchdog.disarm();
            let ends = error.is_some() && self.device == Backend::Cuda;
            let ms = began.elapsed().as_millis().try_into().unwrap_or(u64::MAX);
            let outcome = Outcome { path: (*path).into(), ms, error };
            let text = serde_json::to_string(&outcome).expect("a record is JSON");
            let mut out = io::stdout().lock();
            // The parent sees a missing line.
            let _ = writeln!(out, "{text}").and_then(|()| out.flush());
            if ends {
                break;
            }
        }
    }
}

/// A test, and how it is run.
struct Test {
    /// Position in its group.
    number: u32,
    threads: u32,
    heap_bytes: u64,
}

impl Test {
    fn run<K>(&self, kernel: K, module: &Module) -> Result<(), String>
    where
        K: Kernel<Args = (u32,)>,
    {
        // SAFETY: kernels of tests have no requirements.
        let left = unsafe { launch_test(kernel, (self.number,), module, self.threads, self.heap_bytes) };
        let left = left.map_err(|error| format!("{}: {error}", module.device()))?;
        // A failed allocation is a fault, which ends its thread early.
        let Some(wrong) = left.fault() else { return Ok(()) };
        Err(format!("{}: {wrong}", module.device()))
    }
}

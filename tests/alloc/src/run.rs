//! Runs the tests of one group on one device, in this process.

use crate::list;
use crate::record::{Outcome, Where};
use std::collections::HashMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};
use warpheap::simt::{Executor, Mode};
use warpheap::{__private::launch_test, Device, Module, Watchdog};
use warpheap_alloc_std::Visitor;
use warpheap_device::kernel::Kernel;

/// Two full warps.
pub const THREADS: u32 = 64;

const HEAP_BYTES: u64 = 256 << 20;
const CPU_MEMORY_BYTES: u64 = 1 << 30;
/// Code that is not optimised needs more than on a GPU.
const CPU_STACK_BYTES: usize = 2 << 20;

/// A driver compiles a module for minutes.
const LOAD_LIMIT: Duration = Duration::from_secs(1200);

/// The exit status of a process that the watchdog ends.
pub const HUNG: i32 = 4;

/// The PTX of each group. Empty without a compiler for kernels.
pub const PTX: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/ptx.rs"));

/// The modules that run each test in turn.
fn modules(group: &str, device: Where) -> Result<Vec<Module>, String> {
    if device == Where::Cpu {
        let modes = [Mode::Parallel { workers: 2 }, Mode::Replay { seed: 1 }];
        let module = |mode| {
            let executor = Executor::new(mode).with_stack_bytes(CPU_STACK_BYTES);
            Device::cpu_with_executor(executor, CPU_MEMORY_BYTES).native_module()
        };
        return modes.into_iter().map(module).collect::<Result<_, _>>().map_err(|error| error.to_string());
    }
    let (_, ptx) = PTX.iter().find(|(name, _)| *name == group).ok_or("built without kernels for GPUs")?;
    let watchdog = Watchdog::start(LOAD_LIMIT, format!("loading the module {group}"), "", HUNG);
    let module = Device::cuda(0).and_then(|device| device.load_module(ptx));
    watchdog.disarm();
    Ok(vec![module.map_err(|error| error.to_string())?])
}

/// Runs the tests `names` of `group`, and prints the outcome of each. Ends at the first that fails on
/// a GPU, which may be unusable then.
///
/// # Errors
/// If the module cannot be loaded.
pub fn run(group: &str, names: &[&str], device: Where, limit: Duration) -> Result<(), String> {
    let modules = modules(group, device)?;
    let mut runner = Runner { names, device, limit, modules, leaks: list::leaks(), is_done: false };
    list::visit(&mut runner);
    Ok(())
}

struct Runner<'a> {
    names: &'a [&'a str],
    device: Where,
    limit: Duration,
    modules: Vec<Module>,
    leaks: HashMap<&'static str, u64>,
    is_done: bool,
}

impl Visitor for Runner<'_> {
    fn visit<K: Kernel<Args = ()>>(&mut self, _: &'static str, path: &'static str, kernel: K) {
        if self.is_done || !self.names.contains(&path) {
            return;
        }
        let (expected, began) = (self.leaks.get(path).copied().unwrap_or(0), Instant::now());
        let watchdog = Watchdog::start(self.limit, path, "", HUNG);
        let error = self.modules.iter().find_map(|module| one(kernel, module, expected).err());
        watchdog.disarm();
        self.is_done = error.is_some() && self.device == Where::Gpu;
        let ms = began.elapsed().as_millis().try_into().unwrap_or(u64::MAX);
        let outcome = Outcome { path: path.into(), ms, error };
        let text = serde_json::to_string(&outcome).expect("a record is JSON");
        let mut out = io::stdout().lock();
        // The parent sees a missing line.
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    }
}

/// Runs a test whose threads leak `expected` blocks each.
fn one<K: Kernel<Args = ()>>(kernel: K, module: &Module, expected: u64) -> Result<(), String> {
    // SAFETY: kernels of tests have no requirements.
    let left = unsafe { launch_test(kernel, module, THREADS, HEAP_BYTES) };
    let left = left.map_err(|error| format!("{}: {error}", module.device()))?;
    let expected = expected * u64::from(THREADS);
    match left.wrong {
        Some(wrong) => Err(format!("{}: {wrong}", module.device())),
        None if left.live_blocks != expected => {
            Err(format!("{}: {} blocks were not freed, expected {expected}", module.device(), left.live_blocks))
        }
        None => Ok(()),
    }
}

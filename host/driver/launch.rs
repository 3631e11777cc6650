//! Launches: the checks before a launch, and its submission to a stream.

use super::backend::{CpuJob, Launch, Range};
use super::code::{NamedMemory, Variables};
use super::device::Device;
use super::launch_config::LaunchConfig;
use super::module::Module;
use super::registry::{Lookup, Submission};
use super::stream::Stream;
use crate::error::{Bytes, Dangling, Error, Result};
use crate::nvtx::NamedRange;
use crate::simt::{Executor, Grid, Settings, with_heap};
use std::ffi::c_void;
use warpheap_device::kernel::{Kernel, KernelArgs};

impl Stream {
    /// Launches `kernel` with `args` over the grid of `config`, after checking all three.
    ///
    /// # Errors
    /// [`InvalidLaunch`](crate::Error::InvalidLaunch), [`Dangling`](crate::Error::Dangling),
    /// [`WrongDevice`](crate::Error::WrongDevice), and for the first launch of a kernel of a module
    /// also [`InvalidModule`](crate::Error::InvalidModule).
    ///
    /// # Safety
    /// From the call until the kernel has ended:
    ///
    /// - **P1, the kernel.** The section *Safety* of the kernel holds for this grid, this shared
    ///   memory and these arguments.
    /// - **P2, the module.** Its kernel of that name was compiled from the source that declares
    ///   `K`, or from source that has no further requirements. A launch checks the sizes of the
    ///   parameters, not what the PTX does with them.
    /// - **P3, memory.** Nothing else writes what the kernel reads or accesses what it writes,
    ///   except by atomics of the same size. This includes other kernels and copies of streams,
    ///   also those of another thread.
    ///   - Memory that an argument names was live when the argument was made, and the allocation
    ///     is the same now: a launch checks only that there is live memory at its addresses.
    ///   - Memory that the kernel reaches otherwise, through pointers in memory for instance, is
    ///     live until the kernel has ended.
    ///   - A block of a [host pool](crate::host_pools) is live when the launch is called. It is
    ///     freed, and its pool dropped, only after the launch has returned, and freed only on a
    ///     stream that is ordered after the kernel.
    ///   - Where the host then reads memory as values (`read`, `copy_to_vec`), the kernel has
    ///     written no uninitialised bytes, such as the padding of a struct.
    /// - **P4, pools.** Each pool that the kernel receives, as an argument or as the global heap of
    ///   its module, is the one that its handle was made by, and its last reset succeeded: a launch
    ///   checks only the addresses of its memory. A block that the kernel uses or frees was
    ///   allocated since its pool was built or last reset, and was not freed since. Concurrent
    ///   kernels that receive the same [`Bump`](crate::device_pools::Bump) have at most 10,240
    ///   resident warps in total ([`BumpBuilder::build`](crate::device_pools::BumpBuilder::build)).
    ///   On the CPU the program does not use blocks of a module's global heap
    ///   ([`KernelAllocator`](crate::simt::KernelAllocator)) after the heap was dropped.
    /// - **P5, ends.** The safety of the kernel, and of what it calls, depends neither on a
    ///   destructor nor on a return. A thread that exits, traps or, on a GPU, panics stops without
    ///   unwinding and leaks what it owns. On the CPU, so does every thread of a grid that fails.
    ///   On the CPU a kernel must not use `std::thread::scope`, for instance.
    /// - **P6, thread-locals.** On the CPU the threads of a block take turns on one OS thread: they
    ///   switch at atomics, collectives, pauses, clock reads, `active_mask` and, with a global
    ///   heap, allocations, which may also end the thread. No initialiser and no borrow of a
    ///   thread-local variable spans one of these, and neither does anything else that relies on
    ///   last-in-first-out order within an OS thread.
    ///
    /// For memory that the arguments name, except blocks of host pools, calls that block on the
    /// host may run at any time, on any thread: copies of buffers and of
    /// [`DeviceMemory`](super::DeviceMemory), statistics and checks of pools, their resets and
    /// growths, and drops. Each runs before the launch or waits for the kernel. On a GPU a copy to
    /// the host may show partial results of a running kernel.
    pub unsafe fn launch<K: Kernel>(
        &self,
        module: &Module,
        _kernel: K,
        config: &LaunchConfig,
        args: K::Args,
    ) -> Result<()> {
        let _range = NamedRange::with_name(|| format!("launch {}", K::NAME));
        let device = self.device();
        device.same_as(module.device(), "the module")?;
        let function = module.code().function::<K>()?;
        let most_threads = function.attributes.max_threads_per_block;
        config.validate(K::NAME, &device.driver().raw_info().limits, most_threads)?;
        let (named, submission) = submit::<K>(module, &args)?;

        let grid = Grid { blocks: config.grid, threads: config.block };
        let (on_panic, global_heap) = (module.code().on_panic(), module.code().global_heap());
        let cpu_job = || -> CpuJob {
            let global_heap = global_heap.clone();
            // SAFETY: P1 and P3 to P6 of `Stream::launch`.
            let run = move |executor: &Executor| unsafe {
                let on_panic = on_panic.unwrap_or(executor.settings().on_panic);
                let around = global_heap.map(with_heap);
                executor.run_with::<K>(grid, args, Settings { on_panic, around })
            };
            Box::new(run)
        };
        let passed = args.to_abi();
        let mut arguments = Arguments::of::<K>(&passed);
        let launch = Launch {
            kernel: K::NAME,
            function: &function,
            grid: config.grid,
            block: config.block,
            shared_bytes: config.shared_bytes,
            arguments: arguments.as_mut_slice(),
            cpu_job: &cpu_job,
        };
        // SAFETY: the arguments match the kernel's declaration (checked by `Code::function`) and
        // name live memory of this device, which the submission keeps until the launch is in the
        // stream; the caller promises the rest (P1 to P6).
        let submitted = unsafe { self.driver().launch(launch) };
        drop((submission, named));
        submitted
    }
}

/// Why a launch fails its check.
enum DanglingMemory {
    /// The argument at that position names memory that is not live.
    Argument(usize, Range),
    /// The heap that a variable of the module names is not live.
    GlobalHeap(Range),
    /// The variables of the module are in an unknown state.
    Unknown,
}

/// Begins the submission of a launch. The memory that its arguments and the module's variables name
/// is live. Until the submission ends, that memory is not freed and the variables are not written.
fn submit<'a, K: Kernel>(module: &'a Module, args: &K::Args) -> Result<(NamedMemory<'a>, Submission<'a>)> {
    let (device, named) = (module.device(), module.code().named_memory());
    let submission = device.registry().submit(|lookup| {
        check_arguments::<K>(lookup, args)?;
        match *named {
            Variables::Memory(of) if lookup.number(of.range) != Some(of.number) => {
                Err(DanglingMemory::GlobalHeap(of.range))
            }
            Variables::Unknown => Err(DanglingMemory::Unknown),
            Variables::Memory(_) | Variables::Nothing => Ok(()),
        }
    });
    match submission {
        Ok(submission) => Ok((named, submission)),
        Err(dangling) => Err(explain::<K>(device, dangling)),
    }
}

/// Fails on the first argument that names memory that is not live.
fn check_arguments<K: Kernel>(lookup: &mut Lookup<'_>, args: &K::Args) -> Result<(), DanglingMemory> {
    let mut outcome = Ok(());
    args.for_each_range(|position, address, bytes| {
        let range = Range { address, bytes };
        // An empty range has no address to check.
        if bytes > 0 && outcome.is_ok() && lookup.number(range).is_none() {
            outcome = Err(DanglingMemory::Argument(position, range));
        }
    });
    outcome
}

#[cold]
fn explain<K: Kernel>(device: &Device, dangling: DanglingMemory) -> Error {
    let (position, range) = match dangling {
        DanglingMemory::Argument(position, range) => (position, range),
        DanglingMemory::GlobalHeap(Range { address, bytes }) => {
            let (bytes, device) = (Bytes(bytes), device.to_string());
            return Dangling::GlobalHeap { kernel: K::NAME, bytes, address, device }.into();
        }
        DanglingMemory::Unknown => return Dangling::UnknownGlobalHeap { kernel: K::NAME }.into(),
    };
    Error::Dangling(Dangling::Argument {
        kernel: K::NAME,
        position,
        address: range.address,
        bytes: Bytes(range.bytes),
        device: device.to_string(),
        nearest: device.explain_foreign(range),
    })
}

/// The address of each argument that exists in PTX. Zero-sized arguments do not.
struct Arguments {
    addresses: [*mut c_void; Arguments::MOST],
    len: usize,
}

impl Arguments {
    /// The size of the largest tuple that implements `KernelArgs`.
    const MOST: usize = 16;

    fn of<K: Kernel>(passed: &<K::Args as KernelArgs>::Abi) -> Arguments {
        const { assert!(K::Args::PARAMS.len() <= Arguments::MOST) };
        let mut all = Arguments { addresses: [std::ptr::null_mut(); Arguments::MOST], len: 0 };
        let mut sizes = K::Args::PARAMS.iter().map(|param| param.size);
        K::Args::for_each_address(passed, |address| {
            if sizes.next() != Some(0) {
                all.addresses[all.len] = address.cast_mut().cast();
                all.len += 1;
            }
        });
        all
    }

    fn as_mut_slice(&mut self) -> &mut [*mut c_void] {
        &mut self.addresses[..self.len]
    }
}

//! Launches: the checks before a launch, and its submission to a stream.

use super::backend::{CpuJob, Launch, Limits, Range};
use super::code::{NamedMemory, Variables};
use super::device::Device;
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

// The grid of a launch, and its check against the limits of the device.

/// The grid of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks (x, y, z).
    pub grid: [u32; 3],
    /// Threads in a block (x, y, z).
    pub block: [u32; 3],
    /// Dynamic shared memory of each block, in bytes.
    pub shared_bytes: u32,
}

impl LaunchConfig {
    /// At least `threads` threads in blocks of `block`. The last block may extend beyond `threads`.
    pub const fn linear(threads: u32, block: u32) -> LaunchConfig {
        // The launch itself reports a block size of 0.
        let blocks = if block == 0 { 0 } else { threads.div_ceil(block) };
        LaunchConfig { grid: [blocks, 1, 1], block: [block, 1, 1], shared_bytes: 0 }
    }

    /// Threads in a block.
    pub const fn threads_per_block(&self) -> u64 {
        // A product of three 32-bit dimensions can exceed 64 bits; no device allows a block of that
        // size.
        (self.block[0] as u64).saturating_mul(self.block[1] as u64).saturating_mul(self.block[2] as u64)
    }

    /// Fails if the device or this kernel does not support the grid.
    pub(crate) fn validate(&self, kernel: &'static str, limits: &Limits, most_threads: u32) -> Result<()> {
        let complaint = self.empty().or_else(|| self.block_too_large(limits, most_threads));
        let complaint = complaint.or_else(|| self.grid_too_large(limits));
        let Some((requested, limit, advice)) = complaint else { return Ok(()) };
        Err(Error::InvalidLaunch { kernel, requested, limit, advice })
    }

    fn empty(&self) -> Option<Complaint> {
        let (grid, block) = (self.grid, self.block);
        (grid.contains(&0) || block.contains(&0)).then(|| {
            let requested = format!("a grid of {grid:?} blocks of {block:?} threads was requested");
            (
                requested,
                "every dimension must be at least 1".into(),
                "skip the launch where there is nothing to do",
            )
        })
    }

    fn block_too_large(&self, limits: &Limits, most_threads: u32) -> Option<Complaint> {
        const SMALLER: &str = "use smaller blocks and more of them";
        let (block, threads) = (self.block, self.threads_per_block());
        let requested = || format!("a block of {block:?}, {threads} threads, was requested");
        if exceeds(block, limits.block) || threads > limits.threads_per_block.into() {
            let limit = format!("the device allows {} in {:?}", limits.threads_per_block, limits.block);
            return Some((requested(), limit, SMALLER));
        }
        (threads > most_threads.into()).then(|| {
            let limit = format!("this kernel needs so many registers that only {most_threads} fit");
            (requested(), limit, SMALLER)
        })
    }

    fn grid_too_large(&self, limits: &Limits) -> Option<Complaint> {
        if exceeds(self.grid, limits.grid) {
            let requested = format!("a grid of {:?} blocks was requested", self.grid);
            let limit = format!("the device allows {:?}", limits.grid);
            return Some((
                requested,
                limit,
                "spread the blocks over the dimensions, or launch several times",
            ));
        }
        (self.shared_bytes > limits.shared_bytes_per_block).then(|| {
            let requested = format!("{} B of shared memory were requested", self.shared_bytes);
            (requested, format!("a block has {} B at most", limits.shared_bytes_per_block), "request less")
        })
    }
}

/// The request, the limit, and advice.
type Complaint = (String, String, &'static str);

fn exceeds(requested: [u32; 3], limit: [u32; 3]) -> bool {
    requested.iter().zip(limit).any(|(requested, limit)| *requested > limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        threads_per_block: 1024,
        block: [1024, 1024, 64],
        grid: [i32::MAX as u32, 65_535, 65_535],
        shared_bytes_per_block: 48 << 10,
    };

    /// The error's text; empty if validation passes.
    fn complaint(grid: [u32; 3], block: [u32; 3], shared_bytes: u32, most_threads: u32) -> String {
        let config = LaunchConfig { grid, block, shared_bytes };
        config.validate("k", &LIMITS, most_threads).err().map(|e| e.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_grid_at_every_limit_passes() {
        assert_eq!(complaint(LIMITS.grid, [1024, 1, 1], 48 << 10, 1024), "");
        assert_eq!(complaint([1; 3], [16, 1, 64], 0, 1024), "");
    }

    #[test]
    fn each_limit_is_named() {
        assert!(complaint([0, 1, 1], [1; 3], 0, 1024).contains("at least 1"));
        assert!(complaint([1; 3], [32, 0, 1], 0, 1024).contains("at least 1"));
        assert!(complaint([1; 3], [1025, 1, 1], 0, 2048).contains("1025 threads"));
        assert!(complaint([1; 3], [32, 33, 1], 0, 2048).contains("1056 threads"));
        assert!(complaint([1; 3], [1, 1, 65], 0, 1024).contains("device allows"));
        assert!(complaint([1; 3], [512, 1, 1], 0, 256).contains("only 256 fit"));
        assert!(complaint([1, 65_536, 1], [1; 3], 0, 1024).contains("grid of [1, 65536, 1]"));
        assert!(complaint([1; 3], [1; 3], 49_153, 1024).contains("49153 B of shared"));
        assert!(complaint([1; 3], [u32::MAX; 3], 0, 1024).contains("device allows 1024"));
    }

    #[test]
    fn a_linear_grid_covers_all_threads() {
        assert_eq!(LaunchConfig::linear(1000, 256).grid, [4, 1, 1]);
        assert_eq!(LaunchConfig::linear(1024, 256).grid, [4, 1, 1]);
        assert_eq!(LaunchConfig::linear(u32::MAX, 1).grid, [u32::MAX, 1, 1]);
        assert_eq!(LaunchConfig::linear(0, 256).grid, [0, 1, 1]);
        assert_eq!(LaunchConfig::linear(10, 0).block, [0, 1, 1]);
    }
}

//! The executor: settings, and one call that runs a grid.

use super::block::Block;
use super::error::SimtError;
use super::grid::{Grid, Mode, Stats};
use super::lane::Lane;
use super::launch::{Launch, Settings, Start};
use super::panic::{OnPanic, install_hook};
use super::stack::StackPool;
use super::{parallel, replay};
use crate::lock;
use crate::threads::counted;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Instant;
use warpheap_machine::kernel::Kernel;
use warpheap_machine::units::WARP_SIZE;

/// Default number of SMs in a replay, and the minimum default in a parallel run.
const MIN_SM_COUNT: u32 = 4;

/// Warps in a block of the maximum size.
const MAX_BLOCK_WARPS: usize = 1024 / WARP_SIZE as usize;
const _: () = assert!(parallel::RESIDENT_WARPS >= MAX_BLOCK_WARPS);

/// Default step limit of parallel runs, reached after minutes. A longer run counts as a livelock.
const PARALLEL_STEP_LIMIT: u64 = 1 << 36;
/// Default step limit of replays, reached after two minutes.
const REPLAY_STEP_LIMIT: u64 = 1 << 30;

/// Runs kernels on the CPU. See the [module](super).
pub struct Executor {
    mode: Mode,
    sm_count: u32,
    step_limit: u64,
    on_panic: OnPanic,
    clock: Instant,
    stacks: Arc<StackPool>,
    /// Held during a replay, so that replays of several OS threads are serialised.
    replaying: Mutex<()>,
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Executor");
        shown.field("mode", &self.mode).field("sm_count", &self.sm_count);
        shown.field("step_limit", &self.step_limit).finish_non_exhaustive()
    }
}

impl Executor {
    /// An executor with default limits.
    pub fn new(mode: Mode) -> Self {
        Self::with_stacks(mode, Arc::default())
    }

    fn with_stacks(mode: Mode, stacks: Arc<StackPool>) -> Self {
        let (sm_count, step_limit) = match mode {
            Mode::Parallel { workers } => {
                let twice = u32::try_from(workers).unwrap_or(u32::MAX).saturating_mul(2);
                (twice.max(MIN_SM_COUNT), PARALLEL_STEP_LIMIT)
            }
            Mode::Replay { .. } => (MIN_SM_COUNT, REPLAY_STEP_LIMIT),
        };
        let (on_panic, clock, replaying) = (OnPanic::default(), Instant::now(), Mutex::new(()));
        Executor { mode, sm_count, step_limit, on_panic, clock, stacks, replaying }
    }

    /// An executor of another mode that shares this one's stacks. Cheap, for running many seeds.
    #[must_use]
    pub fn with_mode(&self, mode: Mode) -> Self {
        Self::with_stacks(mode, Arc::clone(&self.stacks)).with_on_panic(self.on_panic)
    }

    /// Simulates `count` SMs, at least one. Block `i` runs on SM `i % count`.
    #[must_use]
    pub fn with_sm_count(mut self, count: u32) -> Self {
        self.sm_count = count.max(1);
        self
    }

    /// Limits the steps of a run: atomic operations, collectives and pauses of all threads. In
    /// parallel mode workers check only at intervals, so a run may exceed the limit by some million
    /// steps.
    #[must_use]
    pub fn with_step_limit(mut self, steps: u64) -> Self {
        self.step_limit = steps;
        self
    }

    /// Sets the size of the stack of each thread in bytes, rounded up to a multiple of 64 KiB.
    /// Default: 128 KiB. Only pages that a thread has touched use memory.
    ///
    /// A thread that overflows its stack ends the process, with a message that names the thread.
    #[must_use]
    pub fn with_stack_bytes(mut self, bytes: usize) -> Self {
        self.stacks = Arc::new(StackPool::of(bytes));
        self
    }

    /// Sets what a panic of a thread ends. Default: the thread. For launches of a module,
    /// `warpheap::Module::set_on_panic` takes precedence.
    #[must_use]
    pub fn with_on_panic(mut self, on_panic: OnPanic) -> Self {
        self.on_panic = on_panic;
        self
    }

    /// The mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The settings of runs, unless the module of a launch says otherwise.
    #[doc(hidden)]
    pub fn settings(&self) -> Settings {
        Settings { on_panic: self.on_panic, around: None }
    }

    /// Number of SMs that kernels see.
    pub fn sm_count(&self) -> u32 {
        self.sm_count
    }

    /// Maximum number of resident warps of one run: started and not ended.
    #[doc(hidden)]
    pub fn resident_warps(&self) -> u64 {
        let warps = match self.mode {
            Mode::Parallel { workers } => workers.max(1).saturating_mul(parallel::RESIDENT_WARPS),
            Mode::Replay { .. } => replay::RESIDENT_WARPS.max(MAX_BLOCK_WARPS),
        };
        warps as u64
    }

    /// Runs the grid to its end on the calling thread and its workers.
    ///
    /// Several threads may call concurrently. In parallel mode each call has separate workers,
    /// which compete for the processors. In replay mode the calls are serialised.
    ///
    /// # Errors
    /// The error that ends the grid early; threads that have not ended are abandoned. Or
    /// [`SimtError::Panic`] when the grid has ended, if threads have panicked.
    ///
    /// # Safety
    /// P1 and P3 to P6 of `warpheap::Stream::launch`. Nothing here checks the memory.
    pub unsafe fn run<K: Kernel>(&self, grid: Grid, args: K::Args) -> Result<Stats, SimtError> {
        // SAFETY: the caller's promises P1 and P3 to P6.
        unsafe { self.run_with::<K>(grid, args, self.settings()) }
    }

    /// Runs the grid with the settings of a module.
    ///
    /// # Safety
    /// The promises of [`run`](Self::run).
    #[doc(hidden)]
    pub unsafe fn run_with<K: Kernel>(
        &self,
        grid: Grid,
        args: K::Args,
        settings: Settings,
    ) -> Result<Stats, SimtError> {
        // A lane cannot suspend on an unwinding OS thread, so run on another one.
        if std::thread::panicking() {
            // SAFETY: the caller's promises P1 and P3 to P6; the new thread is not unwinding.
            let run = move || unsafe { self.run_here::<K>(grid, args, settings) };
            return std::thread::scope(|scope| {
                let thread = counted(run).and_then(|run| Builder::new().spawn_scoped(scope, run));
                let thread = thread.map_err(|error| SimtError::Thread { why: error.to_string() })?;
                thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
            });
        }
        // SAFETY: the caller's promises P1 and P3 to P6; this thread is not unwinding.
        unsafe { self.run_here::<K>(grid, args, settings) }
    }

    /// # Safety
    /// The promises of [`run`](Self::run). The calling OS thread is not unwinding.
    unsafe fn run_here<K: Kernel>(
        &self,
        grid: Grid,
        args: K::Args,
        settings: Settings,
    ) -> Result<Stats, SimtError> {
        install_hook();
        let args = Shared(args);
        let start: &Start<'_> = &|lane: &mut Lane, machine, coords| {
            // SAFETY: the caller's promises P1 and P3 to P6. Each machine is declared before the
            // blocks of its worker, so it outlives the lanes.
            unsafe { lane.start::<K>(machine, coords, args.get()) }
        };
        let (sm_count, step_limit) = (self.sm_count, self.step_limit);
        let launch = Launch::new(K::NAME, grid, sm_count, step_limit, settings, start, &self.stacks)?;
        let schedule_hash = match self.mode {
            Mode::Parallel { workers } => {
                self.run_parallel(&launch, workers);
                0
            }
            Mode::Replay { seed } => {
                let _one = lock(&self.replaying);
                replay::work(&launch, seed)
            }
        };
        Ok(Stats { steps: launch.finish()?, schedule_hash })
    }

    fn run_parallel(&self, launch: &Launch<'_>, workers: usize) {
        let helpers = workers.min(launch.blocks()).saturating_sub(1);
        let stacks = || Block::new(launch.block_threads(), launch.stacks);
        // Before the helpers take the last ones.
        let own = stacks();
        std::thread::scope(|scope| {
            for number in 1..=helpers {
                let helper = Builder::new().name(format!("simt-{number}"));
                let work = counted(|| match stacks() {
                    Err(error) => tracing::warn!(%error, "a worker has no stacks; the others do its part"),
                    first => parallel::work(launch, self.clock, first),
                });
                if let Err(error) = work.and_then(|work| helper.spawn_scoped(scope, work)) {
                    tracing::warn!(%error, "a worker could not be started; the others do its part");
                    break;
                }
            }
            parallel::work(launch, self.clock, own);
        });
    }
}

/// A kernel's arguments. Every worker copies them.
struct Shared<A>(A);

// SAFETY: a shared reference only yields copies (`KernelArgs: Copy`), which may be sent to another
// thread (`KernelArgs: Send`).
unsafe impl<A: Copy + Send> Sync for Shared<A> {}

impl<A: Copy> Shared<A> {
    fn get(&self) -> A {
        self.0
    }
}

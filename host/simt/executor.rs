//! The executor: settings, and one call that runs a grid.

use super::error::SimtError;
use super::lane::Lane;
use super::launch::{Launch, Start};
use super::stack::StackPool;
use super::{Grid, Mode, Stats, parallel, replay};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use warpheap_device::kernel::Kernel;
use warpheap_device::units::WARP_SIZE;

/// Multiprocessors that a replay pretends to have, and the fewest that a parallel run does.
const MIN_SM_COUNT: u32 = 4;

/// Warps of the largest block.
const MAX_BLOCK_WARPS: usize = 1024 / WARP_SIZE as usize;
const _: () = assert!(parallel::RESIDENT_WARPS >= MAX_BLOCK_WARPS);

/// Steps until a run counts as a livelock, unless set otherwise: minutes.
const PARALLEL_STEP_LIMIT: u64 = 1 << 36;
/// The same, for replays: two minutes.
const REPLAY_STEP_LIMIT: u64 = 1 << 30;

/// Runs kernels on the CPU. See the [module](super).
pub struct Executor {
    mode: Mode,
    sm_count: u32,
    step_limit: u64,
    clock: Instant,
    stacks: Arc<StackPool>,
    /// Held by a replay, so that replays of several OS threads come one after another.
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
    /// An executor with the usual limits.
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
        Executor { mode, sm_count, step_limit, clock: Instant::now(), stacks, replaying: Mutex::new(()) }
    }

    /// An executor of another mode that takes its stacks from the same store: cheap, for one seed
    /// after another.
    #[must_use]
    pub fn with_mode(&self, mode: Mode) -> Self {
        Self::with_stacks(mode, Arc::clone(&self.stacks))
    }

    /// Pretends to have `count` multiprocessors, at least one; block `i` runs on `i % count`.
    #[must_use]
    pub fn with_sm_count(mut self, count: u32) -> Self {
        self.sm_count = count.max(1);
        self
    }

    /// Bounds the steps of a run: atomic operations, collectives and pauses of all threads
    /// together. In parallel mode workers look now and then only: a run ends some million steps
    /// later.
    #[must_use]
    pub fn with_step_limit(mut self, steps: u64) -> Self {
        self.step_limit = steps;
        self
    }

    /// How it runs.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Multiprocessors that kernels see.
    pub fn sm_count(&self) -> u32 {
        self.sm_count
    }

    /// Warps that one run has begun and not ended, at most.
    pub(crate) fn resident_warps(&self) -> u64 {
        let warps = match self.mode {
            Mode::Parallel { workers } => workers.max(1).saturating_mul(parallel::RESIDENT_WARPS),
            Mode::Replay { .. } => replay::RESIDENT_WARPS.max(MAX_BLOCK_WARPS),
        };
        warps as u64
    }

    /// Runs the grid to its end on the calling thread and its workers.
    ///
    /// Several threads may call at once. In parallel mode each call has workers of its own, and the
    /// system shares the processors among them; in replay mode the calls come one after another.
    ///
    /// # Errors
    /// Whatever ends the grid early. The threads that had not ended are then abandoned where they
    /// stand.
    ///
    /// # Safety
    /// P1 and P3 to P6 of [`Stream::launch`](crate::Stream::launch), for memory that nothing here
    /// checks.
    pub unsafe fn run<K: Kernel>(&self, grid: Grid, args: K::Args) -> Result<Stats, SimtError> {
        // Lanes do not suspend on an OS thread that a panic unwinds, so that one runs none.
        if std::thread::panicking() {
            // SAFETY: the caller's promise.
            let run = move || unsafe { self.run_here::<K>(grid, args) };
            return match std::thread::scope(|scope| scope.spawn(run).join()) {
                Ok(done) => done,
                Err(payload) => std::panic::resume_unwind(payload),
            };
        }
        // SAFETY: the caller's promise.
        unsafe { self.run_here::<K>(grid, args) }
    }

    /// # Safety
    /// That of [`run`](Self::run). The calling OS thread is not unwinding.
    unsafe fn run_here<K: Kernel>(&self, grid: Grid, args: K::Args) -> Result<Stats, SimtError> {
        let args = Shared(args);
        let start: &Start<'_> = &|lane: &mut Lane, machine, coords| {
            // SAFETY: the caller's promise; machines are declared before the blocks of their
            // worker.
            unsafe { lane.start::<K>(machine, coords, args.get()) }
        };
        let launch = Launch::new(grid, self.sm_count, self.step_limit, start, &self.stacks)?;
        let schedule_hash = match self.mode {
            Mode::Parallel { workers } => {
                self.run_parallel(&launch, workers);
                0
            }
            Mode::Replay { seed } => {
                let _one = self.replaying.lock().unwrap_or_else(PoisonError::into_inner);
                replay::work(&launch, seed)
            }
        };
        Ok(Stats { steps: launch.finish()?, schedule_hash })
    }

    fn run_parallel(&self, launch: &Launch<'_>, workers: usize) {
        let helpers = workers.min(launch.blocks()).saturating_sub(1);
        std::thread::scope(|scope| {
            for number in 1..=helpers {
                let helper = std::thread::Builder::new().name(format!("simt-{number}"));
                if let Err(error) = helper.spawn_scoped(scope, || parallel::work(launch, self.clock)) {
                    tracing::warn!(%error, "a worker could not be started; the others do its part");
                    break;
                }
            }
            parallel::work(launch, self.clock);
        });
    }
}

/// A kernel's arguments, of which every worker makes copies.
struct Shared<A>(A);

// SAFETY: through a shared reference it only gives copies (`KernelArgs: Copy`), and those may be
// sent (`KernelArgs: Send`).
unsafe impl<A: Copy + Send> Sync for Shared<A> {}

impl<A: Copy> Shared<A> {
    fn get(&self) -> A {
        self.0
    }
}

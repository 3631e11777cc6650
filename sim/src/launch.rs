//! One run of a grid: the state that all workers share.
//!
//! Any worker may take blocks (`next`), add to `steps`, and store the first error.

use super::error::{Panic, SimtError};
use super::grid::Grid;
use super::lane::Lane;
use super::machine::LaneMachine;
use super::overflow::{Running, watch};
use super::panic::OnPanic;
use super::stack::StackPool;
use crate::lock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use warpheap_machine::machine::{self, Coords};

/// Maximum threads per block, as on every GPU.
const MAX_BLOCK_THREADS: u64 = 1024;

/// Prepares a thread of the kernel on a lane.
pub(super) type Start<'a> = dyn Fn(&mut Lane, &LaneMachine, Coords) + Sync + 'a;

/// Called on each OS thread that runs lanes, with a function that runs them: prepares the OS thread
/// for the lanes, calls it once, and cleans up.
#[doc(hidden)]
pub type Around = dyn Fn(&mut dyn FnMut()) + Send + Sync;

/// Settings of a run that a module has.
#[doc(hidden)]
#[allow(missing_debug_implementations, reason = "only the host library uses it")]
#[derive(Clone)]
pub struct Settings {
    /// What a panic of a thread ends.
    pub on_panic: OnPanic,
    /// What is done around the lanes, if anything is.
    pub around: Option<Arc<Around>>,
}

pub(super) struct Launch<'a> {
    /// The kernel's name, for messages.
    kernel: &'static str,
    pub(super) grid: Grid,
    pub(super) sm_count: u32,
    pub(super) start: &'a Start<'a>,
    pub(super) stacks: &'a StackPool,
    pub(super) settings: Settings,
    step_limit: u64,
    blocks: usize,
    next: AtomicUsize,
    steps: AtomicUsize,
    failed: AtomicBool,
    error: Mutex<Option<SimtError>>,
    panics: Mutex<Option<Box<Panic>>>,
}

impl<'a> Launch<'a> {
    pub(super) fn new(
        kernel: &'static str,
        grid: Grid,
        sm_count: u32,
        step_limit: u64,
        settings: Settings,
        start: &'a Start<'a>,
        stacks: &'a StackPool,
    ) -> Result<Self, SimtError> {
        let product = |sizes: [u32; 3]| sizes.iter().try_fold(1u64, |n, &size| n.checked_mul(size.into()));
        let wrong = |why| SimtError::Grid { grid, why };
        match product(grid.threads) {
            Some(1..=MAX_BLOCK_THREADS) => {}
            Some(0) => return Err(wrong("a block has no threads")),
            _ => return Err(wrong("a block has more than 1024 threads")),
        }
        let blocks = match product(grid.blocks).and_then(|n| usize::try_from(n).ok()) {
            Some(0) => return Err(wrong("the grid has no blocks")),
            Some(n) if n <= usize::MAX / 2 => n,
            _ => return Err(wrong("it has too many blocks")),
        };
        Ok(Launch {
            kernel,
            grid,
            sm_count,
            start,
            stacks,
            settings,
            step_limit,
            blocks,
            next: AtomicUsize::new(0),
            steps: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            error: Mutex::new(None),
            panics: Mutex::new(None),
        })
    }

    pub(super) fn block_threads(&self) -> u32 {
        self.grid.threads.iter().product()
    }

    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    /// The index of a block that has not run yet.
    pub(super) fn next_block(&self) -> Option<u64> {
        // ordering: relaxed; a block carries nothing but its number.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.blocks).then_some(number as u64)
    }

    /// Calls `run`, which runs lanes on `machine`. Its error ends the run of the grid.
    pub(super) fn run_on(&self, machine: &LaneMachine, run: impl FnOnce() -> Result<(), SimtError>) {
        let running = Running { machine, kernel: self.kernel, stack_bytes: self.stacks.bytes() };
        let _watched = watch(&running);
        // SAFETY: the machine outlives the guard; nothing else is installed meanwhile.
        let _installed = unsafe { machine::install(machine) };
        let mut run = Some(run);
        let mut lanes = || {
            if let Some(Err(error)) = run.take().map(|run| run()) {
                self.fail(error);
            }
        };
        match &self.settings.around {
            Some(around) => around(&mut lanes),
            None => lanes(),
        }
    }

    /// Adds the new steps of `machine` to the step count of the run. Fails if the limit is
    /// exceeded.
    pub(super) fn count_steps(&self, machine: &LaneMachine) -> Result<(), SimtError> {
        let steps = machine.report();
        // ordering: relaxed; a count.
        let before = self.steps.fetch_add(steps as usize, Ordering::Relaxed) as u64;
        if before + steps > self.step_limit {
            return Err(SimtError::StepLimit { limit: self.step_limit });
        }
        Ok(())
    }

    /// Ends the run with `error`, unless it already ended with another error.
    fn fail(&self, error: SimtError) {
        lock(&self.error).get_or_insert(error);
        // ordering: relaxed; workers only stop early because of it, and the error is behind a lock.
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Describes this panic in the error of the run if it is the first, and counts it otherwise.
    pub(super) fn record(&self, panic: Box<Panic>) {
        match &mut *lock(&self.panics) {
            Some(first) => first.absorb(&panic),
            none => *none = Some(panic),
        }
    }

    /// Whether the run has ended with an error.
    pub(super) fn has_failed(&self) -> bool {
        // ordering: relaxed; see `fail`.
        self.failed.load(Ordering::Relaxed)
    }

    /// The step count, or the panics and the first error. Called when all workers are done.
    pub(super) fn finish(self) -> Result<u64, SimtError> {
        let error = self.error.into_inner().unwrap_or_else(PoisonError::into_inner);
        let panics = self.panics.into_inner().unwrap_or_else(PoisonError::into_inner);
        match (panics, error) {
            (None, None) => Ok(self.steps.into_inner() as u64),
            (None, Some(error)) => Err(error),
            (Some(panic), None) => Err(SimtError::Panic(panic)),
            (Some(panic), Some(error)) => {
                let then = (!matches!(error, SimtError::Panic(_))).then(|| Box::new(error));
                Err(SimtError::Panic(Box::new(Panic { ended_grid: true, then, ..*panic })))
            }
        }
    }
}

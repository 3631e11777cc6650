//! Shared by the tests: words in "device" memory, grids, and runs in every mode.

use std::cell::UnsafeCell;
use warpheap::simt::{Executor, Grid, Mode, SimtError, Stats};
use warpheap_device::kernel::{DeviceSlice, Kernel};
use warpheap_device::sync::AtomicU32;

/// Words that a kernel reads and writes.
pub struct Words(Vec<UnsafeCell<u32>>);

// SAFETY: threads access the words through `word`, atomically, or through a slice under its
// contract.
unsafe impl Sync for Words {}

impl Words {
    pub fn zeroed(count: usize) -> Self {
        Self::of((0..count).map(|_| 0))
    }

    pub fn of(words: impl IntoIterator<Item = u32>) -> Self {
        Words(words.into_iter().map(UnsafeCell::new).collect())
    }

    /// The words as a kernel argument. May be used only while `self` is live.
    pub fn slice(&self) -> DeviceSlice<u32> {
        // SAFETY: every test keeps its words until its runs are over.
        unsafe { DeviceSlice::from_raw_parts(self.0.as_ptr().cast_mut().cast(), self.0.len() as u64) }
    }

    /// The values of the words. No kernel may be running.
    pub fn values(&self) -> Vec<u32> {
        // SAFETY: no kernel runs.
        self.0.iter().map(|word| unsafe { *word.get() }).collect()
    }
}

/// Word `i`, in a kernel.
pub fn word(words: DeviceSlice<u32>, i: u32) -> &'static AtomicU32 {
    assert!(u64::from(i) < words.len(), "word {i} of {}", words.len());
    // SAFETY: in bounds.
    let place = unsafe { words.as_ptr().add(i as usize) };
    // SAFETY: every test keeps its words until its runs are over, and the layouts are equal.
    unsafe { &*place.cast::<AtomicU32>() }
}

pub fn grid(blocks: u32, threads: u32) -> Grid {
    Grid { blocks: [blocks, 1, 1], threads: [threads, 1, 1] }
}

pub const PARALLEL: Mode = Mode::Parallel { workers: 2 };

/// Parallel mode, and replay with enough seeds for every scheduling strategy.
pub fn modes() -> impl Iterator<Item = Mode> {
    std::iter::once(PARALLEL).chain((0..12).map(|seed| Mode::Replay { seed }))
}

/// Runs a kernel of these tests. Their only requirement is that the words are live.
pub fn run<K: Kernel>(kernel: K, mode: Mode, grid: Grid, args: K::Args) -> Result<Stats, SimtError> {
    // In parallel mode a waiting thread takes as many steps as the machine has time for until the
    // other thread arrives.
    let steps = if mode == PARALLEL { 1 << 30 } else { 1 << 22 };
    run_bounded(kernel, mode, steps, grid, args)
}

/// Runs the kernel as [`run`] does, for at most `steps` steps.
pub fn run_bounded<K: Kernel>(
    _: K,
    mode: Mode,
    steps: u64,
    grid: Grid,
    args: K::Args,
) -> Result<Stats, SimtError> {
    let executor = Executor::new(mode).with_step_limit(steps);
    // SAFETY: the kernels require only that their words are live, and every test keeps its words
    // until its runs are over.
    unsafe { executor.run::<K>(grid, args) }
}
